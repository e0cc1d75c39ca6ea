/// A reading of a hybrid logical clock (Kulkarni et al., "Logical Physical
/// Clocks", 2014): 48 bits of milliseconds since 1970 and 16 bits of counter.
///
/// It follows wall-clock time, and yet whatever was written after something
/// was seen has the greater timestamp.
public struct HybridTimestamp: Hashable, Sendable, Comparable {
    public let rawValue: UInt64

    public init(rawValue: UInt64) { self.rawValue = rawValue }

    /// The first timestamp of this millisecond.
    public init(_ time: Timestamp) { rawValue = min(time.milliseconds, 0xffff_ffff_ffff) << 16 }

    public static let zero = HybridTimestamp(rawValue: 0)

    /// The wall-clock part.
    public var time: Timestamp { Timestamp(milliseconds: rawValue >> 16) }

    /// The one directly after this.
    public var next: HybridTimestamp { HybridTimestamp(rawValue: rawValue == .max ? .max : rawValue + 1) }

    public static func < (left: HybridTimestamp, right: HybridTimestamp) -> Bool { left.rawValue < right.rawValue }
}

/// A hybrid logical clock: never goes back, and stays ahead of everything it has seen.
public struct HybridClock: Sendable {
    /// How far a device's clock may be ahead of the server's before its
    /// timestamps are cut back. Beyond it, a wrong clock would win every conflict.
    public static let driftMax: Duration = .seconds(60)

    /// The last timestamp given or seen.
    public private(set) var last: HybridTimestamp

    public init(last: HybridTimestamp = .zero) { self.last = last }

    /// A timestamp for an event that happens now.
    public mutating func tick(now: Timestamp) -> HybridTimestamp {
        last = max(HybridTimestamp(now), last.next)
        return last
    }

    /// Takes note of a timestamp from elsewhere.
    public mutating func observe(_ timestamp: HybridTimestamp) { last = max(last, timestamp) }

    /// The greatest timestamp that the server takes from a device as it is.
    public static func limit(now: Timestamp) -> HybridTimestamp { HybridTimestamp(now.advanced(by: driftMax)) }
}
