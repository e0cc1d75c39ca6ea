import Foundation
import NephosCore
import NephosKit

/// Queries, each with what it means, said a second time in plain Swift that shares nothing with the language.
struct PlainQuery {
    var text: String
    var holds: (Record) -> Bool

    fileprivate static func number(_ record: Record) -> Int64? {
        if case .integer(let value)? = record.fields["v"] { value } else { nil }
    }

    fileprivate static func text(_ record: Record) -> String? {
        if case .string(let value)? = record.fields["t"] { value } else { nil }
    }

    private static func tags(_ record: Record) -> [String] {
        if case .strings(let values)? = record.fields["tags"] { values } else { [] }
    }

    fileprivate static func reference(_ record: Record) -> String? {
        if case .reference(let target)? = record.fields["ref"] { target.record } else { nil }
    }

    static let texts = [
        "", "a", "A b", "\u{e9}t\u{e9}", "e\u{301}te\u{301}", "it's \"so\"", "*?\\", "\u{0}", "zz\u{1F600}",
    ]

    static func all(_ number: Int64) -> [PlainQuery] {
        [
            PlainQuery(text: "v > \(number)") { self.number($0).map { $0 > number } ?? false },
            PlainQuery(text: "v != \(number)") { self.number($0) != number },
            PlainQuery(text: "v == NULL") { $0.fields["v"] == nil },
            PlainQuery(text: "NOT (v BETWEEN {\(number), \(number + 9)})") {
                !(self.number($0).map { (number...number + 9).contains($0) } ?? false)
            },
            PlainQuery(text: "t == 'a' OR v < \(number)") { record in
                text(record) == "a" || self.number(record).map { $0 < number } ?? false
            },
            PlainQuery(text: "t BEGINSWITH 'it' AND v >= 0") { record in
                text(record).map { $0.utf8.starts(with: "it".utf8) } ?? false
                    && self.number(record).map { $0 >= 0 } ?? false
            },
            PlainQuery(text: "tags CONTAINS 'x'") { tags($0).contains("x") },
            PlainQuery(text: "ANY tags IN {'y', 'z'}") { tags($0).contains { $0 == "y" || $0 == "z" } },
            PlainQuery(text: "_recordName >= 'r1'") { !$0.id.name.utf8.lexicographicallyPrecedes("r1".utf8) },
            PlainQuery(text: "_parent == NULL") { $0.parent == nil },
            PlainQuery(text: "_parent == 'root' AND ref != NULL") { $0.parent == "root" && reference($0) != nil },
            PlainQuery(text: "ref IN {'r0', 'r2', '-x'}") { ["r0", "r2", "-x"].contains(reference($0)) },
        ]
    }
}

/// Orders, said a second time likewise. No two records are alike in one, but for those without a number, of which a zone has
/// few.
struct PlainOrder {
    var sort: [RecordSort]
    private var precedes: (Record, Record) -> Bool?

    /// - Returns: What is alike as it was.
    func sorted(_ records: [Record]) -> [Record] {
        records.enumerated().sorted { left, right in
            precedes(left.element, right.element) ?? (left.offset < right.offset)
        }
        .map(\.element)
    }

    /// What has no value comes first.
    private static func number(_ left: Record, _ right: Record) -> Bool? {
        let (left, right) = (PlainQuery.number(left), PlainQuery.number(right))
        guard left != right else { return nil }
        guard let left, let right else { return left == nil }
        return left < right
    }

    private static func bytes(_ left: String?, _ right: String?) -> Bool? {
        guard left.map({ Array($0.utf8) }) != right.map({ Array($0.utf8) }) else { return nil }
        guard let left, let right else { return left == nil }
        return left.utf8.lexicographicallyPrecedes(right.utf8)
    }

    static var all: [PlainOrder] {
        [
            PlainOrder(sort: []) { _, _ in nil },
            PlainOrder(sort: [RecordSort("v")], precedes: number),
            PlainOrder(sort: [RecordSort("v", ascending: false)]) { number($0, $1).map { !$0 } },
            PlainOrder(sort: [RecordSort("t"), RecordSort("v")]) {
                bytes(PlainQuery.text($0), PlainQuery.text($1)) ?? number($0, $1)
            },
            PlainOrder(sort: [RecordSort("ref"), RecordSort("v", ascending: false)]) {
                bytes(PlainQuery.reference($0), PlainQuery.reference($1)) ?? number($0, $1).map { !$0 }
            },
        ]
    }
}
