import Foundation
import NephosCore
import NephosPredicates
import NephosRecordRules
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Of a record a query decodes what it asks for, and comes to the same answer.
@Suite struct RecordPartsTests {
    private func record(_ generator: inout SplitMix64) -> WireRecord {
        var record = WireRecord()
        record.type = "Note"
        record.version = Data((0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
        record.created = .with { ($0.time, $0.accountID) = (Int64.random(in: -9...9, using: &generator), "acc_one") }
        record.modified = .with { $0.accountID = "acc_two" }
        if Bool.random(using: &generator) { record.parent = "album" }
        record.seal = .random(in: 0...9, using: &generator)
        for name in ["a", "ab", "b", "c", "long", "é"] where Bool.random(using: &generator) {
            var field = WireRecordField()
            field.name = name
            switch Int.random(in: 0...3, using: &generator) {
            case 0: field.value = .integer(Int64.random(in: 0...2, using: &generator))
            case 1: field.value = .string(["x", "xy", "word"].randomElement(using: &generator) ?? "")
            case 2: field.value = .strings(.with { $0.values = ["x", "word"] })
            default: field.value = .data(Data(count: name == "long" ? 300 : 3))
            }
            record.fields.append(field)
        }
        return record
    }

    private static let predicates = [
        "a == 1", "a == 1 AND b != 'x'", "ab == NULL", "NOT (c == 2 OR long == NULL)", "'x' IN b",
        "_creator == 'acc_one'",
        "_creationDate > date(\"1970-01-01T00:00:00Z\") OR a == 0", "_parent == 'album'",
        "_recordName == 'r' AND c == 'xy'",
        "self CONTAINS 'word'", "a == 2 AND self CONTAINS 'xy'", "TRUEPREDICATE", "missing == NULL",
    ]

    @Test(arguments: predicates) func theAnswerIsTheSame(_ text: String) throws {
        var generator = SplitMix64(seed: 7)
        let predicate = try QueryPredicate(parsing: text).compiled()
        let parts = RecordParts(of: predicate, [])
        var matches = 0
        for _ in 0..<500 {
            let record = record(&generator)
            let read = try parts.decode(record.serializedBytes())
            let isMatch = predicate.matches(QueriedRecord(name: "r", record: record))
            #expect(predicate.matches(QueriedRecord(name: "r", record: read)) == isMatch)
            #expect(read.type == record.type)
            matches += isMatch ? 1 : 0
        }
        #expect(matches > 0)
    }

    @Test func whatIsNotAskedForIsNotDecoded() throws {
        var generator = SplitMix64(seed: 1)
        var record = record(&generator)
        record.fields = ["a", "b"].map { name in .with { ($0.name, $0.value) = (name, .integer(1)) } }
        let bytes: [UInt8] = try record.serializedBytes()
        let parts = RecordParts(of: try QueryPredicate(parsing: "b == 1").compiled(), [])
        #expect(try parts.decode(bytes).fields.map(\.name) == ["b"])
        #expect(try !parts.decode(bytes).hasCreated)
        #expect(try RecordParts.type.decode(bytes).fields.isEmpty)
        #expect(try RecordParts.all.decode(bytes) == record)
        // What it is put in order by is asked for, too.
        let sorted = RecordParts(of: nil, [try #require(FieldName("a"))])
        #expect(try sorted.decode(bytes).fields.map(\.name) == ["a"])
        let byDate = RecordParts(of: nil, [try #require(FieldName("_modificationDate"))])
        #expect(try byDate.decode(bytes).modified == record.modified)
    }

    /// Bytes that no encoder has written are an error, or a record: never more.
    @Test func anyBytesMayCome() throws {
        var generator = SplitMix64(seed: 3)
        let parts = RecordParts(of: try QueryPredicate(parsing: "a == 1").compiled(), [])
        for _ in 0..<5000 {
            var bytes: [UInt8] = try record(&generator).serializedBytes()
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                bytes[Int.random(in: 0..<bytes.count, using: &generator)] = .random(
                    in: .min ... .max, using: &generator)
            }
            _ = try? parts.decode(Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &generator))))
        }
    }
}
