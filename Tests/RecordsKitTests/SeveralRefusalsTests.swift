import Foundation
import GRDB
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What was refused of a record stays listed, each save and deletion by itself, until that one is dismissed or done again.
@Suite struct SeveralRefusalsTests {
    private typealias Device = RecordCloud.Device
    /// Not the database's.
    private typealias Record = NephosKit.Record

    private func read(_ name: String, on device: Device) async throws -> Record {
        try #require(try await device.database.record(RecordID(name)))
    }

    /// Two saves of one record, made from one and the same, are refused, each for itself.
    private func withTwoRefused(_ body: (RecordCloud, Device, [RefusedRecord]) async throws -> Void) async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            try await device.database.save(Record("a", ["n": 0]))
            try await device.settle()
            for field in ["first", "second"] {
                var record = try await read("a", on: device)
                record[field] = 1
                record.parent = "nowhere"
                try await device.database.save(record)
                try await device.settle()
            }
            let refused = try await device.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "a"] && Set(refused.map(\.number)).count == 2)
            #expect(refused.map { $0.record?.fields["first"] } == [1, nil])
            try #require(refused.count == 2)
            try await body(cloud, device, refused)
        }
    }

    @Test(arguments: [0, 1]) func toSaveOneAgainDropsNoOther(_ number: Int) async throws {
        try await withTwoRefused { (_, device, refused) async throws in
            // Not as it was: what it was refused for is cured.
            var record = try #require(refused[number].record)
            record.parent = nil
            try await device.database.save(record)
            try await device.settle()
            #expect(try await device.contents()["a"]?[number == 0 ? "first" : "second"] == 1)
            #expect(try await device.database.conflicts.rejected() == [refused[1 - number]])
        }
    }

    /// As a line of text has it, which says nothing of where it comes from.
    @Test func whatHasTheSameContentIsSavedAgain() async throws {
        try await withTwoRefused { (_, device, refused) async throws in
            var record = try await read("a", on: device)
            record["first"] = 1
            record.parent = "nowhere"
            device.setOffline(true)
            try await device.database.save(record)
            #expect(try await device.database.conflicts.rejected() == [refused[1]])
        }
    }

    @Test func nothingElseThatIsDoneWithTheRecordDropsThem() async throws {
        try await withTwoRefused { (_, device, refused) async throws in
            var record = try await read("a", on: device)
            record["n"] = 5
            try await device.database.save(record)
            try await device.settle()
            #expect(try await device.database.conflicts.rejected() == refused)
            try await device.database.delete(RecordID("a"))
            try await device.settle()
            #expect(try await device.contents().isEmpty)
            #expect(try await device.database.conflicts.rejected() == refused)
        }
    }

    @Test func oneIsDismissedAndNotWhatCameAfterIt() async throws {
        try await withTwoRefused { (_, device, refused) async throws in
            #expect(try await device.database.conflicts.dismissRejected([refused[0]]) == [refused[0]])
            #expect(try await device.database.conflicts.rejected() == [refused[1]])
            // Nobody has seen the other one when this was listed.
            #expect(try await device.database.conflicts.dismissRejected([refused[0]]).isEmpty)
            #expect(try await device.database.conflicts.rejected() == [refused[1]])
            #expect(try await device.database.conflicts.dismissRejected(of: [RecordID("a")]) == [RecordID("a")])
            #expect(try await device.database.conflicts.rejected().isEmpty)
        }
    }

    @Test func ofOneNameAllAreDismissedAndItIsNamedOnce() async throws {
        try await withTwoRefused { (_, device, _) async throws in
            #expect(
                try await device.database.scope(of: RecordZone.defaultName).status().refused.map(\.key) == ["a", "a"])
            #expect(try await device.database.conflicts.dismissRejected() == [RecordID("a")])
            #expect(try await device.database.conflicts.rejected().isEmpty)
        }
    }

    // MARK: Over what was refused

    /// The record that a save has given is changed and saved again, however that is: all of it goes, over what the server has.
    @Test(arguments: [RecordSavePolicy.ifServerRecordUnchanged, .changedKeys, .allKeys], [false, true])
    func whatIsSavedOverARefusedSaveTakesThatIn(_ policy: RecordSavePolicy, isNew: Bool) async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            if !isNew { try await device.database.save(Record("a", ["n": 0, "gone": 1])) }
            try await device.settle()
            var record = isNew ? Record("a", ["n": 0]) : try await read("a", on: device)
            (record["first"], record["gone"], record.parent) = (1, nil, "nowhere")
            record = try await device.database.save(record, policy: policy)
            try await device.settle()
            #expect(try await device.database.conflicts.rejected().count == 1)
            (record["second"], record.parent) = (2, nil)
            try await device.database.save(record, policy: policy)
            try await device.settle()
            #expect(try await device.contents()["a"] == ["n": 0, "first": 1, "second": 2])
            #expect(try await device.database.conflicts.rejected().isEmpty)
            #expect(try await device.database.conflicts.list().isEmpty)
            #expect(try await device.proves())
        }
    }

    /// With what it is saved over it may be refused once more, as one.
    @Test func whatIsSavedOverARefusedSaveIsRefusedWithIt() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            try await device.database.save(Record("a", ["n": 0]))
            try await device.settle()
            var record = try await read("a", on: device)
            record.parent = "nowhere"
            for field in ["first", "second"] {
                record[field] = 1
                record = try await device.database.save(record)
                try await device.settle()
            }
            let refused = try await device.database.conflicts.rejected()
            #expect(refused.count == 1 && refused.first?.record?["first"] == 1 && refused.first?.record?["second"] == 1)
            var again = try #require(refused.first?.record)
            again.parent = nil
            try await device.database.save(again)
            try await device.settle()
            #expect(try await device.contents()["a"] == ["n": 0, "first": 1, "second": 1])
            #expect(try await device.database.conflicts.rejected().isEmpty)
        }
    }

    /// What is deleted over it is what the server has.
    @Test(arguments: [false, true]) func whatIsDeletedOverARefusedSaveIsWhatThereIs(isNew: Bool) async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            if !isNew { try await device.database.save(Record("a", ["n": 0])) }
            try await device.settle()
            var record = isNew ? Record("a", ["n": 0]) : try await read("a", on: device)
            record.parent = "nowhere"
            record = try await device.database.save(record)
            try await device.settle()
            try await device.database.modify(saving: [], deleting: [record.id], seen: [record])
            try await device.settle()
            #expect(try await device.contents().isEmpty)
            #expect(try await device.database.conflicts.rejected().isEmpty)
            #expect(try await device.database.conflicts.list().isEmpty)
        }
    }

    // MARK: Deletions

    /// A save by force is over whatever there is, and so is what deletes it: that it was deleted is not said of what is still
    /// there.
    @Test func aDeletionOverASaveByForceOfWhatThisDeviceDoesNotKnowIsDecidedByAPerson() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            try await device.database.save(Record("a", ["n": 10]))
            try await device.settle()
            try cloud.setPlan(bytes: 64 << 10)
            device.setOffline(true)
            try await device.database.save(
                Record("a", ["data": .data(Data(repeating: 7, count: 200 << 10))]), policy: .allKeys)
            try await device.database.delete(RecordID("a"))
            device.setOffline(false)
            try await device.settle()
            let isThere = try await device.contents()["a"] != nil
            let undecided =
                try await device.database.conflicts.list().count + device.database.conflicts.rejected().count
            #expect(!isThere || undecided > 0)
        }
    }

    /// One that was saved over what is refused already, and is refused by itself, goes with the deletion that came after it:
    /// what the server has is deleted.
    @Test func aDeletionOverASaveByForceOverARefusedOneDeletesWhatThereWas() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            for name in ["a", "b"] { try await device.database.save(Record(name, ["n": 10])) }
            try await device.settle()
            try cloud.setPlan(bytes: 64 << 10)
            device.setOffline(true)
            var record = try await read("a", on: device)
            record["paid"] = 1
            try await device.database.modify(saving: [record], deleting: [], conditions: [.absent(RecordID("b"))])
            record = try await read("a", on: device)
            record["data"] = .data(Data(repeating: 7, count: 200 << 10))
            // Whatever the one before is: it is not refused with that.
            try await device.database.save(record, policy: .changedKeys)
            try await device.database.delete(RecordID("a"))
            device.setOffline(false)
            try await device.settle()
            #expect(try await device.database.conflicts.list().isEmpty)
            #expect(try await device.contents() == ["b": ["n": 10]])
            let refused = try await device.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a"] && refused.first?.record?["paid"] == 1)
            #expect(try await device.proves())
        }
    }

    /// What is saved by force over a refused save goes out all the same.
    @Test func whatIsSavedByForceIsNotRefusedWithWhatItWasSavedOver() async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            for name in ["a", "b"] { try await device.database.save(Record(name, ["n": 10])) }
            try await device.settle()
            device.setOffline(true)
            var record = try await read("a", on: device)
            record["paid"] = 1
            try await device.database.modify(saving: [record], deleting: [], conditions: [.absent(RecordID("b"))])
            record = try await read("a", on: device)
            record["note"] = 2
            try await device.database.save(record, policy: .changedKeys)
            device.setOffline(false)
            try await device.settle()
            #expect(try await device.contents()["a"] == ["n": 10, "note": 2])
            let refused = try await device.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a"] && refused.first?.record?["paid"] == 1)
            #expect(refused.first?.record?["note"] == nil)
            #expect(try await device.database.conflicts.list().isEmpty)
        }
    }

    /// The deletion is refused, with others, before the save that it was made over. What was to be made new is not there to be
    /// deleted.
    @Test(arguments: [false, true]) func aDeletionThatIsRefusedBeforeItsSaveStaysOne(isNew: Bool) async throws {
        try await withRecords { cloud in
            let device = try await cloud.open()
            for name in ["a", "b"] + (isNew ? [] : ["c"]) { try await device.database.save(Record(name, ["n": 10])) }
            try await device.settle()
            let before = isNew ? nil : try await read("c", on: device)
            try cloud.setPlan(bytes: 64 << 10)
            device.setOffline(true)
            let data = RecordValue.data(Data(repeating: 7, count: 200 << 10))
            var (a, b) = (try await read("a", on: device), try await read("b", on: device))
            (a["n"], b["data"]) = (1, data)
            try await device.database.modify(saving: [a, b], deleting: [])
            var c = before ?? Record("c", ["n": 10])
            c["data"] = data
            try await device.database.save(c)
            var later = try await read("a", on: device)
            later["note"] = 1
            try await device.database.modify(saving: [later], deleting: [RecordID("c")])
            device.setOffline(false)
            try await device.settle()
            let refused = try await device.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == (isNew ? ["a", "b"] : ["a", "b", "c"]))
            #expect(try await device.database.conflicts.list().isEmpty)
            guard !isNew else { return }
            #expect(refused.last?.record == nil)
            // Of what the server has.
            try await device.database.delete(RecordID("c"))
            try await device.settle()
            #expect(try await device.contents().keys.sorted() == ["a", "b"])
            #expect(try await device.database.conflicts.rejected().map(\.id.name) == ["a", "b"])
        }
    }
}
