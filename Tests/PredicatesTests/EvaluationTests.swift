import NephosCore
import NephosPredicates
import Testing

struct TestRecord: PredicateRecord {
    var fields: [FieldName: PredicateValue]

    func value(of field: FieldName) -> PredicateValue? { fields[field] }

    var texts: [String] {
        fields.sorted { $0.key < $1.key }.flatMap { entry -> [String] in
            switch entry.value {
            case .string(let text): [text]
            case .list(let elements):
                elements.compactMap { element in
                    if case .string(let text) = element { text } else { nil }
                }
            default: []
            }
        }
    }
}

@Suite struct EvaluationTests {
    static let record = TestRecord(fields: [
        field("name"): .string("Été.PDF"), field("size"): .integer(9_007_199_254_740_993), field("ratio"): .real(0.5),
        field("nan"): .real(.nan), field("shared"): .boolean(true),
        field("day"): .date(PredicateDate(nanoseconds: 1_769_860_800_000_000_000)), field("hash"): .data([0, 255]),
        field("tags"): .list([.string("Red"), .string("blue")]), field("numbers"): .list([.integer(1), .real(2.5)]),
        field("empty"): .list([]), field("place"): .location(PredicateLocation(latitude: 52.52, longitude: 13.405)),
        field("note"): .string("Die Katze, the cat"),
    ])

    static let table: [(String, Bool)] = [
        ("name == 'Été.PDF'", true), ("name == 'été.pdf'", false), ("name ==[c] 'été.pdf'", true),
        ("name ==[cd] 'ete.pdf'", true), ("name !=[cd] 'ete.pdf'", false), ("name IN[cd] {'b', 'ete.pdf', 'a'}", true),
        ("name IN {'b', 'ete.pdf', 'a'}", false), ("name BETWEEN[cd] {'eta', 'etz'}", true),
        ("name BEGINSWITH 'Ét'", true), ("name BEGINSWITH[c] 'ÉT'", true), ("name ENDSWITH '.pdf'", false),
        ("name ENDSWITH[c] '.pdf'", true), ("name CONTAINS 't\u{e9}'", true), ("name CONTAINS[d] 'te'", true),
        ("name CONTAINS ''", true), ("note CONTAINS 'tze, th'", true), ("name BEGINSWITH ''", true),
        ("name ENDSWITH ''", true),
        ("name ENDSWITH 'a name that is longer'", false),
        // Exact, where a real is not.
        ("size == 9007199254740993", true), ("size == 9007199254740992.0", false), ("size > 9007199254740992.0", true),
        ("size < 9007199254740994.0", true), ("size IN {9007199254740992.0, 5}", false), ("size < 1e300", true),
        ("size > -1e300", true), ("size < 9223372036854775808.0", true), ("size >= -9223372036854775808.0", true),
        ("ratio > 0", true), ("ratio < 1", true), ("ratio == 0.5", true), ("shared == TRUE", true),
        ("shared == 1", true), ("shared != NO", true), ("shared > 0.5", true),
        // Of what is missing, not a number, or of another type.
        ("missing == 1", false), ("missing != 1", true), ("missing < 1", false), ("NOT missing < 1", true),
        ("missing == NULL", true), ("missing != NULL", false), ("name != NULL", true), ("missing IN {1}", false),
        ("missing LIKE '*'", false), ("missing CONTAINS ''", false), ("ANY missing != 1", false), ("nan == 1", false),
        ("nan != 1", true), ("nan < 1", false), ("nan >= 1", false), ("nan != NULL", true), ("nan IN {1, 2}", false),
        ("name == 5", false), ("name != 5", true), ("name < 5", false), ("size == 'x'", false),
        ("size LIKE '*'", false),
        ("day == date('2026-01-31T12:00:00Z')", true), ("day > date('2026-01-31')", true), ("day > 5", false),
        ("day BETWEEN {date('2026-01-31'), date('2026-02-01')}", true), ("hash == x'00ff'", true),
        ("hash IN {x'00', x'00ff'}", true), ("hash != x'00'", true),
        ("tags CONTAINS 'Red'", true), ("tags CONTAINS 'Re'", false), ("tags CONTAINS[c] 'red'", true),
        ("'blue' IN tags", true), ("ANY tags == 'blue'", true), ("ANY tags CONTAINS 'blu'", false),
        ("ANY tags LIKE 'bl*'", true), ("ANY tags IN {'x', 'blue'}", true), ("ANY tags != 'Red'", true),
        ("NOT ANY tags == 'green'", true), ("ANY numbers > 2", true), ("numbers CONTAINS 1.0", true),
        ("ANY name == 'Été.PDF'", false), ("tags == 'Red'", false), ("ANY empty != 1", false),
        ("empty != NULL", true),
        ("distance(place, point(52.5, 13.4)) < 3000", true), ("distance(place, point(52.5, 13.4)) < 2000", false),
        ("distance(place, point(52.5, 13.4)) >= 2000", true), ("distance(place, point(52.52, 13.405)) <= 0", true),
        ("distance(missing, point(0, 0)) >= 0", false), ("distance(place, point(-52.52, -166.595)) > 20015000", true),
        ("self CONTAINS 'CAT katze'", true), ("self CONTAINS 'red ete'", true), ("self CONTAINS 'ca'", false),
        ("self CONTAINS 'cat dog'", false), ("NOT self CONTAINS 'dog'", true),
        ("TRUEPREDICATE", true), ("FALSEPREDICATE OR ratio == 0.5", true), ("ratio == 0.5 AND ratio == 1", false),
        ("ratio IN {}", false), ("ratio BETWEEN {1, 0}", false),
    ]

    @Test(arguments: table) func aRecordIsTested(_ text: String, _ expected: Bool) throws {
        #expect(try QueryPredicate(parsing: text).compiled().matches(Self.record) == expected)
    }

    @Test func fieldsAreAskedForByTheirPlace() throws {
        let predicate = try QueryPredicate(parsing: "b == 1 AND (a == 2 OR b == 3)").compiled()
        #expect(predicate.fields == [field("b"), field("a")])
        #expect(predicate.matches(valueAt: { [.integer(1), .integer(2)][$0] }, texts: { [] }))
        #expect(!predicate.matches(valueAt: { [.integer(2), .integer(2)][$0] }, texts: { [] }))
    }

    @Test func passesOverTextsAreCounted() throws {
        let predicate = try QueryPredicate(parsing: "a LIKE '*x' AND (b == 1 OR c CONTAINS 'x') AND self CONTAINS 'y'")
        #expect(predicate.compiled().textPasses == 3)
    }

    @Test func passesOverListsAreCounted() throws {
        let predicate = try QueryPredicate(
            parsing: "ANY a == 1 AND (b == 1 OR c CONTAINS 2) AND NOT ANY a IN {3, 4} AND self CONTAINS 'y'")
        #expect(predicate.compiled().listPasses == 4)
    }

    @Test func aValueThatIsAskedForTwiceIsMadeOnce() throws {
        final class Record: PredicateRecord {
            var asked: [String] = []
            var texts: [String] { [] }

            func value(of field: FieldName) -> PredicateValue? {
                asked.append(field.rawValue)
                return field.rawValue == "none" ? nil : .list([.integer(1)])
            }
        }
        let record = Record()
        let predicate = try QueryPredicate(parsing: "ANY a == 2 OR ANY a == 3 OR none == 1 OR none == 2 OR ANY a == 1")
        #expect(predicate.compiled().matches(record))
        #expect(record.asked == ["a", "none"])
    }
}

@Suite struct SchemaTests {
    static let schema = PredicateSchema([
        field("name"): .string, field("size"): .integer, field("ratio"): .real, field("shared"): .boolean,
        field("changed"): .date, field("hash"): .data, field("place"): .location, field("owner"): .reference,
        field("tags"): .list(.string), field("friends"): .list(.reference), field("owner.name"): .string,
    ])

    static let wrong: [(String, QueryPredicateError.Code, Range<Int>, String)] = [
        ("TRUEPREDICATE AND nmae == 'x'", .unknownField, 18..<22, "mean name?"),
        ("Size == 1", .unknownField, 0..<4, "mean size?"),
        ("shred == TRUE", .unknownField, 0..<5, "mean shared?"),
        ("completely == 1", .unknownField, 0..<10, "Use one that"),
        ("owner.nam == 'x'", .unknownField, 0..<9, "mean owner.name?"),
        ("self CONTAINS 'x' AND siz == NULL", .unknownField, 22..<25, "mean size?"),
        ("distance(plaec, point(0, 0)) < 1", .unknownField, 9..<14, "mean place?"),
        ("name == 'a' AND name == 5", .wrongType, 24..<25, "holds a text"),
        ("size == '5'", .wrongType, 8..<11, "without quotes"),
        ("size IN {1, 2} AND 'x' == size", .wrongType, 19..<22, "without quotes"),
        ("size CONTAINS 5", .wrongType, 5..<13, "CONTAINS is about"),
        ("shared == 'yes'", .wrongType, 10..<15, "TRUE or FALSE"),
        ("changed > '2026-01-31'", .wrongType, 10..<22, "date(\""),
        ("hash == 'x'", .wrongType, 8..<11, "x'00ff'"),
        ("place == 1", .wrongType, 0..<5, "distance("),
        ("distance(name, point(0, 0)) < 1", .wrongType, 9..<13, "holds a location"),
        ("owner BEGINSWITH 'x'", .wrongType, 6..<16, "A reference"),
        ("owner ==[c] 'x'", .wrongType, 6..<11, "A reference"),
        ("tags == 'x'", .wrongType, 5..<7, "Write ANY"),
        ("ANY name == 'x'", .wrongType, 4..<8, "holds a list"),
        ("ANY tags == 5", .wrongType, 12..<13, "holds a text"),
        ("ANY friends < 'x'", .wrongType, 12..<13, "A reference"),
        ("name IN {'a', 'b'} AND size BETWEEN {'a', 'b'}", .wrongType, 37..<40, "without quotes"),
    ]

    @Test(arguments: wrong) func whatTheSchemaDoesNotAllowIsPointedAt(
        _ text: String, _ code: QueryPredicateError.Code, _ place: Range<Int>, _ message: String
    ) throws {
        let predicate = try QueryPredicate(parsing: text)
        let found = #expect(throws: QueryPredicateError.self) { try predicate.check(against: Self.schema) }
        #expect(found?.code == code)
        #expect(found?.range == place)
        #expect(found?.message.contains(message) == true, "\(found?.message ?? "")")
    }

    @Test(arguments: [
        "name LIKE[c] '*.pdf' AND size > 5.5 AND ratio < 1", "shared == 1", "changed > date('2026-01-31')",
        "hash == x'00'", "distance(place, point(0, 0)) < 1", "owner == 'x' OR owner IN {'y'} OR owner == NULL",
        "tags CONTAINS 'x' AND ANY tags LIKE 'x*' AND friends CONTAINS 'x'", "self CONTAINS 'x'", "'x' IN tags",
        "tags == NULL", "name IN {}",
    ])
    func whatTheSchemaAllowsPasses(_ text: String) throws {
        try QueryPredicate(parsing: text).check(against: Self.schema)
    }

    @Test func aPredicateOfAProgramIsPointedAtInItsCanonicalText() throws {
        let predicate = try QueryPredicate(.not(comparison("nam", .equal, .integer(1))))
        let found = #expect(throws: QueryPredicateError.self) { try predicate.check(against: Self.schema) }
        #expect(found?.range == 4..<7)
    }
}

@Suite struct PlanTests {
    private func term(_ name: String, _ range: IndexRange, _ folding: Folding = []) -> IndexTerm {
        IndexTerm(field: field(name), range: range, folding: folding)
    }

    @Test func partsThatAnIndexAnswersAreTakenOut() throws {
        let predicate = try QueryPredicate(
            parsing: """
                a == 1 AND b IN {1, 2} AND c < 5 AND d BETWEEN {1, 2} AND e BEGINSWITH 'x' AND f LIKE 'y*'
                AND ANY g == 'z' AND h ==[c] 'k' AND i LIKE 'y*z' AND (a == 1 OR a == 2) AND NOT a == 1 AND j != 1 AND k CONTAINS 'x'
                """)
        let plan = predicate.plan { _ in true }
        #expect(
            plan.terms == [
                term("a", .equal(.integer(1))), term("b", .oneOf([.integer(1), .integer(2)])),
                term("c", .below(.integer(5), orEqual: false)), term("d", .between(.integer(1), .integer(2))),
                term("e", .prefix("x")), term("f", .prefix("y")), term("g", .element(.string("z"))),
                term("h", .equal(.string("k")), .caseInsensitive),
            ])
        #expect(
            plan.rest.description
                == "i LIKE 'y*z' AND (a == 1 OR a == 2) AND NOT a == 1 AND j != 1 AND k CONTAINS 'x'")
    }

    @Test func whatNoIndexAnswersIsTested() throws {
        let predicate = try QueryPredicate(parsing: "a == 1 AND b == 2")
        #expect(predicate.plan { _ in false } == PredicatePlan(terms: [], rest: predicate))
        let plan = predicate.plan { $0.field == field("b") }
        #expect(plan.terms.count == 1)
        #expect(plan.rest.description == "a == 1")
        #expect(predicate.plan { _ in true }.rest.description == "TRUEPREDICATE")
        #expect(try QueryPredicate(parsing: "a > 1").plan { _ in true }.terms.count == 1)
    }
}
