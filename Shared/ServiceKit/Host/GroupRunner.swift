internal import Bus
internal import Core
internal import Logging
internal import Storage

/// Runs what was let in, in groups: whatever is ready in one transaction, large
/// requests in shares between them, long work off the loop before the group
/// that ends it.
///
/// On the loop only.
final class GroupRunner {
    private let groups: GroupCommit
    private let snapshots: any Snapshots
    /// Called when a group is on disk, before its replies go out.
    var committed: (GroupEffects) -> Void = { _ in }
    /// Called with each request that has its outcome.
    var answer: (GroupItem) -> Void = { _ in }

    private let loop: any BusLoop
    private let counters: Counters
    private let logger: Logger
    /// Whoever a submission comes from.
    private let own: Peer
    /// Joins the next group, before what arrives with it.
    private var queued: [GroupItem] = []
    private var heavy = HeavyQueue()
    private var reads = BulkReads()
    private typealias WaitingRead = (item: GroupItem, reading: Router.Bulk.Reading)
    /// Those that no thread has taken up yet; one of each connection at most. Accounts take turns, so that nobody waits
    /// for more than one read of each other one. Nil: services and the operator.
    private var waitingReads = Turns<AccountID?, WaitingRead>()
    private var readsInFlight = 0
    private static let readsMax = 4
    private var heavyTimer: (any LoopTimer)?
    private var slowGroups = SlowGroups()
    /// Requests with long work that are not answered yet. A repeat of one of
    /// them is left to the answer of the first.
    private var preparing: [Operation: RequestFingerprint] = [:]
    private var isClosed = false

    /// Names what an offload returns, so that it is a concrete type.
    private struct Prepared: Sendable {
        var value: any Sendable
    }

    /// What was read off the loop. One that fails has cost what it has read by then.
    private struct Read: Sendable {
        var value: Result<any Sendable, CloudError>
        var cost: ReadCost
    }

    private struct Operation: Hashable {
        var id: OperationID
        var principal: String
    }

    init(
        _ groups: GroupCommit, snapshots: any Snapshots, loop: any BusLoop, key: PublicKey, counters: Counters,
        logger: Logger
    ) {
        own = Peer(connection: 0, publicKey: key)
        self.groups = groups
        self.snapshots = snapshots
        self.loop = loop
        self.counters = counters
        self.logger = logger
    }

    /// Runs what waits, and then nothing more.
    func close() {
        runQueued()
        isClosed = true
        heavyTimer?.cancel()
    }

    // MARK: What joins a group

    /// Runs requests that came at one time.
    func take(_ items: [GroupItem]) {
        guard !isClosed else { return }
        distribute(items, areNew: true)
    }

    /// Runs what is small, and queues what is large.
    ///
    /// - Parameter areNew: Not what has waited behind a read.
    private func distribute(_ items: [GroupItem], areNew: Bool) {
        var group = queued
        queued = []
        group.reserveCapacity(group.count + items.count)
        // Of the requests that join this group and are not small.
        var calls = 0
        for item in items where !areNew || isFirst(item) {
            guard !heavy.concerns(item, besides: calls) else {
                wait(item)
                continue
            }
            if item.charged > 1, !item.isBulk { calls += item.charged }
            group.append(item)
        }
        run(group)
        if heavyTimer == nil { runHeavy() }
    }

    private func wait(_ item: GroupItem) {
        if !heavy.add(item) { refuseForRoom(item) }
    }

    private func refuseForRoom(_ item: GroupItem) {
        if let operation = preparation(item) { preparing[operation] = nil }
        item.outcome = .failure(
            CloudError(.serviceBusy, "Too many large requests wait. Try again soon.", retryAfter: .seconds(1)))
        answer(item)
    }

    /// Runs a share of the large requests; then the loop looks for others first.
    private func runHeavy() {
        heavyTimer = nil
        guard !heavy.isEmpty, !isClosed else { return }
        run(heavy.takeShare())
        guard !heavy.isEmpty else { return }
        heavyTimer = loop.schedule(after: .zero) { [weak self] in self?.runHeavy() }
    }

    /// Runs the body in the next group's transaction, as if it were a request.
    ///
    /// - Parameter completion: Gets the failure, when nothing of it was stored; nil: the failure goes to the log. If the
    ///   runner is closed before, it is not called.
    func submit(
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: ((CloudError?) -> Void)? = nil
    ) { enqueue(submission(body, completion)) }

    /// Runs the body at once, in a group with whatever is queued. Not from within a group.
    func runNow(_ body: @escaping (any HandlerTransaction) throws -> Void) -> CloudError? {
        guard !isClosed else { return CloudError(.serviceUnavailable, "The service is stopping.") }
        var failure: CloudError?
        queued.append(submission(body) { failure = $0 })
        runQueued()
        return failure
    }

    private func submission(
        _ body: @escaping (any HandlerTransaction) throws -> Void, _ completion: ((CloudError?) -> Void)? = nil
    ) -> GroupItem {
        let context = RequestContext(
            id: OperationID(high: 0, low: 0), causeID: nil, peer: own, caller: nil, now: loop.wallClock.now)
        return GroupItem(work: .submission(body), context: context, mutates: true, completion: completion)
    }

    private func enqueue(_ item: GroupItem) {
        queued.append(item)
        guard queued.count == 1 else { return }
        loop.schedule(after: .zero) { [weak self] in self?.runQueued() }
    }

    private func runQueued() {
        let items = queued
        queued = []
        run(items)
    }

    // MARK: A group

    private func run(_ candidates: [GroupItem]) {
        guard !isClosed else { return }
        let items = reads.concern(candidates) ? candidates.filter(mayJoin) : candidates
        guard !items.isEmpty else { return }
        let start = loop.monotonicNow
        let effects = groups.run(items)
        counters.add("groups")
        let taken = loop.monotonicNow - start
        counters.add("requests.repeated", by: effects.repeats)
        if effects.wasSplit { counters.add("groups.split") }
        committed(effects)
        for item in items { finish(item) }
        guard taken >= SlowGroups.threshold else { return }
        counters.add("groups.slow")
        slowGroups.note(items.map(\.name), taken, at: start, in: logger)
    }

    /// Whether the item runs now, and not behind a read of its connection.
    private func mayJoin(_ item: GroupItem) -> Bool {
        switch reads.admit(item) {
        case .joins: return true
        case .waits: return false
        case .refused:
            refuseForRoom(item)
            return false
        }
    }

    private func finish(_ item: GroupItem) {
        if case .submission = item.work {
            if case .failure(let error) = item.outcome {
                if item.completion == nil { logger.error("Work of the service failed", error) }
                item.completion?(error)
            } else {
                item.completion?(nil)
            }
            return
        }
        switch item.outcome {
        case .toPrepare(let work): return prepare(item, work)
        case .toRead(let reading): return read(item, reading)
        case .pending, .success, .failure: break
        }
        if let operation = preparation(item) { preparing[operation] = nil }
        answer(item)
        if item.isBulk { release(item) }
    }

    // MARK: Reads off the loop

    /// Reads a snapshot for the item; what its connection sends meanwhile waits.
    private func read(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        item.costBefore = item.cost
        waitingReads.add((item, reading), of: item.context.caller?.account)
        startReads()
    }

    private func startReads() {
        while readsInFlight < Self.readsMax, !isClosed, let (item, reading) = waitingReads.next() {
            guard item.deadline.map({ $0 < loop.monotonicNow }) != true else {
                end(item, .failure(.late))
                continue
            }
            startRead(item, reading)
        }
    }

    private func startRead(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        readsInFlight += 1
        let history = groups.cache.history
        loop.offload(to: .reading) { [snapshots, read = reading.read] in
            try snapshots.read { snapshot in
                let feed = FeedSnapshot(snapshot, history: history)
                let value = Result { try read(feed) }.mapError { CloudError(wrapping: $0) }
                return Read(value: value, cost: feed.cost)
            }
        } then: { [weak self] result in
            guard let self, !isClosed else { return }
            readsInFlight -= 1
            do {
                let read = try result.get()
                item.cost = read.cost
                // Its tokens would be of a history that has ended meanwhile.
                guard groups.cache.history?.run == history?.run else {
                    throw CloudError(
                        .serviceBusy, "Another history began meanwhile. Try again.", retryAfter: .milliseconds(10))
                }
                end(item, .success(try reading.finish(read.value.get())))
            } catch {
                end(item, .failure(CloudError(wrapping: error)))
            }
            startReads()
        }
    }

    private func end(_ item: GroupItem, _ outcome: GroupItem.Outcome) {
        item.outcome = outcome
        answer(item)
        release(item)
    }

    /// Lets what has waited behind the read go on, in a turn of its own.
    private func release(_ item: GroupItem) {
        guard reads.end(item) else { return }
        let connection = item.context.peer.connection
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !isClosed else { return }
            distribute(reads.goOn(connection), areNew: false)
        }
    }

    // MARK: Long work

    /// Which operation's long work this is; nil: it has none.
    private func preparation(_ item: GroupItem) -> Operation? {
        switch item.work {
        case .request(let method, _), .prepared(let method, _):
            guard case .prepared = method.way else { return nil }
            return Operation(id: item.context.id, principal: item.context.principal)
        case .submission: return nil
        }
    }

    /// Whether this is not the repeat of a request whose long work is being done.
    private func isFirst(_ item: GroupItem) -> Bool {
        guard let operation = preparation(item) else { return true }
        guard let first = preparing[operation] else {
            preparing[operation] = item.context.fingerprint
            return true
        }
        if first == item.context.fingerprint {
            counters.add("requests.repeated")
        } else {
            item.outcome = .failure(.operationReused)
            answer(item)
        }
        return false
    }

    private func prepare(_ item: GroupItem, _ work: @escaping Router.Prepared.Work) {
        guard case .request(let method, _) = item.work else { return }
        item.costBefore = item.cost
        loop.offload(to: .computing, { Prepared(value: try work()) }) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let prepared):
                item.work = .prepared(method, result: prepared.value)
                item.outcome = .pending
                item.context.now = loop.wallClock.now
                enqueue(item)
            case .failure(let error):
                item.outcome = .failure(CloudError(wrapping: error))
                finish(item)
            }
        }
    }
}
