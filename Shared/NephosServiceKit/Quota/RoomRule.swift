/// What a service has counted for an owner, and how much it may.
struct StoredAllotment: Hashable, Sendable {
    /// Rises whenever the service lowers its own number, to the time of that at least: so one that came back from a copy
    /// does not count on to what the one before it has counted to.
    var revision: UInt64
    var allotted: UInt64
    var used: UInt64
    /// The owner's plan, as identity said last; nil: it is not known. One of nothing is a plan too.
    var plan: UInt64?

    /// Of an owner that was never heard of, here: a database that came back from a copy may have known more.
    ///
    /// - Parameter now: Milliseconds.
    static func none(at now: UInt64) -> StoredAllotment {
        StoredAllotment(revision: max(1, now), allotted: 0, used: 0, plan: nil)
    }
}

/// Whether there is room, and what identity's answers mean. Pure: numbers in, decisions out.
enum RoomRule {
    enum Charge: Hashable {
        case fits
        /// The plan may have room for it: so much would have to be allotted in all.
        case missing(total: UInt64)
        /// No plan is so large.
        case impossible
    }

    static func charge(_ bytes: UInt64, to known: StoredAllotment?) -> Charge {
        let (total, overflow) = (known?.used ?? 0).addingReportingOverflow(bytes)
        guard !overflow, total <= UInt64(Int64.max) else { return .impossible }
        guard let known, total <= known.allotted else { return .missing(total: total) }
        return .fits
    }

    enum Settlement: Hashable {
        /// So it stands now, and identity knows.
        case settled(StoredAllotment)
        /// This database is older than what identity knows of it: it was restored. So it stands now, and that is told
        /// next.
        case restored(StoredAllotment)
        /// The number here was lowered meanwhile. That is told next.
        case overtaken
    }

    /// What identity's answer does to what is known.
    ///
    /// - Parameter now: Milliseconds.
    static func settle(
        _ known: StoredAllotment, revision: UInt64, allotted: UInt64, at now: UInt64
    ) -> Settlement {
        var result = known
        if revision == known.revision {
            result.allotted = max(known.allotted, allotted)
            return .settled(result)
        }
        guard revision > known.revision else { return .overtaken }
        // What identity has on its book was granted to the one that is no more, perhaps under a larger plan: only what is
        // used is kept, and what is wanted is asked for anew.
        result.revision = max(revision + 1, now)
        result.allotted = known.used
        return .restored(result)
    }

    /// What is left when what is held and not used is given back. Its revision is another also where that is nothing: what
    /// was granted to the one before it, if this came back from a copy, is not its own.
    ///
    /// - Parameter now: Milliseconds.
    static func recall(_ known: StoredAllotment, at now: UInt64) -> StoredAllotment {
        StoredAllotment(
            revision: max(known.revision + 1, now), allotted: known.used, used: known.used, plan: known.plan)
    }
}
