import NephosCore
import Testing

@testable import NephosKit

/// Records of the default zone, on two devices.
@Suite struct RecordTests {
    @Test func aSavedRecordComesToTheOtherDevice() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            let saved = try await here.database.save(Record("a", ["title": "one", "count": 1]))
            #expect(saved.isPending && saved.changeTag?.count == 16)
            #expect(try await here.database.record(RecordID("a"))?["title"] == "one")
            try await here.settle()
            let mine = try #require(try await here.database.record(RecordID("a")))
            #expect(!mine.isPending && mine.created != nil && mine.changeTag == saved.changeTag)
            try await there.settle()
            let theirs = try #require(try await there.database.record(RecordID("a")))
            #expect(theirs == mine && theirs.fields == ["title": "one", "count": 1])
            #expect(theirs.modified?.device == (try here.session.account?.deviceID))
            #expect(try await here.proves())
            #expect(try await there.proves())
        }
    }

    @Test func aChangedRecordAndADeletedOneComeToo() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.modify(
                saving: [Record("a", ["title": "one", "gone": 1]), Record("b", ["title": "two"])], deleting: [])
            try await here.settle()
            try await there.settle()
            var record = try #require(try await there.database.record(RecordID("a")))
            record["title"] = "changed"
            record["gone"] = nil as RecordValue?
            #expect(record.changedFields == ["gone", "title"])
            try await there.database.save(record)
            try await there.database.delete(RecordID("b"))
            #expect(try await there.contents() == ["a": ["title": "changed"]])
            try await there.settle()
            try await here.settle()
            #expect(try await here.contents() == ["a": ["title": "changed"]])
            #expect(try await here.proves())
            #expect(try await there.proves())
        }
    }

    @Test func whatIsSavedOfflineIsSentOnceThereIsANetwork() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            here.setOffline(true)
            var record = try await here.database.save(Record("a", ["count": 1]))
            for count in 2...5 {
                record["count"] = .integer(Int64(count))
                record = try await here.database.save(record)
            }
            // Saves over one that was never sent take its place.
            #expect(try await here.database.status().pending.count == 1)
            #expect(try await here.contents() == ["a": ["count": 5]])
            here.setOffline(false)
            try await here.settle()
            try await there.settle()
            #expect(try await there.contents() == ["a": ["count": 5]])
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.proves())
        }
    }

    @Test func recordsAreFetchedFromTheServerBeforeTheyWereDownloaded() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.save(Record("a", ["title": "one", "body": "long"]))
            try await here.settle()
            let found = try await there.database.record(RecordID("a"), from: .server, desiredFields: ["title"])
            #expect(found?.fields == ["title": "one"])
            #expect(try await there.database.record(RecordID("b"), from: .server) == nil)
        }
    }

    @Test func aNameThatNobodyChoseIsRandom() throws {
        let names = (0..<100).map { _ in RecordID.unique(zone: "work").name }
        #expect(
            Set(names).count == 100
                && names.allSatisfy { $0.utf8.count == 32 && UInt64($0.prefix(16), radix: 16) != nil })
    }

    @Test func aRecordIsSavedAsAWhole() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.save(Record("a", ["n": 1, "old": "x"]))
            try await here.settle()
            let part = try #require(
                try await there.database.record(RecordID("a"), from: .server, desiredFields: ["n"]))
            // What was not fetched goes, and so does what another device has added since.
            var mine = try #require(try await here.database.record(RecordID("a")))
            mine["more"] = 2
            try await here.database.save(mine)
            try await here.settle()
            try await there.database.save(part, policy: .allKeys, replacing: true)
            try await there.settle()
            try await here.settle()
            for device in [here, there] { #expect(try await device.contents() == ["a": ["n": 1]]) }
            #expect(try await here.proves())
            // As a save like any other it is a conflict.
            there.setOffline(true)
            try await there.database.save(
                try #require(try await there.database.record(RecordID("a"))), replacing: true)
            mine = try #require(try await here.database.record(RecordID("a")))
            mine["n"] = 5
            try await here.database.save(mine)
            try await here.settle()
            there.setOffline(false)
            try await there.settle()
            #expect(try await there.database.conflicts.list().map(\.client?.fields) == [["n": 1]])
        }
    }

    @Test func aConditionOnAnotherRecordHoldsOrNothingIsDone() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            let lock = try await here.database.save(Record("lock", ["by": "here"]))
            try await here.settle()
            let seen = try #require(try await here.database.record(RecordID("lock")))
            try await here.database.modify(
                saving: [Record("a", ["n": 1])], deleting: [],
                conditions: [.unchanged(seen), .absent(RecordID("none"))])
            try await here.settle()
            try await there.settle()
            #expect(try await there.contents()["a"] == ["n": 1] && seen.changeTag == lock.changeTag)
            var theirs = try #require(try await there.database.record(RecordID("lock")))
            theirs["by"] = "there"
            try await there.database.save(theirs)
            try await there.settle()
            for (name, condition) in [
                ("b", RecordCondition.unchanged(seen)), ("c", .absent(RecordID("a"))),
            ] {
                try await here.database.modify(
                    saving: [Record(name, ["n": 2])], deleting: [], conditions: [condition])
                try await here.settle()
                let refused = try await here.database.conflicts.rejected()
                #expect(refused.map(\.id.name) == [name] && refused[0].error.code == .constraintViolation)
                #expect(refused[0].record?.fields == ["n": 2])
                try await here.database.conflicts.dismissRejected()
            }
            #expect(try await there.contents().keys.sorted() == ["a", "lock"])
        }
    }

    @Test func aDeletionIsToldWithItsType() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.modify(
                saving: [Record("a", type: "Task", ["n": 1]), Record("b", ["n": 2])], deleting: [])
            try await here.settle()
            try await there.settle()
            let changes = there.database.changes
            try await here.database.delete(RecordID("a"))
            try await here.settle()
            try await there.settle()
            var told: RecordChanges?
            for await change in changes where !change.deleted.isEmpty {
                told = change
                break
            }
            #expect(told?.deleted == [RecordID("a")] && told?.deletedTypes == [RecordID("a"): "Task"])
        }
    }

    @Test func whatADeviceLeavesWithItsChangesItReadsAgain() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            #expect(try await here.database.clientChangeToken(zone: RecordZone.defaultName) == nil)
            for (device, name) in [(here, "mine"), (there, "theirs")] {
                try await device.database.modify(
                    saving: [Record(name, ["n": 1])], deleting: [], clientToken: .init(name.utf8))
                try await device.settle()
            }
            // Another save without one leaves it.
            try await here.database.save(Record("more", ["n": 1]))
            try await here.settle()
            #expect(try await here.database.clientChangeToken(zone: RecordZone.defaultName) == .init("mine".utf8))
            #expect(try await there.database.clientChangeToken(zone: RecordZone.defaultName) == .init("theirs".utf8))
            for count in [0, 1025] {
                let error = await #expect(throws: CloudError.self) {
                    try await here.database.modify(
                        saving: [Record("x", ["n": 1])], deleting: [], clientToken: .init(count: count))
                }
                #expect(error?.code == (count == 0 ? .invalidArguments : .limitExceeded))
            }
        }
    }

    @Test func whatIsOpenIsNotSavedAsAnEncryptedField() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            let secret = RecordValue.encrypted(EncryptedRecordValue(keyID: .init([1]), sealed: .init([2, 3])))
            var record = try await here.database.save(Record("a", ["open": "x", "secret": secret]))
            record["open"] = secret
            let error = await #expect(throws: CloudError.self) { try await here.database.save(record) }
            #expect(error?.code == .invalidArguments && error?.details["field"] == "open")
            try await here.settle()
            #expect(try await here.contents() == ["a": ["open": "x", "secret": secret]])
            let shared = try await here.session.recordContainer(app: RecordCloud.app).publicDatabase
            let refusal = await #expect(throws: CloudError.self) { try await shared.save(Record("b", ["s": secret])) }
            #expect(refusal?.code == .invalidArguments)
        }
    }
}
