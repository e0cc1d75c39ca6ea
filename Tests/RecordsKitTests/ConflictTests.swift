import NephosCore
import Testing

@testable import NephosKit

/// What two devices save without knowing of each other.
@Suite struct ConflictTests {
    /// Two devices that have the same record, of which each saves another, the first one first.
    private func withBoth(
        policy: RecordSavePolicy = .ifServerRecordUnchanged, _ first: [String: RecordValue],
        _ second: [String: RecordValue],
        _ body: (RecordCloud.Device, RecordCloud.Device) async throws -> Void
    ) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["title": "old", "other": "old"]))
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            for (device, fields) in [(one, first), (two, second)] {
                var record = try #require(try await device.database.record(RecordID("a")))
                for (name, value) in fields { record[name] = value }
                try await device.database.save(record, policy: policy)
            }
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
            try await body(one, two)
        }
    }

    @Test func aConflictHasAllThreeRecords() async throws {
        try await withBoth(["title": "one"], ["title": "two"]) { (one, two) async throws in
            let conflicts = try await two.database.conflicts.list()
            let conflict = try #require(conflicts.first)
            #expect(conflicts.count == 1 && conflict.error.code == .serverRecordChanged)
            #expect(conflict.ancestor?["title"] == "old")
            #expect(conflict.server?["title"] == "one")
            #expect(conflict.client?["title"] == "two")
            // Until it is resolved the record is the server's.
            #expect(try await two.contents() == ["a": ["title": "one", "other": "old"]])
            #expect(try await one.database.conflicts.list().isEmpty)
            #expect(try await two.proves())
        }
    }

    @Test(arguments: [0, 1, 2]) func aConflictIsResolved(way: Int) async throws {
        try await withBoth(["title": "one"], ["title": "two", "mine": 1]) { (one, two) async throws in
            let conflict = try #require(try await two.database.conflicts.list().first)
            var merged = try #require(conflict.server)
            merged["mine"] = conflict.client?["mine"] as RecordValue?
            let resolution = [RecordResolution.server, .client, .merged(merged)][way]
            let kept = try await two.database.conflicts.resolve(conflict, keeping: resolution)
            try await two.settle()
            try await one.settle()
            let expected: [[String: RecordValue]] = [
                ["title": "one", "other": "old"], ["title": "two", "other": "old", "mine": 1],
                ["title": "one", "other": "old", "mine": 1],
            ]
            #expect(kept?.fields == expected[way])
            #expect(try await one.contents() == ["a": expected[way]])
            #expect(try await two.contents() == ["a": expected[way]])
            #expect(try await two.database.conflicts.list().isEmpty)
            let error = await #expect(throws: CloudError.self) {
                try await two.database.conflicts.resolve(conflict, keeping: .server)
            }
            #expect(error?.code == .unknownItem)
        }
    }

    @Test func equalContentIsNoConflict() async throws {
        try await withBoth(["title": "same"], ["title": "same"]) { (one, two) async throws in
            #expect(try await two.database.conflicts.list().isEmpty)
            #expect(try await two.database.conflicts.rejected().isEmpty)
            let (mine, theirs) = (
                try await one.database.record(RecordID("a")), try await two.database.record(RecordID("a"))
            )
            #expect(mine == theirs && mine?.isPending == false && theirs?.isPending == false)
        }
    }

    @Test func changedKeysOfBothAreMerged() async throws {
        try await withBoth(policy: .changedKeys, ["title": "one"], ["other": "two"]) { (one, two) async throws in
            #expect(try await one.contents() == ["a": ["title": "one", "other": "two"]])
            #expect(try await two.contents() == ["a": ["title": "one", "other": "two"]])
            #expect(try await two.database.conflicts.list().isEmpty)
            #expect(try await one.proves())
            #expect(try await two.proves())
        }
    }

    @Test func withAllKeysTheLastOneWins() async throws {
        try await withBoth(policy: .allKeys, ["title": "one", "new": 1], ["title": "two"]) { (one, two) async throws in
            #expect(try await one.contents() == ["a": ["title": "two", "other": "old", "new": 1]])
            #expect(try await two.contents() == ["a": ["title": "two", "other": "old", "new": 1]])
            #expect(try await two.proves())
        }
    }

    @Test func whatWasSavedOverAConflictIsInItToo() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 0]))
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            var record = try #require(try await two.database.record(RecordID("a")))
            record["n"] = 1
            // With another one beside it, it is not the same request as what follows.
            let saved = try await two.database.modify(saving: [record, Record("b", ["n": 1])], deleting: [])
            record = saved[0]
            record["n"] = 2
            try await two.database.save(record)
            var other = try #require(try await one.database.record(RecordID("a")))
            other["n"] = 10
            try await one.database.save(other)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let conflict = try #require(try await two.database.conflicts.list().first)
            #expect(conflict.ancestor?["n"] == 0 as RecordValue)
            #expect(conflict.server?["n"] == 10 as RecordValue && conflict.client?["n"] == 2 as RecordValue)
            // What was to be saved with it is kept, and says why it was not.
            let refused = try await two.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["b"] && refused.first?.error.code == .batchRequestFailed)
            #expect(refused.first?.record?["n"] == 1 as RecordValue)
            // Once more, it is saved, and no longer listed.
            try await two.database.save(try #require(refused.first?.record))
            try await two.settle()
            #expect(try await two.database.conflicts.rejected().isEmpty)
            #expect(try await two.contents() == ["a": ["n": 10], "b": ["n": 1]])
        }
    }

    @Test func aDeletionOfWhatOthersHaveSavedIsAConflict() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.modify(saving: [Record("a", ["n": 0]), Record("b", ["n": 0])], deleting: [])
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.database.delete(RecordID("a"))
            try await two.database.delete(RecordID("b"), policy: .allKeys)
            #expect(try await two.contents().isEmpty)
            for name in ["a", "b"] {
                var record = try #require(try await one.database.record(RecordID(name)))
                record["n"] = 1
                try await one.database.save(record)
            }
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let conflict = try #require(try await two.database.conflicts.list().first)
            #expect(conflict.id.name == "a" && conflict.client == nil && conflict.server?["n"] == 1 as RecordValue)
            #expect(try await two.contents() == ["a": ["n": 1]])
            try await two.database.conflicts.resolve(conflict, keeping: .client)
            try await two.settle()
            try await one.settle()
            #expect(try await one.contents().isEmpty)
            #expect(try await one.proves())
        }
    }

    @Test func aSaveOfWhatOthersHaveDeletedIsAConflict() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 0]))
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            var record = try #require(try await two.database.record(RecordID("a")))
            record["n"] = 1
            try await two.database.save(record)
            try await one.database.delete(RecordID("a"))
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let conflict = try #require(try await two.database.conflicts.list().first)
            #expect(conflict.server == nil && conflict.client?["n"] == 1 as RecordValue)
            try await two.database.conflicts.resolve(conflict, keeping: .client)
            try await two.settle()
            try await one.settle()
            #expect(try await one.contents() == ["a": ["n": 1]])
        }
    }

    @Test func whatIsTheSameOfAllScopesIsToldOfRecordsToo() async throws {
        try await withBoth(["title": "one"], ["title": "two"]) { (one, two) async throws in
            let names = try await two.session.scopes().map(\.id).filter { $0.service == .records }.map(\.name)
            #expect(names == [RecordCloud.container, "\(RecordCloud.container)/\(RecordZone.defaultName)"])
            let scope = two.database.scope(of: RecordZone.defaultName)
            let conflict = try #require(try await scope.conflicts().first)
            #expect(conflict.name == "a" && conflict.outcome == .lost)
            #expect(conflict.content == ["title": "two", "other": "old"])
            #expect(conflict.replacement == .content(["title": "one", "other": "old"]))
            #expect(conflict.resolutions.count == 2)
            let status = try await scope.status()
            #expect(status.isInSync && status.isFollowing)
            // What is saved by force over what its device had not seen, the server keeps.
            one.setOffline(true)
            var record = try #require(try await one.database.record(RecordID("a")))
            record["title"] = "three"
            try await one.database.save(record, policy: .changedKeys)
            record = try #require(try await two.database.record(RecordID("a")))
            record["title"] = "four"
            try await two.database.save(record)
            try await two.settle()
            one.setOffline(false)
            try await one.settle()
            let saved = one.database.scope(of: RecordZone.defaultName)
            #expect(try await saved.conflicts().isEmpty)
            let overwritten = try await saved.conflicts(withHistory: true)
            #expect(overwritten.map(\.outcome) == [.overwritten])
            #expect(overwritten.first?.content == ["title": "four", "other": "old"])
        }
    }
}
