import Foundation
import NephosCore
import NephosPredicates
import NephosRecordRules
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A zone of any size is read page by page, in the order that the server has.
@Suite struct PagesTests {
    private static func records(_ count: Int) -> [Record] {
        let long = String(repeating: "x", count: 130)
        return (0..<count).map { number in
            var record = Record("r\(number * 7 % count)", type: number % 5 == 0 ? "Task" : "Note", [:])
            if number % 3 != 0 { record["n"] = .integer(Int64(number * 13 % 17)) }
            // Alike in their first 128 bytes, the later name with the lesser text.
            record["t"] = .string(number % 2 == 0 ? long + "\(count - number)" : "t\(number % 4)")
            record["p"] = .location(
                RecordLocation(latitude: Double(number * 37 % 170) - 85, longitude: Double(number * 91 % 350) - 175))
            return record
        }
    }

    private static let sorts = [
        [], [RecordSort("n")], [RecordSort("n", ascending: false), RecordSort("t")], [RecordSort("t")],
        [RecordSort("p", ascending: false)], [RecordSort("_recordName", ascending: false)],
    ]

    @Test func pagesAreTheSameAsTheWhole() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.modify(saving: Self.records(100), deleting: [])
            try await here.settle()
            // What waits is among them: new ones, others of another place, and fewer.
            here.setOffline(true)
            try await here.database.modify(
                saving: Self.records(130).filter { $0.id.name.hasSuffix("7") }, deleting: [RecordID("r8")],
                policy: .allKeys)
            let predicate = try QueryPredicate(parsing: "n > 3 OR t BEGINSWITH 'x'")
            for sort in Self.sorts {
                for query in [
                    RecordQuery(sort: sort), RecordQuery(type: "Note", predicate, sort: sort),
                    RecordQuery(type: "Task", sort: sort, limit: 11, desiredFields: ["n"]),
                ] {
                    let all = try await here.database.records(matching: query)
                    #expect(all.count > 5)
                    for size in [1, 7, 400] {
                        var found: [Record] = []
                        for try await page in here.database.pages(matching: query, size: size) {
                            #expect(page.count <= size && !page.isEmpty)
                            found += page
                        }
                        #expect(found == all && found.map(\.isPending) == all.map(\.isPending), "\(query) \(size)")
                    }
                }
            }
        }
    }

    @Test func theOrderIsThatOfTheServersIndexes() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.modify(saving: Self.records(100), deleting: [])
            try await here.settle()
            let indexes = Self.sorts.dropFirst().map { sort in
                RecordIndex(type: "Note", fields: sort.map { RecordIndex.Field($0.field, ascending: $0.ascending) })
            }
            _ = try await here.database.indexes.modify(saving: indexes)
            cloud.simulation.pass(.seconds(120))
            for sort in Self.sorts.dropFirst() {
                var request = WireQueryRecords()
                request.container = here.database.container
                request.zoneID = RecordZone.defaultName
                request.type = "Note"
                request.explain = true
                request.sort = sort.map { key in
                    var wire = WireRecordSort()
                    (wire.field, wire.descending) = (key.field, !key.ascending)
                    return wire
                }
                let reply = try await here.session.call(
                    .records, request, as: WireQueryRecordsReply.self, app: RecordCloud.app)
                #expect(reply.plan.way == .index && reply.after.isEmpty)
                let local = try await here.database.records(matching: RecordQuery(type: "Note", sort: sort))
                #expect(reply.records.map(\.item) == local.map(\.id.name), "\(sort)")
            }
        }
    }

    @Test func noMoreIsHeldOfAnOrderThanThereIsRoomFor() {
        let places = (0..<5000).map { number in
            RecordOrder.Place(key: [UInt8(number * 31 % 251), UInt8(number % 7)], name: ItemName("n\(number)"))
        }
        var (found, after): ([RecordOrder.Place], RecordOrder.Place?) = ([], nil)
        var rounds = 0
        while true {
            var first = RecordOrder.First(after: after, bytesMax: 50_000)
            for place in places { first.add(place) }
            let some = first.take()
            #expect(some.count <= 50_000 / 100)
            found += some
            after = some.last
            rounds += 1
            if !first.isCut { break }
        }
        #expect(found == places.sorted() && rounds > 5)
        var few = RecordOrder.First(count: 10)
        for place in places { few.add(place) }
        #expect(few.take() == Array(places.sorted().prefix(10)) && !few.isCut)
    }

    /// `NEPHOS_ZONE=100000` reads a zone of so many records of 2 KB, and says what memory that takes; nothing else may run
    /// meanwhile.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["NEPHOS_ZONE"] != nil))
    func aLargeZoneIsReadInLittleMemory() async throws {
        let count = ProcessInfo.processInfo.environment["NEPHOS_ZONE"].flatMap(Int.init) ?? 100_000
        try await withRecords { cloud in
            let here = try await cloud.open()
            let name = "\(RecordCloud.container)/\(RecordZone.defaultName)"
            let account = try #require(try here.session.local.read { try Facts($0).session }).accountID
            for start in stride(from: 0, to: count, by: 1000) {
                try here.session.local.write { database in
                    let scope = RecordPlace(name).scope(of: account)
                    let rows = ScopeTransaction(database, scope)
                    var state = try rows.state()
                    for number in start..<min(start + 1000, count) {
                        var record = WireRecord()
                        record.type = "Note"
                        var (text, n) = (WireRecordField(), WireRecordField())
                        (n.name, n.integer) = ("n", Int64(number * 7919 % count))
                        (text.name, text.string) = ("text", String(repeating: "x", count: 2000))
                        record.fields = [n, text]
                        record.version = Data(count: 16)
                        let item = RecordItems.Item(
                            name: ItemName("r\(number)"), sequence: 1, body: try record.serializedData(), type: "Note")
                        try RecordItems(rows: rows).put(item, replacing: nil, &state)
                    }
                }
            }
            let before = Self.residentBytes()
            var most = before
            for sort in [[], [RecordSort("n")]] {
                var found = 0
                let start = ContinuousClock.now
                for try await page in here.database.pages(matching: RecordQuery(type: "Note", sort: sort)) {
                    found += page.count
                    most = max(most, Self.residentBytes())
                }
                print("\(found) records, sorted: \(!sort.isEmpty), in \(ContinuousClock.now - start)")
                #expect(found == count)
            }
            print("memory: \(before >> 20) MB before, \((most - before) >> 20) MB more at most")
            #expect(most - before < 64 << 20)
        }
    }

    private static func residentBytes() -> Int {
        let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
        return fields.count > 1 ? (Int(fields[1]) ?? 0) * 4096 : 0
    }
}
