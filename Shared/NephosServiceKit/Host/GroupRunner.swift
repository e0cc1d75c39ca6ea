internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// Runs what was let in, in groups: whatever is ready in one transaction, large
/// requests in shares between them, long work off the loop before the group
/// that ends it.
///
/// One group is under way at a time, until storage has completed it and its
/// replies are sent. What comes meanwhile waits for the next one. With SQLite,
/// which completes at once, nothing ever comes meanwhile.
///
/// On the loop only.
final class GroupRunner {
    let groups: GroupCommit
    let snapshots: any Snapshots
    /// Called when a group is on disk. The group's replies go out once this calls its last argument.
    var committed: (GroupEffects, @escaping () -> Void) -> Void = { $1() }
    /// Called with each request that has its outcome.
    var answer: (GroupItem) -> Void = { _ in }

    let loop: any BusLoop
    private let counters: Counters
    private let logger: Logger
    /// Whoever a submission comes from.
    private let own: Peer
    /// Joins the next group, before what arrives with it.
    private var queued: [GroupItem] = []
    /// What is queued is not to wait for anything else.
    private var isDue = false
    /// Requests that came and are in no group yet, in their order. Bounded, as what comes while a group is under way is
    /// taken off the socket: with more, requests are refused.
    var arrived: [GroupItem] = []
    var arrivedBytes = 0
    private static let arrivedMax = 8192
    private static let arrivedBytesMax = 64 << 20
    /// Requests in one group, so that the loop is not held up for long.
    private static let groupMax = 512
    private var isUnderWay = false
    /// Requests of the group under way.
    private var underWay = 0
    /// The last group was a share of the large requests.
    private var wasHeavy = false
    /// What is done once the group under way has ended.
    private var between: [() -> Void] = []
    /// Called when all is done that was to be done before the end.
    private var ending: (() -> Void)?
    private var heavy = HeavyQueue()
    var reads = BulkReads()
    typealias WaitingRead = (item: GroupItem, reading: Router.Bulk.Reading)
    /// Those that no thread has taken up yet; one of each connection at most. Accounts take turns, so that nobody waits
    /// for more than one read of each other one. Nil: services and the operator.
    var waitingReads = Turns<AccountID?, WaitingRead>()
    var readsInFlight = 0
    static let readsMax = 4
    private var heavyTimer: (any LoopTimer)?
    private var slowGroups = SlowGroups()
    /// Requests with long work that are not answered yet. A repeat of one of
    /// them is left to the answer of the first.
    private var preparing: [Operation: RequestFingerprint] = [:]
    private(set) var isClosed = false

    /// Names what an offload returns, so that it is a concrete type.
    private struct Prepared: Sendable {
        var value: any Sendable
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
    ///
    /// - Parameter completion: Called once the last group is on disk and its replies are sent.
    func close(then completion: @escaping () -> Void) {
        ending = completion
        isDue = true
        runReady()
    }

    var isEnding: Bool { ending != nil || isClosed }

    /// Whether nothing waits for its turn, and nothing is under way, on the loop or beside it.
    var isIdle: Bool {
        !isUnderWay && queued.isEmpty && arrived.isEmpty && heavy.isEmpty && preparing.isEmpty
            && waitingReads.isEmpty && readsInFlight == 0
    }

    /// Requests that were let in and have no answer yet.
    var unanswered: Int {
        underWay + arrived.count + heavy.count + preparing.count + reads.count
    }

    /// Bytes of requests that wait for their turn, by what they wait for.
    var queues: [(queue: String, bytes: Int)] {
        [("requests", arrivedBytes), ("large_requests", heavy.bytes), ("reads", reads.bytes)]
    }

    /// After the last group.
    private func end() {
        guard let ending else { return }
        self.ending = nil
        isClosed = true
        heavyTimer?.cancel()
        ending()
    }

    // MARK: What joins a group

    /// Runs requests that came at one time.
    func take(_ items: [GroupItem]) {
        guard !isEnding else { return }
        for item in items where isFirst(item) {
            guard
                !isUnderWay || arrived.count < Self.arrivedMax && arrivedBytes + item.bytes <= Self.arrivedBytesMax
            else {
                refuseForRoom(item)
                continue
            }
            arrived.append(item)
            arrivedBytes += item.bytes
        }
        isDue = true
        goOn()
    }

    /// The group that was under way has ended in a turn of its own: small requests and shares of large ones take turns.
    private func goOnAfterGroup() {
        if !wasHeavy { runHeavy() }
        goOn()
    }

    /// Goes on with whatever waits, unless a group is under way, the end of which does.
    func goOn() {
        runReady()
        if heavyTimer == nil { runHeavy() }
    }

    /// Runs what is small, and queues what is large.
    private func runReady() {
        while !isUnderWay, isDue || !arrived.isEmpty {
            isDue = false
            wasHeavy = false
            run(nextGroup())
        }
        if !isUnderWay, ending != nil { end() }
    }

    private func nextGroup() -> [GroupItem] {
        let items: [GroupItem]
        if arrived.count <= Self.groupMax {
            items = arrived
            arrived = []
            arrivedBytes = 0
        } else {
            items = Array(arrived.prefix(Self.groupMax))
            arrived.removeFirst(items.count)
            arrivedBytes -= items.reduce(0) { $0 + $1.bytes }
        }
        var group = queued
        queued = []
        group.reserveCapacity(group.count + items.count)
        // Of the requests that join this group and are not small.
        var calls = 0
        for item in items {
            guard !heavy.concerns(item, besides: calls) else {
                wait(item)
                continue
            }
            if item.charged > 1, !item.isBulk { calls += item.charged }
            group.append(item)
        }
        return group
    }

    private func wait(_ item: GroupItem) {
        if !heavy.add(item) { refuseForRoom(item) }
    }

    /// Has requests wait for which their group had no room; the loop looks for others first.
    ///
    /// - Parameter again: They have waited already.
    private func wait(_ deferred: [GroupItem], again: Bool) {
        guard !deferred.isEmpty else { return }
        counters.add("requests.deferred", by: deferred.count)
        if again {
            heavy.putBack(deferred)
        } else {
            for item in deferred where !heavy.add(item) {
                refuseForRoom(item)
                if item.isBulk { release(item) }
            }
        }
        guard !heavy.isEmpty, !isEnding, heavyTimer == nil else { return }
        heavyTimer = loop.schedule(after: .zero) { [weak self] in self?.runHeavy() }
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
        // The end of the group under way goes on with them.
        guard !isUnderWay, !heavy.isEmpty, !isEnding else { return }
        wasHeavy = true
        run(heavy.takeShare())
        runReady()
        guard !heavy.isEmpty, !isEnding, heavyTimer == nil else { return }
        heavyTimer = loop.schedule(after: .zero) { [weak self] in self?.runHeavy() }
    }

    /// Runs the body in the next group's transaction, as if it were a request.
    ///
    /// - Parameter completion: Gets the failure, when nothing of it was stored; nil: the failure goes to the log. If
    ///   the runner is closed before, it is not called.
    func submit(
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: ((CloudError?) -> Void)? = nil
    ) {
        guard !isEnding else { return }
        enqueue(submission(body, completion))
    }

    /// Runs the body at once, in a group with whatever is queued; or in the next group, while one is under way.
    ///
    /// - Parameter completion: Gets the failure, when nothing of it was stored. Always called, but for a runner that
    ///   goes with its loop.
    func run(
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: @escaping (CloudError?) -> Void
    ) {
        guard !isEnding else {
            return completion(CloudError(.serviceUnavailable, "The service is stopping."))
        }
        queued.append(submission(body, completion))
        isDue = true
        runReady()
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
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !queued.isEmpty else { return }
            isDue = true
            runReady()
        }
    }

    // MARK: A group

    private func run(_ candidates: [GroupItem]) {
        guard !isClosed else { return }
        let items = reads.concern(candidates) ? candidates.filter(mayJoin) : candidates
        let isShare = wasHeavy
        guard !items.isEmpty else { return }
        isUnderWay = true
        underWay = items.count
        let start = loop.monotonicNow
        // Whoever began the group goes on by itself when this returns.
        var isInline = true
        groups.run(items) { [self] effects in
            note(effects, of: items, since: start)
            committed(effects) { [self] in
                let deferred = items.filter(\.isDeferred)
                for item in items where !item.isDeferred { finish(item) }
                wait(deferred, again: isShare)
                isUnderWay = false
                underWay = 0
                let between = between
                self.between = []
                for action in between { action() }
                if !isInline { goOnAfterGroup() }
            }
        }
        isInline = false
    }

    private func note(_ effects: GroupEffects, of items: [GroupItem], since start: Duration) {
        counters.add("groups")
        counters.storedBytes &+= effects.storedBytes
        counters.add("requests.repeated", by: effects.repeats)
        if effects.wasSplit { counters.add("groups.split") }
        let taken = loop.monotonicNow - start
        counters.groupRequests.note(Int64(items.count { $0.method != nil }))
        guard taken >= SlowGroups.threshold else { return }
        counters.add("groups.slow")
        slowGroups.note(items.map(\.name), taken, at: start, in: logger)
    }

    /// Whether the item runs now, and not behind a read of its connection.
    private func mayJoin(_ item: GroupItem) -> Bool {
        guard !item.isDeferred else { return true }
        switch reads.admit(item) {
        case .joins: return true
        case .waits: return false
        case .refused:
            refuseForRoom(item)
            return false
        }
    }

    private func finish(_ item: GroupItem) {
        guard item.method != nil else {
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

    // MARK: Long work

    /// Which operation's long work this is; nil: it has none.
    private func preparation(_ item: GroupItem) -> Operation? {
        guard let method = item.method, method.isPrepared else { return nil }
        return Operation(id: item.context.id, principal: item.context.principal)
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
            guard let self, !isEnding else { return }
            switch result {
            case .success(let prepared):
                item.work = .prepared(method, result: prepared.value)
                item.outcome = .pending
                enqueue(item)
            case .failure(let error):
                item.outcome = .failure(CloudError(wrapping: error))
                finish(item)
            }
        }
    }
}
