import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A service that comes back from an old copy gets back what it has lost, as it was, from whichever device has it.
@Suite struct RestoreTests {
    private func restoring(
        _ before: (RecordCloud.Device, RecordCloud.Device) async throws -> Void,
        _ lost: (RecordCloud.Device, RecordCloud.Device) async throws -> Void,
        _ after: (RecordCloud.Device, RecordCloud.Device, () async throws -> Void) async throws -> Void
    ) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            func settle(_ devices: [RecordCloud.Device]) async throws {
                for _ in 0..<3 {
                    for device in devices {
                        try await device.database.waitUntilCurrent(timeout: .seconds(120))
                        for zone in try await device.database.zones.list() {
                            // One may end meanwhile.
                            do { try await device.settle(zone.name) } catch let error as CloudError
                                where error.code == .zoneNotFound
                            {}
                        }
                    }
                }
            }
            try await before(one, two)
            try await settle([one, two])
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            cloud.simulation.pass(.seconds(60))
            try await lost(one, two)
            try await settle([one, two])
            cloud.simulation.pass(.seconds(60))
            // Who did it is not there to say so.
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            try await after(one, two) { try await settle([two]) }
            one.setOffline(false)
            try await settle([one, two])
            for device in [one, two] {
                for zone in try await device.database.zones.list() {
                    #expect(try await device.proves(zone.name))
                    #expect(try await device.database.conflicts.rejected(zone: zone.name).isEmpty)
                }
            }
        }
    }

    private func stamps(_ device: RecordCloud.Device, _ zone: String = "work") async throws -> [String: [RecordStamp?]]
    {
        let records = try await device.database.records(matching: RecordQuery(), in: zone)
        return Dictionary(records.map { ($0.id.name, [$0.created, $0.modified]) }) { $1 }
    }

    @Test func whatARestoreHasLostComesBackUnderItsFirstAuthorAndDate() async throws {
        var before: [String: [RecordStamp?]] = [:]
        var zones: [RecordZone] = []
        try await restoring { one, _ in
            try await one.database.zones.make("work")
            try await one.database.save(Record("old", zone: "work", ["n": 0]))
        } _: { one, two in
            var record = try #require(try await one.database.record(RecordID("old", zone: "work")))
            record["n"] = 1
            try await one.database.save(record)
            try await one.database.save(Record("new", zone: "work", ["n": 1]))
            try await one.database.zones.make("later")
            try await one.database.save(Record("a", zone: "later", ["n": 1]))
            try await one.settle("later")
            try await one.settle("work")
            try await two.settle("work")
            before = try await stamps(one)
            zones = try await one.database.zones.list()
        } _: { _, two, settle in
            try await settle()
            #expect(try await stamps(two) == before)
            #expect(try await two.contents("work") == ["old": ["n": 1], "new": ["n": 1]])
            #expect(try await two.contents("later") == ["a": ["n": 1]])
            #expect(try await two.database.zones.list() == zones)
            #expect(try await two.database.conflicts.list(zone: "work").isEmpty)
        }
    }

    /// There was no room when the first device offered it.
    @Test func aRecordThatAnotherDeviceHasBroughtBackIsRefusedNoMore() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("small", ["n": 1]))
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            let data = RecordValue.data(Data(repeating: 7, count: 200 << 10))
            for name in ["a", "b"] { try await one.database.save(Record(name, ["data": data])) }
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            try cloud.setPlan(bytes: 64 << 10)
            try await two.settle()
            #expect(try await two.database.conflicts.rejected().map(\.id.name) == ["a", "b"])
            try cloud.setPlan(bytes: 1 << 30)
            // Of one of them it has another content.
            try await one.database.save(Record("a", ["data": data, "n": 2]), policy: .allKeys)
            one.setOffline(false)
            for device in [one, two] { try await device.settle() }
            #expect(try await two.database.records(matching: RecordQuery()).map(\.id.name) == ["a", "b", "small"])
            #expect(try await two.database.conflicts.rejected().map(\.id.name) == ["a"])
            #expect(try await two.proves())
        }
    }

    @Test func aDeletionThatARestoreHasLostIsRepeated() async throws {
        try await restoring { one, _ in
            try await one.database.zones.make("work")
            try await one.database.zones.make("ended")
            for name in ["a", "b", "parent"] { try await one.database.save(Record(name, zone: "work", ["n": 0])) }
            var child = Record("child", zone: "work", ["n": 0])
            child.parent = "parent"
            try await one.database.save(child)
        } _: { one, _ in
            var record = try #require(try await one.database.record(RecordID("a", zone: "work")))
            record["n"] = 1
            try await one.database.save(record)
            try await one.settle("work")
            try await one.database.delete(RecordID("a", zone: "work"))
            // Its child goes to another parent, and so it can go.
            var child = try #require(try await one.database.record(RecordID("child", zone: "work")))
            child.parent = "b"
            try await one.database.save(child)
            try await one.database.delete(RecordID("parent", zone: "work"))
            try await one.database.zones.delete("ended")
        } _: { _, two, settle in
            try await settle()
            #expect(try await two.contents("work").keys.sorted() == ["b", "child"])
            #expect(try await two.database.record(RecordID("child", zone: "work"))?.parent == "b")
            #expect(try await two.database.zones.list().map(\.name) == [RecordZone.defaultName, "work"])
            #expect(try await two.database.conflicts.list(zone: "work").isEmpty)
        }
    }

    @Test func whatAnotherDeviceHasSavedSinceIsAConflictWithWhatWasLost() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["a", "b"] { try await one.database.save(Record(name, ["n": 0])) }
            for device in [one, two] { try await device.settle() }
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            two.setOffline(true)
            var record = try #require(try await one.database.record(RecordID("a")))
            record["n"] = 1
            try await one.database.save(record)
            try await one.database.delete(RecordID("b"))
            try await one.settle()
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            two.setOffline(false)
            for name in ["a", "b"] {
                record = try #require(try await two.database.record(RecordID(name)))
                record["n"] = 2
                try await two.database.save(record)
            }
            try await two.settle()
            one.setOffline(false)
            for device in [one, two, one, two] { try await device.settle() }
            for device in [one, two] {
                #expect(try await device.contents() == ["a": ["n": 2], "b": ["n": 2]])
                #expect(try await device.proves())
            }
            let conflicts = try await one.database.conflicts.list()
            #expect(conflicts.map(\.id.name) == ["a", "b"])
            #expect(conflicts.map(\.client?.fields) == [["n": 1], nil])
            #expect(conflicts.map(\.server?.fields) == [["n": 2], ["n": 2]])
        }
    }

    /// The service comes back twice. What was lost with the first, and what was saved between the two, have come beside each
    /// other, though both are older than the present history: neither is dropped for the other, whoever comes first.
    @Test(arguments: [true, false])
    func whatWasSavedBetweenTwoRestoresIsAConflictWithWhatTheFirstHasLost(isOlderFirst: Bool) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["a", "b"] { try await one.database.save(Record(name, ["n": 0])) }
            for device in [one, two] { try await device.settle() }
            func copy() throws -> StorageCopy { try cloud.simulation.use { try $0.copyStorage(of: .records) } }
            func restore(_ copy: StorageCopy) throws {
                cloud.simulation.pass(.seconds(60))
                try cloud.simulation.use { try $0.restore(copy, of: .records) }
                cloud.simulation.pass(.seconds(60))
            }
            func save(_ names: [String], _ number: Int64, on device: RecordCloud.Device) async throws {
                for name in names {
                    var record = try await device.database.record(RecordID(name)) ?? Record(name, [:])
                    record["n"] = .integer(number)
                    try await device.database.save(record)
                }
                try await device.settle()
            }
            let early = try copy()
            two.setOffline(true)
            try await save(["a", "b", "c"], 1, on: one)
            one.setOffline(true)
            try restore(early)
            two.setOffline(false)
            try await save(["a", "c"], 2, on: two)
            try await two.database.delete(RecordID("b"))
            try await two.settle()
            let later = isOlderFirst ? early : try copy()
            try await save(["d"], 2, on: two)
            two.setOffline(isOlderFirst)
            try restore(later)
            for device in isOlderFirst ? [one, two] : [two, one] {
                device.setOffline(false)
                for _ in 0..<2 { try await device.settle() }
            }
            for _ in 0..<2 { for device in [one, two] { try await device.settle() } }
            let (first, second) = isOlderFirst ? (one, two) : (two, one)
            let kept: [String: [String: RecordValue]] =
                isOlderFirst
                ? ["a": ["n": 1], "b": ["n": 1], "c": ["n": 1], "d": ["n": 2]]
                : ["a": ["n": 2], "c": ["n": 2], "d": ["n": 2]]
            for device in [one, two] {
                #expect(try await device.contents() == kept)
                #expect(try await device.proves())
            }
            #expect(try await first.database.conflicts.list().isEmpty)
            #expect(try await first.database.conflicts.rejected().isEmpty)
            let conflicts = try await second.database.conflicts.list()
            let refused = try await second.database.conflicts.rejected()
            #expect(conflicts.map(\.id.name) == (isOlderFirst ? ["a", "b", "c"] : ["a", "c"]))
            let clients: [[String: RecordValue]?] = isOlderFirst ? [["n": 2], nil, ["n": 2]] : [["n": 1], ["n": 1]]
            #expect(conflicts.map(\.client?.fields) == clients)
            // It was deleted, and is not made anew.
            #expect(refused.map(\.record?.fields) == (isOlderFirst ? [] : [["n": 1]]))
        }
    }

    /// Who had it, and went on from there, has made no conflict of it.
    @Test func whatWasMadeFromWhatCameBackIsNoConflictAfterAnotherRestore() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 0]))
            for device in [one, two] { try await device.settle() }
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            for number in 1...3 {
                cloud.simulation.pass(.seconds(60))
                // Each time the other one is as the one was before.
                let (here, away) = number % 2 == 1 ? (one, two) : (two, one)
                for device in [one, two] { try await device.settle() }
                away.setOffline(true)
                var record = try #require(try await here.database.record(RecordID("a")))
                record["n"] = .integer(Int64(number))
                try await here.database.save(record)
                try await here.settle()
                try cloud.simulation.use { try $0.restore(copy, of: .records) }
                cloud.simulation.pass(.seconds(60))
                here.setOffline(number % 2 == 0)
                away.setOffline(false)
                try await away.settle()
                here.setOffline(false)
                for _ in 0..<2 { for device in [one, two] { try await device.settle() } }
                for device in [one, two] {
                    #expect(try await device.contents() == ["a": ["n": .integer(Int64(number))]])
                    #expect(try await device.database.conflicts.list().isEmpty)
                    #expect(try await device.proves())
                }
            }
        }
    }

    @Test func whatWasMadeFromSomethingThatIsLostIsNoConflict() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.zones.make("work")
            try await here.settle("work")
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            try await here.database.zones.make("later")
            for zone in ["work", "later"] {
                try await here.database.save(Record("a", zone: zone, ["n": 1]))
                try await here.settle(zone)
            }
            here.setOffline(true)
            for zone in ["work", "later"] {
                var record = try #require(try await here.database.record(RecordID("a", zone: zone)))
                record["n"] = 2
                try await here.database.save(record)
            }
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            here.setOffline(false)
            for _ in 0..<2 {
                for zone in ["later", "work"] { try await here.settle(zone) }
            }
            for zone in ["work", "later"] {
                #expect(try await here.contents(zone) == ["a": ["n": 2]])
                #expect(try await here.database.conflicts.list(zone: zone).isEmpty)
                #expect(try await here.database.conflicts.rejected(zone: zone).isEmpty)
                #expect(try await here.proves(zone))
            }
        }
    }

    @Test func referencesAndIndexesOfWhatComesBackAreThereToo() async throws {
        try await restoring { one, _ in
            try await one.database.zones.make("work")
            try await one.database.indexes.modify(saving: [RecordIndex(type: "Note", fields: [RecordIndex.Field("n")])])
        } _: { one, _ in
            for number in 0..<150 {
                var record = Record("r\(number)", zone: "work", ["n": .integer(Int64(number))])
                // Its name comes before its parent's, and after.
                record.parent = number % 2 == 0 && number > 0 ? "r\(number / 2)" : nil
                if number % 3 == 1 { record["to"] = .reference(RecordReference("r0", deletesSelf: true)) }
                try await one.database.save(record)
            }
        } _: { _, two, settle in
            try await settle()
            #expect(try await two.database.recordCount(zone: "work") == 150)
            let query = RecordQuery(type: "Note", try QueryPredicate(parsing: "n >= 100"))
            #expect(try await two.database.records(matching: query, in: "work", from: .server).count == 50)
            #expect(try await two.database.record(RecordID("r148", zone: "work"))?.parent == "r74")
        }
    }
}
