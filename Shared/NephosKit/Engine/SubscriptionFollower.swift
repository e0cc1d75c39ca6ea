import Bus
import Core
import Wire

/// The device's subscription: one connection to notifications, on which each
/// app's store is followed with that app's token.
///
/// Subscribes again after each reconnect (the server says that it does not know
/// the connection), with each new token, and over a new connection when three
/// heartbeats are missed. It polls nothing.
final class SubscriptionFollower {
    private static let missedBeatsMax = 3
    private unowned let engine: DeviceEngine
    private var client: RequestClient?
    private var heartbeat: Duration = .seconds(10)
    private var lastHeard: Duration = .zero
    private var watchdog: (any LoopTimer)?
    private var subscriptions: [AppID: Subscription] = [:]
    private lazy var account = AccountFollower(engine)

    private struct Subscription {
        var store: StoreID
        var active = false
        var inFlight = false
        var attempts = 0
        var timer: (any LoopTimer)?
    }

    init(_ engine: DeviceEngine) { self.engine = engine }

    func isFollowing(_ app: AppID) -> Bool { subscriptions[app]?.active ?? false }

    /// Follows the app's store from now on.
    func follow(_ app: AppID, store: StoreID) {
        if subscriptions[app]?.store == store { return }
        subscriptions[app]?.timer?.cancel()
        subscriptions[app] = Subscription(store: store)
        subscribe(app)
    }

    func stop() {
        watchdog?.cancel()
        watchdog = nil
        for app in subscriptions.keys {
            subscriptions[app]?.timer?.cancel()
            subscriptions[app]?.active = false
        }
        client?.close()
        client = nil
        account.end()
    }

    /// Forgets the connection and what was followed; the stores begin anew.
    func restart() {
        stop()
        subscriptions = [:]
    }

    // MARK: Subscribing

    private func subscribe(_ app: AppID) {
        guard !engine.stopped, let subscription = subscriptions[app], !subscription.inFlight else { return }
        subscriptions[app]?.timer?.cancel()
        subscriptions[app]?.inFlight = true
        engine.tokens.token(for: app) { [weak self] result in
            guard let self, !self.engine.stopped, self.subscriptions[app]?.store == subscription.store else { return }
            switch result {
            case .failure(let error): self.failed(app, error)
            case .success(let token): self.subscribe(app, store: subscription.store, token: token)
            }
        }
    }

    private func subscribe(_ app: AppID, store: StoreID, token: String) {
        do {
            var wire = WireSubscribe()
            var scope = WireSubscribedScope()
            scope.service = ServiceName.keyValue.rawValue
            scope.scope = store.rawValue
            wire.scopes = [scope]
            let client = try connect()
            client.call(
                "Subscribe", body: Frame(encoding: wire), accessToken: token, timeout: engine.options.timeout,
                id: engine.makeOperationID()
            ) { [weak self, weak client] reply in
                self?.engine.learnTime(reply)
                guard let self, let client, client === self.client, self.subscriptions[app]?.store == store
                else { return }
                self.heard()
                switch reply.result.decoded(as: WireSubscribeReply.self) {
                case .failure(let error):
                    if error.code == .tokenExpired || error.code == .notAuthenticated {
                        self.engine.tokens.discard(token, of: app)
                    }
                    if error.code == .deviceRevoked { self.engine.turnedAway(error) }
                    self.failed(app, error)
                case .success(let reply):
                    self.subscribed(app, reply)
                    self.account.begin(on: client, token: token)
                }
            }
        } catch {
            failed(app, CloudError(wrapping: error))
        }
    }

    private func connect() throws -> RequestClient {
        if let client { return client }
        guard let session = engine.session,
            let address = session.services.first(where: { $0.service == ServiceName.notifications.rawValue })
        else { throw CloudError(.serviceUnavailable, "The deployment has no notifications service.") }
        let client = try engine.makeClient(to: address, endpoints: address.subscriptions)
        client.onDelivery = { [weak self] in self?.deliver($0) }
        self.client = client
        lastHeard = engine.loop.monotonicNow
        return client
    }

    private func subscribed(_ app: AppID, _ reply: WireSubscribeReply) {
        if reply.heartbeatMilliseconds > 0 { heartbeat = .milliseconds(Int64(reply.heartbeatMilliseconds)) }
        subscriptions[app]?.inFlight = false
        subscriptions[app]?.active = true
        subscriptions[app]?.attempts = 0
        watch()
        // A subscription ends with its token: renew both in time.
        if let due = engine.tokens.refreshIn(app) {
            let wait = max(.seconds(1), due + .milliseconds(50))
            subscriptions[app]?.timer = engine.loop.schedule(after: wait) { [weak self] in self?.renew(app) }
        }
        for head in reply.heads { route(head, isAnswer: true) }
        engine.openStores.first { $0.app == app }?.connected()
    }

    private func renew(_ app: AppID) {
        // The first call starts the renewal; the subscription follows with the new token.
        engine.tokens.token(for: app) { [weak self] _ in
            guard let self, self.subscriptions[app] != nil else { return }
            self.subscriptions[app]?.timer = self.engine.loop.schedule(after: .seconds(2)) { [weak self] in
                self?.subscribe(app)
            }
        }
    }

    private func failed(_ app: AppID, _ error: CloudError) {
        guard let attempts = subscriptions[app].map({ $0.attempts + 1 }) else { return }
        subscriptions[app]?.inFlight = false
        subscriptions[app]?.active = false
        subscriptions[app]?.attempts = attempts
        engine.openStores.first { $0.app == app }?.changed()
        guard engine.session?.signedIn == true, engine.session?.revoked == false else { return }
        let pause = min(error.retryAfter ?? min(.seconds(30), engine.backoff(attempts: attempts)), .seconds(3600))
        subscriptions[app]?.timer = engine.loop.schedule(after: pause) { [weak self] in self?.subscribe(app) }
    }

    // MARK: Deliveries

    private func heard() { lastHeard = engine.loop.monotonicNow }

    private func watch() {
        guard watchdog == nil else { return }
        watchdog = engine.loop.schedule(after: heartbeat) { [weak self] in
            guard let self, !self.engine.stopped else { return }
            self.watchdog = nil
            if self.engine.loop.monotonicNow - self.lastHeard >= self.heartbeat * Self.missedBeatsMax {
                self.reconnect()
            } else {
                self.watch()
            }
        }
    }

    private func reconnect() {
        client?.close()
        client = nil
        account.end()
        for app in subscriptions.keys.sorted() {
            subscriptions[app]?.active = false
            subscriptions[app]?.inFlight = false
            subscribe(app)
        }
        for store in engine.openStores { store.changed() }
    }

    private func deliver(_ reply: ReplyEnvelope) {
        heard()
        guard case .success(let delivery) = reply.result.decoded(as: WireDelivery.self) else { return }
        for notification in delivery.notifications {
            if ServiceName(notification.service) == .identity {
                account.receive(notification)
                continue
            }
            guard ServiceName(notification.service) == .keyValue else { continue }
            for store in engine.openStores where store.scope?.store == StoreID(notification.scope) {
                store.receive(notification)
            }
        }
        for head in delivery.heads { route(head, lagging: delivery.lagging) }
        if delivery.lagging, delivery.heads.isEmpty {
            for store in engine.openStores { store.pull() }
        }
        if delivery.hasEnded { ended(CloudError(delivery.ended)) }
    }

    private func route(_ head: WireScopeHead, lagging: Bool = false, isAnswer: Bool = false) {
        guard ServiceName(head.service) == .keyValue else { return }
        for store in engine.openStores where store.scope?.store == StoreID(head.scope) {
            if lagging || head.unknown {
                store.pull()
            } else {
                store.noteServerHead(
                    ServerHead(token: ChangeToken(head.token), digest: [UInt8](head.digest), isAnswer: isAnswer))
            }
        }
    }

    private func ended(_ error: CloudError) {
        if error.code == .deviceRevoked { return engine.turnedAway(error) }
        account.end()
        for app in subscriptions.keys.sorted() {
            subscriptions[app]?.active = false
            if error.code == .tokenExpired {
                engine.tokens.token(for: app) { [weak self] result in
                    if case .success(let token) = result { self?.engine.tokens.discard(token, of: app) }
                }
            }
            // A subscription on its way was sent before this and may be lost.
            subscriptions[app]?.inFlight = false
            subscribe(app)
        }
    }
}
