import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Answers to pushes that were given in an epoch that is over, and come after this device has heard of the next.
@Suite struct LateAnswerTests {
    /// The service comes back from an old copy while the scope's first request is on its way, and this device hears of
    /// it; then the answer comes that was given before.
    ///
    /// - Parameters:
    ///   - copy: From before what the device knows.
    ///   - rows: Of the scope.
    ///   - reply: What answers the request, with the token that it was given at.
    /// - Returns: Where the copy stood before the answer came.
    private func answerLate(
        _ cloud: RecordCloud, _ device: RecordCloud.Device, _ scope: Scope, restoring copy: StorageCopy,
        in rows: @escaping @Sendable (Database) throws -> ScopeTransaction,
        reply: @escaping @Sendable (OutboxOperation, ScopeTransaction, WireChangeToken, UInt64) throws -> Frame
    ) async throws -> ScopeState {
        let (engine, local) = (device.session.engine, device.session.local)
        var position: Int64 = 0
        let old = try local.read { try rows($0).state().head }
        try local.write { database in
            let rows = try rows(database)
            var operation = try #require(try rows.operations().first)
            position = operation.position
            operation.state = .sent
            operation.head = old
            // Not sent again before that.
            operation.nextAttempt = engine.stamp.now.advanced(by: .seconds(50))
            try rows.update(operation)
        }
        try cloud.simulation.use { try $0.restore(copy, of: .records) }
        device.setOffline(false)
        try await scope.waitUntilCurrent(timeout: .seconds(10))
        let sent = position
        let token = WireChangeToken(ChangeToken(epoch: old.epoch, sequence: old.sequence + 100))
        let (before, settled) = try await scope.perform { driver, completion in
            completion(
                Result { () throws(CloudError) in
                    try driver.write { rows in
                        let operation = try #require(try rows.operation(at: sent))
                        let before = try rows.state()
                        return (
                            before, try driver.accept(operation, reply(operation, rows, token, old.sequence), in: rows)
                        )
                    }
                })
        }
        #expect(settled == .elsewhere)
        #expect(before.head.epoch > old.epoch)
        return before
    }

    @Test func anAnswerFromAnEpochThatIsOverIsNotStoredAndWhatItTookIsOfferedAgain() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("there", ["n": 0]))
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            try await one.database.save(Record("lost", ["n": 2]))
            try await one.settle()
            one.setOffline(true)
            try await one.database.save(Record("new", ["n": 1]))
            let database = one.database
            let rows = { @Sendable in try database.records(of: RecordZone.defaultName, $0).rows }
            let before = try await answerLate(
                cloud, one, database.scope(of: RecordZone.defaultName), restoring: copy, in: rows
            ) { operation, rows, token, previous in
                let records = RecordTransaction(rows, zone: RecordZone.defaultName)
                var outcome = WireZoneOutcome()
                outcome.token = token
                outcome.previousSequence = previous
                outcome.records = try records.pending(at: operation.position).map { pending in
                    var saved = WireRecordOutcome()
                    saved.record.type = try #require(pending.save).type
                    saved.record.version = try #require(pending.save).version
                    return saved
                }
                var reply = WireModifyRecordsReply()
                reply.zones = [outcome]
                return Frame(encoding: reply)
            }
            try one.session.local.read { database in
                let after = try rows(database).state()
                #expect(after.head == before.head && after.digest == before.digest)
                #expect(try RecordItems(rows: rows(database)).item("new") == nil)
            }
            // Nor is it lost: what was brought back does not have it.
            #expect(try await one.contents() == ["there": ["n": 0], "lost": ["n": 2], "new": ["n": 1]])
            try await one.settle()
            try await two.settle()
            #expect(try await two.contents() == ["there": ["n": 0], "lost": ["n": 2], "new": ["n": 1]])
            #expect(try await one.database.conflicts.rejected().isEmpty)
            #expect(try await one.proves())
        }
    }

    @Test func aZoneThatWasMadeInAnEpochThatIsOverIsMadeAgain() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.zones.make("there")
            try await one.database.scope.waitUntilSent(timeout: .seconds(60))
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            try await one.database.zones.make("lost")
            try await one.database.scope.waitUntilSent(timeout: .seconds(60))
            one.setOffline(true)
            try await one.database.zones.make("new")
            try await one.database.save(Record("a", zone: "new", ["n": 1]))
            let database = one.database
            let rows = { @Sendable in try database.zones($0).rows }
            let before = try await answerLate(cloud, one, database.scope, restoring: copy, in: rows) {
                operation, _, token, previous in
                let request = try WireModifyZones(serializedBytes: operation.payload)
                var reply = WireModifyZonesReply()
                reply.token = token
                reply.previousSequence = previous
                reply.zones = try request.save.map { zone in
                    var body = WireRecordZone()
                    body.zoneID = zone.zoneID
                    var change = WireChange()
                    change.item = zone.name
                    change.sequence = token.sequence
                    change.body = try body.serializedData()
                    return change
                }
                return Frame(encoding: reply)
            }
            try one.session.local.read { database in
                let after = try rows(database).state()
                #expect(after.head == before.head && after.digest == before.digest)
                #expect(try RecordItems(rows: rows(database)).item("new") == nil)
            }
            // Nor is it lost, nor what is to come into it.
            #expect(try await one.contents("new") == ["a": ["n": 1]])
            try await one.database.scope.waitUntilSent(timeout: .seconds(60))
            try await one.settle("new")
            try await two.database.waitUntilCurrent(timeout: .seconds(60))
            try await two.settle("new")
            #expect(try await two.contents("new") == ["a": ["n": 1]])
            #expect(try await one.database.scope.verify().agrees)
        }
    }
}
