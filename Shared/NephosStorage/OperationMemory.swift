public import NephosCore

/// Which operations were carried out in the last few seconds: so that a new one,
/// which nearly every one is, need not be looked for on disk.
///
/// It may send someone to look in vain, and never the other way round: an
/// operation that it does not know was not carried out, or is too old for it
/// to say.
///
/// Made once for a database, and shared by all groups. Not for several at a time.
public final class OperationMemory {
    /// How long an operation is kept at least.
    private static let memory: Duration = .seconds(5)
    /// How far a caller's clock may be ahead of ours without any effect.
    private static let lead: Duration = .seconds(1)

    /// Up to this id it cannot say: these may have been carried out before it
    /// began, or their clock is ahead, and they would be forgotten too early.
    private var floor: OperationID?
    private var young = BloomFilter()
    private var old = BloomFilter()
    private var youngSince = Timestamp(milliseconds: 0)
    /// Time as it goes here: never back, as the system's may.
    private var now = Timestamp(milliseconds: 0)

    /// - Parameter newest: The greatest id in the database; nil: there is none.
    public init(newest: OperationID?) { floor = newest }

    /// Takes note of the time, at the beginning of a group.
    func advance(to time: Timestamp) {
        now = max(now, time)
        guard now.since(youngSince) >= Self.memory else { return }
        swap(&young, &old)
        young.removeAll()
        youngSince = now
    }

    func note(_ id: OperationID) {
        if id.time > now.advanced(by: Self.lead) { floor = max(floor ?? id, id) }
        young.insert(id)
    }

    /// Whether the operation may be on disk.
    func mayKnow(_ id: OperationID) -> Bool {
        if let floor, id <= floor { return true }
        // It was noted within `lead` of its own time, and is kept for `memory` from then on.
        guard now.since(id.time) < Self.memory - Self.lead else { return true }
        return young.contains(id) || old.contains(id)
    }
}
