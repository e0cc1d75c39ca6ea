package import NephosCore

/// How the history of a device's copy and the one that was pulled belong together: from where the scope is reconciled.
package struct HistoryRelation: Hashable, Sendable {
    /// Up to this sequence both are the same. The server may have lost what the device holds from after it. `UInt64.max`:
    /// nothing.
    package let common: UInt64
    /// The copy is of the history that was pulled, so sequences of the two can be compared.
    package let isOwn: Bool
    /// The sequence that the pull has reached.
    package let end: UInt64

    /// - Parameters:
    ///   - held: The copy's head.
    ///   - pulled: Where the pull has ended.
    ///   - wentBack: The server went back within one epoch.
    ///   - isComparing: The digests differed at one head, so nothing counts as common.
    ///   - start: How far the service says that the two histories are the same.
    package init(of held: ChangeToken, to pulled: ChangeToken, wentBack: Bool, isComparing: Bool, start: UInt64) {
        isOwn = held.epoch == 0 || held.epoch == pulled.epoch && !wentBack
        common = isComparing ? 0 : isOwn ? .max : wentBack ? pulled.sequence : start
        end = pulled.sequence
    }

    /// A stretch of the feed that continues the copy.
    package init(continuedTo end: ChangeToken) { (common, isOwn, self.end) = (.max, true, end.sequence) }

    /// - Parameters:
    ///   - sequence: Of the device's state.
    ///   - told: The sequence of the server's state.
    package func decide(
        _ mine: ReconcileRule.Mine, at sequence: UInt64, isLive: Bool, at told: UInt64, _ later: ReconcileRule.Later
    ) -> ReconcileRule.Decision {
        // In a comparison the pages say nothing of single items.
        decide(
            mine, at: sequence, pulledTo: common == .max ? told : end,
            .told(isLive: isLive, later, isCommon: told <= common))
    }

    /// The same of an item that a listing lacks.
    package func decideUnlisted(
        _ mine: ReconcileRule.Mine, at sequence: UInt64, isQuarantined: Bool, canAsk: Bool = false
    ) -> ReconcileRule.Decision {
        decide(mine, at: sequence, pulledTo: end, .unlisted(isQuarantined: isQuarantined, canAsk: canAsk))
    }

    private func decide(
        _ mine: ReconcileRule.Mine, at sequence: UInt64, pulledTo limit: UInt64, _ theirs: ReconcileRule.Theirs
    ) -> ReconcileRule.Decision {
        let place: ReconcileRule.Place =
            isOwn && sequence > limit ? .ahead : sequence > common ? .parted : .common
        return ReconcileRule(mine: mine, place: place, isOwn: isOwn, theirs: theirs).decision
    }
}
