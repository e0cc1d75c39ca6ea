internal import Bus
internal import Core
internal import ServiceKit
internal import Wire

private import struct Foundation.Data

/// The ROUTER on which devices subscribe, and on which they are told.
///
/// Nobody is waited for: a device whose queue is full is marked as lagging and
/// told to refetch once it drains.
final class SubscriptionDoor {
    static let revoked = CloudError(.deviceRevoked, "This device was revoked or signed out. Sign in again.")
    private static let tokenEnded = CloudError(
        .tokenExpired, "The access token has run out. Subscribe again with a new one.")
    static let entitlementsChanged = CloudError(
        .tokenExpired, "What the app may use has changed. Subscribe again with a new token.")
    private static let unknownConnection = CloudError(
        .notAuthenticated, "The server does not know this connection. Subscribe again.")

    /// How soon a lagging device is tried again.
    private static let lagPause: Duration = .milliseconds(50)
    /// Parts into which the heartbeat is spread, so that it is no burst.
    private static let beatsPerRound = 20
    /// What one connection may have sent and the service not looked at yet.
    private static let unreadBytesPerConnectionMax = 1 << 20
    /// Deliveries that one connection has not taken, in bytes, before it counts as lagging.
    private static let unsentBytesPerConnectionMax = 2 << 20

    let host: any ServiceRuntime
    let configuration: NotificationsConfiguration
    var table = SubscriptionTable()
    var heads = HeadCache()
    private var loader: HeadLoader?
    private var batch = DeliveryBatch()
    private var socket: (any ReplySocket)?
    private var beatIndex = 0
    /// Connections that are due, in parts of a round.
    private var beatDue = 0
    private var beatTimer: (any LoopTimer)?
    private var flushTimer: (any LoopTimer)?
    private var lagTimer: (any LoopTimer)?

    var endpoint: String { socket?.endpoint ?? "" }

    init(host: any ServiceRuntime, configuration: NotificationsConfiguration) throws {
        self.host = host
        self.configuration = configuration
        loader = HeadLoader(host: host)
        let entry = try host.roster.entry(of: .notifications)
        guard let endpoint = entry.subscriptions else {
            throw CloudError(.configurationInvalid, "The roster has no `subscriptions` address for notifications.")
        }
        let options = ReplySocketOptions(
            endpoint: endpoint, keys: host.keys, unreadBytesPerConnectionMax: Self.unreadBytesPerConnectionMax,
            sendQueueMax: configuration.subscriberQueueMax,
            unsentBytesPerConnectionMax: Self.unsentBytesPerConnectionMax)
        var router = Router()
        router.direct(WireSubscribe.self) { [weak self] in try self?.subscribe($0, $1, answer: $2) }
        router.direct(WireUnsubscribe.self) { [weak self] in try self?.unsubscribe($0, $1, answer: $2) }
        socket = try host.openDoor(options, router) { [weak self] in self?.welcome($0) }
        scheduleBeat()
    }

    func close() {
        for timer in [beatTimer, flushTimer, lagTimer] { timer?.cancel() }
        socket?.close()
        socket = nil
    }

    func forgetHeads(of service: ServiceName) { heads.forget(service) }

    // MARK: What devices ask

    /// A connection is new, and so is not subscribed: whoever believes it still
    /// is (the server was restarted, the line was cut) learns it now.
    private func welcome(_ peer: Peer) {
        if table.subscriber(peer) == nil { tell(peer, ended: Self.unknownConnection) }
    }

    private func subscribe(
        _ request: WireSubscribe, _ context: RequestContext, answer: @escaping (WireSubscribeReply) -> Void
    ) throws(CloudError) {
        let caller = try context.requireCaller()
        let keys = try Self.keys(request.scopes, caller)
        // Registered before the heads are known: what happens in between is
        // delivered as well as contained in the head, and so never missed.
        _ = try table.subscribe(context.peer, as: caller, to: keys, limits: configuration)
        host.count("subscribe.requests", by: 1)
        let unknown = keys.filter { heads[$0] == nil }
        guard !unknown.isEmpty else { return answer(reply(keys)) }
        loader?.load(unknown) { [weak self] loaded in
            guard let self else { return }
            // What a service that does not answer has is marked in the reply, and told later.
            for (key, head) in loaded { heads.note(head, of: key) }
            answer(reply(keys))
        }
    }

    private func unsubscribe(
        _ request: WireUnsubscribe, _ context: RequestContext, answer: (WireUnsubscribeReply) -> Void
    ) throws(CloudError) {
        table.unsubscribe(context.peer, from: try Self.keys(request.scopes, try context.requireCaller()))
        answer(WireUnsubscribeReply())
    }

    /// The scopes asked for, each once, if the caller's app may see each of them.
    private static func keys(_ scopes: [WireSubscribedScope], _ caller: Caller) throws(CloudError) -> [ScopeKey] {
        guard !scopes.isEmpty else {
            throw CloudError(.invalidArguments, "A subscription must name at least one scope.")
        }
        var keys: [ScopeKey] = []
        var seen: Set<ScopeKey> = []
        for wire in scopes {
            let service = ServiceName(wire.service)
            let scope = ItemName(wire.scope)
            let isEntitled =
                service == .identity ? scope == accountScopeName : caller.entitlements.include(scope, of: service)
            guard isEntitled, !scope.isEmpty else {
                throw CloudError(.missingEntitlement, "The app does not list this scope, or it does not exist.")
            }
            let key = ScopeKey(account: caller.account, service: service, scope: scope)
            if seen.insert(key).inserted { keys.append(key) }
        }
        return keys
    }

    private func reply(_ keys: [ScopeKey]) -> WireSubscribeReply {
        var reply = WireSubscribeReply()
        reply.heads = keys.map(head)
        reply.heartbeatMilliseconds = UInt32(clamping: configuration.heartbeat.milliseconds)
        return reply
    }

    private func head(_ key: ScopeKey) -> WireScopeHead {
        var head = WireScopeHead()
        head.service = key.service.rawValue
        head.scope = key.scope.rawValue
        let known = heads[key]
        head.token = WireChangeToken(known?.token ?? .zero)
        head.digest = known?.digest ?? Data()
        head.unknown = known == nil
        return head
    }

    /// The heads of a heartbeat. What is not known is left out, and asked for until it is.
    private func knownHeads(_ keys: [ScopeKey]) -> [WireScopeHead] {
        let unknown = keys.filter { heads[$0] == nil && loader?.isLoading($0) == false }
        if !unknown.isEmpty {
            loader?.load(unknown) { [weak self] loaded in
                for (key, head) in loaded { self?.heads.note(head, of: key) }
            }
        }
        return keys.filter { heads[$0] != nil }.map(head)
    }

    // MARK: What devices are told

    /// Takes an event in; it is sent with all others of its batch, once the batch has been handled.
    func deliver(_ notification: ServiceEvent.Notification, to key: ScopeKey) {
        heads.note(HeadCache.Head(token: notification.token, digest: notification.digest), of: key)
        guard table.isFollowed(key) else { return }
        let isFirst = batch.isEmpty
        batch.add(notification, to: key)
        if isFirst {
            flushTimer = host.loop.schedule(after: .zero) { [weak self] in self?.flush() }
        }
    }

    private func flush() {
        let batch = batch
        self.batch = DeliveryBatch()
        let now = host.loop.wallClock.now
        var delivered = 0
        for key in batch.scopes {
            let common = batch.messages(for: key, to: nil)
            let originators = batch.originators(of: key)
            for subscriber in table.subscribers(to: key) where subscriber.expires > now {
                let messages =
                    originators.contains(subscriber.device)
                    ? batch.messages(for: key, to: subscriber.device) : common
                guard !messages.isEmpty else { continue }
                if subscriber.isLagging {
                    miss(key, subscriber)
                    continue
                }
                for message in messages {
                    guard send(message, to: subscriber, about: key) else { break }
                    delivered += 1
                }
            }
        }
        host.count("deliveries", by: delivered)
    }

    /// Sends, and keeps account of those who cannot take it.
    private func send(_ message: Message, to subscriber: Subscriber, about key: ScopeKey) -> Bool {
        switch socket?.send(message, to: subscriber.peer) {
        case .sent: return true
        case .full:
            host.count("deliveries.lagging", by: 1)
            miss(key, subscriber)
            return false
        case .gone, nil:
            table.remove(subscriber)
            host.count("subscribers.gone", by: 1)
            return false
        }
    }

    private func miss(_ key: ScopeKey, _ subscriber: Subscriber) {
        if !subscriber.missed.contains(key) { subscriber.missed.append(key) }
        guard lagTimer == nil else { return }
        lagTimer = host.loop.schedule(after: Self.lagPause) { [weak self] in self?.tellLagging() }
    }

    /// Tells those who lag to refetch what they missed, if their queues have room again.
    private func tellLagging() {
        lagTimer = nil
        for subscriber in table.all where subscriber.isLagging {
            var delivery = WireDelivery()
            delivery.lagging = true
            delivery.heads = subscriber.missed.map(head)
            let key = subscriber.missed[0]
            if send(delivery.message, to: subscriber, about: key) { subscriber.missed = [] }
        }
    }

    /// Ends some subscriptions now. It looks at each, which is for rare occasions.
    func end(because error: CloudError, where concerns: (Subscriber) -> Bool) {
        for subscriber in table.all where concerns(subscriber) {
            table.remove(subscriber)
            tell(subscriber.peer, ended: error)
        }
    }

    private func tell(_ peer: Peer, ended error: CloudError) {
        var delivery = WireDelivery()
        delivery.ended = WireFailure(error)
        // Whoever cannot take it hears nothing any more, and finds out by that.
        _ = socket?.send(delivery.message, to: peer)
    }

    // MARK: Heartbeat

    private func scheduleBeat() {
        beatTimer = host.loop.schedule(after: configuration.heartbeat / Self.beatsPerRound) { [weak self] in
            self?.beat()
            self?.scheduleBeat()
        }
    }

    /// A twentieth of the connections get the heads of what they follow, and those whose token has run out are ended.
    private func beat() {
        let all = table.all
        guard !all.isEmpty else { return }
        let now = host.loop.wallClock.now
        // So many that each has one in each round, also where there are fewer than parts of it.
        beatDue += all.count
        let share = beatDue / Self.beatsPerRound
        beatDue %= Self.beatsPerRound
        var messages: [[ScopeKey]: Message] = [:]
        for offset in 0..<min(share, all.count) {
            let subscriber = all[(beatIndex + offset) % all.count]
            if subscriber.expires <= now {
                table.remove(subscriber)
                tell(subscriber.peer, ended: Self.tokenEnded)
                continue
            }
            let message =
                messages[subscriber.scopes]
                ?? {
                    var delivery = WireDelivery()
                    // Also where there is nothing else to say: a message of no bytes is a greeting.
                    delivery.heartbeat = true
                    delivery.heads = knownHeads(subscriber.scopes)
                    return delivery.message
                }()
            messages[subscriber.scopes] = message
            if !subscriber.isLagging { _ = send(message, to: subscriber, about: subscriber.scopes[0]) }
        }
        beatIndex = (beatIndex + share) % all.count
    }
}
