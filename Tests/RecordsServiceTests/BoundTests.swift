import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What one request may cost, and what may grow.
@Suite struct BoundTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    private static func large(_ number: Int = 0) -> [String: WireRecordField.OneOf_Value] {
        ["data": .data(Data(repeating: UInt8(truncatingIfNeeded: number), count: 1_000_000)), "x": .integer(0)]
    }

    /// Refers to so many records, and is deleted with each.
    private static func web(_ count: Int, _ start: Int = 0) -> [String: WireRecordField.OneOf_Value] {
        var list = WireReferenceList()
        list.values = (start..<start + count).map { number in
            var reference = WireRecordReference()
            reference.record = "t\(number)"
            reference.deletesSelf = true
            return reference
        }
        return ["to": .references(list)]
    }

    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    @Test func fieldsThatAreAddedCountWithThoseThatAreThere() throws {
        let fields = (0..<500).map { ("f\($0)", WireRecordField.OneOf_Value.integer(1)) }
        let version = try device.save("a", Dictionary(uniqueKeysWithValues: fields))
        #expect(try device.modify([.save("a", ["more": .integer(1)], base: version)]).codes == [.limitExceeded])
        #expect(try device.modify([.save("a", ["more": .integer(1)], policy: .changedKeys)]).codes == [.limitExceeded])
        #expect(try device.modify([.save("a", ["f1": .integer(2)], base: version)]).codes == [nil])
    }

    /// Also where the disk says that there is one: nobody looks.
    @Test func whatNothingCanBeCalledIsNotThere() throws {
        try device.save("odd")
        for name in ["_odd", String(repeating: "x", count: 256)] {
            try house.cloud.storage(of: .records).write { transaction in
                _ = try transaction.execute(
                    SQL("UPDATE feed_items SET name = ?1 WHERE name NOT LIKE 'new%'"), [.text(name)])
            }
            house.cloud.crash(.records)
            try house.cloud.start(.records)
            house.cloud.network.run(for: .seconds(1))
            #expect(try device.fetch([name]).isEmpty)
            var condition = WireRecordCondition()
            condition.record = name
            #expect(try !device.modify([.save("new \(name.utf8.count)")], if: [condition]).hasFailure)
        }
    }

    /// Of a megabyte of the smallest places each save would take half a second.
    @Test func listsOfARecordHaveABoundedNumberOfValuesTogether() throws {
        func lists(_ count: Int) -> [String: WireRecordField.OneOf_Value] {
            var places = WireLocationList()
            places.values = Array(repeating: WireRecordLocation(), count: count)
            var numbers = WireIntegerList()
            numbers.values = [1, 2]
            return ["places": .locations(places), "numbers": .integers(numbers)]
        }
        let most = RecordLimits.listedMax - 2
        #expect(try device.modify([.save("a", lists(most + 1))]).codes == [.limitExceeded])
        let version = try device.save("a", lists(most))
        // Those that are there count with those that come.
        var more = WireStringList()
        more.values = [""]
        #expect(try device.modify([.save("a", ["more": .strings(more)], base: version)]).codes == [.limitExceeded])
        try device.save("a", ["x": .integer(1)], base: version)
    }

    @Test func aRecordGoesWithABoundedNumberOfOthers() throws {
        #expect(try device.modify([.save("a", Self.web(751))]).codes == [.limitExceeded])
        #expect(try device.modify([.save("a", Self.web(750))]).codes == [nil])
        #expect(try house.rows(of: "record_references") == 750)
    }

    @Test func aRequestChangesABoundedNumberOfReferences() throws {
        #expect(
            code { try device.modify((0..<6).map { .save("r\($0)", Self.web(700, $0 * 700)) }) } == .limitExceeded)
        for start in [0, 3] {
            let outcome = try device.modify((start..<start + 3).map { .save("r\($0)", Self.web(700, $0 * 700)) })
            #expect(outcome.codes == [nil, nil, nil])
        }
        // Those that go count as well.
        #expect(code { try device.modify((0..<6).map { .delete("r\($0)") }) } == .limitExceeded)
        #expect(try device.modify((0..<3).map { .delete("r\($0)") }).codes == [nil, nil, nil])
        #expect(try house.rows(of: "record_references") == 2100)
    }

    @Test func whatARequestTouchesHasABound() throws {
        for number in 0..<9 { try device.save("r\(number)", Self.large(number)) }
        let changes = (0..<9).map { WireRecordChange.save("r\($0)", ["x": .integer(1)], policy: .changedKeys) }
        #expect(code { try device.modify(changes) } == .limitExceeded)
        #expect(code { try device.modify((0..<9).map { .delete("r\($0)") }) } == .limitExceeded)
        #expect(try device.modify(Array(changes.prefix(7))).codes == Array(repeating: nil, count: 7))
        #expect(try device.modify((0..<7).map { .delete("r\($0)") }).codes == Array(repeating: nil, count: 7))
        #expect(try Set(device.list().keys) == ["r7", "r8"])
    }

    @Test func whatGoesWithOthersCountsToo() throws {
        try device.save("list")
        for number in 0..<9 {
            try device.save("r\(number)", Self.large(number).merging(["list": .with("list")]) { $1 })
        }
        #expect(code { try device.delete("list") } == .limitExceeded)
        #expect(try house.rows(of: "record_references") == 9)
        for number in 0..<2 { try device.delete("r\(number)") }
        #expect(try device.modify([.delete("list")]).cascaded.count == 7)
    }

    @Test func manySmallThingsInAListAreMuch() throws {
        var list = WireIntegerList()
        list.values = Array(repeating: 1, count: RecordLimits.listedMax)
        let names = (0..<40).map { "r\($0)" }
        for name in names { try device.save(name, ["list": .integers(list)]) }
        // In bytes they are a quarter of what a request may touch.
        let changes = names.map { WireRecordChange.save($0, ["x": .integer(1)], policy: .changedKeys) }
        #expect(code { try device.modify(changes) } == .limitExceeded)
        // One alone always can be.
        #expect(try device.modify([changes[0]]).codes == [nil])
    }

    @Test func allZonesOfARequestTogetherHaveABound() throws {
        var request = WireModifyRecords()
        request.container = device.container
        for zone in try ["One", "Two"].map({ try device.makeZone($0) }) {
            device.zone = zone
            for target in 0..<3 {
                try device.modify([.save("t\(target)")])
                let outcome = try device.modify(
                    (0..<399).map { .save("r\(target)-\($0)", ["to": .with("t\(target)")]) })
                #expect(outcome.codes.allSatisfy { $0 == nil })
            }
            var changes = WireZoneChanges()
            changes.zoneID = zone
            changes.changes = (0..<3).map { .delete("t\($0)") }
            request.zones.append(changes)
        }
        let reply = try device.call("ModifyRecords", request, as: WireModifyRecordsReply.self)
        #expect(reply.zones[0].codes == [nil, nil, nil])
        #expect(reply.zones[1].codes.contains(.limitExceeded))
        #expect(try house.rows(of: "record_references") == 1197)
        request.zones.removeFirst()
        let rest = try device.call("ModifyRecords", request, as: WireModifyRecordsReply.self)
        #expect(rest.zones[0].codes == [nil, nil, nil])
        #expect(try house.rows(of: "record_references") == 0)
    }

    @Test func aZoneWithoutChangesIsNone() throws {
        var request = WireModifyRecords()
        request.container = device.container
        request.zones = (0..<2).map { number in
            var zone = WireZoneChanges()
            zone.zoneID = number == 0 ? device.zone : RecordDevice.zoneID()
            if number == 0 { zone.changes = [.save("a")] }
            return zone
        }
        #expect(
            code { try device.call("ModifyRecords", request, as: WireModifyRecordsReply.self) } == .invalidArguments)
        #expect(try device.list().isEmpty)
    }

    @Test func aFetchReadsABoundedNumberOfBytes() throws {
        for number in 0..<10 { try device.save("r\(number)", Self.large(number)) }
        var request = WireFetchRecords()
        request.container = device.container
        request.zoneID = device.zone
        request.records = (0..<10).map { "r\($0)" }
        request.desiredFields = ["x"]
        let reply = try device.call("FetchRecords", request, as: WireFetchRecordsReply.self)
        #expect((1..<10).contains(reply.records.count))
        request.records.removeFirst(reply.records.count)
        let rest = try device.call("FetchRecords", request, as: WireFetchRecordsReply.self)
        #expect(reply.records.count + rest.records.count == 10)
    }

    @Test func whatDevicesLeaveHasABound() throws {
        try device.modify([.save("a")], leaving: "first")
        try house.cloud.storage(of: .records).write { transaction in
            for number in 0..<150 {
                try transaction.execute(
                    SQL(
                        """
                        INSERT INTO record_client_tokens (partition_number, owner, zone, device, token, noted)
                        SELECT partition_number, owner, zone, ?1, token, ?2
                        FROM record_client_tokens LIMIT 1
                        """), [.text("gone\(number)"), .integer(Int64(number))])
            }
        }
        try house.device().modify([.save("b")], leaving: "second")
        #expect(try house.rows(of: "record_client_tokens") == 100)
    }

    @Test func whatIsOverwrittenIsKeptUpToABoundAndCounted() throws {
        let there = try house.device()
        for number in 0..<30 { try device.save("s", ["x": .integer(Int64(number))], policy: .allKeys) }
        #expect(try house.rows(of: "record_history") == 29)
        for number in 0..<10 {
            let (one, other) = (Self.large(2 * number), Self.large(2 * number + 1))
            try device.save("r\(number)", one)
            try there.save("r\(number)", other, policy: .allKeys)
        }
        let kept = try house.cloud.storage(of: .records).write { transaction in
            let sum = try transaction.first(SQL("SELECT SUM(counted) FROM record_history"), []) { $0.integer(0) } ?? 0
            let told = try transaction.first(SQL("SELECT SUM(bytes) FROM record_history_zones"), []) { $0.integer(0) }
            #expect(told == sum)
            return sum
        }
        #expect(kept <= RecordLimits.historyBytesMax && kept > RecordLimits.historyBytesMax - 1_100_000)
        #expect(try house.rows(of: "record_history") == 8)
        // Page by page.
        #expect(try device.history().count == 1)
    }

    /// They count on no plan: a zone of many keeps few.
    @Test func aDatabaseWithManyZonesKeepsFewDeletionsOfEach() throws {
        for start in [0, 400, 800] {
            var request = WireModifyZones()
            request.container = device.container
            request.save = (start..<min(start + 400, 999)).map { number in
                var zone = WireNewZone()
                (zone.name, zone.zoneID) = ("z\(number)", RecordDevice.zoneID())
                return zone
            }
            try device.call("ModifyZones", request, as: WireModifyZonesReply.self)
        }
        for _ in 0..<2 {
            try device.modify((0..<100).map { .save("r\($0)") })
            try device.modify((0..<100).map { .delete("r\($0)") })
        }
        #expect(try (56...65).contains(house.rows(of: "feed_items WHERE deleted_at > 0")))
        #expect(try device.list().isEmpty)
    }

    @Test func aTokenFromBeforeWhatIsKeptOfDeletionsIsExpired() throws {
        func read(after token: WireChangeToken?) throws -> WireReadChangesReply {
            var request = WireReadChanges()
            request.scope = "\(device.container)/\(device.zone)"
            if let token { request.after = token }
            return try device.call("ReadChanges", request, as: WireReadChangesReply.self)
        }
        try device.save("stays")
        let old = try read(after: nil).token
        for round in 0..<12 {
            try device.modify((0..<400).map { .save("r\(round)-\($0)") })
            if round == 0 { #expect(try read(after: old).changes.count == 400) }
            try device.modify((0..<400).map { .delete("r\(round)-\($0)") })
        }
        #expect(code { _ = try read(after: old) } == .changeTokenExpired)
        // All is fetched then, and from there on it goes on.
        let all = try read(after: nil)
        #expect(all.changes.filter { !$0.deleted }.map(\.item) == ["stays"])
        try device.save("next")
        #expect(try read(after: all.token).changes.map(\.item) == ["next"])
    }
}
