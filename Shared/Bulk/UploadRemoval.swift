internal import Bus
internal import Content
internal import Core
internal import ServiceKit
internal import Storage

/// Removes uploads that have ended, in steps of a few milliseconds: what they hold, the chunks that nothing else holds,
/// and their rooms.
final class UploadRemoval {
    /// Chunks of one step.
    private static let step = 256
    private static let pause: Duration = .milliseconds(10)

    private unowned let transfers: Transfers
    private var isRunning = false
    /// Whose turn was last, of those who ended uploads; nil: the turn is that of the uploads whose time is over.
    private var last: Owner?

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Looks for such uploads now and then, for as long as the service runs.
    func start() {
        transfers.host?.loop.schedule(after: transfers.configuration.sweepInterval) { [weak self] in
            self?.beginSoon()
            self?.start()
        }
    }

    /// One has ended.
    func beginSoon() {
        guard !isRunning, let host = transfers.host else { return }
        isRunning = true
        next(host, after: .zero)
    }

    private func next(_ host: any ServiceRuntime, after pause: Duration) {
        host.loop.schedule(after: pause) { [weak self] in self?.run() }
    }

    private func run() {
        guard let host = transfers.host else { return }
        var hasMore = false
        host.submit { [unowned self] in
            hasMore = try removeSome(host, in: $0)
        } then: { [weak self] failure in
            guard let self else { return }
            guard failure == nil, hasMore else {
                // After a failure the next round tries again.
                if failure != nil { host.report("An upload that has ended could not be removed", details: [:]) }
                return isRunning = false
            }
            next(host, after: Self.pause)
        }
    }

    /// - Returns: Whether there may be more.
    private func removeSome(_ host: any ServiceRuntime, in transaction: any HandlerTransaction) throws -> Bool {
        let now = host.loop.wallClock.now
        guard let upload = try next(at: now, host, in: transaction) else { return false }
        guard let account = upload.owner.account else {
            throw CloudError(.internalError, "An upload belongs to no account.")
        }
        let place = HoldStore.Place(account)
        let removed = try HoldStore.remove(of: upload.id, at: place, limit: Self.step, in: transaction)
        try ChunkIndex.remove(removed.unheld, of: place.owner, in: place.partition, in: transaction)
        try host.storage.empty(upload, by: removed.counted, isEmpty: !removed.hasMore, in: transaction)
        return true
    }

    /// Owners take turns, and after each round one of those whose time is over has its own.
    private func next(
        at now: Timestamp, _ host: any ServiceRuntime, in transaction: any HandlerTransaction
    ) throws -> Reservation? {
        let ended = try host.storage.endedReservation(after: last, in: transaction)
        let isRoundOver = ended == nil
        last = ended?.owner
        guard isRoundOver else { return ended }
        if let expired = try host.storage.expiredReservation(at: now, in: transaction) { return expired }
        let first = try host.storage.endedReservation(after: nil, in: transaction)
        last = first?.owner
        return first
    }

    /// - Returns: Whether there may be more.
    func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        let place = HoldStore.Place(account)
        let holds = try HoldStore.removeAll(at: place, limit: Self.step, in: transaction)
        let chunks = try ChunkIndex.removeAll(
            of: place.owner, in: place.partition, limit: Self.step, in: transaction)
        return holds || chunks
    }
}
