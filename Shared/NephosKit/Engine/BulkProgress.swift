public import Core

/// How far a ``BulkClient`` is, and why it waits if it does.
public struct BulkProgress: Hashable, Sendable {
    /// Chunks that were stored or fetched, and their bytes.
    public var chunksDone = 0
    public var bytesDone = 0
    /// Chunks that have no answer yet.
    public var chunksLeft = 0
    /// Nil: it goes on.
    public var waiting: Wait?

    /// Why nothing moves, and until when.
    public struct Wait: Hashable, Sendable {
        /// What the service said, or that it says nothing.
        public var reason: CloudError
        /// Attempts that have failed one after the other.
        public var attempts: Int
        /// When it is tried again, by the loop's `monotonicNow`.
        public var until: Duration
    }

    public init() {}
}

/// Pauses that grow: from 50 ms on, each twice as long as the one before and a random part longer, so that those who
/// were refused together do not come back together.
struct GrowingPause {
    private static let first: Duration = .milliseconds(50)
    let longest: Duration
    private(set) var attempts = 0

    init(longest: Duration) { self.longest = longest }

    /// - Parameter least: What the service asks for.
    mutating func next(atLeast least: Duration?, using generator: inout any RandomNumberGenerator) -> Duration {
        let pause = max(least ?? .zero, min(Self.first * (1 << min(attempts, 20)), longest))
        attempts += 1
        return pause + pause * Double.random(in: 0..<0.25, using: &generator)
    }

    mutating func reset() { attempts = 0 }
}
