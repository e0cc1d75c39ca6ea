import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// What the service has lost with a copy it gets back as it was: under its change tag, of whoever had saved it, with its
/// date.
@Suite struct OfferTests {
    let house: RecordHouse
    let here: RecordDevice
    let there: RecordDevice

    init() throws {
        house = try RecordHouse()
        here = try house.device()
        there = try house.device()
        try here.save("first")
    }

    func copy() throws -> StorageCopy { try house.cloud.copyStorage(of: .records) }

    /// The service comes back with what it had then, and somebody has shown that it is an old copy.
    func lose(since copy: StorageCopy, after time: Duration = .seconds(60)) throws {
        house.cloud.network.run(for: time)
        try here.save("lost \(UUID())".replacing(" ", with: "-"))
        try house.cloud.restore(copy, of: .records)
        // Nobody changes anything with it.
        try here.delete("nothing")
        house.cloud.network.run(for: min(time, .seconds(10)))
    }

    /// The key of the digests of a zone does not open any more, and is made anew as soon as somebody reads.
    private func damageDigestKey(of device: RecordDevice) throws {
        try house.cloud.storage(of: .records).write { transaction in
            let path = SQLValue.text("\(device.container)/\(device.zone)")
            let metadata = try transaction.first(SQL("SELECT metadata FROM feed_scopes WHERE path = ?1"), [path]) {
                $0.blob(0)
            }
            let damaged = try #require(metadata).dropLast(4) + [1, 2, 3, 4]
            try transaction.execute(
                SQL("UPDATE feed_scopes SET metadata = ?2 WHERE path = ?1"), [path, .blob(Array(damaged))])
        }
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        _ = try device.list()
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.rows(of: "record_mendings") == 0)
    }

    /// They cannot be read any more.
    private func damage(_ names: String...) throws {
        try house.cloud.storage(of: .records).write { transaction in
            for name in names {
                let body = try transaction.first(SQL("SELECT body FROM feed_items WHERE name = ?1"), [.text(name)]) {
                    $0.blob(0)
                }
                let damaged = try #require(body).dropLast(4) + [1, 2, 3, 4]
                try transaction.execute(
                    SQL("UPDATE feed_items SET body = ?1 WHERE name = ?2"), [.blob(Array(damaged)), .text(name)])
            }
        }
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        pass()
    }

    func pass() { house.cloud.network.run(for: .seconds(60)) }

    /// What was told of the deletions.
    private func deletions() throws -> [String: WireRecord] {
        var request = WireReadChanges()
        request.scope = "\(here.container)/\(here.zone)"
        let head = try here.call("ReadChanges", request, as: WireReadChangesReply.self).token
        request.after = head
        request.after.sequence = 1
        let reply = try here.call("ReadChanges", request, as: WireReadChangesReply.self)
        return try Dictionary(
            reply.changes.filter(\.deleted).map { ($0.item, try WireRecord(serializedBytes: $0.body)) }
        ) { $1 }
    }

    @Test func whatIsOfferedAgainIsOfThoseWhoHadSavedIt() throws {
        try there.save("old", ["n": .integer(0)])
        let copy = try copy()
        let first = try there.save("a", ["n": .integer(1)])
        pass()
        try here.save("a", ["n": .integer(2)], base: first)
        let version = try #require(try here.list()["old"]).version
        pass()
        try here.save("old", ["n": .integer(3)], base: version)
        let before = try here.list()
        try lose(since: copy)
        #expect(try here.list()["a"] == nil)
        pass()
        let outcome = try there.modify([.offer("a", before["a"]), .offer("old", before["old"])], atomic: false)
        #expect(outcome.codes == [nil, nil])
        #expect(try here.list() == before)
        #expect(before["a"]?.created.deviceID == there.mover.device.rawValue)
        #expect(before["a"]?.modified.deviceID == here.mover.device.rawValue)
        // Offered once more, by another device, it is as it was.
        let again = try here.modify([.offer("a", before["a"])])
        #expect(again.codes == [nil] && again.token.sequence == again.previousSequence)
    }

    /// It is as it was, in the history of now and after a restore; a later state takes the place of an older one.
    @Test(arguments: [false, true]) func whatIsOfferedFromBeforeTheQuarantineIsAsItWas(_ isRestored: Bool) throws {
        let first = try here.save("a", ["n": .integer(1)])
        let older = try #require(try here.list()["a"])
        pass()
        try here.save("a", ["n": .integer(2)], base: first)
        let newer = try #require(try here.list()["a"])
        if isRestored { try lose(since: copy()) }
        try damage("a")
        if isRestored { #expect(try there.modify([.offer("a", older)]).codes == [nil]) }
        #expect(try there.modify([.offer("a", newer)]).codes == [nil])
        #expect(try here.list()["a"] == newer)
        // Offered once more, by another device, it is as it was.
        let again = try here.modify([.offer("a", newer)])
        #expect(again.codes == [nil] && again.token.sequence == again.previousSequence)
    }

    /// What it hangs on may be what nobody has any more.
    @Test func aChildComesBackThoughItsParentDoesNot() throws {
        try here.modify([.save("parent"), .save("child", parent: "parent")])
        let child = try #require(try here.list()["child"])
        try lose(since: copy())
        try damage("parent", "child")
        #expect(try here.fetch(["parent", "child"]).isEmpty)
        pass()
        let outcome = try there.modify([.offer("child", child)])
        #expect(outcome.codes == [nil] && outcome.token.sequence > outcome.previousSequence)
        // Nothing else is hung on what is not there.
        #expect(try there.modify([.save("other", parent: "parent")]).codes == [.referenceViolation])
    }

    @Test func aDeletionIsRepeatedByWhoeverKnowsOfIt() throws {
        let version = try there.save("a", ["n": .integer(1)])
        try there.save("b", ["to": .with("a")])
        let copy = try copy()
        pass()
        let next = try there.save("a", ["n": .integer(2)], base: version)
        pass()
        let told = try #require(there.modify([.delete("a", base: next)]).records.first).record
        #expect(try deletions()["a"] == told)
        #expect(told.type == "Note" && told.version == next && told.modified.deviceID == there.mover.device.rawValue)
        let of = try #require(try deletions()["b"])
        #expect(of.modified.deviceID == there.mover.device.rawValue)
        try lose(since: copy)
        #expect(try Set(here.list().keys).isSuperset(of: ["a", "b"]))
        pass()
        let outcome = try here.modify([.repeated("a", told)])
        #expect(outcome.codes == [nil] && outcome.cascaded == ["b"])
        #expect(try Set(here.list().keys).isDisjoint(with: ["a", "b"]))
        #expect(outcome.records[0].record.modified == told.modified)
        // What went with it too.
        #expect(try deletions()["b"]?.modified == of.modified)
    }

    @Test func whichOfTwoIsTheLaterOneTheServiceKnows() throws {
        let copy = try copy()
        let first = try there.save("a", ["n": .integer(1)])
        let old = try #require(try here.list()["a"])
        // In the same moment: the times of one record rise all the same.
        let second = try here.save("a", ["n": .integer(2)], base: first)
        let new = try #require(try here.list()["a"])
        #expect(new.modified.time > old.modified.time)
        let told = try #require(here.modify([.delete("a", base: second)]).records.first).record
        try there.save("a", ["n": .integer(3)])
        let last = try #require(try here.list()["a"])
        for order in [[old, new, last], [last, new, old], [new, last, old]] {
            try lose(since: copy)
            for record in order { #expect(try here.modify([.offer("a", record)]).codes == [nil]) }
            #expect(try here.modify([.repeated("a", told)]).codes == [nil])
            #expect(try here.list()["a"] == last)
        }
        try lose(since: copy)
        for record in [new, old] { #expect(try here.modify([.offer("a", record)]).codes == [nil]) }
        #expect(try here.modify([.repeated("a", told)]).codes == [nil])
        // Of one whose deletion was repeated nothing comes back.
        #expect(try here.modify([.offer("a", new)]).codes == [nil])
        #expect(try here.list()["a"] == nil)
    }

    @Test func whatWasDoneSinceTheRestoreIsNeverOverwritten() throws {
        let version = try there.save("a", ["n": .integer(1)])
        try there.save("b", ["n": .integer(1)])
        let copy = try copy()
        let next = try there.save("a", ["n": .integer(2)], base: version)
        let lost = try #require(try here.list()["a"])
        let told = try #require(there.modify([.delete("a", base: next)]).records.first).record
        let base = try #require(try here.list()["b"]).version
        try there.save("b", ["n": .integer(2)], base: base)
        let other = try #require(try here.list()["b"])
        try lose(since: copy)
        try there.save("a", ["n": .integer(9)], base: version)
        try there.delete("b", base: base)
        pass()
        let outcome = try here.modify(
            [.offer("a", lost, base: version), .offer("b", other, base: base)], atomic: false)
        #expect(outcome.codes == [.serverRecordChanged, .unknownItem])
        #expect(outcome.records[0].record["n"] == .integer(9))
        #expect(try here.modify([.repeated("a", told)]).codes == [.serverRecordChanged])
        #expect(try here.list()["a"]?["n"] == .integer(9) && here.list()["b"] == nil)
    }

    /// Whoever reads a public database knows a lost record's tag, and saves another record under it.
    @Test(arguments: [false, true]) func nobodyTakesALostRecordsTag(isDeleted: Bool) throws {
        let house = try PublicHouse()
        let (ann, bert) = (try house.device(), try house.device(PublicHouse.other))
        try ann.save("first")
        let copy = try house.cloud.copyStorage(of: .records)
        try ann.save("a", ["n": .integer(1)])
        let lost = try #require(try ann.list()["a"])
        house.cloud.network.run(for: .seconds(60))
        try house.cloud.restore(copy, of: .records)
        try ann.delete("nothing")
        house.cloud.network.run(for: .seconds(10))
        #expect(try ann.list()["a"] == nil)
        #expect(try bert.modify([.save("a", ["n": .integer(666)], version: lost.version)]).codes == [nil])
        if isDeleted { try bert.delete("a", base: lost.version) }
        let offered = try ann.modify([.offer("a", lost)])
        #expect(offered.codes == [isDeleted ? .unknownItem : .serverRecordChanged])
    }

    @Test(arguments: [1, 2]) func whatIsMadeAnewForADamagedKeyIsNoChange(times: Int) throws {
        let version = try there.save("a", ["n": .integer(1)])
        try there.save("b", ["n": .integer(1)])
        let base = try #require(try here.list()["b"]).version
        let copy = try copy()
        pass()
        try there.save("a", ["n": .integer(2)], base: version)
        try there.save("b", ["n": .integer(2)], base: base)
        let lost = try here.list()
        try lose(since: copy)
        // Somebody changes one of the two.
        let own = try there.save("b", ["n": .integer(9)], base: base)
        for _ in 0..<times { try damageDigestKey(of: here) }
        let outcome = try here.modify(
            [.offer("a", lost["a"], base: version), .offer("b", lost["b"], base: base)], atomic: false)
        #expect(outcome.codes == [nil, .serverRecordChanged])
        let after = try here.list()
        #expect(after["a"] == lost["a"] && after["b"]?.version == own)
    }

    @Test(arguments: [1, 2]) func aZoneThatWasMadeAnewForADamagedKeyEndsAsItDid(times: Int) throws {
        let devices = try ["ended", "used", "usedBefore"].map { name in
            let device = try house.device()
            device.zone = try device.makeZone(name)
            // Of more than one step.
            for start in [0, 200] { try device.modify((start..<start + 200).map { .save("r\($0)") }) }
            return (name, device)
        }
        let copy = try copy()
        pass()
        let tombs = try devices.map { ($0.0, try there.end($0.0)) }
        try lose(since: copy)
        try devices[2].1.save("new")
        for _ in 0..<times { for (_, device) in devices { try damageDigestKey(of: device) } }
        try devices[1].1.save("new")
        var request = WireModifyZones()
        request.container = here.container
        request.ended = tombs.map { name, zone in
            var end = WireEndedZone()
            (end.name, end.zone) = (name, zone)
            return end
        }
        try here.call("ModifyZones", request, as: WireModifyZonesReply.self)
        #expect(try Set(here.zones().keys) == ["used", "usedBefore"])
    }

    /// Seals from before a stamp could have gaps hold: of what has none the words are the same as ever.
    @Test func whatWasSealedBeforeThereWereGapsIsKnownAgain() throws {
        let version = try there.save("a", ["n": .integer(1)])
        let record = try #require(try here.list()["a"])
        let told = try #require(there.modify([.delete("a", base: version)]).records.first).record
        let scope = ScopeName(Owner(here.mover.account), ItemName("\(here.container)/\(here.zone)"))
        func words(_ deed: String, _ body: (inout OwnWords) throws -> Void) rethrows -> OwnWords {
            var words = OwnWords(.records, of: scope)
            words.add(deed)
            words.add("a".utf8)
            try body(&words)
            return words
        }
        func add(_ stamp: WireRecordStamp, to words: inout OwnWords) {
            words.add(stamp.time)
            for text in [stamp.accountID, stamp.deviceID, stamp.appID] { words.add(text) }
        }
        let saved = try words("record") { words in
            words.add(record.type)
            words.add(record.parent)
            words.add(record.version)
            add(record.created, to: &words)
            add(record.modified, to: &words)
            words.add(Int64(record.fields.count))
            for field in record.fields { words.add(try field.serializedBytes() as [UInt8]) }
        }
        var deletion = told
        deletion.modified.gaps = []
        let deleted = words("deletion") { words in
            words.add(deletion.version)
            words.add(deletion.type)
            add(deletion.modified, to: &words)
        }
        var seals: [UInt64] = []
        let host = try #require(house.cloud.host(of: .records))
        host.submit { transaction in
            let new = OwnWords(
                deletionOf: deletion.version, type: deletion.type, by: deletion.modified, of: "a", in: scope)
            let withGaps = OwnWords(
                deletionOf: told.version, type: told.type, by: told.modified, of: "a", in: scope)
            seals = try [saved, deleted, new, withGaps].map { try $0.seal(in: transaction) }
        } then: {
            #expect($0 == nil)
        }
        house.cloud.network.run(for: .seconds(1))
        #expect(seals.count == 4 && seals[0] == record.seal && seals[1] == seals[2])
        #expect(!told.modified.gaps.isEmpty && seals[3] == told.seal && seals[3] != seals[2])
    }

    @Test func nobodyGetsAnothersNameOrDateInAnyOtherWay() throws {
        let copy = try copy()
        try there.save("a", ["n": .integer(1)])
        try there.save("b", ["n": .integer(2)])
        let (a, b) = (try #require(try here.list()["a"]), try #require(try here.list()["b"]))
        // As long as nothing was lost there is nothing to offer.
        #expect(try here.modify([.offer("c", a)]).codes == [nil])
        #expect(try here.list()["c"]?.modified.deviceID == here.mover.device.rawValue)
        try lose(since: copy)
        pass()
        func offer(_ change: (inout WireRecord) -> Void) throws -> WireRecord {
            var record = a
            change(&record)
            record.version = RecordDevice.version()
            #expect(try here.modify([.offer("a", record)]).codes == [nil])
            let made = try #require(try here.list()["a"])
            try here.delete("a")
            return made
        }
        // With another tag, by somebody else, of another time, with other content, of another record, by a seal that was
        // made up.
        let changes: [(inout WireRecord) -> Void] = [
            { _ in }, { $0.modified.deviceID = "other" }, { $0.modified.time -= 1 }, { $0.created.time -= 1 },
            { $0.fields = b.fields }, { $0.parent = "first" }, { $0 = b }, { $0.seal = 7 }, { $0.type = "Other" },
        ]
        for change in changes {
            let made = try offer(change)
            #expect(made.modified.deviceID == here.mover.device.rawValue && made.modified.time > b.modified.time)
        }
        // In another zone, and of another account.
        let elsewhere = try house.device()
        elsewhere.zone = try elsewhere.makeZone("other")
        #expect(try elsewhere.modify([.offer("a", a)]).codes == [nil])
        #expect(try elsewhere.list()["a"]?.modified.deviceID == elsewhere.mover.device.rawValue)
        _ = try house.cloud.createAccount("other")
        let stranger = try house.device(account: "other")
        #expect(try stranger.modify([.offer("a", a)]).codes == [nil])
        #expect(try stranger.list()["a"]?.modified.accountID != a.modified.accountID)
    }

    @Test func zonesComeBackAsTheyWereAndEndAsTheyDid() throws {
        let ended = try there.makeZone("ended")
        let used = try there.makeZone("used")
        let copy = try copy()
        pass()
        try there.makeZone("made")
        let before = try here.zones()
        let tombs = try Dictionary(
            ["ended", "used"].map { ($0, try there.end($0)) }
        ) { $1 }
        try lose(since: copy)
        here.zone = used
        try here.save("a")
        var request = WireModifyZones()
        request.container = here.container
        var zone = WireNewZone()
        let lost = try #require(before["made"])
        (zone.name, zone.zoneID, zone.created) = ("made", lost.zoneID, lost.created)
        (zone.deviceID, zone.appID, zone.seal) = (lost.deviceID, lost.appID, lost.seal)
        request.save = [zone]
        request.ended = tombs.map { name, zone in
            var end = WireEndedZone()
            (end.name, end.zone) = (name, zone)
            return end
        }
        pass()
        try here.call("ModifyZones", request, as: WireModifyZonesReply.self)
        let after = try here.zones()
        #expect(after["made"] == lost && lost.deviceID == there.mover.device.rawValue)
        // What was used since stays.
        #expect(Set(after.keys) == ["made", "used"] && tombs["ended"]?.zoneID == ended)
        // By a seal of something else a zone neither ends, nor is another's.
        request.ended = [request.ended[0]]
        request.ended[0].name = "made"
        request.ended[0].zone = lost
        request.save[0].name = "other"
        request.save[0].zoneID = RecordDevice.zoneID()
        try here.call("ModifyZones", request, as: WireModifyZonesReply.self)
        #expect(try Set(here.zones().keys) == ["made", "used", "other"])
        #expect(try here.zones()["other"]?.deviceID == here.mover.device.rawValue)
    }
}

extension WireRecordChange {
    /// - Parameter record: As a device has it.
    static func offer(_ name: String, _ record: WireRecord?, base: Data = Data()) -> WireRecordChange {
        var change = WireRecordChange()
        change.record = name
        guard let record else { return change }
        change.save.version = record.version
        change.save.base = base
        change.save.type = record.type
        change.save.fields = record.fields
        change.save.replace = true
        change.save.parent = record.parent
        change.save.created = record.created
        change.save.modified = record.modified
        change.save.seal = record.seal
        return change
    }

    /// - Parameter told: Of the deletion.
    static func repeated(_ name: String, _ told: WireRecord) -> WireRecordChange {
        var change = WireRecordChange.delete(name, base: told.version)
        change.delete.type = told.type
        change.delete.version = told.version
        change.delete.deleted = told.modified
        change.delete.seal = told.seal
        return change
    }
}

extension RecordDevice {
    /// Deletes a zone, and says what is told of that.
    fileprivate func end(_ name: String) throws -> WireRecordZone {
        var request = WireReadChanges()
        request.scope = container
        request.after = try call("ReadChanges", request, as: WireReadChangesReply.self).token
        try deleteZone(name)
        let reply = try call("ReadChanges", request, as: WireReadChangesReply.self)
        let change = try #require(reply.changes.last { $0.deleted && $0.item == name })
        return try WireRecordZone(serializedBytes: change.body)
    }
}
