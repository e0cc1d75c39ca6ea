import Foundation
import NephosCore
import NephosPredicates
import NephosRecordRules
import NephosWire
import SwiftProtobuf
import Testing

/// `docs/vectors.json`, that others make their programs by: the rules here say the same. `Tests/Interop` makes it anew from
/// the pages on predicates and on the protocol alone.
@Suite struct VectorTests {
    private struct Vectors: Decodable {
        struct Predicate: Decodable {
            var text: String
            var canonical: String
            var is_true: Bool
        }
        struct Key: Decodable {
            var value: Value
            var folding: UInt8?
            var element: Bool?
            var key: String
        }
        /// One of these, or none: no value.
        struct Value: Decodable {
            var list: Bool?
            var location: [Double]?
            /// As a text: JSON has no infinity.
            var real: String?
            var integer: Int64?
            var date: Int64?
            var string: String?
            var data: String?
        }
        struct Item: Decodable {
            var name: String
            var body: String
        }
        struct Digest: Decodable {
            var key: String
            var items: [Item]
            var digest: String
        }

        var folding_version: UInt8
        var record: Item
        var predicates: [Predicate]
        var no_predicates: [String]
        var index_keys: [Key]
        var digests: [Digest]
    }

    private let vectors: Vectors

    init() throws {
        let page = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "docs/vectors.json")
        vectors = try JSONDecoder().decode(Vectors.self, from: Data(contentsOf: page))
        try #require(vectors.folding_version == FoldingRule.current.rawValue)
    }

    @Test func predicatesOfTheVectorsAreReadWrittenAndTestedAsTheySay() throws {
        try #require(vectors.predicates.count >= 40)
        let record = try QueriedRecord(
            name: ItemName(vectors.record.name), record: WireRecord(serializedBytes: Self.bytes(vectors.record.body)))
        for vector in vectors.predicates {
            let predicate = try QueryPredicate(parsing: vector.text)
            #expect(predicate.description == vector.canonical, "\(vector.text)")
            #expect(try QueryPredicate(parsing: vector.canonical) == predicate)
            #expect(predicate.compiled().matches(record) == vector.is_true, "\(vector.text)")
        }
        for text in vectors.no_predicates {
            #expect(throws: QueryPredicateError.self, "\(text)") { try QueryPredicate(parsing: text) }
        }
    }

    @Test func keysOfIndexesAreThoseOfTheVectors() throws {
        try #require(vectors.index_keys.count >= 30)
        for vector in vectors.index_keys {
            let value = try Self.value(vector.value)
            let folding = Folding(rawValue: vector.folding ?? 0)
            let key =
                vector.element ?? false
                ? IndexKey.key(ofElement: try #require(value), folding) : IndexKey.key(of: value, folding)
            #expect(key == (try Self.bytes(vector.key)), "\(vector.value)")
        }
    }

    @Test func digestsAreThoseOfTheVectors() throws {
        try #require(vectors.digests.count >= 3)
        for vector in vectors.digests {
            var digest = SetDigest.empty
            for item in vector.items {
                digest.add(
                    SetDigest(
                        ofItem: ItemName(item.name), body: try Self.bytes(item.body), key: try Self.bytes(vector.key)))
            }
            #expect(digest.description == vector.digest)
        }
    }

    private static func value(_ value: Vectors.Value) throws -> PredicateValue? {
        if value.list != nil { return .list([]) }
        if let place = value.location {
            try #require(place.count == 2)
            return .location(PredicateLocation(latitude: place[0], longitude: place[1]))
        }
        if let real = value.real { return .real(try #require(Double(real))) }
        if let integer = value.integer { return .integer(integer) }
        if let date = value.date { return .date(PredicateDate(nanoseconds: date)) }
        if let text = value.string { return .string(text) }
        return try value.data.map { .data(try bytes($0)) }
    }

    private static func bytes(_ hexadecimal: String) throws -> [UInt8] {
        let digits = Array(hexadecimal)
        try #require(digits.count.isMultiple(of: 2))
        return try stride(from: 0, to: digits.count, by: 2).map {
            try #require(UInt8(String(digits[$0...($0 + 1)]), radix: 16))
        }
    }
}
