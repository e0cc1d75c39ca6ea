internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What becomes of links by itself: those that have expired are removed; those whose account is locked or closed, or
/// whose app is gone or lists the container no more, end. In steps.
///
/// They opened nothing before already (``PublishedContents`` asks each time).
extension DocumentsService {
    /// Rows of one step.
    private static let linkStep = 64

    /// - Returns: Whether there may be more.
    func endLinks(in transaction: any HandlerTransaction) throws -> Bool {
        guard let runtime else { return false }
        let ended = try LinkRows.ended(at: runtime.loop.wallClock.now, limit: Self.linkStep, in: transaction)
        for link in ended { try remove(link, in: container(link.scope, transaction)) }
        if !ended.isEmpty {
            transaction.afterCommit { [transfers] in transfers.removeSoon() }
            return true
        }
        let links = try LinkRows.next(after: lastLink, limit: Self.linkStep, in: transaction)
        lastLink = links.last
        for link in links where !runtime.serves(link.scope, to: link.app) { try LinkRows.end(link, in: transaction) }
        // After the last of all there may be some that have just been ended.
        return !links.isEmpty
    }

    /// Something that links rest on has changed: all are looked at.
    func lookAtLinks() {
        lastLink = nil
        linkUpkeep.beginSoon()
    }
}
