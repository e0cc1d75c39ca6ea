import GRDB
import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf

/// Performs what a scope's ``ScopeSync`` decides, on the loop, the connections and the home's database.
///
/// The truth is on disk: each step reads what it needs inside its transaction, so that another process of the same home
/// may do the same at the same time.
final class ScopeDriver {
    let model: any ScopeModel
    /// Unlike every other driver's of the process, for what they keep apart.
    let reader: Int
    unowned let engine: DeviceEngine
    var sync: ScopeSync
    /// Nil: signed out, or the server has not told which scope it is.
    private(set) var scope: LocalScope?
    private var timers: [ScopeSync.Timer: any LoopTimer] = [:]
    /// The app's token is asked for, or will be when the timer runs out.
    private var isLearning = false
    private var learnTimer: (any LoopTimer)?
    private var learnRetry = Retry()
    /// What is about to be sent, by its operation's position.
    private var packed: [Int64: any SwiftProtobuf.Message] = [:]
    /// Of those who wait, by the numbers that name them.
    var completions: [Int: (Result<Void, CloudError>) -> Void] = [:]
    /// How far in the home's news this process has told the app; nil: it does not know yet where it began.
    private var told: Int64?
    /// Calls that began under an earlier session are not heard any more.
    private var generation = 0

    init(_ model: any ScopeModel, _ engine: DeviceEngine) {
        self.model = model
        self.engine = engine
        reader = engine.makeReader()
        var options = ScopeSync.Options()
        options.gapGrace = engine.options.gapGrace
        options.pageItemsMax = engine.options.pageItemsMax
        options.pushesInFlightMax = engine.options.pushesInFlightMax
        options.writer = engine.writer
        model.adjust(&options)
        sync = ScopeSync(options: options, generator: engine.makeGenerator())
    }

    var app: AppID { model.app }
    var key: ScopeID { model.id }
    /// Whether another process of the home keeps it in step.
    var isDelegated: Bool { engine.home.isDelegated(key) }
    var moment: Moment { Moment(time: engine.now, monotonic: engine.loop.monotonicNow) }
    var isServerHeard: Bool { engine.hasHeard(model.service) }

    // MARK: Life

    func begin() {
        // From when the app opened it: what another process brings in meanwhile, this one tells.
        if told == nil {
            do throws(CloudError) { told = try latestNews() } catch { failed(.tell, error) }
        }
        // Who waits for what an account has need not wait when there is none.
        guard let session = engine.session, session.signedIn else { return perform([.look]) }
        let address = model.address(in: session)
        guard case .known(let scope) = address else {
            guard case .toldByToken = address, !isDelegated, !engine.options.isOffline else { return perform([.look]) }
            return learnScope()
        }
        endLearning()
        self.scope = scope
        guard !session.revoked else { return }
        if isDelegated || engine.options.isOffline { return perform([.changed]) }
        sync.outbox.isSole = engine.home.role == .leader
        engine.router.follow(self, scope)
        // A new sign-in, or a new entitlement, may have removed what blocked.
        perform(sync.begin(scope.path, of: scope.owner) + [.unblock])
    }

    func end() {
        generation += 1
        perform(sync.end())
        model.ended()
        endLearning()
        learnRetry.succeeded()
        packed = [:]
        scope = nil
    }

    /// Ends for good, and so does all waiting.
    func stop() {
        end()
        for number in sync.waiters.keys.sorted() { endWaiter(number, .failure(DeviceEngine.closed)) }
    }

    /// Begins anew, by itself or by another process of the home.
    func restart() {
        end()
        engine.router.forgetUnused()
        begin()
    }

    /// The session may name another scope than it did: that one is followed from now on. What the other has stays here.
    func rejoin() {
        guard let scope, let session = engine.session, model.scope(in: session) != scope else { return }
        restart()
    }

    /// Which scope it is may have become known, or be another than it was.
    ///
    /// - Returns: Whether it is.
    @discardableResult
    func reconsider() -> Bool {
        guard let session = engine.session, session.signedIn, model.scope(in: session) != scope else { return false }
        restart()
        return true
    }

    /// The app has never had a token on this device: its token tells its scopes.
    private func learnScope() {
        guard !isLearning else { return }
        isLearning = true
        let generation = generation
        engine.tokens.token(for: app) { [weak self] result in
            guard let self, generation == self.generation, scope == nil else { return }
            var pause = Duration.zero
            switch result {
            case .failure(let error):
                note(error)
                pause = engine.failed(&learnRetry, error)
                guard error.code != .deviceRevoked, error.code != .notSignedIn else { return isLearning = false }
                // Nobody tells when the app may.
                if error.code.retry == .never, error.retryAfter == nil { pause = ScopeSync.unblockPause }
            case .success(let token):
                // This token did not tell; the next one may.
                guard case .toldByToken(let absence)? = engine.session.map({ self.model.address(in: $0) }) else {
                    break
                }
                pause = engine.failed(&learnRetry)
                note(absence)
                engine.tokens.discard(token, of: app)
            }
            learnTimer = engine.loop.schedule(after: pause) { [weak self] in
                guard let self, generation == self.generation else { return }
                isLearning = false
                begin()
            }
        }
    }

    private func endLearning() {
        learnTimer?.cancel()
        learnTimer = nil
        isLearning = false
    }

    private func latestNews() throws(CloudError) -> Int64 {
        try engine.local.read { try ScopeTransaction($0, self.model.place(in: self.engine.session)).latestNews() }
    }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    func synchronize() {
        if scope != nil {
            do throws(CloudError) {
                try write { rows in
                    try rows.unblock()
                    try rows.hasten()
                }
            } catch { failed(.freeze, error) }
        }
        engine.tokens.hasten()
        if isDelegated { return askLeader(isImpatient: true) }
        if scope == nil, learnTimer != nil {
            endLearning()
            begin()
        }
        perform(sync.hasten())
        model.hasten()
    }

    /// The connection is there: nothing needs to wait longer.
    func connected() {
        perform(sync.connected())
        model.hasten()
    }

    /// Somebody begins to wait who knows nothing of what was tried before: what only a person could cure may be cured.
    func tryAnew() {
        if let problem = sync.problem, ScopeSync.needsSomebody(problem) { note(nil) }
        synchronize()
    }

    /// Another process of this home has written.
    func foreignWrite() {
        guard scope != nil else { return begin() }
        tellNews()
        // It may have left what this is of, or made another in its place.
        if reconsider() { return }
        perform(sync.push() + [.changed])
    }

    /// The server has turned this device away.
    func turnedAway() {
        sync.turnedAway()
        perform([.changed])
    }

    func pull() { if isDelegated { askLeader(isImpatient: false) } else { perform(sync.beginPull()) } }
    private func askLeader(isImpatient: Bool) {
        wait(for: nil, timeout: .seconds(60), isImpatient: isImpatient) { _ in }
    }
    func push() { perform(sync.push()) }
    func note(_ error: CloudError?) { perform(sync.note(error)) }
    /// What waited for a person may have been cured.
    func unblock() { if sync.isOpen { perform([.unblock]) } }
    private func failed(_ step: ScopeSync.LocalStep, _ error: CloudError) {
        perform(sync.localFailed(step, error, at: moment))
    }

    // MARK: What arrives

    func receive(_ notification: WireNotification) {
        guard notification.reason == .serverChange else { return }
        guard !notification.infoChanged else { return pull() }
        perform(
            sync.notified(
                FeedSegment(
                    previous: notification.previousSequence, token: ChangeToken(notification.token),
                    changes: notification.changes, digest: [UInt8](notification.digest))))
    }

    // MARK: Actions

    /// Does what was decided, and says what came of it.
    func perform(_ actions: [ScopeSync.Action]) {
        let generation = generation
        for action in actions {
            // Whoever was told may have ended all this.
            guard generation == self.generation else { return }
            perform(action)
        }
    }

    private func stage(_ changes: [WireChange], isFirst: Bool, bytes: Int) throws(CloudError) {
        // The log has to take all of it when it is brought in.
        try engine.local.requireRoom(for: bytes, staging: changes.stagedBytes)
        try write { try $0.stage(changes, isFirst: isFirst, by: self.reader) }
    }

    private func perform(_ action: ScopeSync.Action) {
        switch action {
        case .find:
            attempt(
                { try self.read { (try $0.state(), try self.model.greatestSequence(in: $0)) } },
                { self.sync.found($0.head, greatest: $1, epochs: $0.epochs) }, { self.sync.pullFailed($0) })
        case .compare(let server):
            attempt(
                { try self.here(server) },
                { self.sync.localSucceeded(.compare) + self.sync.stands($0, beside: server) },
                { self.sync.localFailed(.compare, $0, at: self.moment) })
        case .read(let request): ask(request)
        case .stage(let changes, let isFirst, let bytes):
            attempt(
                { try self.stage(changes, isFirst: isFirst, bytes: bytes) },
                { self.sync.staged(at: self.engine.loop.monotonicNow) }, { self.sync.pullFailed($0) })
        case .unstage: forgetStage(of: reader)
        case .apply(let pages):
            attempt(
                { try self.write { try self.apply(pages, in: $0) } },
                { self.sync.applied($0, wasListing: pages.isListing) },
                // It may have failed for want of the room that these take.
                { [.unstage] + self.sync.applyFailed($0) })
        case .receive(let segment):
            attempt(
                { try self.write { try self.apply(segment, in: $0) } },
                { self.sync.received(segment, as: $0) }, { self.sync.applyFailed($0) })
        case .collect(let limit):
            attempt(
                { try self.sendable(limit: limit) },
                { self.sync.collected($0, at: self.moment, isServerHeard: self.isServerHeard) },
                { self.sync.localFailed(.collect, $0, at: self.moment) })
        case .freeze(let operations, let isAttempt):
            attempt(
                { try self.freeze(operations, isAttempt: isAttempt) },
                { self.sync.frozen($0) }, { self.sync.localFailed(.freeze, $0, at: self.moment) })
        case .send(let operation): send(operation)
        case .accept(let operation, let reply):
            attempt(
                { try self.write { try self.accept(operation, reply, in: $0) } },
                { self.sync.localSucceeded(.settle) + self.sync.settled(operation, as: $0, at: self.moment) },
                { self.sync.localFailed(.settle, $0, of: operation, at: self.moment) })
        case .update(let operation, let id):
            attempt(
                { try self.write { try $0.update(operation, sentAs: id) } },
                { self.sync.localSucceeded(.settle) },
                { self.sync.localFailed(.settle, $0, of: operation, at: self.moment) })
        case .refuse(let operation, let error):
            attempt(
                { try self.write { try self.refuse(operation, error, in: $0) } },
                { self.sync.localSucceeded(.settle) },
                { self.sync.localFailed(.settle, $0, of: operation, at: self.moment) })
        case .unblock:
            attempt(
                { try self.write { try $0.unblock() } },
                { self.sync.unblocked($0) }, { self.sync.localFailed(.unblock, $0, at: self.moment) })
        case .tellNews: tellNews()
        case .wait(let timer, let time):
            timers[timer]?.cancel()
            timers[timer] = engine.loop.schedule(after: time) { [weak self] in
                guard let self else { return }
                timers[timer] = nil
                perform(sync.due(timer))
            }
        case .stopWaiting(let timer): timers.removeValue(forKey: timer)?.cancel()
        case .changed:
            engine.home.leader.changed(self)
            settleWaiters()
        case .fetched:
            do throws(CloudError) { engine.onEvent(.didFetchChanges(key, try status())) } catch {
                perform(sync.applyFailed(error))
            }
            engine.home.leader.fetched(self)
        case .look: settleWaiters()
        case .finish(let number, let error): finish(number, error)
        case .giveUp(let number): finish(number, ScopeSync.tooLate(try? status()))
        case .endWaiters(let pause, let error, let pulling):
            perform(
                sync.endWaiters(
                    pausedFor: pause, because: error, pulling: pulling, at: engine.loop.monotonicNow))
        }
    }

    private func attempt<Value>(
        _ body: () throws -> Value, _ success: (Value) -> [ScopeSync.Action],
        _ failure: (CloudError) -> [ScopeSync.Action]
    ) {
        let actions: [ScopeSync.Action]
        do { actions = success(try body()) } catch { actions = failure(CloudError(wrapping: error)) }
        perform(actions)
    }

    private func requireScope() throws(CloudError) -> LocalScope {
        guard let scope else { throw CloudError(.operationCancelled, "The scope was left.") }
        return scope
    }

    func read<Value>(_ body: (ScopeTransaction) throws -> Value) throws(CloudError) -> Value {
        let scope = try requireScope()
        return try engine.local.read { try body(ScopeTransaction($0, scope)) }
    }

    /// - Throws: ``CloudError`` `.operationCancelled` when another process has signed another account in, of which this
    ///   one has not heard yet: what was discarded with its account must not come back.
    func write<Value>(_ body: (ScopeTransaction) throws -> Value) throws(CloudError) -> Value {
        let scope = try requireScope()
        return try engine.local.write { database in
            guard try Facts(database).session?.accountID == scope.account else { throw DeviceEngine.replaced }
            return try body(ScopeTransaction(database, scope))
        }
    }

    private func here(_ server: ServerHead) throws(CloudError) -> Standing {
        try read { rows in
            let state = try rows.state()
            return Standing(
                head: state.head, isSynced: state.synced,
                differs: try differs(state, from: server.digest, in: rows))
        }
    }

    private func ask(_ request: WireReadChanges) {
        let generation = generation
        engine.call(model.service, request, as: WireReadChangesReply.self, app: app) { [weak self] result, _ in
            guard let self, generation == self.generation else { return }
            switch result {
            case .success(let page): perform(sync.page(page))
            case .failure(let error): perform(sync.pullFailed(error))
            }
        }
    }

    /// Pending operations that are searched for one that may be sent.
    private static let readMax = 1024

    private func sendable(limit: Int) throws(CloudError) -> [OutboxOperation] {
        var hasUploads = false
        let sendable: [OutboxOperation] = try read { rows in
            guard try rows.state().synced else { return [] }
            var limit = limit
            /// - Returns: The operations that wait for nothing, and whether there may be more behind them.
            func find() throws -> (ready: [OutboxOperation], isCut: Bool) {
                let found = try rows.sendable(limit: limit)
                let held = try model.preparations(among: found, in: rows)
                hasUploads = hasUploads || held.values.contains(where: \.isForContent)
                return (found.filter { held[$0.position] == nil }, found.count == limit)
            }
            var (waiting, isCut) = try find()
            // Operations that wait for an upload or a pause do not block those behind them.
            while waiting.isEmpty, isCut, limit < Self.readMax {
                limit *= 2
                (waiting, isCut) = try find()
            }
            // The server has no room for the first: an operation that makes some may be anywhere behind it.
            let isFull = waiting.contains(where: \.waitsForRoom)
            if isFull, limit < Self.readMax {
                limit = Self.readMax
                (waiting, _) = try find()
            }
            try model.arrange(&waiting, isFull: isFull, in: rows)
            // Operations that keep their order do not pass one that is blocked until a person acts.
            guard waiting.contains(where: \.goesAlone), let blocked = try rows.firstBlocked()?.position else {
                return waiting
            }
            return waiting.filter { !$0.goesAlone || $0.position < blocked }
        }
        model.continueTransfers(hasUploads: hasUploads)
        return sendable
    }

    private func freeze(_ operations: [OutboxOperation], isAttempt: Bool) throws(CloudError) -> [OutboxOperation] {
        let frozen = try write { rows in
            try operations.compactMap { operation in
                try rows.freeze(operation, counts: isAttempt, makeID: engine.makeOperationID)
                    .map { ($0, try model.pack($0, in: rows)) }
            }
        }
        for (operation, request) in frozen { packed[operation.position] = request }
        return frozen.map(\.0)
    }

    private func send(_ operation: OutboxOperation) {
        guard let request = packed.removeValue(forKey: operation.position) else { return }
        let generation = generation
        var isHandedOver = false
        engine.call(model.service, request, app: app, id: operation.id, onSend: { isHandedOver = true }) {
            [weak self] result, budget in
            guard let self, generation == self.generation else { return }
            let answer = PushAnswer(
                operation: operation, result: result, wasHandedOver: isHandedOver, budget: budget)
            perform(sync.answered(answer, at: moment))
        }
    }

    func emit(_ notification: ChangeNotification) { engine.onEvent(.change(key, notification)) }

    /// Tells the app what any process of this home has brought in since it was told last.
    private func tellNews() {
        guard scope != nil else { return }
        do throws(CloudError) {
            let before = told ?? 0
            let (latest, notifications) = try read { rows in
                let news = try rows.news(after: before)
                return (news.latest, try model.notifications(of: news, in: rows))
            }
            told = latest
            perform(sync.localSucceeded(.tell))
            for notification in notifications { emit(notification) }
        } catch { failed(.tell, error) }
    }
}
