import NephosBus
import NephosCore
import NephosWire

/// The device's subscription: one connection to notifications, on which each
/// scope is followed with its app's token, and whose deliveries go to the scopes that they are of.
///
/// Subscribes again after each reconnect (the server says that it does not know
/// the connection), with each new token, and over a new connection when three
/// heartbeats are missed. It polls nothing.
final class SubscriptionRouter {
    private static let missedBeatsMax = 3
    private unowned let engine: DeviceEngine
    private var client: RequestClient?
    private var heartbeat: Duration = .seconds(10)
    private var lastHeard: Duration = .zero
    private var watchdog: (any LoopTimer)?
    private var subscriptions: [Followed: Subscription] = [:]
    private lazy var account = AccountFollower(engine)

    /// A scope that is followed with the token of an app.
    private struct Followed: Hashable, Comparable {
        var app: AppID
        var service: ServiceName
        /// Nil: the account's.
        var owner: Owner?
        var path: String

        static func < (left: Followed, right: Followed) -> Bool {
            (left.app, left.service, left.owner?.rawValue ?? "", left.path)
                < (right.app, right.service, right.owner?.rawValue ?? "", right.path)
        }
    }

    private struct Subscription {
        var active = false
        var inFlight = false
        var retry = Retry(.subscription)
        /// Why it is not active, as far as is known.
        var problem: CloudError?
        /// While the token is as old as before.
        var renewal = Retry()
        var timer: (any LoopTimer)?
    }

    init(_ engine: DeviceEngine) { self.engine = engine }

    func isFollowing(_ driver: ScopeDriver) -> Bool {
        guard let scope = driver.scope else { return false }
        return subscriptions[followed(driver, scope)]?.active ?? false
    }

    /// Why the scope is not followed; nil: it is, or that is not known yet.
    func problem(of driver: ScopeDriver) -> CloudError? {
        driver.scope.flatMap { subscriptions[followed(driver, $0)]?.problem }
    }

    /// Follows the scope from now on.
    func follow(_ driver: ScopeDriver, _ scope: LocalScope) {
        let followed = followed(driver, scope)
        guard subscriptions[followed] == nil else { return }
        subscriptions[followed] = Subscription()
        subscribe(followed)
    }

    /// What no scope is of any more is not subscribed to again.
    func forgetUnused() {
        for followed in subscriptions.keys.sorted() where drivers(of: followed).isEmpty {
            subscriptions.removeValue(forKey: followed)?.timer?.cancel()
        }
    }

    private func followed(_ driver: ScopeDriver, _ scope: LocalScope) -> Followed {
        let own = scope.account.map { Owner($0) }
        return Followed(
            app: driver.app, service: scope.service, owner: scope.owner == own ? nil : scope.owner, path: scope.path)
    }

    /// Those that a delivery about this scope is for.
    private func drivers(of service: String, _ owner: String, _ path: String) -> [ScopeDriver] {
        engine.scopes.filter {
            guard let scope = $0.scope, scope.service.rawValue == service, scope.path == path else { return false }
            return owner == (scope.owner?.rawValue ?? scope.account?.rawValue)
        }
    }

    private func drivers(of followed: Followed) -> [ScopeDriver] {
        engine.scopes.filter { driver in driver.scope.map { self.followed(driver, $0) } == followed }
    }

    func stop() {
        watchdog?.cancel()
        watchdog = nil
        for followed in subscriptions.keys {
            subscriptions[followed]?.timer?.cancel()
            subscriptions[followed]?.active = false
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

    private func subscribe(_ followed: Followed) {
        guard !engine.stopped, let subscription = subscriptions[followed], !subscription.inFlight else { return }
        subscriptions[followed]?.timer?.cancel()
        subscriptions[followed]?.inFlight = true
        let signIn = engine.session?.secrets
        engine.tokens.token(for: followed.app) { [weak self] result in
            guard let self, !self.engine.stopped, self.subscriptions[followed] != nil,
                signIn == self.engine.session?.secrets
            else { return }
            switch result {
            case .failure(let error): self.failed(followed, error)
            case .success(let token): self.subscribe(followed, token: token)
            }
        }
    }

    private func subscribe(_ followed: Followed, token: String) {
        do {
            var wire = WireSubscribe()
            var scope = WireSubscribedScope()
            scope.service = followed.service.rawValue
            scope.owner = followed.owner?.rawValue ?? ""
            scope.scope = followed.path
            wire.scopes = [scope]
            let client = try connect()
            client.call(
                "Subscribe", body: Frame(encoding: wire), accessToken: token, timeout: engine.options.timeout,
                id: engine.makeOperationID()
            ) { [weak self, weak client] reply in
                self?.engine.learnTime(reply)
                guard let self, let client, client === self.client, self.subscriptions[followed] != nil
                else { return }
                self.heard()
                switch reply.result.decoded(as: WireSubscribeReply.self) {
                case .failure(let error):
                    if error.code == .tokenExpired || error.code == .notAuthenticated {
                        self.engine.tokens.discard(token, of: followed.app)
                    }
                    if error.code == .deviceRevoked { self.engine.turnedAway(error) }
                    self.failed(followed, error)
                case .success(let reply):
                    self.subscribed(followed, reply)
                    self.account.begin(on: client, token: token)
                }
            }
        } catch {
            failed(followed, CloudError(wrapping: error))
        }
    }

    private func connect() throws -> RequestClient {
        if let client { return client }
        guard let session = engine.session,
            let address = session.services.first(where: { $0.service == ServiceName.notifications.rawValue })
        else { throw CloudError(.serviceUnavailable, "The deployment has no notifications service.") }
        let client = try engine.makeClient(to: address, endpoints: address.subscriptions)
        client.onDelivery = { [weak self] in self?.deliver($0) }
        client.onRefused = { [weak self] in self?.refused($0) }
        self.client = client
        lastHeard = engine.loop.monotonicNow
        return client
    }

    private func subscribed(_ followed: Followed, _ reply: WireSubscribeReply) {
        if reply.heartbeatMilliseconds > 0 { heartbeat = .milliseconds(Int64(reply.heartbeatMilliseconds)) }
        subscriptions[followed]?.inFlight = false
        subscriptions[followed]?.active = true
        subscriptions[followed]?.retry.succeeded()
        subscriptions[followed]?.problem = nil
        watch()
        // A subscription ends with its token: renew both in time.
        if let due = engine.tokens.refreshIn(followed.app) {
            // Whoever makes tokens may be away for long.
            var renewal = due > .zero ? Retry() : subscriptions[followed]?.renewal ?? Retry()
            let pause = due > .zero ? .zero : engine.failed(&renewal)
            subscriptions[followed]?.renewal = renewal
            let wait = max(.seconds(1), due + .milliseconds(50), pause)
            subscriptions[followed]?.timer = engine.loop.schedule(after: wait) { [weak self] in self?.renew(followed) }
        }
        for head in reply.heads { route(head, isAnswer: true) }
        for driver in drivers(of: followed) { driver.connected() }
    }

    private func renew(_ followed: Followed) {
        // The first call starts the renewal; the subscription follows with the new token.
        let signIn = engine.session?.secrets
        engine.tokens.token(for: followed.app) { [weak self] _ in
            guard let self, self.subscriptions[followed] != nil, signIn == self.engine.session?.secrets
            else { return }
            self.subscriptions[followed]?.timer = self.engine.loop.schedule(after: .seconds(2)) { [weak self] in
                self?.subscribe(followed)
            }
        }
    }

    /// Nobody listens at the address. The attempts go on.
    private func refused(_ error: CloudError) {
        for (followed, subscription) in subscriptions where subscription.inFlight {
            subscriptions[followed]?.problem = error
        }
        for driver in engine.scopes { driver.perform([.changed]) }
    }

    private func failed(_ followed: Followed, _ error: CloudError) {
        guard var subscription = subscriptions[followed] else { return }
        let pause = engine.failed(&subscription.retry, error)
        (subscription.inFlight, subscription.active, subscription.problem) = (false, false, error)
        subscriptions[followed] = subscription
        for driver in drivers(of: followed) {
            driver.perform([.changed])
            // What that is answered with says why the copy stays as it is.
            if error.code == .missingEntitlement, subscription.retry.attempts == 1 { driver.pull() }
        }
        guard engine.session?.signedIn == true, engine.session?.revoked == false else { return }
        subscriptions[followed]?.timer = engine.loop.schedule(after: pause) { [weak self] in
            self?.subscribe(followed)
        }
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
        for followed in subscriptions.keys.sorted() {
            subscriptions[followed]?.active = false
            subscriptions[followed]?.inFlight = false
            subscribe(followed)
        }
        for driver in engine.scopes { driver.perform([.changed]) }
    }

    private func deliver(_ reply: ReplyEnvelope) {
        heard()
        guard case .success(let delivery) = reply.result.decoded(as: WireDelivery.self) else { return }
        for notification in delivery.notifications {
            if ServiceName(notification.service) == .identity {
                account.receive(notification)
                continue
            }
            for driver in drivers(of: notification.service, notification.owner, notification.scope) {
                driver.receive(notification)
            }
        }
        for head in delivery.heads { route(head, lagging: delivery.lagging) }
        if delivery.lagging, delivery.heads.isEmpty {
            for driver in engine.scopes { driver.pull() }
        }
        if delivery.lagging { account.lagged() }
        if delivery.heartbeat { compare(Int(delivery.scopeCount)) }
        if delivery.hasEnded { ended(CloudError(delivery.ended)) }
    }

    private func route(_ head: WireScopeHead, lagging: Bool = false, isAnswer: Bool = false) {
        account.heard(head)
        for driver in drivers(of: head.service, head.owner, head.scope) {
            if lagging || head.unknown {
                driver.pull()
            } else {
                let heard = ServerHead(
                    token: ChangeToken(head.token), digest: [UInt8](head.digest), isAnswer: isAnswer)
                driver.perform(driver.sync.heard(heard))
            }
        }
    }

    /// Subscribes to all scopes again when the connection follows fewer than are believed: that they ended was lost.
    private func compare(_ scopeCount: Int) {
        let active = Set(
            subscriptions.filter(\.value.active).keys.map {
                LocalScope(service: $0.service, owner: $0.owner, path: $0.path)
            })
        guard scopeCount < active.count + (account.isFollowing ? 1 : 0) else { return }
        ended(CloudError(.notAuthenticated, "The server follows fewer scopes for this device than it believed."))
    }

    private func ended(_ error: CloudError) {
        if error.code == .deviceRevoked { return engine.turnedAway(error) }
        account.end()
        if error.code == .tokenExpired {
            // Before anybody asks for another, which may serve for all of the app's scopes.
            for app in Set(subscriptions.keys.map(\.app)).sorted() { engine.tokens.discardHeld(of: app) }
        }
        for followed in subscriptions.keys.sorted() {
            subscriptions[followed]?.active = false
            // A subscription on its way was sent before this and may be lost.
            subscriptions[followed]?.inFlight = false
            subscribe(followed)
        }
    }
}
