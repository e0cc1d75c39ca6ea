import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Zones: made, removed with all that they have, and told apart for ever; who may see them; what they count.
@Suite struct ZoneTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    @Test func aZoneIsMadeOnceAndGoesWithItsRecords() throws {
        let first = try device.makeZone("Work")
        #expect(try device.makeZone("Work") == first)
        device.zone = first
        try device.save("a", ["text": .string(String(repeating: "x", count: 5000))])
        try device.save("b", ["a": .with("a")])
        #expect(try house.used(of: device.mover.account) > 5000)
        try device.deleteZone("Work")
        #expect(try device.zones().isEmpty)
        #expect(try house.used(of: device.mover.account) == 0)
        #expect(throws: CloudError.self) { try device.list() }
        house.cloud.network.run(for: .seconds(1))
        #expect(try house.rows(of: "record_references") == 0)
        #expect(try house.rows(of: "record_removals") == 0)
        // One of the same name is another.
        let second = try device.makeZone("Work")
        #expect(second != first)
        device.zone = second
        #expect(try device.list().isEmpty)
        device.zone = first
        let outcome = try device.modify([.save("late")])
        #expect(CloudError.Code(number: outcome.failure.code) == .zoneNotFound)
    }

    @Test func theIdOfADeletedZoneIsNoOthers() throws {
        let id = try device.makeZone("Work")
        device.zone = id
        // So many rows that they go in several steps.
        for record in 0..<4 {
            var list = WireReferenceList()
            list.values = (0..<400).map { number in
                var reference = WireRecordReference()
                reference.record = "t\(number)"
                reference.deletesSelf = true
                return reference
            }
            try device.save("r\(record)", ["to": .references(list)])
        }
        try device.deleteZone("Work")
        var tries = 0
        while try house.rows(of: "record_removals") > 0 {
            tries += 1
            #expect(throws: CloudError.self) { try device.makeZone("Other", id: id) }
            house.cloud.network.run(for: .milliseconds(5))
        }
        #expect(tries > 0)
        // Whoever has made it asks again late.
        #expect(throws: CloudError.self) { try device.makeZone("Work", id: id) }
        #expect(try device.zones().isEmpty)
    }

    @Test func aDeletionIsOfOneZoneAndNoOtherOfItsName() throws {
        let first = try device.makeZone("Work")
        try device.deleteZone("Work", id: first)
        let second = try device.makeZone("Work")
        device.zone = second
        try device.save("a")
        // Asked for once more, under an id of its own.
        try device.deleteZone("Work", id: first)
        #expect(try device.zones()["Work"]?.zoneID == second)
        #expect(try device.list().keys.contains("a"))
        for bad in ["", "Work", first.uppercased()] {
            let error = #expect(throws: CloudError.self) { try device.deleteZone("Work", id: bad) }
            #expect(error?.code == .invalidArguments)
        }
        try device.deleteZone("Work", id: second)
        #expect(try device.zones().isEmpty)
    }

    @Test func theDefaultZoneIsThereAndStays() throws {
        #expect(try device.list().isEmpty)
        #expect(throws: CloudError.self) { try device.deleteZone(RecordLimits.defaultZone) }
        #expect(throws: CloudError.self) { try device.makeZone(RecordLimits.defaultZone) }
    }

    @Test func nobodyElseSeesThem() throws {
        let zone = try device.makeZone("Work")
        device.zone = zone
        try device.save("a")
        try house.cloud.createAccount("other")
        let stranger = try house.device(account: "other")
        stranger.zone = zone
        #expect(throws: CloudError.self) { try stranger.list() }
        #expect(try stranger.zones().isEmpty)
        #expect(throws: CloudError.self) { try stranger.fetch(["a"]) }
        // Nor an app that does not list the container; one that does, does.
        let elsewhere = try house.device(app: "T.other")
        elsewhere.zone = zone
        for scope in ["T.notes", "T.notes/\(zone)", "T.notes/", "T.notes/x/y", ""] {
            elsewhere.container = scope
            #expect(throws: CloudError.self) { try elsewhere.zones() }
        }
        device.container = "T.shared"
        elsewhere.container = "T.shared"
        device.zone = RecordLimits.defaultZone
        elsewhere.zone = RecordLimits.defaultZone
        try device.save("together")
        #expect(try elsewhere.list().keys.contains("together"))
    }

    @Test func recordsCountOnThePlanAsLongAsTheyAreThere() throws {
        let account = device.mover.account
        let version = try device.save("a", ["text": .string(String(repeating: "x", count: 1000))])
        let one = try house.used(of: account)
        #expect((1256...1500).contains(one))
        let next = try device.save("a", ["text": .string("short")], base: version)
        #expect(try house.used(of: account) < one - 900)
        // What is overwritten by force counts while it is kept.
        let small = try house.used(of: account)
        try house.device().save("a", ["text": .string("third")], policy: .allKeys)
        #expect(try house.used(of: account) > small + 256)
        _ = next
        try device.delete("a")
        let kept = try house.used(of: account)
        #expect(kept > 256 && kept < small + 256)
        #expect(try house.rows(of: "record_history") == 1)
        // A clock that is ahead for an hour takes nothing away.
        house.cloud.setClockOffset(of: .records, .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(3600))
        house.cloud.setClockOffset(of: .records, .zero)
        house.cloud.network.run(for: .seconds(700))
        #expect(try house.rows(of: "record_history") == 1)
        house.cloud.skip(.seconds(31 * 86_400), of: .records)
        house.cloud.network.run(for: .seconds(700))
        #expect(try house.used(of: account) == 0)
        #expect(try house.rows(of: "record_history") == 0)
    }

    @Test func aPlanThatIsFullTakesNothingAndDeletes() throws {
        try house.cloud.savePlan("small", bytes: 20_000)
        try house.cloud.createAccount("poor", plan: "small")
        let device = try house.device(account: "poor")
        try device.save("a", ["text": .string(String(repeating: "x", count: 10_000))])
        #expect(throws: CloudError.self) {
            try device.save("b", ["text": .string(String(repeating: "x", count: 10_000))])
        }
        #expect(try Set(device.list().keys) == ["a"])
        try device.delete("a")
        try device.save("b", ["text": .string(String(repeating: "x", count: 10_000))])
    }

    /// What was overwritten, what refers to what, what devices have left, and what an index has, go with it.
    @Test func aClosedAccountLeavesNoRows() throws {
        try house.cloud.createAccount("bert")
        let bert = try house.device(account: "bert")
        bert.zone = try bert.makeZone("work")
        try bert.index("Note(n)")
        try bert.save("a", ["n": .integer(1)])
        try bert.save("b", ["to": .with("a")])
        try bert.save("a", ["n": .integer(2)], base: RecordDevice.version(), policy: .allKeys)
        _ = try bert.modify([.save("c", ["n": .integer(3)])], leaving: "left here")
        try bert.settleIndexes()
        let owner = bert.mover.account
        func left() throws -> [String: Int64] {
            try house.cloud.storage(of: .records).write { transaction in
                let tables = try transaction.all(
                    SQL(
                        "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c "
                            + "WHERE m.type = 'table' AND m.name LIKE 'record%' AND c.name = 'owner'"), []
                ) { $0.text(0) }
                var left: [String: Int64] = [:]
                for table in tables {
                    let count = try transaction.first(
                        SQL("SELECT COUNT(*) FROM \(table) WHERE owner = ?1"), [.text(owner.rawValue)]
                    ) { $0.integer(0) }
                    if let count, count > 0 { left[table] = count }
                }
                return left
            }
        }
        let before = try left()
        for table in ["record_references", "record_history", "record_client_tokens", "record_indexes"] {
            #expect(before[table] ?? 0 > 0, "\(table): \(before)")
        }
        #expect(try house.rows(of: "record_index") > 0)
        var request = WireCloseAccount()
        request.accountName = "bert"
        try house.cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
        house.cloud.network.run(for: .seconds(60))
        #expect(try left() == [:] && house.rows(of: "record_index") == 0)
    }

    @Test func savesOutliveTheService() throws {
        let version = try device.save("a", ["title": .string("kept")])
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        #expect(try device.list()["a"]?.version == version)
    }

    /// A method whose ids do not age knows its repeats itself; a reply under an id of the far future would stay for ever.
    @Test func whatStandsUnderAnIdOfTheFarFutureIsNotRemembered() throws {
        try device.save("a")
        func remembered() throws -> Int64 {
            try house.rows(of: "feed_operations") + house.rows(of: "feed_operation_packs")
        }
        let before = try remembered()
        var request = WireModifyZones()
        request.container = RecordHouse.container
        var zone = WireNewZone()
        zone.name = "work"
        zone.zoneID = RecordDevice.zoneID()
        request.save = [zone]
        for _ in 0..<2 {
            let reply = try device.mover.client.call(
                "ModifyZones", request, at: .requests(.records), accessToken: device.mover.accessToken,
                id: OperationID(high: .max, low: 7), as: WireModifyZonesReply.self)
            #expect(reply.zones.count == 1)
        }
        #expect(try remembered() == before)
    }
}
