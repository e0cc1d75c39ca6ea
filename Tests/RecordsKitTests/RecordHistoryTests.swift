import Foundation
import NephosSimulation
import Testing

@testable import NephosKit

/// Whatever happens on the way, all devices end with the records that the service has, and no save is lost without a
/// word.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED` with which one they begin; `NEPHOS_SEED=S` tries
/// one.
@Suite struct RecordHistoryTests {
    /// - Returns: What happened in them that is worth counting.
    private func run(
        _ usual: UInt64, and others: [UInt64] = [], _ test: String, _ history: (UInt64) async throws -> Int
    ) async -> Int {
        let environment = ProcessInfo.processInfo.environment
        let one = environment["NEPHOS_SEED"].flatMap { UInt64($0) }
        let last = environment["NEPHOS_SEEDS"].flatMap { UInt64($0) } ?? usual
        let first = max(1, environment["NEPHOS_FIRST_SEED"].flatMap { UInt64($0) } ?? 1)
        var count = 0
        // What failed once is tried each time.
        for seed in one.map({ [$0] }) ?? Array(first...max(first, last)) + others {
            do { count += try await history(seed) } catch {
                Issue.record("\(error). Again with: NEPHOS_SEED=\(seed) swift test --filter \(test)")
            }
        }
        return one == nil ? count : max(1, count)
    }

    @Test func everyHistoryOfRecordsConverges() async {
        let conflicts = await run(3, "everyHistoryOfRecordsConverges") { seed in
            let history = try RecordHistory(seed: seed)
            try await history.run()
            return history.conflictCount
        }
        #expect(conflicts > 0)
    }

    /// Nothing acknowledged is lost that some device has, no batch is done by half, and nothing that was deleted comes back
    /// as it was.
    @Test func noHistoryOfRecordsWithCopiesThatCrossLosesWhatADeviceHas() async {
        let refusals = await run(2, and: [19, 58], "noHistoryOfRecordsWithCopiesThatCrossLosesWhatADeviceHas") {
            seed in
            let history = try RecordRestoreHistory(seed: seed)
            try await history.run()
            return history.counts["in vain", default: 0]
        }
        #expect(refusals > 0)
    }

    /// The same where the server's disk loses records meanwhile.
    @Test func noHistoryOfRecordsWithDamageLosesWhatADeviceHas() async {
        let damage = await run(2, "noHistoryOfRecordsWithDamageLosesWhatADeviceHas") { seed in
            let history = try RecordRestoreHistory(seed: seed, hasDamage: true)
            try await history.run()
            return history.counts["damage", default: 0]
        }
        #expect(damage > 0)
    }
}
