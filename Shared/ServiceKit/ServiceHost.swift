public import Bus
public import Core
public import Logging
public import Storage
internal import SwiftProtobuf
internal import Wire

/// Runs one service on a bus loop: its storage, its sockets, its groups of
/// requests, and the services it follows.
///
/// On the loop only. Every message that is ready is taken as one group:
/// decoded, authorised, run in one transaction, committed; then its events are
/// published and its replies sent, without leaving the thread.
public final class ServiceHost: ServiceRuntime {
    /// How far ahead of the server's clock an operation id may be.
    static let operationLead: Duration = .seconds(3600)

    /// How long deletions are remembered. A reader that was away for longer fetches everything.
    static let tombstoneRetention: Duration = .seconds(90 * 24 * 3600)

    public let loop: any BusLoop
    public let roster: Roster
    public let secrets: ServiceSecrets
    public let accountKeys: AccountKeys
    /// Where `requests` is bound, with the port that was chosen.
    public var endpoint: String { replies?.endpoint ?? "" }
    /// Where `events` is bound.
    public private(set) var eventsEndpoint = ""

    let service: any CloudService
    let logger: Logger
    let keys: KeyPair
    private let engine: any StorageEngine
    let started: Duration
    private let servicePeers: Set<PublicKey>
    private let operatorKey: PublicKey?
    private var generator: any RandomNumberGenerator
    private var methods: [String: Router.Method] = [:]
    private var verifier: TokenVerifier
    private var budgets: RequestBudgets
    private var strangers: StrangerBudget
    let publishedBudgets: BudgetConfiguration
    private var groups: GroupCommit
    public private(set) var counters: [String: UInt64] = [:]
    private(set) var failures: [UInt32: UInt64] = [:]

    private var replies: (any ReplySocket)?
    private var events: (any PublishSocket)?
    private var publisher: EventPublisher?
    private var clients: [ServiceName: RequestClient] = [:]
    private(set) var followers: [Follower] = []
    public private(set) lazy var storage = StorageLedger(host: self)
    private lazy var closures = AccountClosures(host: self, engine: engine)
    private(set) lazy var directoryReport = DirectoryReport(host: self)
    /// Older master keys are not needed any more.
    private(set) var hasRewrapped = false
    private var timers: [String: any LoopTimer] = [:]
    private(set) var isClosed = false
    /// The history that the database is in.
    private(set) var epoch: UInt64 = 0
    /// When a token has last shown that the database was an old copy.
    private(set) var oldCopyFound: Timestamp?

    /// Joins the next group, before what arrives with it.
    private var queued: [GroupItem] = []
    private var heavy = HeavyQueue()
    private var slowGroups = SlowGroups()
    /// Requests with long work that are not answered yet. A repeat of one of
    /// them is left to the answer of the first.
    private var preparing: [Operation: RequestFingerprint] = [:]

    /// Names what an offload returns, so that it is a concrete type.
    private struct Prepared: Sendable {
        var value: any Sendable
    }

    /// Why a request is not answered as asked, and under which id to say so, if it had one.
    private struct Refusal: Error {
        var error: CloudError
        var id: OperationID?
        var budget: Budget?
        /// Whether the caller proved to be nobody.
        var isStrangers = false
    }

    private struct Operation: Hashable {
        var id: OperationID
        var principal: String
    }

    /// Opens storage, starts the service, binds its sockets and follows whom it follows.
    ///
    /// Call it in a loop's set-up; the loop's sockets keep the host alive until ``close()``.
    ///
    /// - Parameters:
    ///   - engine: Not opened by anybody else; the host migrates it and closes it.
    ///   - budgets: How often devices and accounts may ask.
    ///   - generator: Where jitter and operation ids come from; seeded in simulations.
    /// - Throws: ``CloudError`` `.configurationInvalid` for a roster or secrets that do not fit,
    ///   and what storage or transport throw.
    public init(
        loop: any BusLoop, service: any CloudService, roster: Roster, secrets: ServiceSecrets,
        engine: any StorageEngine, budgets: BudgetConfiguration = BudgetConfiguration(), logger: Logger,
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator()
    ) throws {
        self.loop = loop
        self.service = service
        self.roster = roster
        self.secrets = secrets
        self.engine = engine
        self.budgets = RequestBudgets(budgets)
        strangers = StrangerBudget(budgets.stranger)
        publishedBudgets = budgets
        self.generator = generator
        var logger = logger
        logger[metadataKey: "service"] = "\(service.name)"
        self.logger = logger
        started = loop.monotonicNow
        let entry = try roster.entry(of: service.name)
        keys = KeyPair(publicKey: try entry.key, secretKey: try secrets.key)
        servicePeers = try Set(roster.services.flatMap { try [$0.key, $0.nextKey].compactMap { $0 } })
        operatorKey = PublicKey(z85: roster.operatorKey)
        accountKeys = try AccountKeys(masterKeys: secrets.masterKeys)
        verifier = try TokenVerifier(roster: roster)
        groups = GroupCommit(engine: engine, now: { [unowned loop] in loop.monotonicNow }, wallClock: loop.wallClock)
        try open(entry)
    }

    private func open(_ entry: Roster.Entry) throws {
        try engine.migrate(
            ChangeFeedSchema.migrations + HostStore.migrations + Directory.migrations + DirectoryReport.migrations
                + AccountClosures.migrations
                + AccountKeys.migrations + StorageLedger.migrations + service.migrations)
        let now = loop.wallClock.now
        var heads: [Int: ChangeToken] = [:]
        var isClosingAccounts = false
        let key = try secrets.history
        let facts = try engine.write { transaction in
            let history = try Feed.beginRun(in: transaction, key: key, at: now, random: generator.next())
            groups.cache.history = history
            let feed = Feed(over: transaction, at: now, cache: groups.cache)
            oldCopyFound = try feed.oldCopyFound()
            epoch = try feed.position(ofPartition: 0).epoch
            for partition in 0..<partitionCount {
                let head = try feed.position(ofPartition: partition)
                if head.sequence > 0 { heads[partition] = head }
            }
            groups.operations = OperationMemory(newest: try Feed.newestOperation(in: transaction))
            isClosingAccounts = try AccountClosures.isPending(in: transaction)
            try Directory.prune(now: now, in: transaction)
            guard service.name == .identity else { return try Directory.stored(in: transaction) }
            // Identity knows what it has said.
            var facts: [Directory.Fact] = []
            try feed.items(directoryScope, after: 0) { item in
                if let fact = Directory.fact(item) { facts.append(fact) }
                return true
            }
            return facts
        }
        for fact in facts { verifier.learn(fact) }
        if let oldCopyFound {
            logger.info(
                "The database was found to be an old copy",
                metadata: ["epoch": "\(epoch)", "found_at": "\(oldCopyFound.milliseconds)"])
        }

        var router = Router()
        service.register(on: &router)
        FeedMethods.register(on: &router, of: service.name, itemsIncluded: service.eventsCarryItems)
        router.read(WireListUsage.self) { [unowned self] _, context, transaction in
            try usage(of: try context.requireCaller().account, in: transaction)
        }
        router.read(WireCheckHealth.self, access: .anyone) { [unowned self] _, _, _ in health() }
        methods = router.methods

        var allowed = servicePeers
        if let operatorKey { allowed.insert(operatorKey) }
        let events = try loop.makePublishSocket(
            PublishSocketOptions(endpoint: entry.events, keys: keys, admission: .roster(allowed)))
        self.events = events
        eventsEndpoint = events.endpoint
        publisher = EventPublisher(service: service.name, socket: events, heads: heads)
        try service.start(self)
        replies = try loop.makeReplySocket(ReplySocketOptions(endpoint: entry.requests, keys: keys)) { incoming in
            self.receive(incoming)
        }
        repeating("heartbeat", every: EventPublisher.heartbeat) { $0.publisher?.beat() }
        prune()
        try follow()
        if isClosingAccounts { closures.resume() }
        if service.name != .identity { directoryReport.resume() }
        rewrapKeys()
        storage.start()
        logger.info("The service answers", metadata: ["requests": "\(endpoint)", "events": "\(eventsEndpoint)"])
    }

    private func follow() throws {
        var follows = service.follows
        if service.name != .identity, !follows.contains(where: { $0.service == .identity }) {
            follows.append(Following(.identity))
        }
        for following in follows where roster.services.contains(where: { $0.service == following.service.rawValue }) {
            let isOwn = service.follows.contains(following)
            let follower = try Follower(
                following, host: self, handler: isOwn ? service : nil, generator: fork())
            followers.append(follower)
            try follower.start(engine)
        }
    }

    /// Closes sockets and storage. What is queued to be sent goes out with the loop's linger.
    public func close() {
        guard !isClosed else { return }
        // What waits for its group, and what the followers have not stored yet, needs the storage once more.
        runQueued()
        for follower in followers { follower.close() }
        isClosed = true
        for timer in timers.values { timer.cancel() }
        timers = [:]
        for client in clients.values { client.close() }
        service.stop()
        replies?.close()
        events?.close()
        engine.checkpoint()
        engine.close()
        replies = nil
        events = nil
        publisher = nil
        followers = []
        clients = [:]
    }

    // MARK: From bytes to a group

    private func receive(_ incoming: [Incoming]) {
        guard !isClosed else { return }
        let now = loop.monotonicNow
        let time = loop.wallClock.now
        var items = queued
        queued = []
        items.reserveCapacity(items.count + incoming.count)
        var requests = 0
        // Of the requests that join this group and are not small.
        var calls = 0
        for one in incoming {
            guard !one.isProbe else {
                send(.greeting, to: one.peer)
                continue
            }
            requests += 1
            do throws(StrangerBudget.Refusal) {
                try strangers.check(one.peer.publicKey, now: now)
            } catch {
                ignore(one, error)
                continue
            }
            do throws(Refusal) {
                let item = try admit(one, now: now, time: time)
                if item.context.caller == nil { noteStranger(one.peer, now) }
                guard try isFirst(item) else {
                    count("requests.repeated")
                    continue
                }
                guard !heavy.concerns(item, besides: calls) else {
                    try wait(item)
                    continue
                }
                if item.charged > 1 { calls += item.charged }
                items.append(item)
            } catch {
                if error.isStrangers { noteStranger(one.peer, now) }
                refuse(one.peer, error)
            }
        }
        count("requests", by: requests)
        run(items)
        if timers["heavy"] == nil { runHeavy() }
    }

    private func wait(_ item: GroupItem) throws(Refusal) {
        guard !heavy.add(item) else { return }
        if let operation = preparation(item) { preparing[operation] = nil }
        throw Refusal(
            error: CloudError(
                .serviceBusy, "Too many large requests wait. Try again soon.", retryAfter: .seconds(1)),
            id: item.context.id, budget: item.budget)
    }

    /// Runs a share of the large requests; then the loop looks for others first.
    private func runHeavy() {
        timers["heavy"] = nil
        guard !heavy.isEmpty, !isClosed else { return }
        run(heavy.takeShare())
        guard !heavy.isEmpty else { return }
        timers["heavy"] = loop.schedule(after: .zero) { [weak self] in self?.runHeavy() }
    }

    /// A request without a good token costs something, unless a service or the operator makes it.
    private func noteStranger(_ peer: Peer, _ now: Duration) {
        guard peer.publicKey != operatorKey, !servicePeers.contains(peer.publicKey) else { return }
        strangers.take(peer.publicKey, now: now)
    }

    /// Drops what a stranger asks too often; now and then tells them so.
    private func ignore(_ incoming: Incoming, _ refusal: StrangerBudget.Refusal) {
        count("requests.ignored")
        guard case .told(let error) = refusal,
            let envelope = try? RequestEnvelope(decoding: incoming.message)
        else { return }
        refuse(incoming.peer, Refusal(error: error, id: envelope.id))
    }

    /// The request as an item of the group, if its caller may make it.
    private func admit(
        _ incoming: Incoming, now: Duration, time: Timestamp
    ) throws(Refusal) -> GroupItem {
        let envelope: RequestEnvelope
        do throws(RequestEnvelope.Rejection) {
            envelope = try RequestEnvelope(decoding: incoming.message)
        } catch {
            throw Refusal(error: error.error, id: error.id, isStrangers: true)
        }
        var exhausted: Budget?
        var isKnown = false
        do throws(CloudError) {
            guard let method = methods[envelope.method], method.name.hasSameBytes(as: envelope.method) else {
                throw CloudError(.unknownMethod, "This service has no such method.")
            }
            guard envelope.body.count <= method.bytesMax else {
                throw CloudError(
                    .limitExceeded, "The request is too large. Split it.",
                    details: ["bytes_max": "\(method.bytesMax)", "bytes": "\(envelope.body.count)"])
            }
            let caller = try authorise(method.access, envelope, incoming.peer, time)
            isKnown = caller != nil
            // In less there is no room for so many rows that it would matter.
            let rows = envelope.body.count < 1024 ? 0 : method.rows?(envelope.body) ?? 0
            let cost = max(method.reserves, RequestCost.calls(bytes: envelope.body.count, rows: rows))
            var budget: Budget?
            if let caller {
                do throws(RequestBudgets.Exhausted) { budget = try budgets.take(caller, cost: cost, now: now) } catch {
                    exhausted = error.budget
                    throw error.error
                }
            }
            let item = GroupItem(
                work: .request(method, body: envelope.body),
                context: RequestContext(
                    id: envelope.id, causeID: envelope.causeID, peer: incoming.peer, caller: caller, now: time),
                mutates: method.mutates, budget: budget, deadline: envelope.timeout.map { now + $0 })
            item.charged = cost
            item.bytes = envelope.body.count
            if method.mutates {
                item.context.fingerprint = envelope.body.withUnsafeBytes {
                    RequestFingerprint(method: method.name, body: $0)
                }
            }
            // Because stored replies are forgotten, and what stands under an id of the far future never would be.
            if method.mutates, method.idsAge {
                let age = time.since(envelope.id.time)
                guard age <= Router.operationRetention, age >= .zero - Self.operationLead else {
                    throw CloudError(
                        .operationExpired,
                        "The operation id is too old or too far ahead. Check the clock, and use a new id.",
                        details: [CloudError.serverTimeDetail: "\(time.milliseconds)"])
                }
            }
            if method.mutates, method.remembersReply { item.principal = Self.principal(of: item.context) }
            return item
        } catch {
            throw Refusal(error: error, id: envelope.id, budget: exhausted, isStrangers: !isKnown)
        }
    }

    private func authorise(
        _ access: Access, _ envelope: RequestEnvelope, _ peer: Peer, _ now: Timestamp
    ) throws(CloudError) -> Caller? {
        switch access {
        case .anyone:
            return nil
        case .device:
            return try verifier.verify(envelope, of: peer, now: now)
        case .account:
            let hasToken = !envelope.accessToken.isEmpty || envelope.accessTokenDigest != nil
            if !hasToken, peer.publicKey == operatorKey { return nil }
            return try verifier.verify(envelope, of: peer, now: now)
        case .operatorOnly:
            guard peer.publicKey == operatorKey else {
                throw CloudError(.permissionFailure, "Only the operator may do this. Use the operator's key.")
            }
            return nil
        case .service:
            guard servicePeers.contains(peer.publicKey) || peer.publicKey == operatorKey else {
                throw CloudError(.permissionFailure, "Only services of this deployment may do this.")
            }
            return nil
        }
    }

    // MARK: Groups

    private func run(_ items: [GroupItem]) {
        guard !items.isEmpty, !isClosed else { return }
        let start = loop.monotonicNow
        let effects = groups.run(items)
        count("groups")
        let taken = loop.monotonicNow - start
        if effects.repeats > 0 { count("requests.repeated", by: effects.repeats) }
        if effects.wasSplit { count("groups.split") }
        publisher?.publish(effects)
        // After what still happened in the epoch before: the heads of the new one stand last.
        if let proof = effects.proof { beginEpoch(shownBy: proof) }
        if service.name == .identity { learnOwn(effects.events) }
        if !effects.heads.isEmpty { scheduleCheckpoint() }
        for item in items { finish(item) }
        guard taken >= SlowGroups.threshold else { return }
        count("groups.slow")
        slowGroups.note(items.map(\.name), taken, at: start, in: logger)
    }

    /// The database is an old copy: from now on it is another history. What
    /// showed it was refused, and comes again.
    private func beginEpoch(shownBy token: ChangeToken) {
        guard let history = groups.cache.history else { return }
        let now = loop.wallClock.now
        do {
            var heads: [Int: ChangeToken] = [:]
            let begun = try engine.write { transaction in
                let begun = try Feed.beginEpoch(
                    in: transaction, shownBy: token, history, at: now, random: generator.next())
                let cache = FeedCache()
                cache.history = begun
                let feed = Feed(over: transaction, at: now, cache: cache)
                for partition in 0..<partitionCount {
                    let head = try feed.position(ofPartition: partition)
                    epoch = head.epoch
                    if head.sequence > 0 { heads[partition] = head }
                }
                return begun
            }
            groups.cache.removeAll()
            groups.cache.history = begun
            publisher?.heads = heads
            oldCopyFound = now
            count("epochs.begun")
            logger.warning(
                """
                The database is an old copy: somebody knows of changes that it does not have. A new epoch begins; \
                devices offer what they hold
                """, metadata: ["epoch": "\(epoch)", "shown": "\(token)"])
        } catch {
            // It is shown again.
            logger.error("A new epoch could not be begun", CloudError(wrapping: error))
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
        if case .toPrepare = item.outcome {} else if let operation = preparation(item) { preparing[operation] = nil }
        switch item.outcome {
        case .success(let body):
            charge(item, replyBytes: body.count)
            send(
                ReplyEnvelope(id: item.context.id, result: .success(body), budget: item.budget), to: item.context.peer)
        case .failure(let error):
            charge(item, replyBytes: 0)
            refuse(item.context.peer, Refusal(error: error, id: item.context.id, budget: item.budget))
        case .toPrepare(let work):
            prepare(item, work)
        case .pending:
            break
        }
    }

    /// Takes from the budget what the request has cost beyond what was taken for it, or gives the rest back.
    private func charge(_ item: GroupItem, replyBytes: Int) {
        guard let caller = item.context.caller else { return }
        let cost = RequestCost.calls(bytes: item.bytes + replyBytes, rows: item.rowsBefore + item.rows)
        guard cost != item.charged else { return }
        item.budget = budgets.settle(caller, by: cost - item.charged, now: loop.monotonicNow)
        item.charged = cost
    }

    private static func principal(of context: RequestContext) -> String {
        context.caller?.device.rawValue ?? context.peer.publicKey.z85
    }

    /// Which operation's long work this is; nil: it has none.
    private func preparation(_ item: GroupItem) -> Operation? {
        switch item.work {
        case .request(let method, _), .prepared(let method, _):
            guard method.prepared != nil else { return nil }
            return Operation(id: item.context.id, principal: Self.principal(of: item.context))
        case .submission: return nil
        }
    }

    /// Whether this is not the repeat of a request whose long work is being done.
    private func isFirst(_ item: GroupItem) throws(Refusal) -> Bool {
        guard let operation = preparation(item) else { return true }
        guard let first = preparing[operation] else {
            preparing[operation] = item.context.fingerprint
            return true
        }
        guard first == item.context.fingerprint else {
            throw Refusal(error: .operationReused, id: operation.id, budget: item.budget)
        }
        return false
    }

    private func prepare(_ item: GroupItem, _ work: @escaping Router.Prepared.Work) {
        guard case .request(let method, _) = item.work else { return }
        item.rowsBefore = item.rows
        loop.offload({ Prepared(value: try work()) }) { [weak self] result in
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
            id: OperationID(high: 0, low: 0), causeID: nil,
            peer: Peer(connection: 0, publicKey: keys.publicKey), caller: nil, now: loop.wallClock.now)
        return GroupItem(work: .submission(body), context: context, mutates: true, completion: completion)
    }

    // MARK: Replies

    private func refuse(_ peer: Peer, _ rejection: Refusal) {
        let error = rejection.error
        failures[error.code.number, default: 0] += 1
        let level: Logger.Level =
            error.code == .internalError || error.code == .storageFailure ? .error : .debug
        logger.log(
            level: level, "A request failed",
            metadata: [
                "code": "\(error.code)", "request.id": "\(rejection.id?.description ?? "none")",
                "details": "\(error.details)",
            ])
        send(ReplyEnvelope(id: rejection.id, result: .failure(error), budget: rejection.budget), to: peer)
    }

    private func send(_ reply: ReplyEnvelope, to peer: Peer) {
        guard let replies else { return }
        let message = reply.encoded()
        switch replies.send(message, to: peer) {
        case .sent: return
        case .gone: count("replies.gone")
        // It does not read its replies, and asks for this one again when it does.
        case .full: count("replies.dropped")
        }
    }

    // MARK: Timers and counters

    private func repeating(_ name: String, every interval: Duration, _ action: @escaping (ServiceHost) -> Void) {
        timers[name] = loop.schedule(after: interval) { [weak self] in
            guard let self, !isClosed else { return }
            action(self)
            repeating(name, every: interval, action)
        }
    }

    /// Forgets old operations and tombstones, a little at a time.
    private func prune() {
        var more = false
        let now = loop.wallClock.now
        let oldest = now.advanced(by: .zero - Router.operationRetention - Self.operationLead)
        let operations = OperationID.lowerBound(at: oldest)
        let tombstones = now.advanced(by: .zero - Self.tombstoneRetention)
        let failure = runNow { transaction in
            // The host's groups run on its own type alone.
            guard let group = transaction as? GroupTransaction else { return }
            more = try group.prune(operationsBefore: operations, tombstonesBefore: tombstones)
        }
        if let failure { logger.error("Old operations could not be forgotten", failure) }
        timers["prune"] = loop.schedule(after: more ? .milliseconds(20) : .seconds(10)) { [weak self] in self?.prune() }
    }

    /// Wraps with the newest master key what an older one wraps, a little at a time.
    private func rewrapKeys() {
        var more = false
        let failure = runNow { [accountKeys] in more = try accountKeys.rewrap(limit: 200, in: $0) }
        if let failure { logger.error("Account keys could not be wrapped anew", failure) }
        guard failure != nil || more else {
            hasRewrapped = true
            return
        }
        timers["rewrap"] = loop.schedule(after: more ? .milliseconds(20) : .seconds(10)) { [weak self] in
            self?.rewrapKeys()
        }
    }

    private func scheduleCheckpoint() {
        guard timers["checkpoint"] == nil else { return }
        timers["checkpoint"] = loop.schedule(after: .seconds(1)) { [weak self] in
            guard let self, !isClosed else { return }
            timers["checkpoint"] = nil
            engine.checkpoint()
        }
    }

    private func fork() -> SplitMix64 { SplitMix64(seed: generator.next()) }

    // MARK: ServiceRuntime

    public func submit(_ body: @escaping (any HandlerTransaction) throws -> Void) { enqueue(submission(body)) }

    public func call(
        _ service: ServiceName, _ method: String, body: Frame, causeID: OperationID?,
        then completion: @escaping (Result<Frame, CloudError>) -> Void
    ) {
        do {
            try client(of: service).call(method, body: body, causeID: causeID) { completion($0.result) }
        } catch {
            let failure = CloudError(wrapping: error)
            loop.schedule(after: .zero) { completion(.failure(failure)) }
        }
    }

    func client(of service: ServiceName) throws -> RequestClient {
        if let client = clients[service] { return client }
        let entry = try roster.entry(of: service)
        let client = try RequestClient(
            loop: loop,
            socket: RequestSocketOptions(
                endpoints: roster.endpoints(of: service, \.requests), serverKey: try entry.key, keys: keys),
            nextServerKey: try entry.nextKey,
            generator: fork())
        clients[service] = client
        return client
    }

    public func admit(
        _ envelope: RequestEnvelope, of peer: Peer
    ) throws(CloudError) -> (caller: Caller, budget: Budget?)? {
        let now = loop.monotonicNow
        do throws(StrangerBudget.Refusal) { try strangers.check(peer.publicKey, now: now) } catch {
            count("requests.ignored")
            guard case .told(let told) = error else { return nil }
            throw told
        }
        let caller: Caller
        do throws(CloudError) {
            caller = try verifier.verify(envelope, of: peer, now: loop.wallClock.now)
        } catch {
            noteStranger(peer, now)
            throw error
        }
        do throws(RequestBudgets.Exhausted) {
            let cost = RequestCost.calls(bytes: envelope.body.count, rows: 0)
            return (caller, try budgets.take(caller, cost: cost, now: loop.monotonicNow))
        } catch { throw error.error }
    }

    public func mayRefuse(_ peer: Peer) -> Bool {
        let now = loop.monotonicNow
        do throws(StrangerBudget.Refusal) { try strangers.check(peer.publicKey, now: now) } catch {
            count("requests.ignored")
            return false
        }
        noteStranger(peer, now)
        return true
    }

    // MARK: Identity's directory

    /// Notes what identity has said, in the transaction that also moves the cursor.
    func store(
        _ fact: Directory.Fact, in item: FeedItem, at now: Timestamp, _ transaction: any HandlerTransaction
    ) throws {
        try Directory.store(item, fact, at: now, in: transaction)
        guard case .account(let account, .closed) = fact else { return }
        try closeAccount(account, in: transaction)
    }

    public func closeAccount(_ account: AccountID, in transaction: any HandlerTransaction) throws {
        try closures.begin(account, in: transaction)
        transaction.afterCommit { [weak self] in self?.closures.resume() }
    }

    /// Heeds what identity has said, now that it is stored.
    func learn(_ facts: [Directory.Fact]) {
        for fact in facts {
            verifier.learn(fact)
            if case .recall(let owner) = fact { storage.recall(StorageOwner(owner)) }
        }
    }

    /// Identity follows nobody: what it publishes of its directory it heeds itself.
    private func learnOwn(_ events: [OutgoingEvent]) {
        for event in events where event.account == directoryScope.account {
            guard let notification = try? ServiceEvent.Notification(decoding: event.notification),
                let items = try? Directory.items(in: notification, of: .identity)
            else { continue }
            learn(items.compactMap(Directory.fact))
        }
    }

    public func count(_ counter: String, by amount: Int) {
        guard amount > 0 else { return }
        counters[counter, default: 0] += UInt64(amount)
    }

    private func count(_ counter: String) { count(counter, by: 1) }

    public func report(_ message: String, details: [String: String]) {
        logger.error("\(message)", metadata: details.mapValues { "\($0)" })
    }
}

/// The version that `CheckHealth` reports.
public let serviceKitVersion = "0.1.0"

extension Logger {
    func error(_ message: Logger.Message, _ error: CloudError) {
        log(level: .error, message, metadata: ["code": "\(error.code)", "details": "\(error.details)"])
    }
}
