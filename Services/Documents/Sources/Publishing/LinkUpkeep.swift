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
        let part = linkWalk.part
        let links: [LinkRows.Link]
        switch part {
        case .ended:
            links = try LinkRows.ended(
                at: runtime.purgeTimeOfWallStamps, after: linkWalk.last, limit: Self.linkStep, in: transaction)
            // One that cannot be removed now stays, and keeps those behind it waiting no longer.
            for link in links { _ = try remove(link, in: container(link.scope, transaction)) }
        case .account(let account):
            links = try LinkRows.next(
                of: Owner(account), after: linkWalk.last, limit: Self.linkStep, in: transaction)
            try endUnserved(links, runtime, in: transaction)
        case .all:
            links = try LinkRows.next(after: linkWalk.last, limit: Self.linkStep, in: transaction)
            try endUnserved(links, runtime, in: transaction)
        }
        var walk = linkWalk
        walk.pass(links.last)
        transaction.afterCommit { [weak self] in
            self?.linkWalk.pass(links.last)
            if part == .ended, !links.isEmpty { self?.transfers.removeSoon() }
        }
        return !walk.isAtRest
    }

    private func endUnserved(
        _ links: [LinkRows.Link], _ runtime: any ServiceRuntime, in transaction: any HandlerTransaction
    ) throws {
        for link in links where !runtime.serves(link.scope, to: link.app) { try LinkRows.end(link, in: transaction) }
    }

    /// What an account's links rest on has changed: all of them are looked at.
    func lookAtLinks(of account: AccountID) {
        linkWalk.add(account)
        linkUpkeep.beginSoon()
    }

    /// Something that links of any account rest on has changed: all are looked at.
    func lookAtLinks() {
        linkWalk.addAll()
        linkUpkeep.beginSoon()
    }
}
