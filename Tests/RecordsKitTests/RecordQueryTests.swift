import NephosCore
import NephosPredicates
import NephosSimulation
import Testing

@testable import NephosKit

/// Queries, which this device answers as the server does.
@Suite struct RecordQueryTests {
    private static let predicates = [
        "", "n > 3", "title BEGINSWITH 'a'", "tags CONTAINS 'x'", "n == NULL", "self CONTAINS 'two'",
        "distance(place, point(52.5, 13.4)) < 1000", #"when < date("1970-01-01T00:00:02Z") OR n BETWEEN {1, 2}"#,
        "_recordName IN {'r1', 'r7'}", "NOT (n == 2) AND title LIKE '*e*'", "ref == 'r1'", "_parent == 'r0'",
    ]

    private static func records() -> [Record] {
        let titles = ["one", "two", "three", "apple", "Äpfel two"]
        return (0..<30).map { number in
            var record = Record("r\(number)", type: number % 3 == 0 ? "Task" : "Note", [:])
            if number % 4 != 0 {
                record["n"] = number % 8 == 1 ? .real(Double(number) / 2) : .integer(Int64(number % 7))
            }
            record["title"] = .string(titles[number % 5])
            record["tags"] = .strings(number % 2 == 0 ? ["x", "y"] : [])
            record["place"] = .location(RecordLocation(latitude: 52.5 + Double(number) / 1000, longitude: 13.4))
            record["when"] = .date(RecordDate(nanoseconds: Int64(number) * 1_000_000_000))
            record["ref"] = .reference(RecordReference("r\(number / 2)"))
            if number > 20 { record.parent = "r0" }
            return record
        }
    }

    @Test func thisDeviceAnswersAsTheServerDoes() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.modify(saving: Self.records(), deleting: [])
            try await here.settle()
            try await there.settle()
            var found = 0
            for text in Self.predicates {
                var predicate: QueryPredicate?
                if !text.isEmpty { predicate = try QueryPredicate(parsing: text) }
                for type in [nil, "Note", "Task", "Nothing"] {
                    for sort in [[], [RecordSort("n"), RecordSort("title", ascending: false)]] {
                        for limit in [nil, 4] {
                            let query = RecordQuery(type: type, predicate, sort: sort, limit: limit)
                            let local = try await there.database.records(matching: query)
                            let server = try await there.database.records(matching: query, from: .server)
                            #expect(local == server, "\(text) \(type ?? "")")
                            found += local.count
                        }
                    }
                }
            }
            #expect(found > 300)
        }
    }

    @Test func whatWaitsToBeSentIsAnsweredToo() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.modify(
                saving: [Record("a", ["n": 1]), Record("b", ["n": 2]), Record("c", ["n": 3])], deleting: [])
            try await here.settle()
            here.setOffline(true)
            var record = try #require(try await here.database.record(RecordID("a")))
            record["n"] = 5
            try await here.database.save(record)
            try await here.database.delete(RecordID("b"))
            try await here.database.save(Record("d", ["n": 4]))
            let query = RecordQuery(
                type: "Note", try QueryPredicate(parsing: "n > 1"), sort: [RecordSort("n", ascending: false)])
            let found = try await here.database.records(matching: query)
            #expect(found.map(\.id.name) == ["a", "d", "c"] && found.map(\.isPending) == [true, true, false])
            #expect(try await here.database.recordCount() == 3)
            let names = try await here.database.records(matching: RecordQuery(limit: 2, desiredFields: ["x"]))
            #expect(names.map(\.id.name) == ["a", "c"] && names.allSatisfy { $0.fields.isEmpty })
        }
    }

    @Test func numbersComeInTheirOrderWhateverTheirType() {
        let order: [PredicateValue?] = [
            nil, .list([]), .location(PredicateLocation(latitude: 1, longitude: 2)), .real(.nan), .real(-.infinity),
            .integer(.min), .real(-1.5), .integer(-1), .real(-0.5), .integer(0), .integer(1 << 53),
            .integer((1 << 53) + 1), .real(0x1p54), .integer(.max), .real(0x1p63),
            .date(PredicateDate(nanoseconds: 1)), .string(""), .string("a"), .string("b"), .data([1]), .data([1, 0]),
        ]
        for (left, first) in order.enumerated() {
            for (right, second) in order.enumerated() {
                let keys = [first, second].map { IndexKey.key(of: $0, []) }
                #expect(keys[0].lexicographicallyPrecedes(keys[1]) == (left < right), "\(left) \(right)")
            }
        }
    }

    @Test func aFieldThatIsNotFetchedStaysWhenTheRecordIsSaved() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("a", ["n": 1, "title": "long"]))
            try await here.settle()
            for source in [RecordSource.local, .server] {
                var record = try #require(
                    try await here.database.record(RecordID("a"), from: source, desiredFields: ["n"]))
                #expect(record.fields.keys.sorted() == ["n"])
                record["n"] = source == .local ? 2 : 3
                try await here.database.save(record)
                try await here.settle()
                #expect(try await here.contents() == ["a": ["n": source == .local ? 2 : 3, "title": "long"]])
            }
            #expect(try await here.proves())
        }
    }

    /// More than the server puts in order without an index.
    private static let count = 1200

    private static func fill(_ device: RecordCloud.Device) async throws {
        let titles = ["b", "A", "\u{c9}", "e", "B"]
        for start in stride(from: 0, to: count, by: 400) {
            try await device.database.modify(
                saving: (start..<start + 400).map { number in
                    Record(
                        "r\(number)",
                        ["n": .integer(Int64(number * 7 % count)), "title": .string(titles[number % 5]), "long": "x"])
                }, deleting: [])
        }
        try await device.settle()
    }

    @Test func whatNoIndexServesNamesTheIndexUnlessAScanIsAllowed() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await Self.fill(here)
            let sort = [
                RecordSort("title", ignoresCase: true, ignoresAccents: true), RecordSort("n", ascending: false),
            ]
            var query = RecordQuery(type: "Note", try QueryPredicate(parsing: "n >= 0"), sort: sort, limit: 500)
            let error = await #expect(throws: CloudError.self) {
                try await here.database.records(matching: query, from: .server)
            }
            let index = RecordIndex(
                type: "Note",
                fields: [
                    RecordIndex.Field("title", ignoresCase: true, ignoresAccents: true),
                    RecordIndex.Field("n", ascending: false),
                ])
            #expect(error?.code == .limitExceeded && error?.neededIndex == index)
            let local = try await here.database.records(matching: query)
            #expect(local.count == 500 && local.map { $0["title"] }.prefix(300).contains("\u{c9}") == false)
            query.allowsScan = true
            #expect(try await here.database.records(matching: query, from: .server) == local)
            var paged: [[Record]] = []
            for try await page in here.database.pages(matching: query, from: .server, size: 200) { paged.append(page) }
            #expect(paged.map(\.count) == [200, 200, 100] && paged.flatMap { $0 } == local)
            query.allowsScan = false
            try await here.database.indexes.modify(saving: [try #require(error?.neededIndex)])
            cloud.simulation.pass(.seconds(120))
            #expect(try await here.database.records(matching: query, from: .server) == local)
            #expect(try await here.database.indexes.explain(query).way == .index)
            query.desiredFields = ["long"]
            query.limit = 3
            let few = try await here.database.records(matching: query, from: .server)
            #expect(
                few.map(\.id) == local.prefix(3).map(\.id)
                    && few.map(\.fields) == [["long": "x"], ["long": "x"], ["long": "x"]])
        }
    }

    @Test func theServerIsReadPageByPageAndNoFurther() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await Self.fill(here)
            try await here.database.indexes.modify(
                saving: [RecordIndex(type: "Note", fields: [RecordIndex.Field("n")])])
            cloud.simulation.pass(.seconds(120))
            for sort in [[], [RecordSort("n")], [RecordSort("n", ascending: false)]] {
                let query = RecordQuery(type: "Note", sort: sort)
                let all = try await here.database.records(matching: query, from: .server)
                #expect(all == (try await here.database.records(matching: query)))
                try #require(all.count == Self.count)
                var pages = here.database.pages(matching: query, from: .server, size: 100).makeAsyncIterator()
                #expect(try await pages.next() == Array(all[..<100]))
                // What goes meanwhile is not in those that come, since nobody has asked for them yet.
                let last = try #require(all.last)
                try await there.database.waitUntilCurrent()
                try await there.database.delete(last.id)
                try await there.settle()
                #expect(try await pages.next() == Array(all[100..<200]))
                var rest: [Record] = []
                while let page = try await pages.next() { rest += page }
                #expect(rest == Array(all[200..<(Self.count - 1)]))
                try await there.database.save(Record(last.id, type: last.type, fields: last.fields))
                try await there.settle()
                try await here.settle()
            }
        }
    }

    @Test(arguments: [
        ("Note(kind, date descending)", false), ("Note(title[cd], n)", false), ("Note(words)", true),
        ("Note(words)", false),
    ]) func anIndexThatIsDescribedIsReadAgain(text: String, isOfWords: Bool) throws {
        let index = try #require(RecordIndex(described: text, isOfWords: isOfWords))
        #expect(index.fields.isEmpty == isOfWords && index.type == "Note")
        let names = index.fields.map { field in
            let letters = (field.ignoresCase ? "c" : "") + (field.ignoresAccents ? "d" : "")
            return field.name + (letters.isEmpty ? "" : "[\(letters)]") + (field.ascending ? "" : " descending")
        }
        #expect("Note(\(isOfWords ? "words" : names.joined(separator: ", ")))" == text)
    }

    @Test(arguments: ["", "Note", "Note(", "Note()", "Note(,)", "Note(a b)", "(", ")", "Note([)"])
    func whatDescribesNoIndexIsNone(text: String) {
        #expect(RecordIndex(described: text, isOfWords: false) == nil)
    }
}
