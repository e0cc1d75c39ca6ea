import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What is too much for one request goes in several, where it need not be done as a whole.
@Suite struct DividingTests {
    /// 400 records with 20 rows in an index each: the service takes 4400 rows at once.
    private func records() -> [Record] {
        (0..<400).map { number in
            var record = Record("r\(number)", ["list": .strings((0..<20).map { "\(number) \($0)" })])
            // Its name comes before its parent's, and after.
            if number > 0, number % 7 == 0 { record.parent = "r\(number == 392 ? 399 : number / 7)" }
            return record
        }
    }

    private func withIndex(_ body: (RecordCloud, RecordCloud.Device) async throws -> Void) async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("known", ["n": 0]))
            try await here.settle()
            _ = try await here.database.indexes.modify(
                saving: [RecordIndex(type: "Note", fields: [RecordIndex.Field("list")])])
            cloud.simulation.pass(.seconds(120))
            try await body(cloud, here)
        }
    }

    @Test func whatIsTooMuchForOneRequestGoesInSeveral() async throws {
        try await withIndex { cloud, here in
            try await here.database.modify(saving: records(), deleting: [], atomically: false)
            // What was saved meanwhile waits behind all of its parts.
            var record = try #require(try await here.database.record(RecordID("r5")))
            record["n"] = 1
            try await here.database.save(record)
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.database.recordCount() == 401)
            #expect(try await here.proves())
            let there = try await cloud.open()
            #expect(try await there.database.recordCount() == 401)
            #expect(try await there.database.record(RecordID("r392"))?.parent == "r399")
            #expect(try await there.database.record(RecordID("r5"))?["n"] == .integer(1))
            let query = RecordQuery(type: "Note", try QueryPredicate(parsing: "ANY list = '399 19'"))
            #expect(try await there.database.records(matching: query, from: .server).map(\.id.name) == ["r399"])
        }
    }

    @Test func partsWhoseRepliesAreLostAreNoConflicts() async throws {
        try await withIndex { cloud, here in
            try await here.database.modify(saving: records(), deleting: [], atomically: false)
            for _ in 0..<6 {
                try cloud.simulation.use { try $0.faults.fail("records.send") }
                cloud.simulation.pass(.seconds(1))
            }
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.database.recordCount() == 401)
            #expect(try await here.proves())
        }
    }

    @Test func whatIsToBeDoneAsAWholeIsRefusedAndListedWithItsContent() async throws {
        try await withIndex { _, here in
            try await here.database.modify(saving: records(), deleting: [])
            try await here.settle()
            let refused = try await here.database.conflicts.rejected()
            #expect(refused.count == 400 && refused.allSatisfy { $0.error.code == .limitExceeded })
            #expect(refused.first?.error.message.contains("all or none") == true)
            #expect(refused.allSatisfy { $0.record?.fields["list"] != nil })
            #expect(try await here.database.recordCount() == 1)
            // As far as it is said, it goes.
            let again = refused.compactMap(\.record)
            try await here.database.modify(saving: again, deleting: [], atomically: false)
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.database.recordCount() == 401)
        }
    }

    @Test func deletionsWithWhichTooManyGoAreTriedWithFewerOthers() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            for target in 0..<4 {
                try await here.database.save(Record("t\(target)", ["n": 0]))
                for start in stride(from: 0, to: 700, by: 350) {
                    let records = (start..<start + 350).map {
                        Record("s\(target)-\($0)", ["to": .reference(RecordReference("t\(target)", deletesSelf: true))])
                    }
                    try await here.database.modify(saving: records, deleting: [])
                }
            }
            try await here.settle()
            #expect(try await here.database.recordCount() == 2804)
            // Of 2800, where 2000 may go at once.
            try await here.database.modify(
                saving: [], deleting: (0..<4).map { RecordID("t\($0)") }, atomically: false)
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.database.recordCount() == 0)
            #expect(try await here.proves())
        }
    }
}
