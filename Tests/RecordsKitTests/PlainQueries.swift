import Foundation
import NephosCore
import NephosKit

/// Queries, each with what it means, said a second time in plain Swift that shares nothing with the language.
struct PlainQuery {
    var text: String
    var holds: (Record) -> Bool

    private static func number(_ record: Record) -> Int64? {
        if case .integer(let value)? = record.fields["v"] { value } else { nil }
    }

    private static func text(_ record: Record) -> String? {
        if case .string(let value)? = record.fields["t"] { value } else { nil }
    }

    private static func tags(_ record: Record) -> [String] {
        if case .strings(let values)? = record.fields["tags"] { values } else { [] }
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
        ]
    }
}
