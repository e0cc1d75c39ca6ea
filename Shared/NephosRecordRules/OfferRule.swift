package import NephosCore
package import NephosWire

/// What becomes of a record, or of a deletion, that a restore has lost and a device offers again: a pure rule, of times
/// that the service itself has given, each later than those of the record before; and of what was done since, which
/// is never overwritten.
package enum OfferRule {
    package enum Outcome: Equatable {
        /// It is stored as it was.
        case write
        /// There is a later one of before the restore, or the very same: nothing is to be done.
        case isPast
    }

    /// - Parameter offered: With all that the service once said of it.
    /// - Throws: ``CloudError`` `.serverRecordChanged`, `.unknownItem`: somebody has saved or deleted it since the restore.
    package static func decide(
        _ offered: WireRecord, over state: SaveRule.State
    ) throws(CloudError) -> Outcome {
        guard let stored = state.record else {
            // Of one that is damaged it is known which it is not.
            guard !state.isDamaged else {
                return state.former.contains([UInt8](offered.version)) ? .isPast : .write
            }
            guard let deletion = state.deletion,
                state.isSince || deletion.time >= offered.modified.time
            else { return .write }
            guard !state.isSince else { throw deletedSince }
            return .isPast
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
        return stored.modified.time < offered.modified.time ? .write : .isPast
    }

    /// - Parameter version: The change tag that was deleted.
    /// - Throws: ``CloudError`` `.serverRecordChanged`.
    package static func decideDeletion(
        of version: [UInt8], at time: Int64, over state: SaveRule.State
    ) throws(CloudError) -> Outcome {
        guard let stored = state.record else { return state.isDamaged ? .write : .isPast }
        if [UInt8](stored.version) == version { return .write }
        guard !state.isSince else { throw savedSince }
        return stored.modified.time < time ? .write : .isPast
    }

    private static let savedSince = CloudError(
        .serverRecordChanged, "The record was saved since the service came back from a copy. Look again.")
    private static let deletedSince = CloudError(
        .unknownItem,
        "The record was deleted since the service came back from a copy. Save it as a new one, or leave it.")
}
