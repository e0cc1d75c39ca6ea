public import Logging
public import NephosBus
public import NephosCore
public import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// Runs one service on a bus loop: its storage, its sockets, its groups of
/// requests, and the services it follows. This is where its parts are wired.
///
/// ```
/// bytes -> Door -> Gate -> GroupRunner -> GroupCommit -> storage
///                                │ on disk
///              Door <- replies <-┴-> events -> EventPublisher -> the services that follow this one
/// ```
///
/// On the loop only. Every message that is ready is taken as one group:
/// decoded, authorised, run in one transaction, committed; then its events are
/// published and its replies sent, without leaving the thread.
public final class ServiceHost: ServiceRuntime {
    public let loop: any BusLoop
    public let roster: Roster
    public let secrets: ServiceSecrets
    public let ownerKeys: OwnerKeys
    public let keys: KeyPair
    /// Where `requests` is bound, with the port that was chosen.
    public var endpoint: String { requests?.socket?.endpoint ?? "" }
    /// Where `events` is bound.
    public private(set) var eventsEndpoint = ""
    /// What was counted, by name.
    public var counts: [String: UInt64] { counters.values }
    /// Bytes of requests and of their answers.
    package var movedBytes: UInt64 { counters.requestBytes &+ counters.replyBytes }

    let service: any CloudService
    let logger: Logger
    let started: Duration
    let counters = Counters()
    let trace = RequestTrace()
    let gate: Gate
    let history: HistoryKeeper
    let purgeClock: PurgeClock
    let maintenance: Maintenance
    let engine: any StorageEngine
    public var snapshots: any Snapshots { engine.snapshots }
    let runner: GroupRunner
    let cache = FeedCache()
    let quarantine: QuarantineNote
    let operations: OperationMemory
    private var generator: any RandomNumberGenerator

    private var requests: Door?
    /// All of them.
    private(set) var doors: [Door] = []
    private var events: (any PublishSocket)?
    var publisher: EventPublisher?
    private var heartbeat: (any LoopTimer)?
    private var clients: [ServiceName: RequestClient] = [:]
    private(set) var followers: [Follower] = []
    public private(set) lazy var storage = StorageLedger(host: self)
    private(set) lazy var directory = DirectoryKeeper(self, gate)
    private(set) lazy var directoryReport = DirectoryReport(host: self)
    private(set) lazy var mending = ScopeMending(host: self)
    private lazy var closures = AccountClosures(host: self, engine: engine)
    private(set) var isClosed = false
    /// What was last said of it in the log.
    private var wasShortOfRoom = false

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
        self.generator = generator
        var logger = logger
        logger[metadataKey: "service"] = "\(service.name)"
        self.logger = logger
        started = loop.monotonicNow
        let entry = try roster.entry(of: service.name)
        keys = KeyPair(publicKey: try entry.key, secretKey: try secrets.key)
        ownerKeys = try OwnerKeys(masterKeys: secrets.masterKeys)
        gate = try Gate(roster: roster, budgets: budgets, loop: loop, counters: counters)
        history = HistoryKeeper(engine, cache: cache, logger: logger)
        try Self.migrate(engine, for: service)
        let known = try Self.readWhatIsKnown(
            engine, history, of: service, key: try secrets.history, by: loop.wallClock,
            random: self.generator.next())
        purgeClock = known.purgeClock
        quarantine = QuarantineNote(purgeClock)
        counters.storedBytes = known.storedBytes
        operations = OperationMemory(newest: known.newestOperation)
        runner = GroupRunner(
            GroupCommit(
                engine: engine, now: { [unowned loop] in loop.monotonicNow }, wallClock: loop.wallClock,
                operations: operations, cache: cache, quarantine: quarantine, trace: trace,
                charge: { [gate] in gate.charge($0, replyBytes: $1) }),
            snapshots: engine.snapshots, loop: loop, key: keys.publicKey, counters: counters,
            logger: logger)
        gate.isIdle = { [unowned runner] in runner.isIdle }
        maintenance = Maintenance(
            engine, runner, ownerKeys, purgeClock, loop: loop, counters: counters, logger: logger)
        try open(entry, known)
    }

    // MARK: Opening and closing

    private static func migrate(_ engine: any StorageEngine, for service: any CloudService) throws {
        try engine.migrate(
            ChangeFeedSchema.migrations + FollowCursors.migrations + Directory.migrations + DirectoryReport.migrations
                + AccountClosures.migrations + QuarantinedItems.migrations + PurgeClock.migrations
                + OwnerKeys.migrations
                + LedgerStore.migrations + service.migrations)
    }

    /// What the database says of the time before this start.
    private struct Known {
        /// Of the partitions that have ever changed.
        var heads: [Int: ChangeToken]
        var newestOperation: OperationID?
        var facts: [DirectoryFact]
        /// How far other services were followed.
        var cursors: [ServiceName: [Int: ChangeToken]]
        /// Whether an account's closing has not come to its end.
        var isClosingAccounts: Bool
        /// For owners of plans.
        var storedBytes: Int64
        var purgeClock: PurgeClock
    }

    private static func readWhatIsKnown(
        _ engine: any StorageEngine, _ history: HistoryKeeper, of service: any CloudService, key: SipHash,
        by clock: any WallClock, random: UInt64
    ) throws -> Known {
        try engine.write { transaction in
            let now = clock.now
            let purgeClock = PurgeClock(clock, after: try PurgeClock.stored(in: transaction))
            let heads = try history.beginRun(in: transaction, key: key, at: now, random: random)
            return Known(
                heads: heads, newestOperation: try Feed.newestOperation(in: transaction),
                facts: try DirectoryKeeper.stored(
                    in: Feed(over: transaction, at: now, cache: history.cache), of: service.name,
                    at: purgeClock.now),
                cursors: try follows(service).reduce(into: [:]) {
                    $0[$1.service] = try FollowCursors.cursors(of: $1.service, in: transaction)
                },
                isClosingAccounts: try AccountClosures.isPending(in: transaction),
                storedBytes: try LedgerStore.used(in: transaction), purgeClock: purgeClock)
        }
    }

    private func open(_ entry: Roster.Entry, _ known: Known) throws {
        directory.recall(known.facts)
        if history.isRestored {
            logger.notice("The database was restored: a new epoch begins", metadata: ["epoch": "\(history.epoch)"])
        }
        let events = try loop.makePublishSocket(
            PublishSocketOptions(endpoint: entry.events, keys: keys, admission: .roster(gate.followers(of: service))))
        self.events = events
        eventsEndpoint = events.endpoint
        publisher = EventPublisher(
            service: service.name, socket: events, heads: known.heads, epoch: history.epoch)
        runner.committed = { [unowned self] in committed($0, then: $1) }
        let router = router()
        try service.start(self)
        let requests = try Door(
            ReplySocketOptions(endpoint: entry.requests, keys: keys), router.methods, gate: gate, loop: loop,
            counters: counters, logger: logger, welcome: { $0.send(.greeting, to: $1) },
            take: { self.runner.take($0) })
        self.requests = requests
        doors.append(requests)
        runner.answer = { [unowned requests] in requests.answer($0) }
        beat()
        maintenance.start()
        mending.start()
        try follow(known.cursors)
        if known.isClosingAccounts { closures.resume() }
        if service.name != .identity { directoryReport.resume() }
        storage.start()
        logger.notice("The service answers", metadata: ["requests": "\(endpoint)", "events": "\(eventsEndpoint)"])
    }

    /// The service's own methods, and those that every service has.
    private func router() -> Router {
        var router = Router()
        service.register(on: &router)
        FeedMethods.register(service, on: &router)
        ReadChanges(service: service) { [unowned self] damage, scope in found(damage, in: scope) }
            .register(on: &router)
        router.read(WireListUsage.self) { [unowned self] _, context, transaction in
            try usage(of: try context.requireCaller().account, in: transaction)
        }
        router.read(WireCheckHealth.self, access: .anyone) { [unowned self] _, _, _ in health() }
        return router
    }

    /// Whom the service follows; identity everybody does.
    private static func follows(_ service: any CloudService) -> [Following] {
        guard service.name != .identity, !service.follows.contains(where: { $0.service == .identity }) else {
            return service.follows
        }
        return service.follows + [Following(.identity)]
    }

    private func follow(_ cursors: [ServiceName: [Int: ChangeToken]]) throws {
        for following in Self.follows(service)
        where roster.services.contains(where: { $0.service == following.service.rawValue }) {
            let isOwn = service.follows.contains(following)
            let follower = try Follower(
                following, cursors: cursors[following.service] ?? [:], host: self, handler: isOwn ? service : nil)
            followers.append(follower)
            try follower.start()
        }
    }

    private func beat() {
        heartbeat = loop.schedule(after: EventPublisher.heartbeat) { [weak self] in
            guard let self, !isClosed else { return }
            publisher?.beat()
            beat()
        }
    }

    /// Closes sockets and storage, once the group under way is on disk and answered. What is queued to be sent goes out
    /// with the loop's linger.
    ///
    /// - Parameter completion: Called when all is closed: at once, where storage completes at once.
    public func close(then completion: @escaping () -> Void = {}) {
        guard !isClosed else { return }
        // What the followers have not stored yet, and what waits for its group, needs the storage once more.
        for follower in followers { follower.close() }
        isClosed = true
        heartbeat?.cancel()
        maintenance.close()
        runner.close { [self] in
            let closing = clients.values
            clients = [:]
            for client in closing { client.close() }
            service.stop()
            requests?.close()
            events?.close()
            engine.checkpoint()
            engine.close()
            events = nil
            publisher = nil
            followers = []
            completion()
        }
    }

    /// A group is on disk: those who follow hear of it.
    private func committed(_ effects: GroupEffects, then done: @escaping () -> Void) {
        publisher?.publish(effects)
        let rest = { [self] in
            if service.name == .identity { directory.learnOwn(effects.events) }
            if !effects.heads.isEmpty { maintenance.noteWritten() }
            if engine.isShortOfRoom != wasShortOfRoom { noteRoom() }
            mending.moved(effects.quarantined, hasReturned: effects.hasReturned)
            done()
        }
        // After what still happened in the epoch before: the heads of the new one stand last.
        guard let proof = effects.proof else { return rest() }
        beginEpoch(shownBy: proof, then: rest)
    }

    private func noteRoom() {
        wasShortOfRoom = engine.isShortOfRoom
        if wasShortOfRoom {
            logger.error("The disk of the service's data is full. Only deletes are taken until there is room")
        } else {
            logger.info("There is room on the disk again")
        }
    }

    private func beginEpoch(shownBy proof: ChangeToken, then done: @escaping () -> Void) {
        history.beginEpoch(shownBy: proof, at: loop.wallClock.now, random: generator.next()) { [self] heads in
            if let heads {
                publisher?.begin(epoch: history.epoch, heads: heads)
                counters.add("epochs.begun")
            }
            done()
        }
    }

    private func fork() -> SplitMix64 { SplitMix64(seed: generator.next()) }

    // MARK: ServiceRuntime

    public var purgeTime: Timestamp { purgeClock.now }
    public var retentionStart: Timestamp { purgeClock.retentionStart }
    public var purgeTimeOfWallStamps: Timestamp { purgeClock.nowOfWallStamps }

    public func address(of peer: Peer) -> String? { requests?.socket?.address(of: peer) }

    public func refusal(of caller: Caller) -> CloudError? { gate.verifier.refusal(of: caller) }

    public func definition(of container: ItemName) -> ContainerDefinition {
        gate.verifier.directory.definition(of: container)
    }

    public func serves(_ scope: ScopeName, to app: AppID) -> Bool {
        guard let account = scope.owner.account else { return false }
        return gate.verifier.serves(scope.path, of: account, by: service.name, to: app)
    }

    /// Runs the body in a group with whatever is queued: at once, or as soon as the group under way has ended.
    ///
    /// - Parameters:
    ///   - body: May run twice: what it finds out it says anew each time.
    ///   - completion: Called when it is on disk, with what the body returned; or with why nothing of it was stored.
    func run<Value>(
        _ body: @escaping (any HandlerTransaction) throws -> Value,
        then completion: @escaping (Result<Value, CloudError>) -> Void
    ) {
        var value: Value?
        runner.run {
            value = try body($0)
        } then: { error in
            if let error { return completion(.failure(error)) }
            if let value { completion(.success(value)) }
        }
    }

    public func submit(_ body: @escaping (any HandlerTransaction) throws -> Void) { runner.submit(body) }

    public func submit(
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: @escaping (CloudError?) -> Void
    ) { runner.submit(body, then: completion) }

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
        guard !isClosed else { throw CloudError(.serviceUnavailable, "The service is stopping.") }
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

    public func found(_ damage: ScopeDamage, in scope: ScopeName) { mending.found(damage, in: scope) }

    public func askToCompare(_ scope: ScopeName, in transaction: any HandlerTransaction) throws {
        let position = try transaction.position(ofPartition: scope.partition)
        let notification = WireNotification(infoOf: scope, service.name, at: try transaction.head(scope))
        transaction.publish(OutgoingEvent(in: scope, at: position, notification: Frame(encoding: notification)))
    }

    public func openDoor(
        _ options: ReplySocketOptions, _ router: Router, welcome: @escaping (Peer) -> Void
    ) throws -> any ReplySocket {
        let door = try Door(
            options, router.methods, gate: gate, loop: loop, counters: counters, logger: logger,
            welcome: { _, peer in welcome(peer) }, take: { _ in })
        doors.append(door)
        guard let socket = door.socket else {
            throw CloudError(.internalError, "A socket was closed while it was opened.")
        }
        return socket
    }

    public func closeAccount(_ account: AccountID, in transaction: any HandlerTransaction) throws {
        try closures.begin(account, in: transaction)
        transaction.afterCommit { [weak self] in self?.closures.resume() }
    }

    public func count(_ counter: String, by amount: Int) { counters.add(counter, by: amount) }
    public func set(_ counter: String, to amount: Int) { counters.set(counter, to: amount) }

    public func report(_ message: String, details: [String: String]) {
        let metadata = details.mapValues { Logger.Metadata.Value.string($0) }
        logger.error("\(message)", metadata: metadata.merging(trace.metadata) { $1 })
    }
}

/// The version of all programs: `nephos --version`, `CheckHealth` and the metrics report it.
public let serviceKitVersion = "0.1.0"

extension Result {
    var isSuccess: Bool { if case .success = self { true } else { false } }
}

extension Logger {
    func error(_ message: Logger.Message, _ error: CloudError) {
        self.error(message, error, metadata: [:])
    }

    /// - Parameter metadata: What it is about besides.
    func error(_ message: Logger.Message, _ error: CloudError, metadata: Logger.Metadata) {
        var metadata = metadata
        metadata["code"] = "\(error.code)"
        metadata["details"] = "\(error.loggedDetails)"
        log(level: .error, message, metadata: metadata)
    }
}
