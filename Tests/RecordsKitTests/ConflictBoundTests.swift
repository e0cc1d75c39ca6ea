import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Conflicts are never dropped, and so there may only be so many.
@Suite struct ConflictBoundTests {
    /// Each that is refused stays, and one that saves without looking is refused without end.
    @Test func beyondTheRoomForWhatWasRefusedNothingIsSentUntilSomeIsGivenUp() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.settle()
            try cloud.setPlan(bytes: 64 << 10)
            let data = RecordValue.data(Data(repeating: 1, count: 900 << 10))
            for name in 0..<40 { try await here.database.save(Record("r\(name)", ["d": data])) }
            await #expect(throws: CloudError.self) {
                try await here.database.waitUntilSent(timeout: .seconds(120))
            }
            let refused = try await here.database.conflicts.rejected()
            #expect(refused.count == 37)
            let pending = try await here.database.status().pending
            #expect(pending.count == 3 && pending.first?.blocker == .thisDevice)
            #expect(pending.first?.reason.contains("As much was refused as there is room for") == true)
            try cloud.setPlan(bytes: 1 << 30)
            #expect(try await here.database.conflicts.dismissRejected([refused[0]]).count == 1)
            try await here.settle()
            #expect(try await here.contents().keys.sorted() == ["r37", "r38", "r39"])
        }
    }

    @Test func beyondTheRoomForConflictsNothingIsSentUntilSomeAreResolved() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            let data = { (byte: UInt8) in RecordValue.data(Data(repeating: byte, count: 900 << 10)) }
            for name in 0..<14 { try await here.database.save(Record("r\(name)", ["d": data(0)])) }
            try await here.settle()
            try await there.settle()
            here.setOffline(true)
            for name in 0..<14 {
                var record = try #require(try await there.database.record(RecordID("r\(name)")))
                record["d"] = data(1)
                try await there.database.save(record)
                record = try #require(try await here.database.record(RecordID("r\(name)")))
                record["d"] = data(2)
                try await here.database.save(record)
            }
            try await there.settle()
            here.setOffline(false)
            await #expect(throws: CloudError.self) {
                try await here.database.waitUntilSent(timeout: .seconds(120))
            }
            // Each has three records of 900 KB.
            var conflicts = try await here.database.conflicts.list()
            #expect(conflicts.count == 13)
            let pending = try await here.database.status().pending
            #expect(pending.count == 1)
            #expect(
                pending.first?.reason == "As many conflicts as there is room for wait to be resolved. Resolve some.")
            #expect(pending.first?.blocker == .thisDevice)
            // What the other device does is heard of all the same.
            try await there.database.save(Record("other", ["n": 1]))
            try await there.settle()
            try await here.database.waitUntilCurrent(timeout: .seconds(120))
            #expect(try await here.database.record(RecordID("other")) != nil)
            // What waits has its turn, and may be one more.
            for conflict in conflicts.prefix(2) {
                try await here.database.conflicts.resolve(conflict, keeping: .client)
            }
            try await here.settle()
            conflicts = try await here.database.conflicts.list()
            #expect(conflicts.count == 12)
            for conflict in conflicts { try await here.database.conflicts.resolve(conflict, keeping: .client) }
            try await here.settle()
            #expect(try await here.database.conflicts.list().isEmpty)
            for name in 0..<14 {
                #expect(try await here.database.record(RecordID("r\(name)"))?["d"] == data(2))
            }
            #expect(try await here.proves())
        }
    }
}
