internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Removes uploads that have ended, in steps of a few milliseconds: what they hold, the chunks that nothing else holds,
/// and their rooms.
final class UploadRemoval {
    /// Chunks of one step.
    private static let step = 256
    private static let pause: Duration = .milliseconds(10)
    /// Owners whose uploads may fail to be removed in a round, before the others are left for the next one.
    private static let failuresMax = 8

    private unowned let transfers: Transfers
    private var isRunning = false
    /// One has ended while the last step was under way, which may have looked before.
    private var wasCalled = false
    /// Whose uploads could not be removed in this round.
    private var failed: Set<Owner> = []
    /// Whose turn was last.
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
        wasCalled = true
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
        wasCalled = false
        host.submit { [unowned self] in
            hasMore = try removeSome(host, in: $0)
        } then: { [weak self] failure in
            guard let self else { return }
            // One that cannot be removed keeps those of other owners waiting no longer than its turn.
            if failure != nil, let last { failed.insert(last) }
            let isToGoOn = failure == nil ? hasMore || wasCalled : last != nil && failed.count < Self.failuresMax
            guard isToGoOn else { return end(host) }
            next(host, after: Self.pause)
        }
    }

    private func end(_ host: any ServiceRuntime) {
        if !failed.isEmpty {
            host.report(
                "Uploads that have ended could not be removed. It is tried again in a minute",
                details: ["owners": failed.map(\.rawValue).sorted().joined(separator: " ")])
        }
        failed = []
        isRunning = false
    }

    /// - Returns: Whether there may be more.
    private func removeSome(_ host: any ServiceRuntime, in transaction: any HandlerTransaction) throws -> Bool {
        var turn = try next(host, in: transaction)
        if turn == nil {
            if try endExpired(host, in: transaction) { return true }
            turn = try next(host, in: transaction)
        }
        guard let upload = turn else { return false }
        guard let partition = upload.partition else {
            try host.storage.setAside(upload, in: transaction)
            return true
        }
        let place = HoldStore.Place(owner: upload.owner, partition: partition)
        let removed = try HoldStore.remove(of: upload.id, at: place, limit: Self.step, in: transaction)
        let unused = try removed.chunks.filter {
            try UseStore.containers(using: UseStore.Part(id: $0), at: place, in: transaction).isEmpty
        }
        try ChunkIndex.remove(unused, of: place.owner, in: place.partition, in: transaction)
        transaction.afterCommit { [transfers] in transfers.damage.recountIfAny() }
        for (id, container) in removed.nodes {
            let part = UseStore.Part(id: id, isNode: true)
            let store = UseStore(place: place, container: container, transaction: transaction)
            if try store.use(of: part)?.count == 0 { try store.addEnding(of: part) }
        }
        if !removed.nodes.isEmpty { transaction.afterCommit { [transfers] in transfers.removeSoon() } }
        try host.storage.empty(upload, by: removed.counted, isEmpty: !removed.hasMore, in: transaction)
        return true
    }

    /// Owners take turns, but for those whose uploads could not be removed just now.
    ///
    /// - Returns: Nil: all have had theirs.
    private func next(_ host: any ServiceRuntime, in transaction: any HandlerTransaction) throws -> Reservation? {
        while let ended = try host.storage.endedReservation(after: last, in: transaction) {
            last = ended.owner
            if !failed.contains(ended.owner) { return ended }
        }
        last = nil
        return nil
    }

    /// One whose time is over is ended, and takes its turns with the others. One that stands still gives back the room that
    /// nothing has come into.
    ///
    /// - Returns: Whether there was one.
    private func endExpired(_ host: any ServiceRuntime, in transaction: any HandlerTransaction) throws -> Bool {
        let (now, latest) = (host.purgeTime, transfers.expiry(host))
        if let expired = try host.storage.expiredReservation(at: now, latest: latest, in: transaction) {
            try host.storage.end(expired, in: transaction)
            return true
        }
        let (kept, room) = (transfers.configuration.retention, transfers.configuration.roomRetention)
        let idle = now.advanced(by: kept - min(room, kept))
        guard let upload = try host.storage.idleReservation(endingBefore: idle, in: transaction) else { return false }
        try host.storage.giveBackUnfilled(upload, in: transaction)
        // Who goes on with it just now asks for its room anew.
        transaction.afterCommit { [transfers, id = upload.id, owner = upload.owner] in
            transfers.endTickets(ofUpload: id, of: owner)
        }
        return true
    }

    /// - Returns: Whether there may be more.
    func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        let place = HoldStore.Place(account)
        let holds = try HoldStore.removeAll(at: place, limit: Self.step, in: transaction)
        let chunks = try ChunkIndex.removeAll(
            of: place.owner, in: place.partition, limit: Self.step, in: transaction)
        let uses = try UseStore.removeAll(at: place, limit: Self.step, in: transaction)
        try WrittenStore.remove(of: place.owner, in: transaction)
        transaction.afterCommit { [transfers] in transfers.damage.recountIfAny() }
        return holds || chunks || uses
    }
}
