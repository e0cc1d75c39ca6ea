/// A point in wall-clock time, in milliseconds since 1970.
public struct Timestamp: Hashable, Sendable, Comparable {
    public var milliseconds: UInt64

    public init(milliseconds: UInt64) { self.milliseconds = milliseconds }

    /// Nanoseconds since 1970; saturates.
    public var nanoseconds: Int64 {
        let (product, overflow) = milliseconds.multipliedReportingOverflow(by: 1_000_000)
        return overflow ? .max : Int64(clamping: product)
    }

    public static func < (left: Timestamp, right: Timestamp) -> Bool { left.milliseconds < right.milliseconds }

    /// The time this much later; earlier, for a negative duration. Stops at both ends of the range.
    public func advanced(by duration: Duration) -> Timestamp {
        let delta = duration.milliseconds
        if delta < 0 {
            let (result, overflow) = milliseconds.subtractingReportingOverflow(delta.magnitude)
            return Timestamp(milliseconds: overflow ? 0 : result)
        }
        let (result, overflow) = milliseconds.addingReportingOverflow(UInt64(delta))
        return Timestamp(milliseconds: overflow ? .max : result)
    }

    /// How long it is from the other time to this one.
    public func since(_ other: Timestamp) -> Duration {
        .milliseconds(Int64(clamping: milliseconds) - Int64(clamping: other.milliseconds))
    }
}

extension Duration {
    /// Whole milliseconds, rounded toward zero; saturates.
    public var milliseconds: Int64 {
        // Not by its components, which cost three divisions of 128 bits.
        Int64(clamping: attoseconds / 1_000_000_000_000_000)
    }

    /// Whole nanoseconds; saturates.
    public var nanoseconds: Int64 {
        Int64(clamping: attoseconds / 1_000_000_000)
    }
}

/// Where the wall-clock time comes from. Passed in, so that a test can advance it.
public protocol WallClock: Sendable {
    var now: Timestamp { get }
    /// Time since some fixed point, also while the machine sleeps; setting the clock does not move it.
    var timePassed: Duration { get }
}
