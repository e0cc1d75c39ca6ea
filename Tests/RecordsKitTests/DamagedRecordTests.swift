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
