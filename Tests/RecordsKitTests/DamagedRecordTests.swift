import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// A record whose row does not open at the server comes back from whoever has it.
@Suite struct DamagedRecordTests {
    /// Of what the server has of the record so much is whole; the next start finds the rest, or the next read.
    private func damage(_ name: String, from byte: Int, _ cloud: RecordCloud, isRestarted: Bool = true) throws {
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
            guard isRestarted else { return }
            cloud.crash(.records)
            try cloud.start(.records)
        }
    }

    /// Nobody does anything.
    private func pass(_ cloud: RecordCloud) { cloud.simulation.advance(by: .seconds(120)) }

    /// Whoever was behind brings back what it has; whoever has the later one puts it in that one's place.
    ///
    /// - Parameter byte: Up to where it is whole: its standing alone, with the tags that it had before, or nothing.
    @Test(arguments: [0, 1, 2 + 16 * 1]) func ofTwoVersionsTheLaterOneStands(_ byte: Int) async throws {
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
            #expect(try await one.database.conflicts.rejected().isEmpty)
            two.setOffline(false)
            pass(cloud)
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.contents() == ["a": ["n": 2]])
                #expect(try await device.database.conflicts.list().isEmpty)
                #expect(try await device.database.conflicts.rejected().isEmpty)
                #expect(try await device.proves())
            }
        }
    }

    /// While the service was down; or while it runs, so that a read finds it.
    @Test(arguments: [true, false]) func whatADeviceHasComesBackByItself(_ isRestarted: Bool) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["a", "b"] { try await one.database.save(Record(name, ["n": 1])) }
            for device in [one, two] { try await device.settle() }
            try damage("a", from: 2, cloud, isRestarted: isRestarted)
            func counters() throws -> [String: UInt64] {
                try cloud.simulation.use { cloud in
                    let health: WireCheckHealthReply = try cloud.makeClient().call(
                        "CheckHealth", WireCheckHealth(), at: .requests(.records))
                    return health.counters
                }
            }
            for device in [one, two] { device.setOffline(true) }
            let three = try await cloud.open()
            try await three.settle()
            #expect(try await three.contents() == ["b": ["n": 1]])
            #expect(try counters()["quarantine.now"] == 1)
            for device in [one, two] { device.setOffline(false) }
            pass(cloud)
            for device in [one, two, three] {
                try await device.settle()
                #expect(try await device.contents() == ["a": ["n": 1], "b": ["n": 1]])
                #expect(try await device.proves())
                #expect(try await device.database.conflicts.list().isEmpty)
                #expect(try await device.database.conflicts.rejected().isEmpty)
            }
            #expect(try counters()["quarantine.now"] == 0 && counters()["items.quarantined"] == 1)
        }
    }

    /// The device reads everything, and is the last that has the record.
    ///
    /// - Parameter isRead: Whether somebody has met the damaged row before.
    @Test(arguments: [true, false]) func anExpiredTokenDropsNoRecordInQuarantine(_ isRead: Bool) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["bad", "gone", "good"] { try await one.database.save(Record(name, ["n": 1])) }
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            try await two.database.delete(RecordID("gone"))
            try await two.settle()
            two.setOffline(true)
            try damage("bad", from: 2, cloud)
            if isRead {
                let three = try await cloud.open()
                #expect(try await three.contents() == ["good": ["n": 1]])
                three.setOffline(true)
                pass(cloud)
            }
            try cloud.simulation.use { try $0.forgetDeletions(of: .records) }
            one.setOffline(false)
            pass(cloud)
            two.setOffline(false)
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.contents() == ["bad": ["n": 1], "good": ["n": 1]])
                #expect(try await device.database.conflicts.rejected().isEmpty)
                #expect(try await device.database.conflicts.list().isEmpty)
                #expect(try await device.proves())
            }
        }
    }

    /// A listing of a public zone names nothing that not everybody may know of: it says that there is something.
    @Test func anExpiredTokenDropsNoPublicRecord() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let database = try await one.session.recordContainer(app: RecordCloud.app).publicDatabase
            let other = try await two.session.recordContainer(app: RecordCloud.app).publicDatabase
            try await database.keepCopy()
            for name in ["bad", "good"] { try await database.save(Record(name, ["n": 1])) }
            try await database.waitUntilSent(timeout: .seconds(60))
            try await database.waitUntilCurrent(timeout: .seconds(60))
            one.setOffline(true)
            try await other.save(Record("later", ["n": 1]))
            try await other.waitUntilSent(timeout: .seconds(60))
            try damage("bad", from: 0, cloud)
            #expect(try await other.records([RecordID("bad")], from: .server).isEmpty)
            pass(cloud)
            try cloud.simulation.use { try $0.forgetDeletions(of: .records) }
            one.setOffline(false)
            pass(cloud)
            for name in ["bad", "good", "later"] {
                #expect(try await database.record(RecordID(name))?["n"] == 1)
                #expect(try await other.records([RecordID(name)], from: .server).count == 1)
            }
        }
    }

    /// It waits while the record is in quarantine: what this device has of it goes before.
    @Test func aChangeThatWaitsIsMadeToWhatComesBack() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 1, "m": 1]))
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            var record = try #require(try await one.database.record(RecordID("a")))
            record["n"] = 2
            try await one.database.save(record)
            try damage("a", from: 2, cloud)
            two.setOffline(true)
            one.setOffline(false)
            pass(cloud)
            two.setOffline(false)
            pass(cloud)
            for device in [one, two] { try await device.settle() }
            // Or it is listed: it is not lost without a word.
            let refused = try await one.database.conflicts.rejected().count
            let listed = try await one.database.conflicts.list().count + refused
            let contents = try await two.contents()
            #expect(contents == ["a": ["n": 2, "m": 1]] || listed == 1 && contents == ["a": ["n": 1, "m": 1]])
            #expect(try await one.proves())
        }
    }

    /// Whoever offers it: it is as it was, and others' gaps and orders of it hold.
    @Test func whatComesBackKeepsItsAuthorAndDate() async throws {
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

    /// In a public database the devices of whoever has made it bring it back.
    @Test func whatAnAccountHasMadeInAPublicDatabaseComesBack() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            let database = try await device.session.recordContainer(app: RecordCloud.app).publicDatabase
            try await database.keepCopy()
            try await database.save(Record("a", ["n": 1]))
            try await database.waitUntilSent(timeout: .seconds(60))
            try await database.waitUntilCurrent(timeout: .seconds(60))
            try damage("a", from: 0, cloud)
            #expect(try await database.records([RecordID("a")], from: .server).isEmpty)
            pass(cloud)
            #expect(try await database.conflicts.rejected().isEmpty)
            #expect(try await database.record(RecordID("a"))?["n"] == 1)
            #expect(try await database.records([RecordID("a")], from: .server).count == 1)
        }
    }
}
