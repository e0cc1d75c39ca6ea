import Foundation
import NephosCore
import NephosPredicates
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// Queries: what a predicate is true of, page by page, as of every save before.
@Suite struct QueryTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    private func page(
        _ predicate: String, type: String = "", after: String = "", limit: UInt32 = 0, fields: [String] = []
    ) throws -> WireQueryRecordsReply {
        var request = WireQueryRecords()
        request.container = device.container
        request.zoneID = device.zone
        request.type = type
        request.predicate = predicate
        request.after = after
        request.limit = limit
        request.desiredFields = fields
        return try device.call("QueryRecords", request, as: WireQueryRecordsReply.self)
    }

    /// Names of all that it is true of, in the order in which they come.
    private func query(
        _ predicate: String, type: String = "", limit: UInt32 = 0, between: (Int) throws -> Void = { _ in }
    ) throws -> [String] {
        var names: [String] = []
        var (after, pages) = ("", 0)
        while true {
            let reply = try page(predicate, type: type, after: after, limit: limit)
            names += reply.records.map(\.item)
            pages += 1
            if reply.after.isEmpty { return names }
            after = reply.after
            try between(pages)
        }
    }

    @Test func everyTypeOfFieldIsAskedFor() throws {
        var place = WireRecordLocation()
        place.latitude = 52.5
        place.longitude = 13.4
        var tags = WireStringList()
        tags.values = ["red", "blue"]
        var numbers = WireIntegerList()
        numbers.values = [1, 5]
        var encrypted = WireEncryptedValue()
        encrypted.suite = 1
        encrypted.keyID = Data([1])
        encrypted.sealed = Data("secret".utf8)
        try device.save("target")
        try device.save(
            "a",
            [
                "title": .string("Über das Meer"), "count": .integer(7), "ratio": .real(0.5),
                "day": .date(1_700_000_000_000_000_000), "raw": .data(Data([0, 255])), "place": .location(place),
                "tags": .strings(tags), "numbers": .integers(numbers), "to": .with("target"),
                "sealed": .encrypted(encrypted),
            ])
        for (predicate, matches) in [
            ("title == 'Über das Meer'", true), ("title BEGINSWITH 'Über'", true), ("title ENDSWITH[cd] 'MEER'", true),
            ("title LIKE[c] '*das*'", true), ("count == 7 AND ratio < 1", true), ("count BETWEEN {8, 9}", false),
            ("day > date(\"2023-01-01\")", true), ("raw == x'00ff'", true), ("tags CONTAINS 'red'", true),
            ("ANY numbers > 4", true), ("ANY numbers > 5", false), ("'blue' IN tags", true),
            ("distance(place, point(52.5, 13.41)) < 1000", true), ("distance(place, point(53.5, 13.4)) < 1000", false),
            ("to == 'target'", true), ("self CONTAINS 'meer uber'", true), ("self CONTAINS 'berg'", false),
            ("sealed == NULL", true), ("sealed != NULL", false), ("NOT (count == 7 OR count == 8)", false),
            ("_recordName == 'a'", true), ("_creationDate > date(\"2001-01-01\")", true),
            ("_creator == '\(device.mover.account)'", true),
        ] {
            #expect(try query("(\(predicate)) AND title != NULL").contains("a") == matches, "\(predicate)")
        }
    }

    @Test func whatMatchesThroughoutComesExactlyOnceInTheOrderOfNames() throws {
        for start in stride(from: 0, to: 1200, by: 400) {
            try device.modify((start..<start + 400).map { .save("r\($0)", ["even": .integer(Int64($0 % 2))]) })
        }
        let even = (0..<1200).filter { $0 % 2 == 0 }.map { "r\($0)" }.sorted()
        let found = try query("even == 0", limit: 100) { page in
            // Others are changed, made and deleted meanwhile, and some of those that match.
            try device.modify([.save("r\(page * 2)", ["page": .integer(Int64(page))], policy: .changedKeys)])
            try device.modify([.delete("r\(1199 - page * 2)"), .save("s\(page)", ["even": .integer(1)])])
        }
        #expect(found == even)
        // One call looks at no more than it says.
        let none = try page("even == 7")
        #expect(none.records.isEmpty && none.examined == UInt32(RecordLimits.examinedMax) && !none.after.isEmpty)
    }

    @Test func aQuerySeesWhatWasSavedBeforeAndOnlyItsType() throws {
        try device.modify([.save("note"), .save("photo", type: "Photo")])
        #expect(try query("", type: "Photo") == ["photo"])
        #expect(try query("") == ["note", "photo"])
        #expect(try query("TRUEPREDICATE", type: "Other").isEmpty)
        let reply = try page("", type: "Note", fields: ["none"])
        #expect(try WireRecord(serializedBytes: reply.records[0].body).fields.isEmpty)
    }

    @Test func whatGoesOverTextsOftenLooksAtLess() throws {
        let text = String(repeating: "x", count: 100_000)
        for number in 0..<4 { try device.save("r\(number)", ["text": .string(text)]) }
        #expect(try page("text LIKE '*y*'").examined == 4)
        let often = Array(repeating: "text LIKE '*y*'", count: 32).joined(separator: " OR ")
        let reply = try page(often)
        #expect(reply.examined == 1 && reply.after == "r0")
        #expect(try query(often).isEmpty)
        let error = #expect(throws: CloudError.self) { try page("(\(often)) OR (\(often)) OR text LIKE '*z*'") }
        #expect(error?.code == .limitExceeded)
    }

    @Test func whatGoesOverListsOftenLooksAtLess() throws {
        let numbers = [Int64](repeating: 1, count: 40_000)
        for number in 0..<6 { try device.save("r\(number)", ["l": .list(numbers), "n": .integer(1)]) }
        // Values that are not asked for are not gone over.
        #expect(try page("n == 2").examined == 6)
        // 40,000 bytes, and 160,000 for the values, are gone over once, or thirty times.
        #expect(try page("ANY l == 2 AND n == 1").examined == 6)
        let often = (2..<32).map { "ANY l == \($0)" }.joined(separator: " OR ")
        let reply = try page(often)
        #expect(reply.examined == 1 && reply.after == "r0")
        #expect(try query(often).isEmpty && query("\(often) OR ANY l == 1").count == 6)
        let error = #expect(throws: CloudError.self) { try page("\(often) OR \(often) OR l CONTAINS 5 OR \(often)") }
        #expect(error?.code == .limitExceeded)
        // As many single values are asked for in one pass.
        #expect(try query("ANY l IN {\((1..<900).map(String.init).joined(separator: ", "))}").count == 6)
    }

    @Test func whatIsNoPredicateSaysWhere() throws {
        let error = #expect(throws: CloudError.self) { try page("title = = 3") }
        #expect(error?.code == .invalidArguments && error?.details["offset"] == "8")
        #expect(throws: CloudError.self) { try page("x == 1", type: "no type") }
        #expect(throws: CloudError.self) { try page(String(repeating: "(", count: 20_000)) }
    }
}
