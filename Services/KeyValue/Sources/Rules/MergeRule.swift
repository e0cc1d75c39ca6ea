internal import Core

/// Who wins a key: the write with the greater (timestamp, device).
enum MergeRule {
    /// A write's place in the order of writes.
    struct Stamp: Hashable, Comparable {
        var timestamp: HybridTimestamp
        var device: DeviceID

        static func < (left: Stamp, right: Stamp) -> Bool {
            (left.timestamp, left.device) < (right.timestamp, right.device)
        }
    }

    enum Decision: Hashable {
        /// Becomes current, with this timestamp.
        case accepted(HybridTimestamp)
        /// Is current already: a repeat.
        case unchanged
        /// Lost to what is current; a conflict if the two contents differ.
        case superseded(isConflict: Bool)
    }

    /// - Parameters:
    ///   - offered: The write as its device stamped it.
    ///   - current: The stored write, if there is one.
    ///   - isEqual: Whether both write the same content. Only asked when it matters: it opens a sealed value.
    static func decide(
        offered: Stamp, current: Stamp?, now: Timestamp, isEqual: () throws -> Bool
    ) rethrows -> Decision {
        let write = Stamp(timestamp: HybridClock.accept(offered.timestamp, now: now), device: offered.device)
        guard let current else { return .accepted(write.timestamp) }
        if write.timestamp != offered.timestamp, write.device == current.device, write <= current {
            // The device's clock runs ahead. Its own writes keep their order
            // even when several are cut back to the same millisecond.
            return try isEqual() ? .unchanged : .accepted(current.timestamp.next)
        }
        if write > current { return .accepted(write.timestamp) }
        let isEqual = try isEqual()
        if write == current, isEqual { return .unchanged }
        return .superseded(isConflict: !isEqual)
    }
}
