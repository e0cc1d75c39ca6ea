internal import NephosCore

/// The time that devices' timestamps are held against.
///
/// Hybrid as theirs: it never goes back, neither behind what the wall clock has said nor, after a restart, behind what
/// is stored of it. Else, after the server's clock was set back, a new write of a device whose clock is right would be
/// cut back behind what others wrote before it.
struct ServiceClock {
    private var latest = Timestamp(milliseconds: 0)

    /// The time, for something that happens now.
    mutating func read(_ wallClock: Timestamp) -> Timestamp {
        latest = max(latest, wallClock)
        return latest
    }

    // MARK: Over a restart

    /// It is stored that often, while devices write. What was said since is within ``HybridClock/driftMax``, and so cut
    /// back for nobody.
    private static let storedEvery: Duration = .seconds(10)
    private var stored = Timestamp(milliseconds: 0)

    /// How far it has come, if that is to be stored now.
    var toStore: Timestamp? { latest.since(stored) >= Self.storedEvery ? latest : nil }

    mutating func noteStored(_ time: Timestamp) { stored = max(stored, time) }

    mutating func recall(_ time: Timestamp) {
        latest = max(latest, time)
        noteStored(time)
    }
}
