import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// What the server cannot read any more comes back from whoever has it as it was, and from nobody else.
@Suite struct DamagedRecordTests {
    /// Of what the server has of the record so much is whole; the next start finds the rest.
    private func damage(_ name: String, from byte: Int, _ cloud: RecordCloud) throws {
        try cloud.simulation.use { cloud in
            try cloud.storage(of: .records).write { transaction in
                let body = try transaction.first(SQL("SELECT body FROM feed_items WHERE name = ?1"), [.text(name)]) {
                    $0.blob(0)
                }
                let damaged = Array(try #require(body).prefix(byte)) + Array("damaged!".utf8)
                let count = try transaction.execute(
                    SQL("UPDATE feed_items SET body = ?1 WHERE name = ?2"), [.blob(damaged), .text(name)])
                #expect(count == 1)
            }
            cloud.crash(.records)
            try cloud.start(.records)
        }
    }

    /// Nobody does anything.
    private func pass(_ cloud: RecordCloud) { cloud.simulation.advance(by: .seconds(120)) }

    /// - Parameter byte: Up to where it is whole: its standing alone, with the tags that it had before, or nothing.
    @Test(arguments: [0, 1, 2 + 16 * 1]) func anOlderVersionTakesNoDamagedOnesPlace(_ byte: Int) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 1]))
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            var record = try #require(try await two.database.record(RecordID("a")))
            record["n"] = 2
            try await two.database.save(record)
            try await two.settle()
            try damage("a", from: byte, cloud)
            two.setOffline(true)
            one.setOffline(false)
            pass(cloud)
            #expect(try await one.database.refused().isEmpty)
            two.setOffline(false)
            pass(cloud)
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.contents() == ["a": ["n": 2]])
                #expect(try await device.database.conflicts().isEmpty)
                #expect(try await device.database.refused().isEmpty)
                #expect(try await device.proves())
            }
        }
    }

    /// The service comes back from a copy, somebody saves there, and that is damaged: what only another device has of the
    /// history that is lost, a version or that it was deleted, is not what was damaged, and ends nothing that is newer.
    @Test(arguments: [0, 2 + 16 * 1], [false, true])
    func whatARestoreHasLostTakesNoDamagedOnesPlace(_ byte: Int, isDeleted: Bool) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 1]))
            for device in [one, two] { try await device.settle() }
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            one.setOffline(true)
            var record = try #require(try await two.database.record(RecordID("a")))
            if isDeleted {
                try await two.database.delete(record)
            } else {
                record["n"] = 2
                try await two.database.save(record)
            }
            try await two.settle()
            two.setOffline(true)
            cloud.simulation.pass(.seconds(60))
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            one.setOffline(false)
            record = try #require(try await one.database.record(RecordID("a")))
            record["n"] = 3
            try await one.database.save(record)
            try await one.settle()
            one.setOffline(true)
            try damage("a", from: byte, cloud)
            two.setOffline(false)
            pass(cloud)
            one.setOffline(false)
            pass(cloud)
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.contents() == ["a": ["n": 3]])
                #expect(try await device.proves())
            }
            #expect(try await one.database.conflicts().isEmpty)
            #expect(try await one.database.refused().isEmpty)
            // What is there nobody could see: a deletion is refused.
            #expect(try await two.database.conflicts().map(\.client?.fields) == (isDeleted ? [] : [["n": 2]]))
            let refused = try await two.database.refused()
            #expect(refused.map(\.error.code) == (isDeleted ? [.serverRecordChanged] : []))
        }
    }

    /// What was offered after a restore is damaged too: what was lost before it is not taken for it.
    @Test func ofWhatARestoreHasLostTheLastOneHeals() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 1]))
            for device in [one, two] { try await device.settle() }
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            for (number, device) in [(2, two), (3, one)] {
                var record = try #require(try await device.database.record(RecordID("a")))
                record["n"] = .integer(Int64(number))
                try await device.database.save(record)
                for other in [two, one] where number == 2 { try await other.settle() }
                try await device.settle()
                if number == 2 { two.setOffline(true) }
            }
            cloud.simulation.pass(.seconds(60))
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            pass(cloud)
            try await one.settle()
            one.setOffline(true)
            try damage("a", from: 2, cloud)
            two.setOffline(false)
            pass(cloud)
            one.setOffline(false)
            pass(cloud)
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.contents() == ["a": ["n": 3]])
                #expect(try await device.proves())
                #expect(try await device.database.refused().isEmpty)
            }
            #expect(try await one.database.conflicts().isEmpty)
        }
    }

    /// Whoever offers it: it is as it was, and others' gaps and orders of it hold.
    @Test func whatIsHealedKeepsItsAuthorAndDate() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 1]))
            for device in [one, two] { try await device.settle() }
            let before = try #require(try await two.database.record(RecordID("a")))
            one.setOffline(true)
            try damage("a", from: 0, cloud)
            cloud.simulation.pass(.seconds(60))
            // Its copy is as the digest says: it hears when somebody else reads.
            let three = try await cloud.open()
            pass(cloud)
            one.setOffline(false)
            for device in [one, two, three] {
                try await device.settle()
                let record = try #require(try await device.database.record(RecordID("a")))
                #expect(record.modified == before.modified && record.created == before.created)
                #expect(record.changeTag == before.changeTag && record["n"] == 1)
                #expect(try await device.proves())
            }
        }
    }

    /// In a public database only an administrator says what becomes of it: to be refused helps nobody.
    @Test func whatIsDamagedInAPublicDatabaseIsNotOffered() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            let database = try await device.session.recordContainer(app: RecordCloud.app).publicDatabase
            try await database.keepCopy()
            try await database.save(Record("a", ["n": 1]))
            try await database.waitUntilSent(timeout: .seconds(60))
            try await database.waitUntilCurrent(timeout: .seconds(60))
            try damage("a", from: 0, cloud)
            pass(cloud)
            #expect(try await database.refused().isEmpty)
            #expect(try await database.record(RecordID("a"))?["n"] == 1)
        }
    }
}
