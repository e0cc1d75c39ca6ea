import Foundation
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Records as Swift's types, and as JSON.
@Suite struct RecordCodingTests {
    private enum Colour: String, Codable { case red, green }

    private struct Note: Codable, Equatable {
        var title: String
        var count: Int
        var small: UInt8
        var size: Double
        var isDone: Bool
        var date: Date
        var data: Data
        var place: RecordLocation
        var parent: RecordReference
        var tags: [String]
        var none: [Double]
        var colour: Colour
        var colours: [Colour]
        var missing: String?
    }

    private static let note = Note(
        title: "one", count: -5, small: 200, size: 2, isDone: true, date: Date(timeIntervalSinceReferenceDate: 1.25),
        data: Data([1, 2]), place: RecordLocation(latitude: 52.5, longitude: 13.4),
        parent: RecordReference("b", deletesSelf: true), tags: ["x", "y"], none: [], colour: .green,
        colours: [.red, .green])

    @Test func aTypeOfTheAppsComesBackFromItsRecord() throws {
        let record = try Record(RecordID("a"), type: "Note", encoding: Self.note)
        #expect(record["count"] == .integer(-5) && record["size"] == .real(2) && record["isDone"] == .integer(1))
        #expect(record["place"] == .location(Self.note.place) && record["none"] == .reals([]))
        #expect(record["colours"] == .strings(["red", "green"]) && record.fields["missing"] == nil)
        #expect(try record.decode(Note.self) == Self.note)
        let title: String? = record["title"]
        let date: Date? = record["date"]
        let count: Int? = record["count"]
        #expect(title == "one" && date == Self.note.date && count == -5)
    }

    private struct Nested: Codable { var inner = ["a": 1] }
    private struct Mixed: Codable { var title: Int }

    @Test func whatNoRecordHoldsIsRefused() throws {
        #expect(throws: CloudError.self) { try Record(RecordID("a"), type: "Note", encoding: Nested()) }
        #expect(throws: CloudError.self) { try Record(RecordID("a"), type: "Note", encoding: [1, 2]) }
        let record = try Record(RecordID("a"), type: "Note", encoding: Self.note)
        #expect(throws: CloudError.self) { try record.decode(Mixed.self) }
    }

    static let values: [RecordValue] = [
        .string(""), .string("a\"\\\n\u{1}é\u{1F600}"), .integer(.min), .integer(.max), .integer(0), .real(0),
        .real(-0.0), .real(1), .real(0.1), .real(.infinity), .real(-.infinity), .real(.nan),
        .real(Double(bitPattern: 0xfff8_0000_0000_0123)), .real(.leastNonzeroMagnitude), .real(1e300),
        .date(RecordDate(nanoseconds: .min)), .date(RecordDate(nanoseconds: .max)),
        .date(RecordDate(nanoseconds: 1_769_860_800_123_456_789)), .date(RecordDate(nanoseconds: -1)),
        .data(Data()), .data(Data((0...255).map { UInt8($0) })),
        .location(RecordLocation(latitude: -90, longitude: 180)),
        .location(RecordLocation(latitude: 52.520008, longitude: 13.404954, altitude: 34)),
        .reference(RecordReference("b")), .reference(RecordReference("b c", deletesSelf: true)),
        .strings([]), .integers([]), .reals([]), .dates([]), .datas([]), .locations([]), .references([]),
        .strings(["", "x"]), .integers([1, -1]), .reals([1, 0.5, .nan]), .dates([RecordDate(nanoseconds: 1)]),
        .datas([Data(), Data([1])]), .locations([RecordLocation(latitude: 1, longitude: 2)]),
        .references([RecordReference("a"), RecordReference("b", deletesSelf: true)]),
        .encrypted(EncryptedRecordValue(keyID: Data([1]), sealed: Data([2, 3]))),
        // Field 99, a number.
        .unknown(Data([0x98, 0x06, 0x05])),
    ]

    @Test(arguments: values) func everyValueComesBackFromJSONAndFromTheWire(value: RecordValue) throws {
        #expect(try RecordValue(json: value.json) == value, "\(value.json)")
        let wire = value.wire(named: "f")
        #expect(wire.name == "f")
        let read = try WireRecordField(serializedBytes: try wire.serializedData())
        #expect(RecordValue(read) == value)
    }

    @Test func aRecordComesBackFromItsLine() throws {
        var record = Record(RecordID("a b", zone: "work/x"), type: "Note", parent: "p")
        for (index, value) in Self.values.enumerated() { record.fields["f\(index)"] = value }
        let read = try RecordJSON.record(RecordJSON.line(record))
        #expect(read == record)
        #expect(
            RecordJSON.line(Record("a", ["count": 1, "size": 1.0, "title": "one"]))
                == #"{"name":"a","type":"Note","fields":{"count":1,"size":1.0,"title":"one"}}"#)
    }

    @Test(arguments: [
        "", "[]", "{}", #"{"name":"a"}"#, #"{"name":"a","type":"N","x":1}"#, #"{"name":"a","type":"N","fields":1}"#,
        #"{"name":"a","type":"N","fields":{"f":[1,1.0]}}"#, #"{"name":"a","type":"N","fields":{"f":[]}}"#,
        #"{"name":"a","type":"N","fields":{"f":{"$date":"yesterday"}}}"#,
        #"{"name":"a","type":"N","fields":{"f":{"a":1}}}"#, #"{"name":"a","type":"N","fields":{"f":null}}"#,
        #"{"name":"a","type":"N","fields":{"f":[[1]]}}"#,
    ]) func whatIsNoRecordIsRefused(line: String) {
        #expect(throws: CloudError.self) { try RecordJSON.record(line) }
    }

    @Test(arguments: [0, 1.25, -1.25, 8e8 + 0.1, -978_307_200 - 0.3]) func datesComeBackToTheirLastBit(seconds: Double)
    {
        let date = Date(timeIntervalSinceReferenceDate: seconds)
        #expect(RecordDate(date).date == date)
    }
}
