import Foundation
import NephosBus
import NephosCore
import NephosPredicates
import NephosRecordRules
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// Random records, indexes and queries: with indexes or without, a query finds what its predicate is true of, in its
/// order, and what matches throughout comes exactly once, whatever changes between its calls.
@Suite struct IndexModelTests {
    private static let names = (0..<40).map { "r\($0)" }
    private static let texts = [
        "", "a", "A", "á", "a\u{301}", "b", "Ab", "a b", "a\u{0}", "😀 b", "b-a", "Straße", "ß",
        String(repeating: "x", count: 127), String(repeating: "x", count: 128),
        String(repeating: "x", count: 128) + "y",
        String(repeating: "x", count: 200),
    ]
    private static let numbers: [WireRecordField.OneOf_Value] = [
        .integer(0), .real(-0.0), .integer(1), .real(1), .real(0.5), .integer(.max), .real(0x1p63), .integer(-1),
        .real(.infinity), .real(-.infinity), .real(.nan), .integer(1 << 53 + 1), .real(0x1p53), .string("1"),
    ]
    private static let indexes = [
        "Note(n)", "Note(t)", "Note(t[cd])", "Note(n, t descending)", "Note(g, n)", "Note(tags)", "Note(g, tags)",
        "Note(words)", "Note(place)", "Note(t[c] descending, n descending)", "Note(tags descending, n)", "Note(d)",
        "Note(_modificationDate descending)", "Note(g descending, t[cd], n descending)", "Note(_recordName descending)",
    ]

    private static func list(_ random: inout SplitMix64) -> [String] {
        let count = pick([0, 1, 2, 3, 3, 130], &random)
        return (0..<count).map { count > 3 ? "t\($0)" : "t\(Int.random(in: 0..<4, using: &random))" }
    }

    private static func fields(_ random: inout SplitMix64) -> [String: WireRecordField.OneOf_Value] {
        var fields: [String: WireRecordField.OneOf_Value] = [:]
        func maybe() -> Bool { Int.random(in: 0..<5, using: &random) > 0 }
        if maybe() { fields["n"] = pick(numbers, &random) }
        if maybe() { fields["t"] = .string(pick(texts, &random)) }
        if maybe() { fields["g"] = .integer(Int64.random(in: 0..<3, using: &random)) }
        if maybe() { fields["tags"] = maybe() ? .list(list(&random)) : .string("t1 t2") }
        if maybe() { fields["d"] = .date(Int64.random(in: -2...2, using: &random) * 86_400_000_000_000) }
        if maybe() {
            fields["place"] = .place(
                Double.random(in: 50...54, using: &random), Double.random(in: 10...14, using: &random))
        }
        return fields
    }

    private static func part(_ random: inout SplitMix64) -> String {
        let relation = pick(["==", "<", "<=", ">", ">=", "!="], &random)
        let folding = pick(["", "[c]", "[d]", "[cd]"], &random)
        let text = pick(texts, &random).replacing("\u{0}", with: "\\u{0}")
        let number = pick(["0", "1", "0.5", "9223372036854775807", "9007199254740993", "-1"], &random)
        let tag = Int.random(in: 0..<5, using: &random)
        switch Int.random(in: 0..<16, using: &random) {
        case 0, 1: return "n \(relation) \(number)"
        case 2: return "n IN {0, 1, '1', 0.5}".replacing(", '1'", with: "")
        case 3: return "n BETWEEN {0, \(number)}"
        case 4, 5: return "t \(relation)\(relation == "!=" ? "" : folding) '\(text)'"
        case 6: return "t BEGINSWITH\(folding) '\(text)'"
        case 7: return "t IN\(folding) {'a', 'B', '\(text)'}"
        case 8: return "g == \(tag)"
        case 9: return "g IN {0, 2}"
        case 10: return "tags CONTAINS 't\(tag)'"
        case 11: return "ANY tags \(relation == "!=" ? "==" : relation) 't\(tag)'"
        case 12: return "self CONTAINS '\(pick(["a", "b", "t1 t2", "strasse", "straße"], &random))'"
        case 13: return "distance(place, point(52, 12)) < \(Int.random(in: 0..<200_000, using: &random))"
        case 14: return "\(pick(["n", "t", "g", "tags"], &random)) == NULL"
        default: return "(g == 1 OR d < date(\"1970-01-01\") OR t LIKE '*a')"
        }
    }

    private static let sorts: [[String]] = [
        [], [], [], ["n"], ["n descending"], ["t"], ["t[cd]"], ["n", "t descending"], ["n descending", "t"],
        ["g", "n"], ["n"], ["t[c]", "n"], ["t[c] descending", "n descending"], ["_modificationDate"],
        ["_modificationDate descending"], ["d"], ["g", "t[cd] descending", "n"], ["tags"], ["_recordName"],
        ["n", "g", "t"],
    ]

    private struct Query {
        var predicate: String
        var sort: [String]
        private var compiled: CompiledPredicate
        private var fields: [IndexDefinition.Field]

        init(_ random: inout SplitMix64) throws {
            predicate = (0..<Int.random(in: 0..<4, using: &random)).map { _ in part(&random) }
                .joined(separator: " AND ")
            sort = pick(sorts, &random)
            compiled = try QueryPredicate(parsing: predicate.isEmpty ? "TRUEPREDICATE" : predicate).compiled()
            fields =
                try sort.isEmpty
                ? [] : IndexDefinition(WireRecordIndex(text: "Note(\(sort.joined(separator: ",")))")).fields
        }

        /// What each record that is meant is sorted by.
        func matches(_ records: [String: WireRecord]) -> [String: [UInt8]] {
            var keys: [String: [UInt8]] = [:]
            for (name, record) in records where record.type == "Note" {
                let queried = QueriedRecord(name: ItemName(name), record: record)
                if compiled.matches(queried) { keys[name] = fields.flatMap { $0.key(of: queried) } }
            }
            return keys
        }
    }

    private static func change(_ device: RecordDevice, _ random: inout SplitMix64) throws {
        var changes: [String: WireRecordChange] = [:]
        for _ in 0..<Int.random(in: 1..<6, using: &random) {
            let name = pick(names, &random)
            if Int.random(in: 0..<4, using: &random) == 0 {
                changes[name] = .delete(name)
            } else {
                changes[name] = .save(name, fields(&random), policy: .changedKeys)
            }
        }
        _ = try device.modify(changes.sorted { $0.key < $1.key }.map(\.value))
    }

    @Test(arguments: 0..<(Int(ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] ?? "") ?? 4))
    func aQueryFindsWhatItsPredicateIsTrueOf(_ seed: Int) throws {
        var random = SplitMix64(seed: UInt64(seed) + 100)
        let house = try RecordHouse(seed: UInt64(seed))
        let device = try house.device()
        device.zone = try device.makeZone("Work")
        try device.modify([.save("other", ["n": .integer(1)], type: "Other")])
        var ways: [WireQueryPlan.Way: Int] = [:]
        for step in 0..<60 {
            try Self.change(device, &random)
            if step % 8 == 0 {
                let texts = Set((0..<2).map { _ in pick(Self.indexes, &random) })
                let gone = pick(Self.indexes, &random)
                for text in texts { try device.index(text, removing: texts.contains(gone) ? [] : [gone]) }
                // Some are queried while they are made.
                if Bool.random(using: &random) { try device.settleIndexes() }
            }
            if step == 30 {
                house.cloud.crash(.records)
                try house.cloud.start(.records)
                house.cloud.network.run(for: .milliseconds(1))
            }
            let query = try Query(&random)
            let before = query.matches(try device.list())
            var stable = before
            var pages = 0
            let names = try device.query(
                query.predicate, sort: query.sort, limit: UInt32.random(in: 0..<8, using: &random)
            ) { reply in
                ways[reply.plan.way, default: 0] += 1
                pages += 1
                // By their last change they would come for ever.
                if step % 2 == 0 || pages > 20 { return }
                try Self.change(device, &random)
                if Int.random(in: 0..<4, using: &random) == 0 {
                    // Another index may answer the rest.
                    let texts = Self.indexes.shuffled(using: &random)
                    try device.index(texts[0], texts[1], removing: Array(texts[2..<5]))
                    try device.settleIndexes()
                }
                let now = query.matches(try device.list())
                stable = stable.filter { now[$0.key] == $0.value }
            }
            let counts = Dictionary(names.map { ($0, 1) }, uniquingKeysWith: +)
            let what = "step \(step): \(query.predicate) by \(query.sort)"
            for name in stable.keys { #expect(counts[name] == 1, "\(what): \(name)") }
            guard step % 2 == 0 else { continue }
            #expect(Set(names) == Set(before.keys) && counts.values.allSatisfy { $0 == 1 }, "\(what)")
            let keys = names.compactMap { before[$0] }
            #expect(zip(keys, keys.dropFirst()).allSatisfy { !$1.lexicographicallyPrecedes($0) }, "\(what)")
            if query.sort.isEmpty { #expect(names == names.sorted(), "\(what)") }
        }
        try checkRows(house, device)
        #expect(ways[.index, default: 0] > 0)
    }

    /// Each record has the rows that it should have, and no other.
    private func checkRows(_ house: RecordHouse, _ device: RecordDevice) throws {
        try device.settleIndexes()
        house.cloud.network.run(for: .seconds(1))
        let records = try device.list()
        let words = try #require(SipHash(key: [UInt8](repeating: 0, count: 16)))
        let count = try device.indexes().reduce(0) { sum, state in
            let index = try IndexDefinition(state.index)
            return sum
                + records.reduce(0) {
                    $0 + index.keys(of: QueriedRecord(name: ItemName($1.key), record: $1.value), words: words).count
                }
        }
        #expect(try house.rows(of: "record_index") == Int64(count))
        for name in records.keys { try device.delete(name) }
        #expect(try house.rows(of: "record_index") == 0)
    }
}
