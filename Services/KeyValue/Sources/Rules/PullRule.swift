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

    /// - Parameter newest: The partition's sequence; a token beyond it is from a lost future.
    /// - Throws: ``CloudError`` `.changeTokenExpired`: fetch everything, and keep what was not sent.
    static func answer(to token: ChangeToken, head: ScopeHead, newest: UInt64) throws(CloudError) -> Answer {
        if token.sequence == 0 { return .everything }
        guard token.epoch == head.token.epoch, token.sequence >= head.floor, token.sequence <= newest else {
            throw CloudError(
                .changeTokenExpired, "The change token has expired. Fetch everything; keep what was not sent.",
                details: ["token": "\(token)", "head": "\(head.token)", "floor": "\(head.floor)"])
        }
        return .changes(after: token.sequence)
    }
}
