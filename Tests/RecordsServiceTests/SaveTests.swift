import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// What becomes of a record that is saved: CloudKit's policies.
@Suite struct SaveTests {
    private let house: RecordHouse
    private let here: RecordDevice
    private let there: RecordDevice

    init() throws {
        house = try RecordHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func aRecordIsSavedAndEverybodyOfTheAccountReadsIt() throws {
        let version = try here.save("a", ["title": .string("Sea"), "count": .integer(3)])
        let record = try #require(try there.list()["a"])
        #expect(record.type == "Note")
        #expect(record.version == version)
        #expect(record["title"] == .string("Sea"))
        #expect(record.fields.map(\.name) == ["count", "title"])
        #expect(record.created.deviceID == here.mover.device.rawValue)
        #expect(record.created.time > 0 && record.created == record.modified)
        #expect(try there.fetch(["a", "none"], fields: ["count"])["a"]?.fields.map(\.name) == ["count"])
    }

    @Test func aSaveOverWhatOthersHaveSavedIsRefusedWithTheirRecord() throws {
        let first = try here.save("a", ["title": .string("one")])
        try there.save("a", ["title": .string("two")], base: first)
        let outcome = try here.modify([.save("a", ["title": .string("three")], base: first)])
        #expect(outcome.codes == [.serverRecordChanged])
        #expect(outcome.records[0].record["title"] == .string("two"))
        #expect(try here.list()["a"]?["title"] == .string("two"))
        // One that is thought to be new, too.
        #expect(try here.modify([.save("a", ["title": .string("four")])]).codes == [.serverRecordChanged])
    }

    @Test func equalContentIsNoConflict() throws {
        let first = try here.save("a", ["title": .string("one")])
        let second = try there.save("a", ["title": .string("two")], base: first)
        let outcome = try here.modify([.save("a", ["title": .string("two")], base: first)])
        #expect(outcome.codes == [nil])
        #expect(outcome.records[0].record.version == second)
        #expect(outcome.token.sequence == outcome.previousSequence)
    }

    @Test func equalContentIsEqualByteForByte() throws {
        let first = try here.save("a", ["title": .string("caf\u{e9}")])
        // The same for a reader, and other bytes.
        let outcome = try there.modify([.save("a", ["title": .string("cafe\u{301}")])])
        #expect(outcome.codes == [.serverRecordChanged])
        try there.save("a", ["title": .string("cafe\u{301}")], policy: .allKeys)
        guard case .string(let title) = try here.list()["a"]?["title"] else { throw CloudError(.unknownItem, "") }
        #expect(Array(title.utf8) == Array("cafe\u{301}".utf8))
        // What is no number is what it is.
        let second = try here.save("b", ["x": .real(.nan)])
        #expect(try there.modify([.save("b", ["x": .real(.nan)])]).records[0].record.version == second)
        _ = first
    }

    @Test func aValueThatIsNotKnownIsKept() throws {
        let version = try here.save("a", ["x": .integer(1)])
        var change = WireRecordChange.save("a", base: version)
        // Field 100: of a kind that this version does not know.
        let field = try WireRecordField(serializedBytes: [0x0a, 1, UInt8(ascii: "x"), 0xa0, 0x06, 7] as [UInt8])
        change.save.fields = [field]
        #expect(try here.modify([change]).codes == [nil])
        #expect(try there.list()["a"]?.fields == [field])
        try there.save("a", ["y": .integer(2)], policy: .changedKeys)
        #expect(try there.list()["a"]?.fields.first == field)
    }

    @Test func changedKeysSavesItsFieldsAndKeepsTheOthersAndWhatItOverwrote() throws {
        let first = try here.save("a", ["title": .string("one"), "body": .string("text")])
        let second = try there.save("a", ["title": .string("two"), "more": .integer(1)], base: first)
        let outcome = try here.modify([
            .save("a", ["title": .string("three")], base: first, policy: .changedKeys)
        ])
        #expect(outcome.codes == [nil])
        // What it was merged with, the device did not know.
        #expect(outcome.records[0].record["more"] == .integer(1))
        let record = try #require(try there.list()["a"])
        #expect(record["title"] == .string("three"))
        #expect(record["body"] == .string("text"))
        #expect(record["more"] == .integer(1))
        let lost = try #require(try there.history(of: "a").first)
        #expect(lost.record.version == second)
        #expect(lost.record["title"] == .string("two"))
        #expect(lost.winner.deviceID == here.mover.device.rawValue)
    }

    @Test func aSaveThatComesAgainIsKnown() throws {
        let save = WireRecordChange.save("a", ["title": .string("one")])
        let first = try here.modify([save])
        #expect(first.codes == [nil])
        var base = save.save.version
        for number in 0..<5 { base = try there.save("a", ["title": .string("\(number)")], base: base) }
        let again = try here.modify([save])
        #expect(again.codes == [nil])
        #expect(again.records[0].record["title"] == .string("4"))
        try there.delete("a", base: base)
        #expect(try here.modify([save]).codes == [.unknownItem])
        #expect(try here.list().isEmpty)
    }

    @Test func fieldsGoOneByOneAndAllTogether() throws {
        var version = try here.save("a", ["title": .string("one"), "body": .string("text")])
        var change = WireRecordChange.save("a", base: version)
        var gone = WireRecordField()
        gone.name = "body"
        change.save.fields = [gone]
        #expect(try here.modify([change]).codes == [nil])
        #expect(try here.list()["a"]?.fields.map(\.name) == ["title"])
        version = change.save.version
        change = .save("a", ["other": .real(1.5)], base: version)
        change.save.replace = true
        #expect(try here.modify([change]).codes == [nil])
        #expect(try here.list()["a"]?.fields.map(\.name) == ["other"])
    }

    @Test func aZoneChangesAsAWholeOrAsFarAsItCan() throws {
        try here.save("there", ["title": .string("one")])
        let changes: [WireRecordChange] = [
            .save("new"), .save("there", ["title": .string("two")]), .delete("none"),
        ]
        let whole = try here.modify(changes)
        #expect(whole.codes == [.batchRequestFailed, .serverRecordChanged, .batchRequestFailed])
        #expect(try Set(here.list().keys) == ["there"])
        let part = try here.modify(changes, atomic: false)
        #expect(part.codes == [nil, .serverRecordChanged, nil])
        #expect(try Set(here.list().keys) == ["there", "new"])
    }

    @Test func zonesDoNotWaitForEachOther() throws {
        let zone = try here.makeZone("Work")
        var request = WireModifyRecords()
        request.container = here.container
        for (id, name) in [(RecordLimits.defaultZone, "a"), (zone, "b"), (RecordDevice.zoneID(), "c")] {
            var changes = WireZoneChanges()
            changes.zoneID = id
            changes.changes = [.save(name)]
            request.zones.append(changes)
        }
        let reply = try here.call("ModifyRecords", request, as: WireModifyRecordsReply.self)
        #expect(reply.zones.map { CloudError.Code(number: $0.failure.code) } == [nil, nil, .zoneNotFound])
        #expect(try Set(here.list().keys) == ["a"])
        here.zone = zone
        #expect(try Set(here.list().keys) == ["b"])
    }

    @Test func conditionsOnOtherRecordsHoldOrNothingIsDone() throws {
        let version = try here.save("rate", ["value": .integer(7)])
        var condition = WireRecordCondition()
        condition.record = "rate"
        condition.version = version
        #expect(try here.modify([.save("a")], if: [condition]).hasFailure == false)
        let second = try there.save("rate", ["value": .integer(8)], base: version)
        let outcome = try here.modify([.save("b")], if: [condition])
        #expect(CloudError.Code(number: outcome.failure.code) == .constraintViolation)
        condition.version = second
        #expect(try here.modify([.save("b")], if: [condition]).hasFailure == false)
        condition.record = "absent"
        condition.version = Data()
        #expect(try here.modify([.save("c")], if: [condition]).hasFailure == false)
    }

    @Test func aRecordKeepsItsTypeAndDeletionsAskForWhatTheyKnew() throws {
        let version = try here.save("a")
        #expect(try here.modify([.save("a", type: "Photo", base: version)]).codes == [.invalidArguments])
        #expect(try here.modify([.delete("a", base: RecordDevice.version())]).codes == [.serverRecordChanged])
        #expect(try here.modify([.delete("a", base: version)]).codes == [nil])
        #expect(try here.modify([.save("a", base: version)]).codes == [.unknownItem])
    }

    @Test(arguments: ["", "_a", "ä", "a\nb", String(repeating: "a", count: 256)])
    func whatCannotBeANameIsRefused(_ name: String) throws {
        #expect(try here.modify([.save(name)]).codes == [.invalidArguments])
        #expect(throws: CloudError.self) { try here.makeZone(name) }
    }

    @Test func whatCannotBeAFieldIsRefused() throws {
        var place = WireRecordLocation()
        place.latitude = .nan
        var encrypted = WireEncryptedValue()
        encrypted.suite = 2
        encrypted.keyID = Data([1])
        encrypted.sealed = Data([1])
        for fields: [String: WireRecordField.OneOf_Value] in [
            ["1a": .integer(1)], ["_a": .integer(1)], ["a b": .integer(1)], ["": .integer(1)],
            ["place": .location(place)], ["sealed": .encrypted(encrypted)], ["to": .with("_no")],
        ] {
            #expect(try here.modify([.save("a", fields)]).codes == [.invalidArguments])
        }
        var twice = WireRecordChange.save("a", ["x": .integer(1)])
        twice.save.fields += twice.save.fields
        #expect(try here.modify([twice]).codes == [.invalidArguments])
        #expect(try here.list().isEmpty)
    }

    @Test func noFieldThatIsThereBecomesAnEncryptedOne() throws {
        var sealed = WireEncryptedValue()
        (sealed.suite, sealed.keyID, sealed.sealed) = (1, Data([1]), Data([2, 3]))
        try here.save("a", ["open": .string("x"), "sealed": .encrypted(sealed)])
        for policy in [WireSavePolicy.changedKeys, .allKeys] {
            let outcome = try there.modify([.save("a", ["open": .encrypted(sealed)], policy: policy)])
            #expect(outcome.codes == [.invalidArguments] && outcome.records[0].failure.details["field"] == "open")
        }
        // Not by leaving the others out either.
        var whole = WireRecordChange.save("a", ["open": .encrypted(sealed)], policy: .allKeys)
        whole.save.replace = true
        #expect(try there.modify([whole]).codes == [.invalidArguments])
        #expect(try there.list()["a"]?["open"] == .string("x"))
        sealed.sealed = Data([4])
        try there.save("a", ["sealed": .encrypted(sealed), "new": .encrypted(sealed)], policy: .changedKeys)
        #expect(try here.list()["a"]?["sealed"] == .encrypted(sealed))
    }

    @Test func aRequestOfMoreThanTwoMebibytesIsRefusedByTheService() throws {
        let room = RecordLimits.requestBytesMax
        func request(_ sizes: [Int]) throws -> WireModifyRecords {
            var request = WireModifyRecords()
            request.container = here.container
            var zone = WireZoneChanges()
            zone.zoneID = here.zone
            zone.changes = sizes.enumerated().map { .save("r\($0)", ["x": .data(Data(count: $1))]) }
            request.zones = [zone]
            return request
        }
        // Lengths take more bytes the longer they are.
        let sizes = [1_000_000, 1_000_000, room - 2_001_000]
        let missing = room - (try request(sizes).serializedData().count)
        let most = try request([sizes[0], sizes[1], sizes[2] + missing])
        try #require(try most.serializedData().count == room)
        #expect(throws: CloudError.self) {
            var larger = most
            larger.zones[0].changes[2].save.fields[0].data.append(0)
            try here.call("ModifyRecords", larger, as: WireModifyRecordsReply.self)
        }
        #expect(try here.list().isEmpty)
        let reply = try here.call("ModifyRecords", most, as: WireModifyRecordsReply.self)
        #expect(reply.zones[0].records.allSatisfy { !$0.hasFailure })
        #expect(try here.fetch(["r0", "r1", "r2"], fields: ["none"]).count == 3)
    }

    @Test func aRecordHasABoundAndARequestToo() throws {
        let long = String(repeating: "a", count: RecordLimits.recordBytesMax)
        #expect(try here.modify([.save("a", ["x": .string(long)])]).codes == [.limitExceeded])
        #expect(throws: CloudError.self) {
            try here.modify((0...RecordLimits.itemsMax).map { .save("r\($0)") })
        }
        let all = try here.modify((0..<RecordLimits.itemsMax).map { .save("r\($0)") })
        #expect(all.codes.allSatisfy { $0 == nil })
        #expect(try here.list().count == RecordLimits.itemsMax)
    }

    @Test func whatADeviceLeavesWithItsChangeItIsToldAgain() throws {
        try here.modify([.save("a")], leaving: "mine")
        try there.modify([.save("b")], leaving: "theirs")
        func left(_ device: RecordDevice) throws -> String {
            var request = WireReadChanges()
            request.scope = "\(device.container)/\(device.zone)"
            let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
            return String(decoding: try WireZoneInfo(serializedBytes: reply.info).clientToken, as: UTF8.self)
        }
        #expect(try left(here) == "mine")
        // Not all of it was made.
        let codes = try here.modify([.save("a", ["x": .integer(1)]), .save("c")], atomic: false, leaving: "later").codes
        #expect(codes.first != .some(nil) && codes.last == .some(nil))
        #expect(try left(here) == "mine")
        #expect(try left(there) == "theirs")
    }
}
