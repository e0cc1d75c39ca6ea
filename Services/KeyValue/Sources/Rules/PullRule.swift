internal import Core
internal import Storage

/// What a reader with a token gets.
enum PullRule {
    enum Answer: Hashable {
        /// Everything that lives.
        case everything
        /// What changed after the sequence, tombstones included.
        case changes(after: UInt64)
    }

    /// Rows of changes in one reply. A reader with more than that to learn gets everything, which is smaller.
    static let changesMax = 4096

    /// What a pull of a full store costs, in calls: 1 MiB, and 1024 rows.
    static let reserves = 320

    /// - Parameters:
    ///   - standing: What the token's check says of it.
    ///   - newest: The partition's sequence.
    /// - Throws: ``CloudError`` `.changeTokenExpired`: fetch everything, and keep what was not sent.
    static func answer(
        to token: ChangeToken, standing: TokenStanding, head: ScopeHead, newest: UInt64
    ) throws(CloudError) -> Answer {
        if token.sequence == 0 { return .everything }
        var isOfThisHistory = token.epoch == head.token.epoch
        if case .lost = standing { isOfThisHistory = false }
        guard isOfThisHistory, token.sequence >= head.floor, token.sequence <= newest else {
            throw CloudError(
                .changeTokenExpired, "The change token has expired. Fetch everything; keep what was not sent.",
                details: ["token": "\(token)", "head": "\(head.token)", "floor": "\(head.floor)"])
        }
        return .changes(after: token.sequence)
    }

    /// How far the history that a reader knows and this one are the same: what
    /// it holds from after that may have been lost with an old copy.
    ///
    /// - Parameter token: The reader's place. Beyond it, it can hold what it was told was stored (its own pushes).
    static func commonEnd(_ standing: TokenStanding, of token: ChangeToken, head: ScopeHead) -> UInt64 {
        switch standing {
        case .past: token.sequence
        // Of deletions after the floor there are tombstones, so that what was deleted is not taken back.
        case .lost(let since, _): since > 0 ? since : head.floor
        // A reader that does not say where it stood is taken to have followed this history as far as it is one.
        case .unknown: token.sequence > 0 ? min(head.epochStart, token.sequence) : head.epochStart
        }
    }
}
