import Foundation
import GRDB
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// What was refused or is in conflict is shown until somebody decides it, is of one account, and holds nothing else up.
@Suite struct UndecidedRecordTests {
    /// Not the database's.
    typealias Record = NephosKit.Record

    // MARK: Zones that are gone

    @Test func whatIsUndecidedOfADeletedZoneIsFoundAndDecided() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.zones.make("work")
            try await one.database.save(Record("c", zone: "work", ["n": 0]))
            try await one.settle("work")
            try await two.database.waitUntilCurrent()
            try await two.settle("work")
            two.setOffline(true)
            for (device, count) in [(one, 1), (two, 2)] {
                var record = try #require(try await device.database.record(RecordID("c", zone: "work")))
                record["n"] = .integer(Int64(count))
                try await device.database.save(record)
            }
            try await one.settle("work")
            two.setOffline(false)
            try await two.settle("work")
            two.setOffline(true)
            try await two.database.save(Record("b", zone: "work", ["n": 2]))
            try await one.database.zones.delete("work")
            try await one.database.waitUntilSent()
            two.setOffline(false)
            try await two.database.waitUntilCurrent()
            // A process that begins now finds it too.
            let home = two.session.home.path
            two.session.close()
            let again = try await cloud.open(home: home)
            let scopes = try await again.session.scopes().filter { $0.id.name.hasSuffix("/work") }
            let scope = try #require(scopes.first)
            try await scope.waitUntilCurrent(timeout: .seconds(5), isImpatient: true)
            let status = try await scope.status()
            #expect(status.refused.map(\.key) == ["b"] && status.refused.first?.error.code == .zoneNotFound)
            #expect(status.problem == nil && status.initialSyncFinished)
            #expect(try await scope.verify(timeout: .seconds(5)).agrees)
            #expect(try await scope.conflictCount() == 1)
            let conflict = try #require(try await again.database.conflicts.list(zone: "work").first)
            let error = await #expect(throws: CloudError.self) {
                try await again.database.conflicts.resolve(conflict, keeping: .client)
            }
            #expect(error?.code == .zoneNotFound)
            #expect(try await again.database.conflicts.resolve(conflict, keeping: .server) == nil)
            #expect(try await again.database.conflicts.list(zone: "work").isEmpty)
            #expect(try await scope.dismissRefused(["b"]) == ["b"])
            #expect(try await scope.status().refused.isEmpty)
        }
    }

    @Test func whatWasSavedIntoAZoneThatThereIsNotIsRefusedByTheFirstDownload() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.zones.make("old")
            try await here.settle("old")
            cloud.simulation.use { $0.crash(.records) }
            let there = try await cloud.openFirst()
            for zone in ["nowhere", "old", "new"] {
                if zone == "new" { try await there.database.zones.make(zone) }
                try await there.database.save(Record("a", zone: zone, ["n": 1]))
            }
            try cloud.simulation.use { try $0.start(.records) }
            try await there.database.waitUntilCurrent(timeout: .seconds(60))
            let refused = try await there.database.conflicts.rejected(zone: "nowhere")
            #expect(refused.map(\.id.name) == ["a"] && refused.first?.error.code == .zoneNotFound)
            #expect(try await there.session.unsentChanges().allSatisfy { !$0.name.hasSuffix("nowhere") })
            for zone in ["old", "new"] {
                try await there.settle(zone)
                #expect(try await there.contents(zone) == ["a": ["n": 1]])
                #expect(try await there.database.conflicts.rejected(zone: zone).isEmpty)
            }
        }
    }

    // MARK: What was made from what was refused

    /// - Parameter isCured: The later save takes away what the first was refused for.
    @Test(arguments: [false, true]) func aSaveAfterARefusedOneIsOneWithIt(_ isCured: Bool) async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try cloud.setPlan(bytes: 64 << 10)
            here.setOffline(true)
            let large = Record("a", ["data": .data(Data(repeating: 7, count: 200 << 10)), "n": 1])
            var next = try await here.database.save(large)
            next["n"] = 2
            if isCured { next["data"] = nil }
            try await here.database.save(next)
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.database.conflicts.list().isEmpty)
            let refused = try await here.database.conflicts.rejected()
            guard !isCured else {
                #expect(refused.isEmpty)
                #expect(try await here.contents() == ["a": ["n": 2]])
                #expect(try await here.proves())
                return
            }
            #expect(refused.map(\.id.name) == ["a"] && refused.first?.error.code == .quotaExceeded)
            #expect(refused.first?.record?["n"] == 2 && refused.first?.record?["data"] != nil)
            #expect(try await here.contents().isEmpty)
        }
    }

    /// What was saved, refused, and deleted before that was known is gone; and what somebody else has saved under the name
    /// of what never came to be stays.
    @Test(arguments: [false, true]) func whatIsDeletedOverARefusedSaveIsNoConflictWithOneself(isNew: Bool) async throws
    {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            if !isNew { try await here.database.save(Record("a", ["n": 0])) }
            try await here.database.save(Record("small", ["n": 1]))
            try await here.settle()
            try cloud.setPlan(bytes: 64 << 10)
            here.setOffline(true)
            var record = try await here.database.record(RecordID("a")) ?? Record("a", [:])
            record["data"] = .data(Data(repeating: 7, count: 200 << 10))
            try await here.database.save(record)
            try await here.database.delete(RecordID("a"))
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.database.conflicts.rejected().isEmpty)
            try await there.settle()
            for device in [here, there] { #expect(try await device.contents() == ["small": ["n": 1]]) }
            #expect(try await here.proves())
        }
    }

    /// The server asked for a pause, after it had taken what was sent first.
    @Test func whatIsSavedOverWhatMayHaveArrivedIsNoConflict() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("a", ["n": 0]))
            try await here.settle()
            try cloud.simulation.use { try $0.faults.fail("records.send") }
            for count in 1...2 {
                var record = try #require(try await here.database.record(RecordID("a")))
                record["n"] = .integer(Int64(count))
                try await here.database.save(record)
                guard count == 1 else { continue }
                await #expect(throws: CloudError.self) {
                    try await here.database.waitUntilSent(timeout: .milliseconds(50))
                }
                here.setOffline(true)
                cloud.simulation.pass(.seconds(1))
                // It will go out under an id of its own.
                let thawed = try here.session.local.write { database in
                    try database.execute(sql: "UPDATE outbox SET state = 'unsent' WHERE attempts > 0")
                    return database.changesCount
                }
                #expect(thawed == 1)
            }
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.contents() == ["a": ["n": 2]])
            #expect(try await here.proves())
        }
    }

    // MARK: Other accounts

    @Test func aHandleOfOneAccountDecidesNothingOfAnother() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            let mine = here.database
            _ = try cloud.simulation.use { try $0.createAccount("bert") }
            let connection = try cloud.simulation.use { try $0.connection }
            try await here.session.signIn(
                connection: connection, account: "bert", password: TestCloud.password, deviceName: "x")
            let theirs = try await here.session.recordContainer(app: RecordCloud.app).privateDatabase
            try await theirs.waitUntilCurrent(timeout: .seconds(60))
            let place = RecordPlace.zone(RecordCloud.container, RecordZone.defaultName).scope(of: theirs.account)
            try here.session.local.write { database in
                try RecordTransaction(ScopeTransaction(database, place), zone: RecordZone.defaultName).noteRefusal(
                    of: "a", client: nil, ancestor: nil, CloudError(.quotaExceeded, "Full."),
                    now: Timestamp(milliseconds: 1))
            }
            let calls: [(String, () async throws -> Void)] = [
                ("dismissRejected", { try await mine.conflicts.dismissRejected() }),
                ("status", { _ = try await mine.status() }),
                ("waitUntilSent", { try await mine.waitUntilSent() }),
                ("waitUntilCurrent", { try await mine.waitUntilCurrent() }),
                ("indexes", { _ = try await mine.indexes.list() }),
                ("record", { _ = try await mine.record(RecordID("a"), from: .server) }),
            ]
            for (name, call) in calls {
                let error = await #expect(throws: CloudError.self, "\(name)") { try await call() }
                #expect(error?.code == .notSignedIn, "\(name)")
            }
            #expect(try await theirs.conflicts.rejected().map(\.id.name) == ["a"])
            #expect(try await theirs.conflicts.dismissRejected() == [RecordID("a")])
        }
    }

    // MARK: What is kept of assets

    @Test func aDeletedZoneLeavesNothingThatKeepsAssets() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try cloud.setPlan(bytes: 64 << 10)
            try await here.database.zones.make("work")
            try await here.settle("work")
            var record = Record("a", zone: "work", ["n": 1])
            record["photo"] = try RecordAsset(SplitMix64.bytes(200_000, seed: 1))
            try await here.database.save(record)
            try await here.settle("work")
            #expect(try await here.database.conflicts.rejected(zone: "work").map(\.id.name) == ["a"])
            try here.session.setContentCache(maxBytes: 0)
            try await here.database.zones.delete("work")
            try await here.database.waitUntilSent()
            cloud.simulation.pass(.seconds(5))
            let needs = try here.session.local.read {
                try Int.fetchOne($0, sql: "SELECT COUNT(*) FROM content_holders")
            }
            #expect(needs == 0)
            let files = try? FileManager.default.contentsOfDirectory(atPath: here.session.home.path + "/content")
            #expect(files?.filter { !$0.hasPrefix(".") } ?? [] == [])
        }
    }

    @Test func anAssetThatIsLostTakesNoOtherRecordWithIt() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            var stored = Record("stored", ["n": 1])
            stored["photo"] = try RecordAsset(SplitMix64.bytes(200_000, seed: 1))
            try await here.database.save(stored)
            try await here.settle()
            // The server has it, and this home no more.
            try here.session.setContentCache(maxBytes: 0)
            cloud.simulation.pass(.seconds(5))
            let folder = here.session.home.path + "/content"
            let files = { try FileManager.default.contentsOfDirectory(atPath: folder).filter { !$0.hasPrefix(".") } }
            #expect(try files().isEmpty)
            try here.session.setContentCache(maxBytes: 1 << 30)
            let asset: RecordAsset = try #require(try await here.database.record(stored.id)?["photo"])
            here.setOffline(true)
            var lost = Record("lost", ["n": 1])
            lost["photo"] = try RecordAsset(SplitMix64.bytes(200_000, seed: 2))
            var other = Record("other", ["n": 1])
            other["photo"] = asset
            try await here.database.modify(saving: [lost, other], deleting: [], atomically: false)
            for file in try files() { unlink(folder + "/" + file) }
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().map(\.id.name) == ["lost"])
            #expect(try await Set(here.contents().keys) == ["stored", "other"])
        }
    }

    // MARK: What the server cannot read

    @Test func whatADeviceHasOfADamagedRecordIsSavedAgain() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            for name in ["a", "b"] { try await here.database.save(Record(name, ["n": 1])) }
            try await here.settle()
            try cloud.simulation.use { cloud in
                try cloud.storage(of: .records).write { transaction in
                    let count = try transaction.execute(
                        SQL("UPDATE feed_items SET body = ?1 WHERE name = ?2"), [.blob([1, 2, 3]), .text("a")])
                    #expect(count == 1)
                }
                cloud.crash(.records)
                try cloud.start(.records)
            }
            let there = try await cloud.open()
            try await there.database.waitUntilCurrent()
            // Whoever has it hears of it, though its copy is as the digest says.
            cloud.simulation.advance(by: .seconds(60))
            try await here.settle()
            try await there.settle()
            for device in [here, there] {
                #expect(try await device.contents() == ["a": ["n": 1], "b": ["n": 1]])
                #expect(try await device.database.conflicts.list().isEmpty)
            }
        }
    }
}
