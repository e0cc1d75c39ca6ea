private import Foundation

/// Runs many simulations, one for each seed.
package enum SeededHistories {
    package struct Failure: Sendable {
        package var seed: UInt64
        package var error: String
    }

    /// Runs a history for each seed from 1, or from `NEPHOS_FIRST_SEED`, to `count`, or to `NEPHOS_SEEDS`; or for
    /// `NEPHOS_SEED` alone.
    ///
    /// Simulations share nothing, so each core takes its part, on a thread of
    /// its own: what waits for the cooperative threads must not wait for these.
    ///
    /// - Returns: Those that threw.
    package static func failures(
        of count: Int, _ history: @escaping @Sendable (UInt64) throws -> Void
    ) async -> [Failure] {
        let environment = ProcessInfo.processInfo.environment
        if let seed = environment["NEPHOS_SEED"].flatMap({ UInt64($0) }) {
            return failure(of: seed, history).map { [$0] } ?? []
        }
        let count = environment["NEPHOS_SEEDS"].flatMap { Int($0) } ?? count
        let first = max(1, environment["NEPHOS_FIRST_SEED"].flatMap { Int($0) } ?? 1)
        let lanes = ProcessInfo.processInfo.activeProcessorCount
        return await withTaskGroup(of: [Failure].self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    await withCheckedContinuation { done in
                        Thread.detachNewThread {
                            done.resume(
                                returning: stride(from: first + lane, through: count, by: lanes).compactMap {
                                    failure(of: UInt64($0), history)
                                })
                        }
                    }
                }
            }
            return await group.reduce(into: []) { $0 += $1 }.sorted { $0.seed < $1.seed }
        }
    }

    private static func failure(of seed: UInt64, _ history: (UInt64) throws -> Void) -> Failure? {
        do {
            try history(seed)
            return nil
        } catch { return Failure(seed: seed, error: "\(error)") }
    }
}
