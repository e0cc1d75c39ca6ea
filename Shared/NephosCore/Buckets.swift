/// How often something took how long, or was how much, in fixed buckets: a histogram as Prometheus knows it.
///
/// Without a lock: it belongs to one loop, and a copy of it goes to whoever asks.
public struct Buckets: Sendable {
    /// The greatest value of each bucket; what is greater than all of them is in a last one without a bound.
    public let bounds: [Int64]
    /// Values in each bucket, not in those below it; one more than bounds.
    public private(set) var counts: [UInt64]
    /// Of all values.
    public private(set) var sum: Int64 = 0

    /// - Parameter bounds: Rising.
    public init(bounds: [Int64]) {
        self.bounds = bounds
        counts = Array(repeating: 0, count: bounds.count + 1)
    }

    /// How many values there were.
    public var count: UInt64 { counts.reduce(0, &+) }

    public mutating func note(_ value: Int64) {
        var place = 0
        while place < bounds.count, bounds[place] < value { place += 1 }
        counts[place] &+= 1
        sum &+= value
    }

    /// Nanoseconds, from 100 microseconds to 10 seconds: what a request or a flush takes, on a fast disk or a slow one.
    public static var nanoseconds: Buckets {
        Buckets(
            bounds: [
                100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 100_000_000,
                1_000_000_000, 10_000_000_000,
            ])
    }
}
