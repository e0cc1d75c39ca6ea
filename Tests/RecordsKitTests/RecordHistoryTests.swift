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
    @Test func everyHistoryOfRecordsConverges() async {
        let environment = ProcessInfo.processInfo.environment
        let one = environment["NEPHOS_SEED"].flatMap { UInt64($0) }
        let last = environment["NEPHOS_SEEDS"].flatMap { UInt64($0) } ?? 15
        let first = max(1, environment["NEPHOS_FIRST_SEED"].flatMap { UInt64($0) } ?? 1)
        var conflicts = 0
        for seed in one.map({ $0...$0 }) ?? first...max(first, last) {
            do {
                let history = try RecordHistory(seed: seed)
                try await history.run()
                conflicts += history.conflictCount
            } catch {
                Issue.record("\(error). Again with: NEPHOS_SEED=\(seed) swift test --filter RecordHistoryTests")
            }
        }
        #expect(conflicts > 0 || one != nil)
    }
}
