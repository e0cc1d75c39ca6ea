import Foundation
import NephosCore
import NephosPredicates
import Testing

/// Makes predicates that are within the limits.
struct PredicateMaker {
    var generator: SplitMix64

    static let names = ["a", "b", "in", "size", "owner.name", "_x", "date", "x", "any", "distance", "Null"].map(field)
    static let texts = [
        "", "a", "A", "ab", "b", "é", "e\u{301}", "É", "it's", "\\", "\"", "\n\t\u{0}\u{7f}", "\u{202e}", "*?", "中文",
        "😀",
        "date(", "ß", "\u{feff}", "a b",
    ]
    static let patterns = ["*", "a*", "*a", "?", "a?b*", "\\*", "*é*", "", "*'*", "*ab*b", "A*"]
    static let reals = [
        0, -0.0, 0.5, -1.5, 1e300, Double.leastNonzeroMagnitude, 9_007_199_254_740_992, 0x1p63, -0x1p63, 3, 1e16,
    ]
    static let integers: [Int64] = [0, 1, -1, 3, .max, .min, 9_007_199_254_740_993, 9_007_199_254_740_992]

    mutating func pick<Element>(_ choices: [Element]) -> Element {
        choices[Int.random(in: choices.indices, using: &generator)]
    }

    mutating func node(depth: Int) -> PredicateNode {
        switch Int.random(in: 0..<(depth > 0 ? 12 : 8), using: &generator) {
        case 0: .constant(Bool.random(using: &generator))
        case 1: Bool.random(using: &generator) ? .isMissing(pick(Self.names)) : .isPresent(pick(Self.names))
        case 2: .fullText(PredicateText(pick(["a", "É b", "ab it's 中文", "x-y"])))
        case 3:
            .distance(
                PredicateDistance(
                    pick(Self.names),
                    from: PredicateLocation(latitude: pick([0, -89.5, 52]), longitude: pick([0, 13.25, -180])),
                    pick([.less, .lessOrEqual, .greater, .greaterOrEqual]), metres: pick([0, 1, 1e6])))
        case 4..<8: .comparison(comparison())
        case 8: .not(node(depth: depth - 1))
        case 9, 10: .and(nodes(depth))
        default: .or(nodes(depth))
        }
    }

    private mutating func nodes(_ depth: Int) -> [PredicateNode] {
        (0..<Int.random(in: 0...4, using: &generator)).map { _ in node(depth: depth - 1) }
    }

    private mutating func comparison() -> PredicateComparison {
        let relation = pick(PredicateRelation.allCases)
        let kind =
            switch relation {
            case .beginsWith, .endsWith, .like: 1
            case .less, .lessOrEqual, .greater, .greaterOrEqual, .between: Int.random(in: 0...2, using: &generator)
            default: Int.random(in: 0...3, using: &generator)
            }
        let folding = kind == 1 ? Folding(rawValue: pick([0, 1, 2, 3])) : []
        let count =
            switch relation {
            case .isIn: Int.random(in: 0...4, using: &generator)
            case .between: 2
            default: 1
            }
        let operands = (0..<count).map { _ in
            relation == .like ? PredicateValue.string(pick(Self.patterns)) : constant(kind)
        }
        return PredicateComparison(
            pick(Self.names), relation, operands, folding: operands.isEmpty ? [] : folding,
            any: relation != .contains && Bool.random(using: &generator))
    }

    private mutating func constant(_ kind: Int) -> PredicateValue {
        switch kind {
        case 0:
            pick([.boolean(true), .boolean(false), .integer(pick(Self.integers)), .real(pick(Self.reals))])
        case 1: .string(pick(Self.texts))
        case 2: .date(PredicateDate(nanoseconds: pick(Self.integers)))
        default: .data(pick([[], [0], [0, 255], [1]]))
        }
    }

    mutating func value() -> PredicateValue {
        switch Int.random(in: 0..<8, using: &generator) {
        case 0: .real(pick([.nan, .infinity, -.infinity]))
        case 1:
            .location(PredicateLocation(latitude: pick([0, 52, .nan]), longitude: pick([0, 13.25])))
        case 2, 3: .list((0..<Int.random(in: 0...3, using: &generator)).map { _ in constant(pick([0, 1, 1, 2, 3])) })
        default: constant(pick([0, 0, 1, 1, 2, 3]))
        }
    }

    mutating func record() -> TestRecord {
        var record = TestRecord(fields: [:])
        for name in Self.names where Int.random(in: 0..<4, using: &generator) > 0 { record.fields[name] = value() }
        return record
    }
}

/// `NEPHOS_FUZZ=1000000` tries so many predicates of each kind, in an optimised build within minutes.
@Suite struct RandomPredicateTests {
    /// How many more than otherwise.
    private static let factor: Double = {
        let wanted = ProcessInfo.processInfo.environment["NEPHOS_FUZZ"].flatMap(Double.init)
        return wanted.map { max(1, $0 / 12_000) } ?? 1
    }()

    private func times(_ count: Int) -> Range<Int> { 0..<Int(Double(count) * Self.factor) }

    /// However it is made, no predicate of these takes longer to be read and answered, also on a busy machine.
    private static let stall = Duration.seconds(5)

    private func timed(_ text: @autoclosure () -> String, _ body: () throws -> Void) rethrows {
        let start = ContinuousClock.now
        try body()
        let took = ContinuousClock.now - start
        #expect(took < Self.stall, "\(took): \(text())")
    }

    @Test(arguments: 0..<4) func everyPredicateIsReadFromItsText(seed: UInt64) throws {
        var maker = PredicateMaker(generator: SplitMix64(seed: seed))
        for _ in times(1_500) {
            let made = try QueryPredicate(maker.node(depth: 4))
            let read = try QueryPredicate(parsing: made.description)
            #expect(read == made, "\(made)")
            #expect(read.description == made.description)
        }
    }

    /// A text with some of its bytes changed, doubled, moved or missing is read or refused, and its error is within it.
    @Test(arguments: 0..<4) func damagedTextsAreReadOrRefused(seed: UInt64) throws {
        var maker = PredicateMaker(generator: SplitMix64(seed: seed &+ 100))
        let pieces = [
            "(", ")", "{", "}", "[cd]", "'", "\"", "\\", "\\u{", "#", "NOT ", " IN ", " LIKE ", "date(", "x'", "ANY ",
            "\0",
            "é", "“", "9999999999999999999", "1e", ".", "-", "distance(", "point(", "self ", "NULL", "=", "<>", "*",
        ].map { Array($0.utf8) }
        for _ in times(1_500) {
            var bytes = Array(try QueryPredicate(maker.node(depth: 3)).description.utf8)
            for _ in 0..<Int.random(in: 1...4, using: &maker.generator) {
                let place = Int.random(in: 0...bytes.count, using: &maker.generator)
                let end = min(bytes.count, place + Int.random(in: 0...3, using: &maker.generator))
                bytes.replaceSubrange(place..<end, with: maker.pick(pieces))
            }
            check(String(decoding: bytes, as: UTF8.self))
        }
        for _ in times(1_500) {
            let bytes = (0..<Int.random(in: 0...60, using: &maker.generator)).map { _ in
                UInt8.random(in: .min ... .max, using: &maker.generator)
            }
            check(String(decoding: bytes, as: UTF8.self))
            let soup = (0..<Int.random(in: 0...12, using: &maker.generator)).flatMap { _ in maker.pick(pieces) }
            check(String(decoding: soup, as: UTF8.self))
        }
    }

    private func check(_ text: String) { timed(text) { tryOut(text) } }

    private func tryOut(_ text: String) {
        do {
            let read = try QueryPredicate(parsing: text)
            #expect(try QueryPredicate(parsing: read.description) == read, "\(text)")
            try? read.check(against: SchemaTests.schema)
            _ = read.compiled().matches(EvaluationTests.record)
        } catch {
            #expect(error.range.lowerBound >= 0 && error.range.upperBound <= text.utf8.count, "\(text)")
            #expect(error.rendered(in: text).hasSuffix("^"))
            #expect(error.position(in: text).line > 0)
        }
    }

    /// Bytes of any kind, at any length, and texts that are nothing but depth or repetition.
    @Test func randomBytesAreReadOrRefusedAtOnce() {
        var random = SplitMix64(seed: 300)
        for _ in times(12_000) {
            let count = Int.random(in: 0...200, using: &random)
            check(
                String(
                    decoding: (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &random) }, as: UTF8.self))
        }
        for piece in [
            "(", "NOT ", "a=1 OR ", "a IN {", "'", "\\", "*", "ANY ", "a LIKE '*", "((((NOT ", "\u{301}", "{1,",
        ] {
            for count in [100, 1_000, 10_000, 100_000] { check(String(repeating: piece, count: count)) }
        }
    }

    @Test(arguments: 0..<4) func isTheSameAsTheRulesReadAloud(seed: UInt64) throws {
        var maker = PredicateMaker(generator: SplitMix64(seed: seed &+ 200))
        var holds = 0
        for _ in times(3_000) {
            let predicate = try QueryPredicate(maker.node(depth: 2))
            let record = maker.record()
            let expected = Oracle(record: record).holds(predicate.root)
            timed(predicate.description) {
                #expect(predicate.compiled().matches(record) == expected, "\(predicate) of \(record)")
            }
            let plan = predicate.plan { _ in true }
            let split =
                plan.rest.compiled().matches(record) && plan.terms.allSatisfy { Oracle(record: record).holds($0) }
            #expect(split == expected, "\(predicate) as \(plan)")
            holds += expected ? 1 : 0
        }
        #expect((0.17...0.83).contains(Double(holds) / Double(times(3_000).count)))
    }
}

/// The rules of `docs/predicates.md`, one after the other and slowly. It shares only folding, words and the way
/// between two places with what it tests.
struct Oracle {
    let record: TestRecord

    func holds(_ node: PredicateNode) -> Bool {
        switch node {
        case .constant(let constant): return constant
        case .and(let parts): return parts.map(holds).allSatisfy { $0 }
        case .or(let parts): return parts.map(holds).contains(true)
        case .not(let part): return !holds(part)
        case .isMissing(let field): return record.fields[field] == nil
        case .isPresent(let field): return record.fields[field] != nil
        case .fullText(let text):
            let words = Set(record.texts.flatMap { FoldingRule.v1.words(of: $0) })
            return FoldingRule.v1.words(of: text.rawValue).allSatisfy(words.contains)
        case .distance(let distance):
            guard case .location(let place)? = record.fields[distance.field] else { return false }
            return holds(.real(distance.center.metres(to: place)), distance.relation, [.real(distance.metres)], [])
        case .comparison(let comparison):
            guard let value = record.fields[comparison.field] else {
                return comparison.relation == .notEqual && !comparison.any
            }
            if case .list(let elements) = value, comparison.any || comparison.relation == .contains {
                let relation = comparison.relation == .contains ? .equal : comparison.relation
                return elements.contains { holds($0, relation, comparison.operands, comparison.folding) }
            }
            return !comparison.any && holds(value, comparison.relation, comparison.operands, comparison.folding)
        }
    }

    func holds(_ term: IndexTerm) -> Bool {
        let (relation, operands, any): (PredicateRelation, [PredicateValue], Bool) =
            switch term.range {
            case .equal(let value): (.equal, [value], false)
            case .oneOf(let values): (.isIn, values, false)
            case .below(let value, let orEqual): (orEqual ? .lessOrEqual : .less, [value], false)
            case .above(let value, let orEqual): (orEqual ? .greaterOrEqual : .greater, [value], false)
            case .between(let lower, let upper): (.between, [lower, upper], false)
            case .prefix(let text): (.beginsWith, [.string(text)], false)
            case .element(let value): (.equal, [value], true)
            }
        return holds(
            .comparison(PredicateComparison(term.field, relation, operands, folding: term.folding, any: any)))
    }

    private func holds(
        _ value: PredicateValue, _ relation: PredicateRelation, _ operands: [PredicateValue], _ folding: Folding
    ) -> Bool {
        func text(_ value: PredicateValue) -> [UInt8]? {
            if case .string(let text) = value { Array(FoldingRule.v1.fold(text, folding).utf8) } else { nil }
        }
        func order(_ operand: PredicateValue) -> Int? {
            if case .real(let left) = value, case .real(let right) = operand {
                return left == right ? 0 : left < right ? -1 : left > right ? 1 : nil
            }
            if let left = number(value), let right = number(operand) {
                return left == right ? 0 : left < right ? -1 : 1
            }
            if let left = text(value), let right = text(operand) {
                return left == right ? 0 : left.lexicographicallyPrecedes(right) ? -1 : 1
            }
            switch (value, operand) {
            case (.date(let left), .date(let right)):
                return left == right ? 0 : left.nanoseconds < right.nanoseconds ? -1 : 1
            case (.data(let left), .data(let right)): return left == right ? 0 : 1
            default: return nil
            }
        }
        switch relation {
        case .equal: return order(operands[0]) == 0
        case .notEqual: return order(operands[0]) != 0
        case .less: return order(operands[0]).map { $0 < 0 } ?? false
        case .lessOrEqual: return order(operands[0]).map { $0 <= 0 } ?? false
        case .greater: return order(operands[0]).map { $0 > 0 } ?? false
        case .greaterOrEqual: return order(operands[0]).map { $0 >= 0 } ?? false
        case .isIn: return operands.contains { order($0) == 0 }
        case .between:
            guard let lower = order(operands[0]), let upper = order(operands[1]) else { return false }
            return lower >= 0 && upper <= 0
        case .beginsWith, .endsWith, .contains, .like:
            guard let own = text(value), let other = text(operands[0]) else { return false }
            switch relation {
            case .beginsWith: return own.starts(with: other)
            case .endsWith: return own.reversed().starts(with: other.reversed())
            case .contains: return other.isEmpty || own.indices.contains { own[$0...].starts(with: other) }
            default:
                return naiveLike(
                    Array(String(decoding: own, as: UTF8.self).unicodeScalars),
                    Array(String(decoding: other, as: UTF8.self).unicodeScalars))
            }
        }
    }

    /// Twice the whole part, and one more if there is a fraction: in exact order with every integer.
    private func number(_ value: PredicateValue) -> Int128? {
        switch value {
        case .boolean(let boolean): return boolean ? 2 : 0
        case .integer(let integer): return Int128(integer) * 2
        case .real(let real) where real.isNaN: return nil
        case .real(let real):
            if real.magnitude > 0x1p64 { return real < 0 ? .min : .max }
            let whole = real.rounded(.down)
            return Int128(whole) * 2 + (real == whole ? 0 : 1)
        default: return nil
        }
    }
}

/// Tries all ways in which a pattern may match.
func naiveLike(_ text: [Unicode.Scalar], _ pattern: [Unicode.Scalar]) -> Bool {
    guard let first = pattern.first else { return text.isEmpty }
    if first == "*" { return (0...text.count).contains { naiveLike(Array(text[$0...]), Array(pattern.dropFirst())) } }
    guard let letter = text.first else { return false }
    if first == "?" { return naiveLike(Array(text.dropFirst()), Array(pattern.dropFirst())) }
    let literal = first == "\\" ? pattern[1] : first
    return literal == letter && naiveLike(Array(text.dropFirst()), Array(pattern.dropFirst(first == "\\" ? 2 : 1)))
}
