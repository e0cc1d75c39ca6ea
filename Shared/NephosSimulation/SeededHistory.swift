private import NephosBus
package import NephosCore

/// One history of a cloud that a seed decides: devices begin, much happens step by step, everything heals and settles,
/// and then what must hold is checked.
package protocol SeededHistory: AnyObject, SendableMetatype {
    init(seed: UInt64) throws
    var cloud: TestCloud { get }
    /// All that is left to chance is drawn from it.
    var generator: SplitMix64 { get set }
    /// How much happens.
    static var steps: ClosedRange<Int> { get }
    /// How many milliseconds may pass after each step.
    static var pauses: ClosedRange<Int64> { get }

    /// Makes the devices, and the network what it is to be.
    func begin() throws
    /// Lets one thing happen.
    func step() throws
    /// Called after each step, and after the time that passed then: what must hold at any time.
    func look(afterPause: Bool) throws
    /// Puts right what was made wrong.
    func heal() throws
    /// What must hold in the end.
    func checkEnd() throws
    /// Where everybody stands, for whoever looks for the reason.
    func state() -> String
}

/// Something that must not happen did.
package struct Violation: Error, CustomStringConvertible {
    package var description: String
    package init(_ description: String) { self.description = description }
}

extension SeededHistory {
    /// Runs it.
    ///
    /// - Returns: Its fingerprint: the same for the same seed.
    @discardableResult
    package func run() throws -> String {
        defer { cloud.close() }
        try begin()
        for _ in 0..<Int.random(in: Self.steps, using: &generator) {
            try step()
            try look(afterPause: false)
            cloud.network.run(for: .milliseconds(Int64.random(in: Self.pauses, using: &generator)))
            try look(afterPause: true)
        }
        try heal()
        let left = cloud.notSettled(within: .seconds(600))
        guard left.isEmpty else { throw Violation("The devices did not settle: \(left); \(state())") }
        try checkEnd()
        // Not the digests: they are salted with a key that no seed decides.
        let contents = cloud.devices.map { device in
            "\(device.head?.description ?? "-") \(device.values.sorted { $0.key < $1.key })"
        }
        return "\(cloud.network.eventCount) \(cloud.network.now) \(contents)"
    }

    /// Whether something of this probability happens.
    package func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < probability }

    /// Runs the history of each seed from 1 to `count`, or as many as `NEPHOS_SEEDS` says, or that of `NEPHOS_SEED`
    /// alone.
    ///
    /// - Parameter suite: Names the tests that run it again.
    /// - Returns: What went wrong, a text each.
    package static func failures(of count: Int, suite: String) async -> [String] {
        await SeededHistories.failures(of: count) { _ = try Self(seed: $0).run() }.map {
            "\($0.error). Again with: NEPHOS_SEED=\($0.seed) swift test --filter \(suite)"
        }
    }
}
