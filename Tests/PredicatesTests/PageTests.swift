import Foundation
import NephosPredicates
import Testing

/// What `docs/predicates.md` says; and that an app may import Foundation, which has predicates too, beside Nephos.
@Suite struct PageTests {
    private func page() throws -> String {
        try String(
            contentsOfFile: #filePath.replacing("Tests/PredicatesTests/PageTests.swift", with: "docs/predicates.md"),
            encoding: .utf8)
    }

    @Test func theComparisonsOfThePageAreRead() throws {
        // Those of the first table: others follow.
        let page = try page()
        let end = page.range(of: "| type |")?.lowerBound ?? page.endIndex
        let rows = page[..<end].split(separator: "\n").filter { $0.hasPrefix("| `") }
        #expect(rows.count == 13)
        for row in rows {
            let cell = row.dropFirst(2).prefix { $0 != "|" }
            let texts = cell.split(separator: "`").filter {
                $0.contains(" ") && !$0.hasPrefix(" ") && !$0.hasPrefix(",")
            }
            let constants = cell.split(separator: "`").filter { $0.hasSuffix("PREDICATE") }
            #expect(!texts.isEmpty || !constants.isEmpty, "\(row)")
            for text in texts + constants { #expect(error(of: String(text)) == nil, "\(text)") }
        }
    }

    @Test func theErrorOfThePageIsWhatIsShown() throws {
        let text = "nmae LIKE '*.pdf'"
        let predicate = try QueryPredicate(parsing: text)
        let found = #expect(throws: QueryPredicateError.self) { try predicate.check(against: SchemaTests.schema) }
        #expect(try page().contains("```\n\(found?.rendered(in: text) ?? "")\n```"))
    }
}
