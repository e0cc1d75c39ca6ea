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
            #expect(try await here.database.conflicts().isEmpty)
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
}
