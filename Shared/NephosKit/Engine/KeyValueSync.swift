internal import Bus
public import Core
internal import GRDB
internal import Wire

/// Keeps one app's key-value store in step with the server.
///
/// The truth is on disk: each step reads what it needs inside its transaction,
/// so that another process of the same home may do the same at the same time.
public final class KeyValueSync {
    public let app: AppID
    unowned let engine: DeviceEngine
    /// Nil: signed out, or the server has not told the app's store id yet.
    private(set) var scope: StoreScope?

    /// Decides what is done next.
    var sync: ScopeSync
    var timers: [ScopeSync.Timer: any LoopTimer] = [:]
    /// What is about to be sent, by its operation's position.
    var packed: [Int64: WirePushKeys] = [:]
    /// Until the app's token is asked for once more.
    private var learnTimer: (any LoopTimer)?
    private var learnFailures = 0
    /// How far in the home's news this process has told the app.
    private var told: Int64 = 0
    /// Of those who wait, by the numbers that name them.
    var completions: [Int: (Result<Void, CloudError>) -> Void] = [:]
    /// Calls that began under an earlier session are not heard any more.
    var generation = 0

    init(app: AppID, engine: DeviceEngine) {
        self.app = app
        self.engine = engine
        var options = ScopeSync.Options()
        options.gapGrace = engine.options.gapGrace
        options.pageItemsMax = engine.options.pageItemsMax
        options.pushesInFlightMax = engine.options.pushesInFlightMax
        options.writer = engine.writer
        sync = ScopeSync(options: options, generator: engine.makeGenerator())
    }

    /// Why the store as a whole is not current.
    var problem: CloudError? { sync.problem }

    // MARK: Life

    func begin() {
        // Who waits for what an account has need not wait when there is none.
        guard let session = engine.session, session.signedIn else { return settleWaiters() }
        guard let scope = session.scope(of: app) else { return learnScope() }
        self.scope = scope
        do throws(CloudError) {
            told = try engine.local.read { try StoreTransaction($0, scope).latestNews() }
        } catch { note(error) }
        guard !session.revoked else { return }
        // A new sign-in, or a new entitlement, may have removed what blocked.
        do throws(CloudError) { try engine.local.write { try StoreTransaction($0, scope).unblock() } } catch {
            note(error)
        }
        engine.follower.follow(app, store: scope.store)
        perform(sync.begin(scope.store.rawValue))
    }

    func end() {
        generation += 1
        perform(sync.end())
        learnTimer?.cancel()
        learnTimer = nil
        learnFailures = 0
        packed = [:]
        scope = nil
    }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    func synchronize() {
        if let scope {
            do throws(CloudError) { try engine.local.write { try StoreTransaction($0, scope).hasten() } } catch {
                note(error)
            }
        }
        engine.tokens.hasten()
        perform(sync.hasten())
    }

    /// The app has never had a token on this device: its token tells its store.
    private func learnScope() {
        let generation = generation
        engine.tokens.token(for: app) { [weak self] result in
            guard let self, generation == self.generation, self.scope == nil else { return }
            self.learnFailures += 1
            var pause = self.engine.backoff(attempts: self.learnFailures)
            switch result {
            case .failure(let error):
                self.note(error)
                guard error.code.retry != .never else { return }
                pause = error.retryAfter ?? pause
            case .success where self.engine.session?.scope(of: self.app) != nil: pause = .zero
            case .success(let token):
                // This token did not tell; the next one may.
                self.note(CloudError(.missingEntitlement, "The app has no key-value store."))
                self.engine.tokens.discard(token, of: self.app)
            }
            self.learnTimer = self.engine.loop.schedule(after: pause) { [weak self] in
                guard let self, generation == self.generation else { return }
                self.begin()
            }
        }
    }

    /// The subscription is there: the network works, so nothing needs to wait longer.
    func connected() { perform(sync.connected()) }

    /// The server has turned this device away.
    func turnedAway() {
        sync.turnedAway()
        changed()
    }

    // MARK: The app's writes

    /// Accepts writes, all or none, and sends them when they can be.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` and `.invalidArguments`: nothing is stored.
    public func write(_ writes: [LocalWrite]) throws(CloudError) {
        do throws(CloudError) {
            try engine.local.accept(
                writes, app: app, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        } catch {
            refusedHere(writes, error)
            throw error
        }
        pump()
    }

    /// Tells of a write that this device refused by itself, as of one that the server refused.
    func refusedHere(_ writes: [LocalWrite], _ error: CloudError) {
        guard error.code == .quotaExceeded else { return }
        emit(ChangeNotification(reason: .quotaViolationChange, changedKeys: writes.map(\.key), error: error))
    }

    public func set(_ value: PropertyValue?, forKey key: ItemName) throws(CloudError) {
        try write([LocalWrite(key: key, value: value)])
    }

    public func read(_ key: ItemName) throws(CloudError) -> ReadResult { try engine.local.read(key, app: app) }

    public func dictionary() throws(CloudError) -> [ItemName: PropertyValue] { try engine.local.dictionary(app: app) }

    /// Offers what was written while signed out to the account that is signed in now.
    public func adoptSignedOutContent() throws(CloudError) -> [ItemName] {
        let keys = try engine.local.adoptSignedOutContent(
            app: app, writer: engine.writer, now: engine.now, makeID: engine.makeOperationID)
        pump()
        return keys
    }

    // MARK: Events

    func emit(_ notification: ChangeNotification) { engine.onEvent(.change(app: app, notification)) }

    func changed() {
        engine.onEvent(.statusChanged(app: app))
        settleWaiters()
    }

    func note(_ error: CloudError?) { perform(sync.note(error)) }

    /// Tells the app which of these keys look different to it now.
    func announce(
        _ before: [ItemName: KeyValueItem?], in store: StoreTransaction, head: ChangeToken
    ) throws -> ChangeNotification? {
        var items: [KeyValueItem] = []
        for key in before.keys.sorted() {
            let now = try store.visible(key)
            if now?.value != before[key]??.value, let now { items.append(now) }
        }
        guard !items.isEmpty else { return nil }
        let device = items[0].deviceID
        return ChangeNotification(
            reason: .serverChange, changedKeys: items.map(\.key), items: items,
            device: items.allSatisfy { $0.deviceID == device } ? device : nil, token: head)
    }

    /// Another process of this home has written.
    func foreignWrite() {
        guard scope != nil else { return begin() }
        tellNews()
        pump()
        changed()
    }

    /// Tells the app what any process of this home has brought in since it was told last.
    func tellNews() {
        guard let scope else { return }
        do throws(CloudError) {
            let before = told
            let (news, all, head) = try engine.local.read { database in
                let store = StoreTransaction(database, scope)
                let news = try store.news(after: before)
                let all = news.isComplete ? [] : try store.visibleItems().values.sorted { $0.key < $1.key }
                return (news, all, try store.state().head)
            }
            told = news.latest
            if !news.isComplete {
                // It has slept through so many that some are gone: anything may have changed.
                emit(
                    ChangeNotification(
                        reason: .serverChange, changedKeys: all.map(\.key), items: all, token: head))
            }
            for notification in news.notifications { emit(notification) }
        } catch { note(error) }
    }
}
