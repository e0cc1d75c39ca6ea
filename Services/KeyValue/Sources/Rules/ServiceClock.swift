internal import Core

/// The time that devices' timestamps are held against.
///
/// Hybrid as theirs: it never goes back, neither behind what the wall clock has said nor behind what is stored. Else,
/// after the server's clock was set back, a new write of a device whose clock is right would be cut back behind what
/// others wrote before it.
struct ServiceClock {
    private var latest = Timestamp(milliseconds: 0)

    /// The time, for something that happens now.
    mutating func read(_ wallClock: Timestamp) -> Timestamp {
        latest = max(latest, wallClock)
        return latest
    }

    /// Takes note of a stored timestamp. When it was accepted the time was at most ``HybridClock/driftMax`` behind it,
    /// and no more than that is taken from it: devices cannot drive the clock ahead.
    mutating func observe(stored timestamp: HybridTimestamp) {
        latest = max(latest, timestamp.time.advanced(by: .zero - HybridClock.driftMax))
    }
}
