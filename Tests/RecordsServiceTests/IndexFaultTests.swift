import NephosCore
import NephosWire
import Testing

@testable import NephosRecords

/// Indexes that cannot answer by themselves, and values at the edges of their keys.
@Suite struct IndexFaultTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    private func save(_ count: Int, _ fields: (Int) -> [String: WireRecordField.OneOf_Value]) throws {
        for start in stride(from: 0, to: count, by: 200) {
            let outcome = try device.modify(
                (start..<min(start + 200, count)).map { .save("r\($0 + 10_000)", fields($0)) })
            #expect(outcome.codes.allSatisfy { $0 == nil })
        }
    }

    @Test func whereOneIndexFindsTooManyTheNextOneAnswers() throws {
        try device.index("Note(color)", "Note(n)")
        let count = RecordLimits.indexRowsReadMax + 100
        try save(count) { ["color": .string("red"), "n": .integer(Int64($0))] }
        var names: [String] = []
        var after = ""
        for _ in 0..<3 {
            let reply = try device.page("color == 'red'", sort: ["n"], after: after, limit: 100)
            #expect(reply.plan.index == WireRecordIndex(text: "Note(n)"))
            names += reply.records.map(\.item)
            after = reply.after
            if after.isEmpty { break }
        }
        #expect(names == (0..<300).map { "r\($0 + 10_000)" })
    }

    @Test func whatTwoIndexesFindInVainLeavesRoomForTheOrderOfAThird() throws {
        try device.index("Note(a)", "Note(b)", "Note(n)")
        // By either of the two more bytes are found than are put in order, of more records than a call looks at.
        let (count, text) = (700, String(repeating: "x", count: 700))
        try save(count) { ["a": .integer(1), "b": .integer(1), "n": .integer(Int64($0)), "text": .string(text)] }
        let passes = (0..<16).map { "text != 'y\($0)'" }.joined(separator: " AND ")
        let names = try device.query("a == 1 AND b == 1 AND \(passes)", sort: ["n"]) { reply in
            #expect(reply.plan.index == WireRecordIndex(text: "Note(n)"))
        }
        #expect(names == (0..<count).map { "r\($0 + 10_000)" })
    }

    @Test func aSmallZoneWithManyDeletionsIsPutInOrderWithoutAnIndex() throws {
        try save(4100) { ["n": .integer(Int64(4100 - $0))] }
        for start in stride(from: 50, to: 4100, by: 405) {
            try device.modify((start..<min(start + 400, 4100)).map { .delete("r\($0 + 10_000)") })
            try device.modify((min(start + 400, 4100)..<min(start + 405, 4100)).map { .delete("r\($0 + 10_000)") })
        }
        let reply = try device.page("n > 0", sort: ["n"])
        #expect(reply.plan.way == .scanSorted && reply.after.isEmpty)
        #expect(reply.records.map(\.item) == (0..<50).reversed().map { "r\($0 + 10_000)" })
    }

    @Test func manyWordsThatManyRecordsHaveAreFound() throws {
        try device.index("Note(words)")
        let words = (0..<20).map { "word\($0)" }.joined(separator: " ")
        try save(300) { _ in ["text": .string(words)] }
        let reply = try device.page("self CONTAINS '\(words)'")
        #expect(reply.records.count == 300 && reply.after.isEmpty && reply.plan.way == .index)
    }

    @Test func placesNextToAPoleAndToTheDateLineAreFound() throws {
        let latitudes = [-90.0, (-90.0).nextUp, 90.0.nextDown, 90]
        let longitudes = [-180.0, (-180.0).nextUp, 180.0.nextDown, 180]
        try device.index("Note(place)")
        for (row, latitude) in latitudes.enumerated() {
            for (column, longitude) in longitudes.enumerated() {
                try device.save("p\(row)\(column)", ["place": .place(latitude, longitude)])
                try device.save("e\(row)\(column)", ["place": .place(Double(row), longitude)])
            }
        }
        for place in ["90, 0", "-90, 0", "90, 180", "-90, -180", "0, 180", "0, -180", "2, 180"] {
            let predicate = "distance(place, point(\(place))) < 1000"
            let reply = try device.page(predicate)
            #expect(reply.plan.index == WireRecordIndex(text: "Note(place)"))
            // Nothing that an index answers, and so everything is looked at.
            let all = try device.page("\(predicate) OR x == 1")
            #expect(all.plan.way == .scan)
            #expect(reply.records.map(\.item) == all.records.map(\.item))
            #expect(!reply.records.isEmpty)
        }
    }
}
