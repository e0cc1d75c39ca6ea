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

/// A hybrid logical clock: stays ahead of everything it has seen, and of what it has given itself as long as that can
/// be true.
///
/// What was seen comes from the server, which holds nothing that is far ahead of its time, and so it always counts.
/// What was given follows a wall clock that may have been ahead; once that was put right, it counts no more. Else
/// every later write would come from the future, until that is reached.
public struct HybridClock: Sendable {
    /// How far a device's clock may be ahead of the server's before its
    /// timestamps are cut back. Beyond it, a wrong clock would win every conflict.
    public static let driftMax: Duration = .seconds(60)

    /// The last timestamp given.
    public private(set) var given: HybridTimestamp
    /// The greatest timestamp seen.
    public private(set) var seen: HybridTimestamp

    public init(given: HybridTimestamp = .zero, seen: HybridTimestamp = .zero) {
        self.given = given
        self.seen = seen
    }

    /// A timestamp for an event that happens now.
    ///
    /// - Parameter earlier: What it has to be ahead of, whatever the clock was when that was given.
    public mutating func tick(now: Timestamp, after earlier: HybridTimestamp = .zero) -> HybridTimestamp {
        if given > Self.limit(now: now) { given = .zero }
        given = max(HybridTimestamp(now), max(given, seen).next)
        return max(given, earlier.next)
    }

    /// Takes note of a timestamp from elsewhere.
    public mutating func observe(_ timestamp: HybridTimestamp) { seen = max(seen, timestamp) }

    /// The greatest timestamp that the server takes from a device as it is.
    public static func limit(now: Timestamp) -> HybridTimestamp { HybridTimestamp(now.advanced(by: driftMax)) }
}
