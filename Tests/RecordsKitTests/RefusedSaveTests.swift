import Foundation
import GRDB
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What a save was to be made with is not left behind: what was saved over it goes out without it only where it fails for
/// itself alone. Else both are refused, and listed once.
@Suite struct RefusedSaveTests {
    private typealias Device = RecordCloud.Device
    /// Not the database's.
    private typealias Record = NephosKit.Record

    private func read(_ name: String, on device: Device) async throws -> Record {
        try #require(try await device.database.record(RecordID(name)))
    }

    /// Saves the record as it is seen there, with this field.
    private func set(_ field: String, _ value: RecordValue, of name: String, on device: Device) async throws {
        var record = try await read(name, on: device)
        record[field] = value
        try await device.database.save(record)
    }

    /// Two devices that have the same; the second is offline.
    private func withTwo(_ body: (RecordCloud, Device, Device) async throws -> Void) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["a", "b"] { try await one.database.save(Record(name, ["n": 10])) }
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            try await body(cloud, one, two)
        }
    }

    @Test(arguments: [1, 2]) func aConditionHoldsForWhatWasSavedOverIt(_ laterCount: Int) async throws {
        try await withTwo { _, one, two in
            var record = try await read("a", on: two)
            record["paid"] = 1
            try await two.database.modify(
                saving: [record], deleting: [], conditions: [.unchanged(read("b", on: two))])
            for count in 1...laterCount { try await set("note", .integer(Int64(count)), of: "a", on: two) }
            // Together with others as a whole.
            var third = try await read("a", on: two)
            third["last"] = 1
            try await two.database.modify(saving: [third, Record("c", ["n": 1])], deleting: [])
            try await set("n", 11, of: "b", on: one)
            try await one.settle()
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await one.contents() == ["a": ["n": 10], "b": ["n": 11]])
            #expect(try await two.contents() == one.contents())
            #expect(try await two.database.conflicts.list().isEmpty)
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "c"])
            #expect(refused.map(\.error.code) == [.constraintViolation, .batchRequestFailed])
            let kept = try #require(refused.first?.record)
            #expect(kept.fields == ["n": 10, "paid": 1, "note": .integer(Int64(laterCount)), "last": 1])
            // As a person does who saves it all the same.
            try await two.database.save(kept)
            try await two.settle()
            #expect(try await two.contents()["a"] == kept.fields)
            #expect(try await two.database.conflicts.list().isEmpty)
            #expect(try await two.database.conflicts.rejected().map(\.id.name) == ["c"])
            #expect(try await two.proves())
        }
    }

    /// The last of three is refused with the first, before the one in the middle, over which it was made too.
    @Test func aLaterSaveIsKeptWhereAnOlderOneIsRefusedAfterIt() async throws {
        try await withTwo { cloud, one, two in
            two.setOffline(false)
            try await one.database.save(Record("c", ["n": 10]))
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            try cloud.setPlan(bytes: 64 << 10)
            let data = RecordValue.data(Data(repeating: 7, count: 200 << 10))
            var (a, b) = (try await read("a", on: two), try await read("b", on: two))
            (a["n"], b["data"]) = (1, data)
            try await two.database.modify(saving: [a, b], deleting: [])
            try await set("data", data, of: "c", on: two)
            var (later, last) = (try await read("a", on: two), try await read("c", on: two))
            (later["note"], last["note"]) = (1, 2)
            try await two.database.modify(saving: [later, last], deleting: [])
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await two.contents() == ["a": ["n": 10], "b": ["n": 10], "c": ["n": 10]])
            #expect(try await two.database.conflicts.list().isEmpty)
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "b", "c"])
            #expect(refused.first?.record?.fields == ["n": 1, "note": 1])
            #expect(refused.last?.record?.fields == ["n": 10, "data": data, "note": 2])
            // Made from what the server has: without what was too much it is taken.
            var kept = try #require(refused.last?.record)
            kept["data"] = nil
            try await two.database.save(kept)
            try await two.settle()
            #expect(try await two.contents()["c"] == ["n": 10, "note": 2])
            #expect(try await two.database.conflicts.list().isEmpty)
            #expect(try await two.proves())
        }
    }

    @Test func whatWasSavedOverARefusedOneIsRefusedWithItThoughAnotherWaitsBeforeIt() async throws {
        try await withTwo { cloud, one, two in
            try cloud.setPlan(bytes: 64 << 10)
            var b = try await read("b", on: two)
            b["data"] = .data(Data(repeating: 7, count: 200 << 10))
            try await two.database.modify(saving: [b, Record("x", ["n": 1])], deleting: [])
            try await set("m", 1, of: "a", on: two)
            var (later, last) = (try await read("x", on: two), try await read("a", on: two))
            (later["note"], last["note"]) = (1, 2)
            try await two.database.modify(saving: [later, last], deleting: [])
            try await set("end", 3, of: "a", on: two)
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await one.contents() == ["a": ["n": 10, "m": 1], "b": ["n": 10]])
            #expect(try await two.contents() == one.contents())
            #expect(try await two.database.conflicts.list().isEmpty)
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "b", "x"])
            #expect(refused.first?.record?.fields == ["n": 10, "m": 1, "note": 2, "end": 3])
            #expect(try await two.proves())
        }
    }

    @Test func aDeletionOverTwoRefusedSavesDeletesWhatThereWas() async throws {
        try await withTwo { cloud, one, two in
            try cloud.setPlan(bytes: 64 << 10)
            var (a, b) = (try await read("a", on: two), try await read("b", on: two))
            a["n"] = 1
            b["data"] = .data(Data(repeating: 7, count: 200 << 10))
            try await two.database.modify(saving: [a, b], deleting: [])
            try await set("note", 1, of: "a", on: two)
            try await two.database.delete(RecordID("a"))
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await one.contents() == ["b": ["n": 10]])
            #expect(try await two.contents() == one.contents())
            #expect(try await two.database.conflicts.list().isEmpty)
            #expect(try await two.database.conflicts.rejected().map(\.id.name) == ["a", "b"])
            #expect(try await two.proves())
        }
    }

    /// What was saved last is refused first, and what it was made from afterwards.
    @Test func whatWasRefusedLaterButSavedBeforeTakesNobodysPlace() async throws {
        try await withTwo { _, one, two in
            try await set("n", 20, of: "a", on: two)
            func saveTogether(_ name: String, _ number: Int64) async throws {
                var record = try await read(name, on: two)
                record["n"] = .integer(number)
                var other = try await two.database.record(RecordID("c")) ?? Record("c", [:])
                other["n"] = .integer(number)
                try await two.database.modify(saving: [record, other], deleting: [])
            }
            try await saveTogether("b", 21)
            try await set("n", 22, of: "c", on: two)
            // With what was saved over the first one, which is a conflict before the second is.
            try await saveTogether("a", 23)
            for name in ["a", "b"] { try await set("n", 11, of: name, on: one) }
            try await one.settle()
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await two.contents() == ["a": ["n": 11], "b": ["n": 11]])
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["c"] && refused.map(\.record?.fields) == [["n": 23]])
            let conflicts = try await two.database.conflicts.list()
            #expect(conflicts.map(\.client?.fields) == [["n": 23], ["n": 21]])
            try await two.database.save(try #require(refused.first?.record))
            try await two.settle()
            try await one.settle()
            #expect(try await two.contents() == one.contents())
            #expect(try await one.contents()["c"] == ["n": 23])
        }
    }

    /// - Parameter first: Which of the two is refused for itself.
    @Test(arguments: ["a", "b"]) func whatIsDoneAsAWholeIsNotDoneByHalfWithALaterSave(_ first: String) async throws {
        try await withTwo { cloud, one, two in
            try cloud.setPlan(bytes: 64 << 10)
            var (a, b) = (try await read("a", on: two), try await read("b", on: two))
            (a["n"], b["n"]) = (0, 20)
            let data = RecordValue.data(Data(repeating: 7, count: 200 << 10))
            if first == "a" { a["data"] = data } else { b["data"] = data }
            try await two.database.modify(saving: [a, b], deleting: [])
            try await set("note", 1, of: "a", on: two)
            if first == "a" { try await set("data", .integer(0), of: "a", on: two) }
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await one.contents() == ["a": ["n": 10], "b": ["n": 10]])
            #expect(try await two.contents() == one.contents())
            #expect(try await two.database.conflicts.list().isEmpty)
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "b"])
            #expect(refused.map { $0.record?["n"] } == [0, 20])
            #expect(refused.first?.record?["note"] == 1)
        }
    }

    /// Each is one with what was refused before it, whichever of them is looked at first.
    @Test func batchesOfTheSameRecordsAreRefusedWithWhatTheLastHad() async throws {
        try await withTwo { cloud, one, two in
            try cloud.setPlan(bytes: 64 << 10)
            var (a, b) = (try await read("a", on: two), try await read("b", on: two))
            (a["data"], b["n"]) = (.data(Data(repeating: 7, count: 200 << 10)), 20)
            try await two.database.modify(saving: [a, b], deleting: [])
            for number in [1, 2] {
                var (a, b) = (try await read("a", on: two), try await read("b", on: two))
                (a["note"], b["note"]) = (.integer(Int64(number)), .integer(Int64(number)))
                try await two.database.modify(saving: number == 1 ? [a, b] : [b, a], deleting: [])
            }
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await two.contents() == ["a": ["n": 10], "b": ["n": 10]])
            #expect(try await two.database.conflicts.list().isEmpty)
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["a", "b"])
            #expect(refused.map { $0.record?["note"] } == [2, 2] && refused.last?.record?["n"] == 20)
        }
    }

    /// What is saved over what becomes a conflict is one with it, also where it is not done for another reason.
    @Test func aBatchOverOneThatIsAConflictIsOneConflict() async throws {
        try await withTwo { _, one, two in
            for number in [1, 2] {
                var (a, b) = (try await read("a", on: two), try await read("b", on: two))
                (a["note"], b["note"]) = (.integer(Int64(number)), .integer(Int64(number)))
                try await two.database.modify(saving: [a, b], deleting: [])
            }
            try await set("n", 11, of: "a", on: one)
            try await one.settle()
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            let conflicts = try await two.database.conflicts.list()
            #expect(conflicts.map(\.id.name) == ["a"] && conflicts.first?.client?["note"] == 2)
            #expect(conflicts.first?.server?["n"] == 11 && conflicts.first?.ancestor?.fields == ["n": 10])
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["b"] && refused.first?.record?["note"] == 2)
        }
    }

    @Test func whatIsLeftForTheAppIsNotLeftWithALaterSave() async throws {
        try await withTwo { cloud, _, two in
            try cloud.setPlan(bytes: 64 << 10)
            var record = try await read("a", on: two)
            record["data"] = .data(Data(repeating: 7, count: 200 << 10))
            try await two.database.modify(saving: [record], deleting: [], clientToken: Data([1]))
            try await set("data", .integer(0), of: "a", on: two)
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.database.clientChangeToken(zone: RecordZone.defaultName) == nil)
            #expect(try await two.contents()["a"] == ["n": 10])
            #expect(try await two.database.conflicts.rejected().map { $0.record?["data"] } == [0])
        }
    }

    // MARK: What was deleted

    /// The server comes back from a copy, and somebody deletes there what another device has a later version of.
    @Test func anEditOfWhatARestoreHasLostDoesNotUndoADeletion() async throws {
        try await withTwo { cloud, one, two in
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            one.setOffline(true)
            two.setOffline(false)
            try await set("n", 11, of: "a", on: two)
            try await two.settle()
            two.setOffline(true)
            cloud.simulation.pass(.seconds(60))
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            one.setOffline(false)
            try await one.database.waitUntilCurrent()
            try await one.database.delete(RecordID("a"))
            try await one.settle()
            two.setOffline(false)
            two.database.synchronize()
            // What it offers waits for its answer.
            func isOffering() throws -> Bool {
                try two.session.local.read { try Int.fetchOne($0, sql: "SELECT COUNT(*) FROM record_changes") } == 1
            }
            for _ in 0..<20_000 where try !isOffering() { cloud.simulation.advance(by: .milliseconds(1)) }
            try #require(try isOffering())
            two.setOffline(true)
            try await set("note", 1, of: "a", on: two)
            two.setOffline(false)
            for device in [two, one, two] { try await device.settle() }
            for device in [one, two] { #expect(try await device.contents() == ["b": ["n": 10]]) }
            #expect(try await two.database.conflicts.rejected().isEmpty)
            let conflicts = try await two.database.conflicts.list()
            #expect(conflicts.map(\.id.name) == ["a"] && conflicts.first?.server == nil)
            #expect(conflicts.first?.ancestor?.fields == ["n": 11])
            #expect(conflicts.first?.client?.fields == ["n": 11, "note": 1])
            #expect(try await two.proves())
        }
    }

    /// The reply to the save was lost, and somebody has deleted the record since.
    @Test func anEditOfWhatHasArrivedDoesNotUndoADeletion() async throws {
        try await withTwo { cloud, one, two in
            two.setOffline(false)
            try cloud.simulation.use { try $0.faults.fail("records.send") }
            try await two.database.save(Record("new", ["n": 1]))
            await #expect(throws: CloudError.self) {
                try await two.database.waitUntilSent(timeout: .milliseconds(50))
            }
            two.setOffline(true)
            cloud.simulation.pass(.seconds(1))
            // It will go out under an id of its own.
            try two.session.local.write { try $0.execute(sql: "UPDATE outbox SET operation = randomblob(16)") }
            try await set("note", 1, of: "new", on: two)
            try await one.settle()
            try await one.database.delete(RecordID("new"))
            try await one.settle()
            two.setOffline(false)
            for device in [two, one, two] { try await device.settle() }
            for device in [one, two] { #expect(try await device.contents().keys.sorted() == ["a", "b"]) }
            #expect(try await two.database.conflicts.rejected().isEmpty)
            let conflicts = try await two.database.conflicts.list()
            #expect(conflicts.map(\.id.name) == ["new"] && conflicts.first?.server == nil)
            #expect(conflicts.first?.client?.fields == ["n": 1, "note": 1])
        }
    }
}
