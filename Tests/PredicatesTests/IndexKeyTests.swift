import Foundation
import NephosCore
import Testing

@testable import NephosPredicates

/// Keys of indexes are in the order in which predicates compare, and no range leaves anything out.
@Suite struct IndexKeyTests {
    private static let reals: [Double] = [
        0, -0.0, 1, -1, 0.5, 1e300, -1e300, .infinity, -.infinity, .leastNonzeroMagnitude, -.leastNonzeroMagnitude,
        0x1p53, 0x1p53 + 2, 0x1p63, -0x1p63, 0x1p63.nextDown, 0x1p64, .nan,
    ]
    private static let integers: [Int64] = [
        0, 1, -1, .max, .max - 1, .min, .min + 1, 1 << 53, 1 << 53 + 1, -(1 << 53) - 1, .max - 512, .max - 511,
        .max - 1023, .max - 1024, .max - 1025,
    ]
    private static let texts = [
        "", "a", "A", "ab", "a\u{0}", "a\u{0}b", "\u{0}", "\u{0}\u{0}", "\u{1}", "\u{2}", "é", "e\u{301}", "ß", "ss",
        "İ", "ı",
        "😀", "😀a", "中文", "\u{ffff}", "\u{10ffff}", "\u{301}", "\u{7f}", "a\u{1}", "a\u{2}", "각",
        "\u{1100}\u{1161}\u{11a8}",
    ]

    /// Rounds of a test; with `NEPHOS_SEEDS` twice as many as usual.
    private static let rounds = ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] == nil ? 6000 : 12_000

    private static func any<Element>(_ elements: [Element], _ random: inout SplitMix64) -> Element {
        elements[Int.random(in: elements.indices, using: &random)]
    }

    private static func field() throws -> FieldName { try #require(FieldName("x")) }

    private static func value(_ random: inout SplitMix64) -> PredicateValue {
        switch Int.random(in: 0..<6, using: &random) {
        case 0:
            return .integer(
                Bool.random(using: &random)
                    ? any(integers, &random) : Int64.random(in: .min ... .max, using: &random))
        case 1:
            return .real(
                Bool.random(using: &random)
                    ? any(reals, &random)
                    : Double(Int64.random(in: .min ... .max, using: &random)).nextUp)
        case 2: return .date(PredicateDate(nanoseconds: any(integers, &random)))
        case 3:
            return .data(
                (0..<Int.random(in: 0..<4, using: &random)).map { _ in
                    any([0, 1, 2, 254, 255], &random)
                })
        default: return .string(text(&random))
        }
    }

    private static func text(_ random: inout SplitMix64) -> String {
        let short = (0..<Int.random(in: 0..<4, using: &random)).map { _ in any(texts, &random) }
            .joined()
        // Around where keys end.
        let start = any([0, 0, 0, 126, 127, 128, 129, 3000], &random)
        return String(repeating: any(["a", "é", "\u{301}"], &random), count: start) + short
    }

    private static func holds(
        _ value: PredicateValue, _ relation: PredicateRelation, _ operand: PredicateValue, _ folding: Folding
    ) throws -> Bool {
        try FieldTest(PredicateComparison(field(), relation, [operand], folding: folding)).holds(of: value)
    }

    private static func isCut(_ key: [UInt8]) -> Bool { key[0] >= 0x30 && key.suffix(2) == [0, 2] }

    @Test(
        arguments: [[], .caseInsensitive, .diacriticInsensitive, [.caseInsensitive, .diacriticInsensitive]] as [Folding]
    )
    func keysAreInTheOrderOfComparisons(_ folding: Folding) throws {
        var random = SplitMix64(seed: UInt64(folding.rawValue) + 1)
        for _ in 0..<Self.rounds {
            let (left, right) = (Self.value(&random), Self.value(&random))
            let (first, second) = (IndexKey.key(of: left, folding), IndexKey.key(of: right, folding))
            let isCut = Self.isCut(first) && Self.isCut(second)
            if try Self.holds(left, .equal, right, folding) { #expect(first == second, "\(left) \(right)") }
            if first == second, !isCut, first != [4] {
                #expect(try Self.holds(left, .equal, right, folding), "\(left) \(right)")
            }
            if try Self.holds(left, .less, right, folding) {
                #expect(
                    first.lexicographicallyPrecedes(second) || isCut && first == second, "\(left) \(right) \(folding)")
            }
            // None is the beginning of another one.
            #expect(first == second || !first.starts(with: second) && !second.starts(with: first))
            let reversed = (IndexKey.reversed(first), IndexKey.reversed(second))
            #expect(reversed.1.lexicographicallyPrecedes(reversed.0) == first.lexicographicallyPrecedes(second))
            #expect(first.count <= IndexKey.bytesMax)
        }
    }

    @Test func rangesHaveAllOfWhichTheComparisonIsTrue() throws {
        var random = SplitMix64(seed: 7)
        let relations: [PredicateRelation] = [.less, .lessOrEqual, .greater, .greaterOrEqual, .beginsWith]
        var inside = 0
        for _ in 0..<Self.rounds {
            let folding = Folding(rawValue: UInt8.random(in: 0..<4, using: &random))
            let (value, operand) = (Self.value(&random), Self.value(&random))
            let relation = Self.any(relations, &random)
            guard let range = IndexKeyRange(relation, [operand], folding) else { continue }
            let key = IndexKey.key(of: value, folding)
            let isTrue = try Self.holds(value, relation, operand, folding)
            for (range, key) in [(range, key), (range.reversed, IndexKey.reversed(key))] {
                let (start, end) = range.bounds
                let isWithin = !key.lexicographicallyPrecedes(start) && key.lexicographicallyPrecedes(end)
                #expect(isWithin || !isTrue, "\(value) \(relation) \(operand) \(folding)")
                // Nor too much, where nothing is cut.
                if !Self.isCut(key), !Self.isCut(IndexKey.key(of: operand, folding)), relation != .beginsWith,
                    range == range.reversed.reversed, key == IndexKey.key(of: value, folding)
                {
                    #expect(!isWithin || isTrue, "\(value) \(relation) \(operand) \(folding)")
                }
            }
            if isTrue { inside += 1 }
        }
        #expect(inside > 600)
    }

    @Test func placesOfACircleAreInItsRanges() throws {
        var random = SplitMix64(seed: 9)
        var found = 0
        for _ in 0..<500 {
            let center = PredicateLocation(
                latitude: Self.any([90, -90, 0, 89.9, Double.random(in: -90...90, using: &random)], &random),
                longitude: Self.any([180, -180, 0, 179.99, Double.random(in: -180...180, using: &random)], &random))
            let metres = Self.any([0, 1, 1000, 50_000, 1_000_000, 9_000_000, 30_000_000], &random)
            let distance = PredicateDistance(try Self.field(), from: center, .lessOrEqual, metres: Double(metres))
            let ranges = distance.keyRanges ?? []
            #expect(!ranges.isEmpty && ranges.count <= 24)
            for _ in 0..<20 {
                let width = Double(metres) / 100_000
                let place = PredicateLocation(
                    latitude: max(-90, min(90, center.latitude + Double.random(in: -width...width, using: &random))),
                    longitude: Double.random(in: -180...180, using: &random))
                let near = PredicateLocation(latitude: place.latitude, longitude: center.longitude)
                for place in [center, place, near] where center.metres(to: place) <= Double(metres) {
                    found += 1
                    let key = IndexKey.key(of: .location(place), [])
                    #expect(
                        ranges.contains { range in
                            let (start, end) = range.bounds
                            return !key.lexicographicallyPrecedes(start) && key.lexicographicallyPrecedes(end)
                        }, "\(center) \(metres) \(place)")
                }
            }
        }
        #expect(found > 7000)
    }
}
