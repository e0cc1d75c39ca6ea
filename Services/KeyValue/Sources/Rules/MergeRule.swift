internal import NephosCore

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

    /// What the timestamps of one push are held to.
    ///
    /// A timestamp beyond the limit comes from a clock that runs ahead, and is cut back to the time of its arrival.
    /// All of a push get the same, so that its keys stay one change; and it is above whatever they were written
    /// over, so that what is newer stays newer although the server's clock has been set back.
    struct Cut {
        /// The greatest timestamp that is taken as it is.
        let limit: HybridTimestamp
        /// What takes the place of a greater one.
        private(set) var timestamp: HybridTimestamp

        init(now: Timestamp) {
            limit = HybridClock.limit(now: now)
            timestamp = HybridTimestamp(now)
        }

        /// Takes note of a write and of what it would replace.
        mutating func consider(_ offered: Stamp, over current: Stamp?) {
            guard offered.timestamp > limit, let current, offered > current else { return }
            timestamp = max(timestamp, current.timestamp.next)
        }
    }

    enum Decision: Hashable {
        /// Becomes current, with this timestamp.
        case accepted(HybridTimestamp)
        /// Deletes what is not there: nothing is to be done.
        case absent
        /// Is current already: a repeat.
        case unchanged
        /// Lost to what is current, which has other content or the same.
        case superseded(isEqual: Bool)
    }

    /// - Parameters:
    ///   - offered: The write as its device stamped it.
    ///   - current: The stored write, if there is one.
    ///   - cut: Has considered every write of the push.
    ///   - isEqual: Whether both write the same content. Only asked when it matters: it opens a sealed value.
    static func decide(
        offered: Stamp, current: Stamp?, cut: Cut, isEqual: () throws -> Bool
    ) rethrows -> Decision {
        let isCut = offered.timestamp > cut.limit
        let timestamp = isCut ? cut.timestamp : offered.timestamp
        guard let current else { return .accepted(timestamp) }
        if offered > current {
            // The same write once more, under another operation id: the first time it was cut back too.
            if isCut, offered.device == current.device, try isEqual() { return .unchanged }
            return .accepted(timestamp)
        }
        let isEqual = try isEqual()
        return offered == current && isEqual ? .unchanged : .superseded(isEqual: isEqual)
    }
}
