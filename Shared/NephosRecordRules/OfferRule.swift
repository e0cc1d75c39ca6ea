package import NephosCore
package import NephosWire

/// What becomes of a record, or of a deletion, that a restore has lost and a device offers again: a pure rule, of times
/// that the service itself has given, each later than those of the record before; and of what was done since, or in
/// another history than the offered, which is never overwritten.
package enum OfferRule {
    package enum Outcome: Equatable {
        /// It is stored as it was.
        case write
        /// There is a later one of before the restore, or the very same: nothing is to be done.
        case isPast
    }

    /// - Parameter offered: With all that the service once said of it.
    /// - Throws: ``CloudError`` `.serverRecordChanged`, `.unknownItem`: somebody has saved or deleted it since the restore, or
    ///   since an earlier one, without having had it.
    package static func decide(
        _ offered: WireRecord, over state: SaveRule.State
    ) throws(CloudError) -> Outcome {
        guard let stored = state.record else {
            guard !state.isSince else { throw deletedSince }
            guard let deletion = state.deletion else { return .write }
            let isLater = deletion.time < offered.modified.time
            guard
                isLater
                    ? !offered.hasMissed(deletion) : !state.isUnshown && !deletion.isGap(offered.modified.time)
            else { throw deletedSince }
            return isLater ? .write : .isPast
        }
        // Everybody who reads a public database knows its tags, and may save another record under one.
        let isOwn = stored.created == offered.created
        if isOwn, stored.version == offered.version || state.former.contains([UInt8](offered.version)) {
            return .isPast
        }
        guard !state.isSince else {
            guard !SaveRule.hasSameContent(stored, offered) else { return .isPast }
            throw savedSince
        }
        let isLater = stored.modified.time < offered.modified.time
        let (later, earlier) = isLater ? (offered, stored) : (stored, offered)
        let follows = later.follows(earlier) && (isLater || !state.isUnshown)
        guard follows || SaveRule.hasSameContent(stored, offered) else { throw savedSince }
        return isLater ? .write : .isPast
    }

    /// - Parameters:
    ///   - version: The change tag that was deleted.
    ///   - stamp: Of the deletion.
    /// - Throws: ``CloudError`` `.serverRecordChanged`.
    package static func decideDeletion(
        of version: [UInt8], by stamp: WireRecordStamp, over state: SaveRule.State
    ) throws(CloudError) -> Outcome {
        guard let stored = state.record else { return .isPast }
        if [UInt8](stored.version) == version { return .write }
        guard !state.isSince else { throw savedSince }
        let isLater = stored.modified.time < stamp.time
        let isUndone = stored.hasMissed(stamp) || state.isUnshown && stored.created.time < stamp.time
        guard isLater ? !stamp.isGap(stored.modified.time) : !isUndone else { throw savedSince }
        return isLater ? .write : .isPast
    }

    private static let savedSince = CloudError(
        .serverRecordChanged, "The record was saved since the service came back from a copy. Look again.")
    private static let deletedSince = CloudError(
        .unknownItem,
        "The record was deleted since the service came back from a copy. Save it as a new one, or leave it.")
}

extension WireRecordStamp {
    /// Whether what was done at this time may have been done in a history that this has not followed.
    fileprivate func isGap(_ time: Int64) -> Bool {
        stride(from: 0, to: gaps.count / 2 * 2, by: 2).contains { gaps[$0] < time && time < gaps[$0 + 1] }
    }
}

extension WireRecord {
    /// Whether it was saved after this deletion of it, and without having known of that. One that was made anew afterwards
    /// undoes nothing.
    fileprivate func hasMissed(_ deletion: WireRecordStamp) -> Bool {
        created.time < deletion.time && modified.isGap(deletion.time)
    }

    /// Whether who saved this had that one, or what came of it. After two restores that is not said by the times: what
    /// was lost with the first, and what was saved since then, have come beside each other.
    fileprivate func follows(_ earlier: WireRecord) -> Bool {
        guard modified.gaps.isEmpty else { return !modified.isGap(earlier.modified.time) }
        // Another record of the name, from before this one was made.
        return created == earlier.created || earlier.modified.time >= created.time
    }
}
