import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Zones, which devices make offline and call by their names.
@Suite struct RecordZoneTests {
    @Test func aZoneIsMadeOfflineAndUsedAtOnce() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            here.setOffline(true)
            try await here.database.zones.make("work")
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            #expect(try await here.database.zones.list().map(\.name) == [RecordZone.defaultName, "work"])
            #expect(try await here.contents("work") == ["a": ["n": 1]])
            here.setOffline(false)
            try await here.settle("work")
            try await there.database.waitUntilCurrent()
            #expect(try await there.database.zones.zone("work")?.id == (try await here.database.zones.zone("work")?.id))
            try await there.settle("work")
            #expect(try await there.contents("work") == ["a": ["n": 1]])
            #expect(try await there.contents().isEmpty)
            #expect(try await here.proves("work"))
            #expect(try await there.database.scope.verify().agrees)
        }
    }

    @Test func aZoneThatTwoDevicesHaveMadeOfflineIsOne() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            two.setOffline(true)
            for (device, name) in [(one, "a"), (two, "b")] {
                try await device.database.zones.make("work")
                try await device.database.save(Record(name, zone: "work", ["n": 1]))
            }
            try await one.settle("work")
            two.setOffline(false)
            try await two.settle("work")
            try await one.settle("work")
            for device in [one, two] {
                #expect(try await device.contents("work") == ["a": ["n": 1], "b": ["n": 1]])
                #expect(try await device.database.conflicts.rejected(zone: "work").isEmpty)
                #expect(try await device.proves("work"))
            }
            #expect(try await one.database.zones.list() == (try await two.database.zones.list()))
        }
    }

    @Test func aDeletedZoneGoesWithItsRecords() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.zones.make("work")
            try await one.database.save(Record("a", zone: "work", ["n": 1]))
            try await one.settle("work")
            try await two.database.waitUntilCurrent()
            try await two.settle("work")
            two.setOffline(true)
            try await two.database.save(Record("b", zone: "work", ["n": 2]))
            try await one.database.zones.delete("work")
            try await one.database.waitUntilSent()
            two.setOffline(false)
            try await two.database.waitUntilCurrent()
            #expect(try await two.database.zones.zone("work") == nil)
            let error = await #expect(throws: CloudError.self) {
                try await two.database.record(RecordID("a", zone: "work"))
            }
            #expect(error?.code == .zoneNotFound)
            // What was meant for it is not lost in silence.
            let refused = try await two.database.conflicts.rejected(zone: "work")
            #expect(refused.map(\.id.name) == ["b"] && refused.first?.error.code == .zoneNotFound)
            // Another of its name begins empty.
            try await two.database.zones.make("work")
            try await two.database.save(try #require(refused.first?.record))
            try await two.settle("work")
            try await one.database.waitUntilCurrent()
            try await one.settle("work")
            #expect(try await one.contents("work") == ["b": ["n": 2]])
            #expect(try await two.proves("work"))
        }
    }

    @Test func aZoneIsDeletedAndMadeAnewOffline() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.zones.make("work")
            try await one.database.save(Record("a", zone: "work", ["n": 1]))
            try await one.settle("work")
            one.setOffline(true)
            try await one.database.zones.delete("work")
            try await one.database.zones.make("work")
            try await one.database.save(Record("c", zone: "work", ["n": 3]))
            #expect(try await one.contents("work") == ["c": ["n": 3]])
            one.setOffline(false)
            try await one.settle("work")
            try await two.database.waitUntilCurrent()
            try await two.settle("work")
            #expect(try await two.contents("work") == ["c": ["n": 3]])
            #expect(try await one.proves("work"))
        }
    }

    /// It comes into being on the way, and nothing of it stays here.
    @Test func aZoneThatIsMadeAndDeletedOfflineIsKeptNowhere() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            try await one.database.waitUntilCurrent()
            one.setOffline(true)
            try await one.database.zones.make("work")
            try await one.database.zones.delete("work")
            one.setOffline(false)
            try await one.database.waitUntilSent()
            try await one.database.waitUntilCurrent()
            #expect(try await one.session.scopes().allSatisfy { !$0.id.name.hasSuffix("/work") })
            // The next of its name is one like any other.
            try await one.database.zones.make("work")
            try await one.database.save(Record("a", zone: "work", ["n": 1]))
            try await one.settle("work")
            #expect(try await one.contents("work") == ["a": ["n": 1]])
        }
    }

    @Test func aDeletionEndsTheZoneThatWasMeantAndNoOtherOfItsName() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.zones.make("work")
            try await one.database.save(Record("a", zone: "work", ["n": 1]))
            try await one.settle("work")
            try await two.database.waitUntilCurrent()
            try await two.settle("work")
            two.setOffline(true)
            try await two.database.zones.delete("work")
            try await one.database.zones.delete("work")
            try await one.database.zones.make("work")
            try await one.database.save(Record("b", zone: "work", ["n": 2]))
            try await one.settle("work")
            two.setOffline(false)
            try await two.database.waitUntilSent()
            try await two.database.waitUntilCurrent()
            try await one.database.waitUntilCurrent()
            for device in [one, two] {
                #expect(try await device.database.zones.zone("work") != nil)
                try await device.settle("work")
                #expect(try await device.contents("work") == ["b": ["n": 2]])
                #expect(try await device.proves("work"))
                #expect(try await device.database.conflicts.rejected(zone: "work").isEmpty)
                #expect(try await device.database.scope.verify().agrees)
            }
        }
    }

    /// Who deletes a zone before anybody here knows which there are means the one that is downloaded first; who has made
    /// one of the name before means that.
    @Test func whatIsDeletedBeforeTheFirstDownloadIsWhatIsDownloadedThen() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            for zone in ["old", "other"] {
                try await here.database.zones.make(zone)
                try await here.database.save(Record("a", zone: zone, ["n": 1]))
                try await here.settle(zone)
            }
            cloud.simulation.use { $0.crash(.records) }
            let there = try await cloud.openFirst()
            try await there.database.zones.delete("old")
            try await there.database.zones.delete("nowhere")
            for name in ["other", "mine"] {
                try await there.database.zones.make(name)
                try await there.database.zones.delete(name)
            }
            try cloud.simulation.use { try $0.start(.records) }
            try await there.database.waitUntilSent(timeout: .seconds(60))
            try await there.database.waitUntilCurrent(timeout: .seconds(60))
            try await here.database.waitUntilCurrent(timeout: .seconds(60))
            for device in [here, there] {
                #expect(try await device.database.zones.list().map(\.name) == [RecordZone.defaultName, "other"])
                try await device.settle("other")
                #expect(try await device.contents("other") == ["a": ["n": 1]])
            }
            #expect(try await there.database.status().refused.isEmpty)
        }
    }

    /// Also before the server knows.
    @Test func aZoneThatAnotherProcessDeletesIsFollowedNoMore() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.zones.make("work")
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            try await here.settle("work")
            let guest = try await cloud.open(home: here.session.home.path)
            here.setOffline(true)
            try await guest.database.zones.delete("work")
            cloud.simulation.pass(.seconds(5))
            let isOpen: Bool = try await here.database.scope(of: "work").perform { driver, completion in
                completion(.success(driver.scope != nil))
            }
            #expect(!isOpen)
        }
    }

    @Test func whatNoZoneCanBeCalledIsRefusedAtOnce() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            for name in ["", "_x", "é", RecordZone.defaultName] {
                let error = await #expect(throws: CloudError.self) { try await here.database.zones.make(name) }
                #expect(error?.code == .invalidArguments)
            }
            let error = await #expect(throws: CloudError.self) {
                try await here.database.save(Record("a", zone: "nowhere", [:]))
            }
            #expect(error?.code == .zoneNotFound)
        }
    }

    @Test func zonesThatComeAndGoAreToldOf() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let changes = two.database.zoneChanges()
            try await one.database.zones.make("work")
            try await one.database.waitUntilSent()
            try await two.database.waitUntilCurrent()
            try await one.database.zones.delete("work")
            try await one.database.waitUntilSent()
            try await two.database.waitUntilCurrent()
            // As they are by now.
            var told: [RecordZoneChanges] = []
            for await change in changes {
                told.append(change)
                if told.count == 2 { break }
            }
            #expect(told.allSatisfy { $0.changed + $0.deleted == ["work"] && $0.reason == .serverChange && !$0.isAll })
            #expect(told.last?.deleted == ["work"])
            #expect(told.first?.changed == ["work"] || told.first?.deleted == ["work"])
        }
    }
}
