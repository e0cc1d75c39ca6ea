import NephosCore
import NephosPredicates
import Testing

/// A field by its name; a test that misspells one fails by itself.
func field(_ name: String) -> FieldName {
    guard let field = FieldName(name) else { fatalError("not a field: \(name)") }
    return field
}

func comparison(
    _ name: String, _ relation: PredicateRelation, _ operands: PredicateValue..., folding: Folding = [],
    any: Bool = false
) -> PredicateNode {
    .comparison(PredicateComparison(field(name), relation, operands, folding: folding, any: any))
}

func error(of text: String) -> QueryPredicateError? {
    do {
        _ = try QueryPredicate(parsing: text)
        return nil
    } catch {
        return error
    }
}

@Suite struct ParserTests {
    static let noon = PredicateDate(nanoseconds: 1_769_860_800_000_000_000)

    static let texts: [(String, PredicateNode)] = [
        ("TRUEPREDICATE", .constant(true)),
        (" falsepredicate\n", .constant(false)),
        ("a == 1", comparison("a", .equal, .integer(1))),
        ("a=1", comparison("a", .equal, .integer(1))),
        ("a != -1", comparison("a", .notEqual, .integer(-1))),
        ("a<>+1", comparison("a", .notEqual, .integer(1))),
        ("a < 1.5", comparison("a", .less, .real(1.5))),
        ("a <= 1e3", comparison("a", .lessOrEqual, .real(1000))),
        ("a =< -0.0", comparison("a", .lessOrEqual, .real(-0.0))),
        ("a > 'x'", comparison("a", .greater, .string("x"))),
        ("a >= \"it's\"", comparison("a", .greaterOrEqual, .string("it's"))),
        ("a => 'it\\'s'", comparison("a", .greaterOrEqual, .string("it's"))),
        ("a == '\\\\ \\n \\u{e9}'", comparison("a", .equal, .string("\\ \n \u{e9}"))),
        ("5 < size", comparison("size", .greater, .integer(5))),
        ("5 == size", comparison("size", .equal, .integer(5))),
        ("'x' in tags", comparison("tags", .contains, .string("x"))),
        ("a IN {}", comparison("a", .isIn)),
        ("a IN[c] {'x', \"Y\"}", comparison("a", .isIn, .string("x"), .string("Y"), folding: .caseInsensitive)),
        ("a between {1, 2.0}", comparison("a", .between, .integer(1), .real(2))),
        (
            "a BEGINSWITH[cd] 'x'",
            comparison("a", .beginsWith, .string("x"), folding: [.caseInsensitive, .diacriticInsensitive])
        ),
        ("a ENDSWITH[D] 'x'", comparison("a", .endsWith, .string("x"), folding: .diacriticInsensitive)),
        ("a contains 'x'", comparison("a", .contains, .string("x"))),
        ("a LIKE '*.pdf'", comparison("a", .like, .string("*.pdf"))),
        ("ANY a CONTAINS 'x'", comparison("a", .equal, .string("x"), any: true)),
        ("SOME a > 3", comparison("a", .greater, .integer(3), any: true)),
        ("ANY a IN {1}", comparison("a", .isIn, .integer(1), any: true)),
        ("a == YES", comparison("a", .equal, .boolean(true))),
        ("a == false", comparison("a", .equal, .boolean(false))),
        ("a == NULL", .isMissing(field("a"))),
        ("a != nil", .isPresent(field("a"))),
        ("a.b_2.c == 1", comparison("a.b_2.c", .equal, .integer(1))),
        ("#in == 1", comparison("in", .equal, .integer(1))),
        ("#size == 1", comparison("size", .equal, .integer(1))),
        ("date == date('2026-01-31T12:00:00Z')", comparison("date", .equal, .date(noon))),
        ("date(\"2026-01-31T13:00:00+01:00\") < day", comparison("day", .greater, .date(noon))),
        ("x == x'00fF'", comparison("x", .equal, .data([0, 255]))),
        ("self contains 'two words'", .fullText(PredicateText("two words"))),
        ("SELF CONTAINS[cd] 'x'", .fullText(PredicateText("x"))),
        (
            "distance(place, point(52, -13.5)) < 1000",
            .distance(
                PredicateDistance(
                    field("place"), from: PredicateLocation(latitude: 52, longitude: -13.5), .less, metres: 1000))
        ),
        ("NOT a == 1", .not(comparison("a", .equal, .integer(1)))),
        ("!a==1", .not(comparison("a", .equal, .integer(1)))),
        (
            "a == 1 or b == 2 && not c == 3",
            .or([
                comparison("a", .equal, .integer(1)),
                .and([comparison("b", .equal, .integer(2)), .not(comparison("c", .equal, .integer(3)))]),
            ])
        ),
        (
            "(a == 1 || b == 2) AND c == 3",
            .and([
                .or([comparison("a", .equal, .integer(1)), comparison("b", .equal, .integer(2))]),
                comparison("c", .equal, .integer(3)),
            ])
        ),
        (
            "a == 1 AND (b == 2 AND (c == 3))",
            .and([
                comparison("a", .equal, .integer(1)), comparison("b", .equal, .integer(2)),
                comparison("c", .equal, .integer(3)),
            ])
        ),
        ("a == -9223372036854775808", comparison("a", .equal, .integer(.min))),
    ]

    @Test(arguments: texts) func aTextSaysWhatItSays(_ text: String, _ expected: PredicateNode) throws {
        let predicate = try QueryPredicate(parsing: text)
        #expect(predicate.root == expected)
        #expect(try QueryPredicate(parsing: predicate.description) == predicate)
    }

    /// Text, the place of the error, and a part of its message.
    static let wrong: [(String, Range<Int>, String)] = [
        ("", 0..<0, "Expected a predicate"),
        ("  ", 2..<2, "Expected a predicate"),
        ("a", 1..<1, "Expected an operator"),
        ("a ==", 4..<4, "Expected a value"),
        ("a == b", 5..<6, "not with one another"),
        ("a == 1 b == 2", 7..<8, "Expected AND, OR"),
        ("(a == 1", 7..<7, "still open"),
        ("a == 1)", 6..<7, "Expected AND, OR"),
        ("a == 'x", 5..<7, "quote that ends"),
        ("a == 'x\\q'", 7..<9, "After \\"),
        ("a == '\\u{d800}'", 6..<13, "number of a character"),
        ("a == 9223372036854775808", 5..<24, "An integer lies"),
        ("a == 1e999", 5..<10, "beyond what a real"),
        ("a == 1.", 5..<7, "digit after the point"),
        ("a == 1e", 5..<7, "digits of the exponent"),
        ("a == 12ab", 7..<7, "number to end"),
        ("a == .5", 5..<6, "digit before the point"),
        ("a == %@", 5..<6, "no placeholders"),
        ("a == “x”", 5..<8, "straight quotes"),
        ("é == 1", 0..<2, "straight quotes"),
        ("a & b == 1", 2..<3, "Expected &&"),
        ("in == 1", 0..<2, "needs #"),
        ("ANY in == 1", 4..<6, "needs #"),
        ("# == 1", 0..<1, "directly after #"),
        ("a..b == 1", 0..<4, "single dot"),
        ("a NOT IN {1}", 2..<5, "NOT goes before"),
        ("a MATCHES 'x'", 2..<9, "use LIKE"),
        ("ALL a == 1", 0..<3, "NOT ANY"),
        ("a IN (1)", 5..<6, "Expected {"),
        ("a IN {1", 7..<7, "or } at the end"),
        ("a IN {1,}", 8..<9, "Expected a value"),
        ("a IN {1, 'x'}", 9..<12, "same type"),
        ("a IN {NULL}", 6..<10, "not in lists"),
        ("a BETWEEN {1}", 10..<12, "two bounds"),
        ("a < NULL", 4..<8, "NULL is compared"),
        ("NULL == a", 0..<4, "before NULL"),
        ("a BEGINSWITH 5", 13..<14, "text in quotes"),
        ("a ==[c] 5", 8..<9, "about letters"),
        ("a ==[x] 'b'", 5..<6, "Expected [c]"),
        ("a ==[c 'b'", 6..<6, "then ]"),
        ("a < x'00'", 4..<9, "Bytes have no order"),
        ("a == x'0'", 5..<7, "two hexadecimal"),
        ("a LIKE 'x\\\\'", 7..<12, "after the last \\"),
        ("a == date('2026-02-29')", 10..<22, "Expected a date"),
        ("a == date(5)", 10..<11, "date in quotes"),
        ("a == date('9999-01-01')", 10..<22, "1678 to 2261"),
        ("now() == 1", 0..<3, "only functions"),
        ("distance(a, point(91, 0)) < 1", 18..<20, "-90 to 90"),
        ("distance(a, point(0, 'x')) < 1", 21..<24, "-180 to 180"),
        ("distance(a, point(0, 0)) == 1", 25..<27, "A distance is compared"),
        ("distance(a, point(0, 0)) < -1", 27..<29, "from 0"),
        ("self == 'x'", 5..<7, "Expected CONTAINS after self"),
        ("self CONTAINS '…'", 14..<19, "one to 32 different words"),
    ]

    @Test(arguments: wrong) func anErrorPointsAtItsPlace(_ text: String, _ place: Range<Int>, _ message: String) {
        let found = error(of: text)
        #expect(found?.range == place)
        #expect(found?.message.contains(message) == true, "\(found?.message ?? "no error")")
    }

    @Test func anErrorIsShownUnderItsLine() {
        let text = "name == 'é' AND\n  size > b\u{7}ig"
        let found = error(of: text)
        #expect(found?.rendered(in: text).split(separator: "\n").dropFirst() == ["    size > b·ig", "           ^"])
        #expect(found.map { $0.position(in: text).line } == 2)
        #expect(found.map { $0.position(in: text).column } == 10)
    }

    @Test func caretsStandUnderWideCharacters() {
        let text = "'中文' < '가' AND b == 1"
        #expect(error(of: text)?.rendered(in: text).hasSuffix("\n           ^^^^") == true)
    }

    @Test func aLongLineIsCutAroundTheError() throws {
        let text = String(repeating: "a == 1 AND ", count: 100) + "b" + String(repeating: " ", count: 100)
        let lines = try #require(error(of: text)).rendered(in: text).split(separator: "\n")
        #expect(lines[1].count < 150)
        #expect(lines[2].last == "^")
    }

    @Test func aReplySaysTheReasonAndThePlace() throws {
        let reply = try #require(error(of: "a == ")).cloudError
        #expect(reply.code == .invalidArguments)
        #expect(reply.details["offset"] == "5")
        #expect(try #require(error(of: String(repeating: " ", count: 20_000))).cloudError.code == .limitExceeded)
    }

    @Test func beyondALimitIsAnErrorWithItsPlace() throws {
        let deep = String(repeating: "(", count: 33) + "a == 1" + String(repeating: ")", count: 33)
        #expect(error(of: deep)?.code == .tooLarge)
        #expect(error(of: deep)?.range == 32..<33)
        #expect(error(of: String(deep.dropFirst().dropLast())) == nil)
        #expect(error(of: String(repeating: "!", count: 33) + "a==1")?.code == .tooLarge)
        #expect(error(of: String(repeating: "(", count: 16_000))?.code == .tooLarge)

        let wide = Array(repeating: "a=1", count: 999).joined(separator: "||")
        #expect(error(of: wide) == nil)
        #expect(error(of: wide + "||a=1||b=1")?.code == .tooLarge)

        let list = "a IN {" + Array(repeating: "1", count: 1_000).joined(separator: ",")
        #expect(error(of: list + "}") == nil)
        #expect(error(of: list + ",1}")?.range == (list.utf8.count + 1)..<(list.utf8.count + 2))

        let name = String(repeating: "n", count: 255)
        #expect(error(of: name + " == 1") == nil)
        #expect(error(of: name + "n == 1")?.range == 0..<256)

        let spaces = String(repeating: " ", count: 16_384 - 6)
        #expect(error(of: "a == 1" + spaces) == nil)
        #expect(error(of: "a == 1 " + spaces)?.range == 16_384..<16_385)

        #expect(error(of: "a LIKE '\(String(repeating: "x", count: 1_024))'") == nil)
        #expect(error(of: "a LIKE '\(String(repeating: "x", count: 1_025))'")?.code == .tooLarge)
        #expect(error(of: "a LIKE '*?\(String(repeating: "x", count: 63))*'") == nil)
        #expect(error(of: "a LIKE '*?\(String(repeating: "x", count: 64))*'")?.code == .tooLarge)

        let words = (1...33).map(String.init).joined(separator: " ")
        #expect(error(of: "self CONTAINS '\(words)'")?.code == .literal)
    }

    /// What is accepted can be stored as its canonical text, which is longer than what was typed.
    @Test func whatHasNoCanonicalTextWithinTheLimitIsRefused() {
        let text = "a == '\(String(repeating: "\u{1}", count: 4_000))'"
        #expect(error(of: text)?.code == .tooLarge)
        #expect(error(of: text)?.message.contains("canonical") == true)
    }

    @Test func aProgramCanMakeWhatATextCanSay() throws {
        let one = comparison("a", .equal, .integer(1))
        #expect(try QueryPredicate(.and([])).root == .constant(true))
        #expect(try QueryPredicate(.or([])).root == .constant(false))
        #expect(try QueryPredicate(.and([one])).root == one)
        #expect(try QueryPredicate(.and([one, .and([one, .or([one])])])).root == .and([one, one, one]))
        for refused: PredicateNode in [
            comparison("a", .equal, .real(.nan)), comparison("a", .equal, .real(.infinity)), comparison("a", .equal),
            comparison("a", .equal, .integer(1), .integer(2)), comparison("a", .between, .integer(1)),
            comparison("a", .like, .integer(1)), comparison("a", .equal, .list([])),
            comparison("a", .contains, .integer(1), any: true),
            comparison("a", .equal, .location(PredicateLocation(latitude: 0, longitude: 0))),
            .fullText(PredicateText("")),
            .distance(
                PredicateDistance(
                    field("a"), from: PredicateLocation(latitude: .nan, longitude: 0), .less, metres: 1)),
            .distance(
                PredicateDistance(
                    field("a"), from: PredicateLocation(latitude: 0, longitude: 0), .like, metres: 1)),
        ] {
            #expect(throws: QueryPredicateError.self) { try QueryPredicate(refused) }
        }
        var deep = one
        for _ in 0..<1_000 { deep = .not(deep) }
        #expect(throws: QueryPredicateError.self) { try QueryPredicate(deep) }
    }

    /// Both look alike, and a database tells them apart.
    @Test func textsOfOtherBytesAreOtherPredicates() throws {
        let composed = try QueryPredicate(parsing: "a == '\u{e9}'")
        let decomposed = try QueryPredicate(parsing: "a == 'e\u{301}'")
        #expect(composed != decomposed)
        #expect(Set([composed, decomposed]).count == 2)
        let words = try [
            QueryPredicate(parsing: "self CONTAINS '\u{e9}'"), QueryPredicate(parsing: "self CONTAINS 'e\u{301}'"),
        ]
        #expect(words[0] != words[1])
    }

    @Test func theCanonicalTextCommandsNoTerminal() throws {
        let predicate = try QueryPredicate(parsing: "a == '\u{1b}[31m\u{202e}\u{9b}'")
        #expect(predicate.description == "a == '\\u{1b}[31m\\u{202e}\\u{9b}'")
    }

    @Test func howItWasTypedDoesNotCount() throws {
        let typed = try QueryPredicate(parsing: "not (name like[dc] \"*.pdf\" or(5<size))&&x=nil")
        #expect(typed.description == "NOT (name LIKE[cd] '*.pdf' OR size > 5) AND x == NULL")
    }
}

@Suite struct DateTests {
    @Test(
        arguments: [
            ("1970-01-01", 0), ("1970-01-01T00:00Z", 0), ("1969-12-31T23:59:59.999999999Z", -1),
            ("2000-02-29T00:00:00Z", 951_782_400_000_000_000), ("1970-01-01T01:00:00.5+01:00", 500_000_000),
            ("2262-04-11T23:47:16.854775807Z", Int64.max), ("1677-09-21T00:12:43.145224192Z", Int64.min),
        ] as [(String, Int64)])
    func aDateIsReadToTheNanosecond(_ text: String, _ nanoseconds: Int64) throws {
        let date = try #require(PredicateDate(text))
        #expect(date.nanoseconds == nanoseconds)
        #expect(PredicateDate(date.description) == date)
    }

    @Test(arguments: [
        "", "2026", "2026-13-01", "2026-00-01", "2026-01-00", "2026-04-31", "1900-02-29", "2026-01-01T",
        "2026-01-01T12:00",
        "2026-01-01T24:00Z", "2026-01-01T12:60Z", "2026-01-01T12:00:60Z", "2026-01-01T12:00:00.Z",
        "2026-01-01T12:00:00.1234567890Z", "2026-01-01T12:00:00Z ", "2026-01-01T12:00:00+0100",
        "2026-01-01T12:00:00+24:00",
        "2262-04-11T23:47:16.854775808Z", "1677-09-21T00:12:43.145224191Z", "9999-12-31", "0000-01-01", "２０２６-01-01",
    ])
    func whatIsNoDateIsNone(_ text: String) { #expect(PredicateDate(text) == nil) }

    @Test func everyDateIsReadFromItsText() {
        var generator = SplitMix64(seed: 7)
        for _ in 0..<2_000 {
            let date = PredicateDate(nanoseconds: Int64(bitPattern: generator.next()))
            #expect(PredicateDate(date.description) == date)
        }
    }
}
