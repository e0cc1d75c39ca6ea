import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// What a device does while the service's disk is full.
@Suite(.serialized) struct FullDiskTests {
    private func withFullDisk(
        before: (RecordCloud.Device, RecordCloud.Device) async throws -> Void,
        _ body: (RecordCloud.Device, RecordCloud.Device, SmallDisk) async throws -> Void
    ) async throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/records.sqlite")
        let cloud = try RecordCloud(engine: engine)
        defer { cloud.close() }
        let (one, two) = (try await cloud.open(), try await cloud.open())
        try await before(one, two)
        let filler = try await cloud.open()
        try disk.fill()
        let text = RecordValue.string(String(repeating: "x", count: 60_000))
        for number in 0..<2000 where !cloud.simulation.use({ _ in engine.isShortOfRoom }) {
            try await filler.database.save(Record("fill-\(number)", type: "Junk", ["text": text]))
            try? await filler.database.waitUntilSent(timeout: .seconds(2))
        }
        #expect(cloud.simulation.use { _ in engine.isShortOfRoom })
        filler.setOffline(true)
        try await body(one, two, disk)
    }

    private func names(_ device: RecordCloud.Device) async throws -> [String] {
        try await device.database.waitUntilCurrent(timeout: .seconds(60))
        return try await device.contents().keys.filter { !$0.hasPrefix("fill") }.sorted()
    }

    private func pending(_ device: RecordCloud.Device) async throws -> [String] {
        device.simulation.pass(.seconds(3))
        return try await device.database.status().pending.flatMap(\.keys).map(\.rawValue)
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func deletionsGoPastWhatWaitsForRoom() async throws {
        try await withFullDisk { one, two in
            for name in ["old", "top", "mentioned"] { try await one.database.save(Record(name, ["n": 1])) }
            try await one.database.save(
                Record("child", ["up": .reference(RecordReference("top", deletesSelf: true))]))
            try await one.settle()
            try await two.settle()
        } _: { one, two, disk in
            try await one.database.save(Record("new", ["n": 1]))
            #expect(try await pending(one) == ["new"])
            #expect(try await one.database.status().pending.map(\.error?.code) == [.storageFailure])
            try await one.database.delete(RecordID("old"))
            #expect(try await pending(one) == ["new"])
            #expect(try await names(two) == ["child", "mentioned", "top"])
            // In their order: what it would take with it, and what something refers to that waits.
            var child = try #require(try await one.database.record(RecordID("child")))
            child["text"] = .string("more than there was")
            try await one.database.save(child)
            try await one.database.save(
                Record("points", ["to": .reference(RecordReference("mentioned", deletesSelf: true))]))
            try await one.database.delete(RecordID("top"))
            try await one.database.delete(RecordID("mentioned"))
            try await one.database.delete(RecordID("new"))
            #expect(try await pending(one).count == 6)
            #expect(try await names(two) == ["child", "mentioned", "top"])
            try disk.empty()
            try await one.settle()
            let refused = try await one.database.conflicts.rejected().map { "\($0.id.name): \($0.error)" }
            #expect(refused.isEmpty, "\(refused)")
            #expect(try await one.database.conflicts.list().isEmpty)
            #expect(try await names(two).isEmpty)
            #expect(try await one.proves())
        }
    }

    /// What a deletion leaves for the app is newer than what those leave that it would go past.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatIsLeftForTheAppIsNotLeftBeforeWhatWasLeftEarlier() async throws {
        try await withFullDisk { one, _ in
            for name in ["old", "older"] { try await one.database.save(Record(name, ["n": 1])) }
            try await one.settle()
        } _: { one, _, disk in
            try await one.database.modify(saving: [Record("new", ["n": 1])], deleting: [], clientToken: Data([1]))
            try await one.database.modify(saving: [], deleting: [RecordID("old")], clientToken: Data([2]))
            try await one.database.delete(RecordID("older"))
            #expect(try await pending(one) == ["new", "old"])
            try disk.empty()
            try await one.settle()
            #expect(try await one.database.clientChangeToken(zone: RecordZone.defaultName) == Data([2]))
            #expect(try await one.database.conflicts.rejected().isEmpty)
        }
    }

    /// Where no copy is here nobody knows what goes with what is deleted.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatRefersToOthersIsPassedByNoDeletionWhereNoCopyIs() async throws {
        func database(_ device: RecordCloud.Device) async throws -> RecordDatabase {
            try await device.session.recordContainer(app: RecordCloud.app).publicDatabase
        }
        try await withFullDisk { one, _ in
            let database = try await database(one)
            for name in ["top", "other"] { try await database.save(Record(name, ["n": 1])) }
            var middle = Record("middle", ["n": 1])
            middle["to"] = .reference(RecordReference("top", deletesSelf: true))
            try await database.save(middle)
            try await database.waitUntilSent(timeout: .seconds(60))
        } _: { one, _, disk in
            let database = try await database(one)
            func pending() async throws -> [String] {
                one.simulation.pass(.seconds(3))
                return try await database.status().pending.flatMap(\.keys).map(\.rawValue)
            }
            try await database.save(Record("new", ["n": 1]))
            try await database.delete(RecordID("other"), policy: .changedKeys)
            #expect(try await pending() == ["new"])
            var last = Record("last", ["n": 1])
            last["to"] = .reference(RecordReference("middle", deletesSelf: true))
            try await database.save(last)
            try await database.delete(RecordID("top"), policy: .changedKeys)
            #expect(try await pending() == ["new", "last", "top"])
            try disk.empty()
            try await database.waitUntilSent(timeout: .seconds(60))
            let refused = try await database.conflicts.rejected().map { "\($0.id.name): \($0.error)" }
            #expect(refused.isEmpty, "\(refused)")
        }
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func zonesAreDeletedPastThoseThatWaitForRoom() async throws {
        try await withFullDisk { one, two in
            for name in ["old", "again"] { try await one.database.zones.make(name) }
            try await one.database.waitUntilSent(timeout: .seconds(30))
            try await two.database.waitUntilCurrent(timeout: .seconds(30))
        } _: { one, two, disk in
            func waiting() async throws -> [String] {
                one.simulation.pass(.seconds(3))
                return try await one.database.scope.status().pending.flatMap(\.keys).map(\.rawValue)
            }
            func zones() async throws -> [String] {
                try await two.database.scope.waitUntilCurrent(timeout: .seconds(30))
                return try await two.database.zones.list().map(\.name).filter { $0 != RecordZone.defaultName }
            }
            try await one.database.zones.make("new")
            #expect(try await waiting() == ["new"])
            try await one.database.zones.delete("old")
            #expect(try await waiting() == ["new"])
            #expect(try await zones() == ["again"])
            // In their order: the one that waits is not there before it is made.
            try await one.database.zones.delete("new")
            #expect(try await waiting() == ["new", "new"])
            try disk.empty()
            try await one.database.scope.waitUntilSent(timeout: .seconds(60))
            #expect(try await zones() == ["again"])
        }
    }
}
