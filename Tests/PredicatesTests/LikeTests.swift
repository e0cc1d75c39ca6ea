import NephosCore
import NephosPredicates
import Testing

private func matches(_ text: String, _ pattern: String, _ folding: Folding = []) throws -> Bool {
    let predicate = try QueryPredicate(comparison("a", .like, .string(pattern), folding: folding))
    return predicate.compiled().matches { _ in .string(text) }
}

@Suite struct LikeTests {
    @Test(arguments: [
        ("report.pdf", "*.pdf", true), ("report.pdf", "*.PDF", false), ("report.pdf", "report", false),
        ("", "", true), ("", "*", true), ("", "?", false), ("a", "?", true), ("é", "?", true), ("😀é", "??", true),
        ("ab", "?", false), ("abc", "a*c", true), ("abc", "a*b", false), ("aXbXc", "a*b*c", true),
        ("a*c", "a\\*c", true), ("abc", "a\\*c", false), ("a\\c", "a\\\\c", true), ("aa", "a*a", true),
        ("a", "a*a", false), ("aba", "a*ba", true), ("aéb", "*?b", true), ("xay", "*a?", true), ("xa", "*a?", false),
        ("abab", "*?b*b", true), ("中文.txt", "*.txt", true), ("中文.txt", "??.txt", true), ("中文x", "*文?", true),
        ("a中b文c", "a*?b?*c", true), ("ab", "a*?*b", false), ("axb", "a*?*b", true), ("ab", "*a??*", false),
        // The begin of the piece is within itself.
        ("aaab", "*aab*", true), ("ababac", "*abac*", true), ("aaaab", "*a?ab*", true), ("ababab", "*ab?bc*", false),
    ])
    func theTableOfPatterns(_ text: String, _ pattern: String, _ expected: Bool) throws {
        #expect(try matches(text, pattern) == expected)
    }

    @Test func modifiersFoldPatternAndText() throws {
        #expect(try matches("Été.PDF", "été*.pdf", .caseInsensitive))
        #expect(try !matches("Été.PDF", "ete*.pdf", .caseInsensitive))
        #expect(try matches("Été.PDF", "ete*.pdf", [.caseInsensitive, .diacriticInsensitive]))
        // As names come from a Mac: taken apart.
        #expect(try matches("E\u{301}te\u{301}", "??é", .caseInsensitive))
        #expect(try !matches("E\u{301}te\u{301}", "??é"))
    }

    /// Against a plain search through all ways to match.
    @Test(arguments: 0..<4) func isTheSameAsTryingEverything(seed: UInt64) throws {
        var generator = SplitMix64(seed: seed)
        for _ in 0..<3_000 {
            let text = random(["a", "b", "é", "A", "中"], 0...7, &generator)
            let pattern = random(["a", "b", "é", "A", "*", "*", "?", "\\*", "\\\\", "中"], 0...6, &generator)
            let folding: Folding = [[], .caseInsensitive, .diacriticInsensitive].randomElement(using: &generator) ?? []
            let rule = FoldingRule.v1
            let expected = naiveLike(
                Array(rule.fold(text, folding).unicodeScalars), Array(rule.fold(pattern, folding).unicodeScalars))
            #expect(try matches(text, pattern, folding) == expected, "\(text) LIKE \(pattern)")
        }
    }

    private func random(_ pieces: [String], _ count: ClosedRange<Int>, _ generator: inout SplitMix64) -> String {
        (0..<Int.random(in: count, using: &generator)).map { _ in pieces.randomElement(using: &generator) ?? "" }
            .joined()
    }

    @Test(arguments: [
        String(repeating: "*a", count: 500) + "b", String(repeating: "a*", count: 500) + "b",
        String(repeating: "*?a", count: 340) + "b", "*" + String(repeating: "?", count: 900) + "*b",
        "*" + String(repeating: "a", count: 1_000) + "b*", "*" + String(repeating: "a?", count: 31) + "b*",
        String(repeating: "*", count: 1_000) + "b", "*" + String(repeating: "?", count: 1_000) + "b",
    ])
    func noPatternTakesLong(_ pattern: String) throws {
        let text = String(repeating: "a", count: 100_000)
        let predicate = try QueryPredicate(comparison("a", .like, .string(pattern), folding: .caseInsensitive))
            .compiled()
        let time = ContinuousClock().measure {
            #expect(!predicate.matches { _ in .string(text) })
        }
        #expect(time < .seconds(5))
    }
}
