import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// What a call costs, and where a page ends, tells nothing of records that are not for the caller.
@Suite struct UnseenCostTests {
    private let house: PublicHouse
    private let administrator: RecordDevice
    private let owner: RecordDevice
    private let reader: RecordDevice
    private let stranger: RecordDevice

    init() throws {
        var budgets = BudgetConfiguration()
        // What is spent does not come back while it is looked at.
        budgets.device = .init(capacity: 1_000_000, refillPerSecond: 1_000_000)
        budgets.account = .init(capacity: 900_000, refillPerSecond: 1)
        house = try PublicHouse(budgets: budgets)
        administrator = try house.device(PublicHouse.administrator)
        owner = try house.device()
        reader = try house.device(PublicHouse.other)
        stranger = try house.stranger()
        try house.setRoles(of: "Note", everyone: .none)
    }

    private static func note(
        _ name: String, _ number: Int64, bytes: Int = 0, type: String = "Note"
    ) -> WireRecordChange {
        .save(
            name, ["n": .integer(number), "rest": .data(Data(repeating: 7, count: bytes))], type: type)
    }

    /// What each of some calls costs, by what is left of the budget before and after it, and one that is the same each time.
    private func costs(
        of device: RecordDevice, _ calls: [(method: String, request: any SwiftProtobuf.Message)]
    ) throws -> [Int] {
        func left(_ method: String, _ request: any SwiftProtobuf.Message) throws -> Int {
            let answer = try device.client.begin(
                method, request, at: .requests(.records), accessToken: device.accessToken)
            house.cloud.network.run(within: .seconds(60)) { answer.result != nil }
            _ = try answer.result?.get()
            return try #require(answer.budget?.remaining)
        }
        return try calls.map { call in
            let before = try left("FetchRecords", fetch([], of: device))
            _ = try left(call.method, call.request)
            return try before - left("FetchRecords", fetch([], of: device))
        }
    }

    private func costOfRefusal(_ method: String, _ request: some SwiftProtobuf.Message) throws -> Int {
        func left(_ method: String, _ request: some SwiftProtobuf.Message) throws -> Int {
            let answer = try reader.client.begin(
                method, request, at: .requests(.records), accessToken: reader.accessToken)
            house.cloud.network.run(within: .seconds(60)) { answer.result != nil }
            return try #require(answer.budget?.remaining)
        }
        let before = try left("FetchRecords", fetch([], of: reader))
        return try before - left(method, request)
    }

    private func fetch(_ names: [String], of device: RecordDevice) -> WireFetchRecords {
        var request = WireFetchRecords()
        (request.container, request.database, request.zoneID) = (device.container, .public, device.zone)
        request.records = names
        return request
    }

    private func query(_ predicate: String, type: String = "Note", sort: String = "") -> WireQueryRecords {
        var request = WireQueryRecords()
        (request.container, request.database, request.zoneID) = (RecordHouse.container, .public, reader.zone)
        (request.type, request.predicate) = (type, predicate)
        if !sort.isEmpty {
            var field = WireRecordSort()
            field.field = sort
            request.sort = [field]
        }
        return request
    }

    private func changes(after token: WireChangeToken = WireChangeToken()) -> WireReadChanges {
        var request = WireReadChanges()
        (request.scope, request.owner) = ("\(reader.container)/\(reader.zone)", "app/\(stranger.owner)")
        request.after = token
        return request
    }

    /// The places of hidden records in an index are found out neither by the cost nor by pages or refusals.
    @Test func aHiddenRecordInARangeCostsNothing() throws {
        try administrator.index("Note(n)", "Note(words)")
        _ = try reader.modify((0..<20).map { Self.note("mine\($0)", 1000 + $0, bytes: 3000) })
        _ = try owner.modify((0..<300).map { Self.note("hidden\($0)", 500, bytes: 3000) })
        house.cloud.network.run(for: .seconds(5))
        for device in [reader, stranger] {
            for sort in ["", "n", "other"] {
                let found = try costs(
                    of: device,
                    [
                        ("QueryRecords", query("n >= 500", sort: sort)),
                        ("QueryRecords", query("n >= 501", sort: sort)),
                        ("QueryRecords", query("n == 500", sort: sort)),
                        ("QueryRecords", query("n == 501", sort: sort)),
                    ])
                #expect(found[0] == found[1] && found[2] == found[3])
            }
        }
        let all = try costs(of: reader, [("QueryRecords", query("")), ("QueryRecords", query("", type: ""))])
        _ = try owner.modify((0..<300).map { Self.note("more\($0)", 600, bytes: 3000) })
        #expect(
            try costs(of: reader, [("QueryRecords", query("")), ("QueryRecords", query("", type: ""))]) == all)
    }

    @Test func hiddenRecordsEndNoPageAndMakeNoQueryTooLarge() throws {
        for start in stride(from: 0, to: 4800, by: 400) {
            _ = try owner.modify((start..<start + 400).map { Self.note("h\($0)", Int64($0)) })
        }
        _ = try reader.modify([Self.note("a", 10_000), Self.note("z", 1)])
        _ = try reader.modify([Self.note("open", 1, type: "Open")])
        try administrator.index("Note(n)")
        try administrator.settleIndexes()
        for (predicate, sort) in [("n >= 0", ""), ("n >= 0", "n"), ("n >= 0", "other"), ("", ""), ("", "n")] {
            let page = try reader.page(predicate, sort: sort.isEmpty ? [] : [sort])
            #expect(page.records.map(\.item).sorted() == ["a", "z"] && page.after.isEmpty)
            #expect(try stranger.page(predicate, sort: sort.isEmpty ? [] : [sort]).after.isEmpty)
        }
        #expect(try reader.page("", type: "").records.map(\.item) == ["a", "open", "z"])
        #expect(try stranger.page("", type: "").after.isEmpty)
        // By an index whose rows are told by their creator first one's own are found in its order.
        #expect(try reader.page("n >= 0", sort: ["n"]).plan.way == .scanSorted)
        try administrator.index("Note(_creator, n)")
        try administrator.settleIndexes()
        let ordered = try reader.page("n >= 0", sort: ["n"])
        #expect(ordered.plan.way == .index && ordered.records.map(\.item) == ["z", "a"])
        let others = try reader.page("_creator == '\(owner.mover.account.rawValue)'", sort: ["n"])
        #expect(others.records.isEmpty && others.after.isEmpty)
        #expect(try administrator.page("n == 17").records.map(\.item) == ["h17"])
    }

    /// A record of a name that one may not read costs what costs one that is not there, however large it is.
    @Test func toNameAHiddenRecordCostsNothing() throws {
        let large = (0..<8).map { Self.note("hidden\($0)", 1, bytes: 100_000) }
        _ = try owner.modify(large)
        _ = try owner.modify((8..<16).map { Self.note("hidden\($0)", 1, bytes: 100_000) })
        let (hidden, absent) = ((0..<16).map { "hidden\($0)" }, (0..<16).map { "absent\($0)" })
        for device in [reader, stranger] {
            for count in [1, 16] {
                let found = try costs(
                    of: device,
                    [hidden, absent].map { ("FetchRecords", fetch(Array($0.prefix(count)), of: device)) })
                #expect(found[0] == found[1])
            }
        }
        func modify(_ changes: [WireRecordChange], if names: [String] = []) -> WireModifyRecords {
            var request = WireModifyRecords()
            (request.container, request.database) = (reader.container, .public)
            var zone = WireZoneChanges()
            (zone.zoneID, zone.changes, zone.notAtomic) = (reader.zone, changes, true)
            zone.conditions = names.map { name in
                var condition = WireRecordCondition()
                (condition.record, condition.version) = (name, Data(repeating: 1, count: 16))
                return condition
            }
            request.zones = [zone]
            return request
        }
        for make: ([String]) -> WireModifyRecords in [
            { modify($0.map { .delete($0) }) },
            { modify($0.map { .save($0, base: Data(repeating: 1, count: 16)) }) },
            { modify([.save("own")], if: $0) },
            { modify([.save("own", parent: $0[0])]) },
            { modify($0.enumerated().map { .save("own\($0)", ["to": .with($1)]) }) },
        ] {
            let found = try costs(of: reader, [hidden, absent].map { ("ModifyRecords", make($0)) })
            #expect(found[0] == found[1])
        }
        // Nor to ask for what its assets rest on.
        func open(_ name: String) -> WireOpenTransfer {
            var request = WireOpenTransfer()
            request.container = "\(reader.container)/\(reader.zone)/\(name)"
            return request
        }
        let opened = try ["hidden0", "absent0"].map { try costOfRefusal("OpenTransfer", open($0)) }
        #expect(opened[0] == opened[1])
        #expect(try owner.fetch(hidden).count == 10)
    }

    /// Of a page of the feed neither what is hidden nor what is told as gone.
    @Test func aPageOfTheFeedCostsWhatItTells() throws {
        _ = try owner.modify([Self.note("was", 1, type: "Was"), Self.note("open", 1, type: "Open")])
        let before = try stranger.changes().token
        try house.setRoles(of: "Was", everyone: .none)
        let few = try costs(of: stranger, [("ReadChanges", changes()), ("ReadChanges", changes(after: before))])
        for start in [0, 8, 16] {
            _ = try owner.modify((start..<start + 8).map { Self.note("h\($0)", 1, bytes: 120_000) })
        }
        _ = try owner.modify((0..<400).map { Self.note("small\($0)", 1) })
        _ = try owner.modify((0..<200).map { .delete("small\($0)") })
        let version = try #require(try owner.fetch(["was"])["was"]).version
        _ = try owner.modify([.save("was", ["rest": .data(Data(count: 200_000))], type: "Was", base: version)])
        #expect(try costs(of: stranger, [("ReadChanges", changes()), ("ReadChanges", changes(after: before))]) == few)
        let page = try stranger.changes(after: before)
        #expect(page.gone == ["was": true] && !page.reply.hasPlace)
        #expect(try stranger.list().keys.sorted() == ["open"])
    }

    /// What others have overwritten is not looked at either.
    @Test func theHistoryOfOthersCostsNothingAndTakesNoPlace() throws {
        try house.setRoles(of: "Page", signedIn: .reading(create: true, write: true))
        _ = try reader.modify([Self.note("p", 0, type: "Page")])
        _ = try owner.modify([.save("p", ["n": .integer(1)], type: "Page", policy: .allKeys)])
        var list = WireListRecordHistory()
        (list.container, list.database, list.zoneID) = (reader.container, .public, reader.zone)
        let few = try costs(of: reader, [("ListRecordHistory", list)])
        for number in 0..<450 {
            _ = try owner.modify(
                [.save("q\(number % 40)", ["n": .integer(Int64(number))], type: "Page", policy: .allKeys)])
        }
        #expect(try costs(of: reader, [("ListRecordHistory", list)]) == few)
        #expect(try reader.history().map(\.name) == ["p"])
        #expect(try administrator.history().count > 1)
    }

    /// In an order by creators one's own alone have none: where the roles change meanwhile it does not go on.
    @Test func anOrderByCreatorsBeginsAnewWhereOnesOwnAloneAreLeft() throws {
        try house.setRoles(of: "Note")
        _ = try reader.modify((0..<3).map { Self.note("r\($0)", 1) })
        var request = query("", sort: "_creator")
        request.limit = 1
        let first = try reader.call("QueryRecords", request, as: WireQueryRecordsReply.self)
        #expect(first.records.map(\.item) == ["r0"])
        try house.setRoles(of: "Note", everyone: .none)
        request.after = first.after
        #expect {
            try reader.call("QueryRecords", request, as: WireQueryRecordsReply.self)
        } throws: { ($0 as? CloudError)?.code == .invalidArguments }
    }
}
