/// Pauses of scopes and calls, which may fail for hours.
enum Backoff {
    static let pauseMax: Duration = .seconds(60)
    /// However long a server asks to be left alone.
    static let askedPauseMax: Duration = .seconds(3600)

    /// One second, doubled with each attempt, at most a minute; half of it random, so that devices that failed
    /// together do not return together.
    static func pause(attempts: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        let full = min(pauseMax, .seconds(1 << min(max(attempts - 1, 0), 6)))
        return full / 2 + full / 2 * Double.random(in: 0...1, using: &generator)
    }

    /// Before a full comparison that is not the first: five seconds, doubled each time, at most ten minutes.
    static func comparisonPause(_ comparisons: Int) -> Duration {
        min(.seconds(600), .seconds(5 << min(max(comparisons - 2, 0), 7)))
    }
}

/// Pauses of a transfer, which somebody waits for: from 50 ms on, each twice as long as the one before and a random
/// part longer, so that those who were refused together do not come back together.
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
