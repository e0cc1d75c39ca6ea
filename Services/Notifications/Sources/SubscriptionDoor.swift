internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

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
    static let stopping = CloudError(
        .serviceUnavailable, "The service is stopping. Subscribe again in a moment.", retryAfter: .milliseconds(500))
    private static let unknownConnection = CloudError(
        .notAuthenticated, "The server does not know this connection. Subscribe again.")
    private static let endedMeanwhile = CloudError(
        .serviceBusy, "The subscription ended while it was made. Subscribe again.", retryAfter: .milliseconds(100))
    private static func noSuchScope(_ key: ScopeKey) -> CloudError {
        CloudError(
            .missingEntitlement, "The app does not list this scope, or it does not exist.",
            details: [
                "service": key.service.rawValue, "owner": key.name.owner.rawValue, "scope": key.name.path.rawValue,
            ])
    }

    /// How soon a lagging device is tried again.
    private static let lagPause: Duration = .milliseconds(50)
    /// Parts into which the heartbeat is spread, so that it is no burst.
    private static let beatsPerRound = 20
    /// Bytes of a scope's name and its owner's: what is longer no service has.
    private static let nameBytesMax = 1024
    /// What it costs a service to be asked about one scope, in rows: as much as one call.
    private static let rowsPerQuestion = 16
    /// Followers of one scope who are asked about at one time, when others may follow it than before.
    private static let questionsMax = 16
    /// What one connection may have sent and the service not looked at yet.
    private static let unreadBytesPerConnectionMax = 1 << 20
    /// Deliveries that one connection has not taken, in bytes, before it counts as lagging.
    private static let unsentBytesPerConnectionMax = 2 << 20

    unowned let host: any ServiceRuntime
    let configuration: NotificationsConfiguration
    var table = SubscriptionTable() {
        didSet { host.set("devices.connected", to: table.deviceCount) }
    }
    var heads = HeadCache()
    private var access = AccessCache()
    private var questions: ScopeQuestions?
    private var batch = DeliveryBatch()
    private var socket: (any ReplySocket)?
    private var beatIndex = 0
    /// Connections that are due, in parts of a round.
    private var beatDue = 0
    private var beatTimer: (any LoopTimer)?
    private var flushTimer: (any LoopTimer)?
    private var lagTimer: (any LoopTimer)?
    /// Subscribers that were lagging when they were looked at last, and those that began since.
    private var laggingCount = 0

    var endpoint: String { socket?.endpoint ?? "" }
    /// For the table of metrics.
    var figures: [String: Int] { ["subscribers": table.count, "subscribers.lagging": laggingCount] }

    init(host: any ServiceRuntime, configuration: NotificationsConfiguration) throws {
        self.host = host
        host.set("devices.connected", to: 0)
        self.configuration = configuration
        let entry = try host.roster.entry(of: .notifications)
        guard let endpoint = entry.subscriptions else {
            throw CloudError(.configurationInvalid, "The roster has no `subscriptions` address for notifications.")
        }
        let options = ReplySocketOptions(
            endpoint: endpoint, keys: host.keys, unreadBytesPerConnectionMax: Self.unreadBytesPerConnectionMax,
            sendQueueMax: configuration.subscriberQueueMax,
            unsentBytesPerConnectionMax: Self.unsentBytesPerConnectionMax)
        questions = ScopeQuestions(
            schedule: { [unowned host] in host.loop.schedule(after: $0, $1) },
            call: { [unowned host] in host.call($0, "ReadHeads", body: $1, causeID: nil, then: $2) },
            learned: { [weak self] in self?.learn($0, $1, $2) })
        var router = Router()
        router.direct(WireSubscribe.self, access: .publicReader) { [weak self] in
            try self?.subscribe($0, $1, answer: $2)
        }
        router.direct(WireUnsubscribe.self, access: .publicReader) { [weak self] in
            try self?.unsubscribe($0, $1, answer: $2)
        }
        socket = try host.openDoor(options, router) { [weak self] in self?.welcome($0) }
        scheduleBeat()
    }

    func close() {
        for timer in [beatTimer, flushTimer, lagTimer] { timer?.cancel() }
        socket?.close()
        socket = nil
    }

    // MARK: What devices ask

    /// A connection is new, and so is not subscribed: whoever believes it still
    /// is (the server was restarted, the line was cut) learns it now.
    private func welcome(_ peer: Peer) {
        if table.subscriber(peer) == nil { tell(peer, ended: Self.unknownConnection) }
    }

    private func subscribe(
        _ request: WireSubscribe, _ context: RequestContext, answer: @escaping Router.DirectAnswer<WireSubscribeReply>
    ) throws(CloudError) {
        let caller = try context.requireCaller()
        let keys = try Self.keys(request.scopes, caller)
        let claim = try table.subscribe(context.peer, as: caller, to: keys, limits: configuration)
        guard let subscriber = table.subscriber(context.peer) else { return }
        host.count("subscribe.requests", by: 1)
        // Granted before the heads are known: what happens in between is delivered as well as contained in the head,
        // and so never missed.
        for key in keys where access.includes(key, caller) { table.grant(key, to: subscriber, as: caller) }
        let open = keys.filter { heads[$0] == nil || !access.includes($0, caller) }
        questions?.ask(open, for: caller) { [weak self] answers in
            guard let self else { return }
            let rows = open.count * Self.rowsPerQuestion
            let refused = open.filter { answers[$0]?.isRefused == true }
            let isSubscribed = table.subscriber(context.peer) === subscriber
            if let first = refused.first {
                if isSubscribed { table.refuse(claim, keys, as: caller, of: subscriber, without: refused) }
                return answer(.failure(Self.noSuchScope(first)), rows)
            }
            // It was told so already, but would take the answer for a new beginning.
            guard isSubscribed else { return answer(.failure(host.refusal(of: caller) ?? Self.endedMeanwhile), rows) }
            for key in keys { settle(key, subscriber, caller, answers[key]) }
            table.noteAnswered(claim, keys, of: subscriber)
            answer(.success(reply(keys, to: subscriber)), rows)
        }
    }

    private func unsubscribe(
        _ request: WireUnsubscribe, _ context: RequestContext, answer: Router.DirectAnswer<WireUnsubscribeReply>
    ) throws(CloudError) {
        table.unsubscribe(context.peer, from: try Self.keys(request.scopes, try context.requireCaller()))
        answer(.success(WireUnsubscribeReply()), 0)
    }

    /// The scopes asked for, each once. Whether the caller may follow them their services say.
    private static func keys(_ scopes: [WireSubscribedScope], _ caller: Caller) throws(CloudError) -> [ScopeKey] {
        guard !scopes.isEmpty else {
            throw CloudError(.invalidArguments, "A subscription must name at least one scope.")
        }
        var keys: [ScopeKey] = []
        var seen: Set<ScopeKey> = []
        for wire in scopes {
            let service = ServiceName(wire.service)
            guard NotificationsService.followed.contains(service), !wire.scope.isEmpty,
                wire.scope.utf8.count + wire.owner.utf8.count <= nameBytesMax
            else {
                throw CloudError(.missingEntitlement, "There is no such scope that a device could follow.")
            }
            let owner = wire.owner.isEmpty ? Owner(caller.account) : Owner(wire.owner)
            let key = ScopeKey(service: service, name: ScopeName(owner, ItemName(wire.scope)))
            if seen.insert(key).inserted { keys.append(key) }
        }
        return keys
    }

    private func reply(_ keys: [ScopeKey], to subscriber: Subscriber) -> WireSubscribeReply {
        var reply = WireSubscribeReply()
        let granted = Set(subscriber.scopes)
        // What a service that does not answer has is marked in the reply, and told later.
        reply.heads = keys.map { head($0, isTold: granted.contains($0)) }
        reply.heartbeatMilliseconds = UInt32(clamping: configuration.heartbeat.milliseconds)
        return reply
    }

    private func head(_ key: ScopeKey, isTold: Bool = true) -> WireScopeHead {
        var head = WireScopeHead()
        head.service = key.service.rawValue
        head.owner = key.name.owner.rawValue
        head.scope = key.name.path.rawValue
        let known = isTold ? heads[key] : nil
        head.token = WireChangeToken(known?.token ?? .zero)
        head.digest = known?.digest ?? Data()
        head.unknown = known == nil
        return head
    }

    /// The heads of a heartbeat. What is not known is left out, and asked for until it is.
    private func knownHeads(of subscriber: Subscriber) -> [WireScopeHead] {
        for key in subscriber.scopes where heads[key] == nil { askAgain(key, subscriber) }
        return subscriber.scopes.filter { heads[$0] != nil }.map { head($0) }
    }

    // MARK: Who may follow what

    /// A service has said who may follow its scope, and where that stands.
    private func learn(_ key: ScopeKey, _ caller: Caller, _ answer: ScopeQuestions.Answer) {
        guard case .granted(let head, let audience) = answer else { return }
        heads.note(head, of: key)
        access.note(key, caller, audience)
    }

    /// Lets the subscriber follow the scope, or not, as its service has answered for the caller.
    private func settle(
        _ key: ScopeKey, _ subscriber: Subscriber, _ caller: Caller, _ answer: ScopeQuestions.Answer?
    ) {
        // It may have gone, or not want the scope any more.
        guard table.subscriber(subscriber.peer) === subscriber, let asker = subscriber.caller(of: key) else { return }
        if access.includes(key, caller) {
            let isNews = subscriber.isAnswered(key) && !subscriber.follows(key)
            table.grant(key, to: subscriber, as: caller)
            if isNews { tell(head(key), to: subscriber, about: key) }
        } else if asker === caller, answer?.isRefused == true {
            // The whole subscription: were the message lost, a device would go on believing that it is told of the
            // scope. So it notices that no heartbeat comes.
            table.remove(subscriber)
            host.count("subscribers.ended", by: 1)
            tell(subscriber.peer, ended: Self.noSuchScope(key))
        }
    }

    private func askAgain(_ key: ScopeKey, _ subscriber: Subscriber) {
        guard let caller = subscriber.caller(of: key), questions?.isAsked(key, for: caller) == false else { return }
        questions?.ask([key], for: caller) { [weak self] in self?.settle(key, subscriber, caller, $0[key]) }
    }

    /// Others may follow the scope than before: all but the owner's own devices are asked about anew, and are told
    /// nothing until the service has answered.
    ///
    /// An account's devices may follow its scopes as identity says, by their tokens.
    private func withdraw(_ key: ScopeKey) {
        access.forget(key)
        questions?.outdate(key)
        var open = table.subscribers(to: key).filter { Owner($0.account) != key.name.owner }
        for subscriber in open { table.suspend(key, of: subscriber) }
        guard !open.isEmpty else { return }
        open.reverse()
        // A few at a time, since the first answer may be for all of them.
        func next() {
            while let subscriber = open.popLast() {
                guard let caller = subscriber.caller(of: key) else { continue }
                guard !access.includes(key, caller) else {
                    settle(key, subscriber, caller, nil)
                    continue
                }
                questions?.ask([key], for: caller) { [weak self] answers in
                    self?.settle(key, subscriber, caller, answers[key])
                    next()
                }
                return
            }
        }
        for _ in 0..<Self.questionsMax { next() }
    }

    /// What a service has said may be of a lost future.
    func forget(_ service: ServiceName) {
        heads.forget(service)
        access.forget(service)
        questions?.outdate { $0.service == service }
        for key in table.followedByOthers(of: service) { withdraw(key) }
    }

    // MARK: What devices are told

    /// Takes an event in; it is sent with all others of its batch, once the batch has been handled.
    ///
    /// - Parameter isHeadAlone: What has happened was missed, and it may be that others may follow the scope now.
    func deliver(_ notification: ServiceEvent.Notification, of key: ScopeKey, isHeadAlone: Bool) {
        heads.note(HeadCache.Head(token: notification.token, digest: notification.digest), of: key)
        if notification.isAccessChanged || isHeadAlone { withdraw(key) }
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
    ///
    /// - Parameter key: What it missed if it cannot.
    private func send(_ message: Message, to subscriber: Subscriber, about key: ScopeKey?) -> Bool {
        switch socket?.send(message, to: subscriber.peer) {
        case .sent: return true
        case .full:
            host.count("deliveries.lagging", by: 1)
            if let key { miss(key, subscriber) }
            return false
        case .gone, nil:
            table.remove(subscriber)
            host.count("subscribers.gone", by: 1)
            return false
        }
    }

    private func miss(_ key: ScopeKey, _ subscriber: Subscriber) {
        if !subscriber.isLagging { laggingCount += 1 }
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
            delivery.heads = subscriber.missed.map { head($0) }
            let key = subscriber.missed[0]
            if send(delivery.message, to: subscriber, about: key) { subscriber.missed = [] }
        }
        laggingCount = table.all.count { $0.isLagging }
    }

    /// Ends some subscriptions now. It looks at each, which is for rare occasions.
    func end(because error: CloudError, where concerns: (Subscriber) -> Bool) {
        for subscriber in table.all where concerns(subscriber) {
            table.remove(subscriber)
            host.count("subscribers.ended", by: 1)
            tell(subscriber.peer, ended: error)
        }
    }

    func end(key: String, at end: Timestamp) { table.end(key: key, at: end) }

    private func tell(_ head: WireScopeHead, to subscriber: Subscriber, about key: ScopeKey) {
        guard !subscriber.isLagging else { return miss(key, subscriber) }
        var delivery = WireDelivery()
        delivery.heads = [head]
        _ = send(delivery.message, to: subscriber, about: key)
    }

    private func tell(_ peer: Peer, ended error: CloudError) {
        var delivery = WireDelivery()
        delivery.ended = WireFailure(error)
        // Whoever cannot take it hears nothing any more, and finds out by that.
        _ = socket?.send(delivery.message, to: peer)
    }

    // MARK: Heartbeat

    /// What a heartbeat says; the same for many.
    private struct Beat: Hashable {
        var scopes: [ScopeKey]
        var scopeCount: Int
    }

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
        var messages: [Beat: Message] = [:]
        for offset in 0..<min(share, all.count) {
            let subscriber = all[(beatIndex + offset) % all.count]
            if subscriber.expires <= now {
                table.remove(subscriber)
                host.count("subscribers.ended", by: 1)
                tell(subscriber.peer, ended: Self.tokenEnded)
                continue
            }
            for key in subscriber.waiting { askAgain(key, subscriber) }
            let beat = Beat(scopes: subscriber.scopes, scopeCount: subscriber.scopeCount)
            let message =
                messages[beat]
                ?? {
                    var delivery = WireDelivery()
                    // Also where there is nothing else to say: a message of no bytes is a greeting.
                    delivery.heartbeat = true
                    delivery.scopeCount = UInt32(clamping: beat.scopeCount)
                    delivery.heads = knownHeads(of: subscriber)
                    return delivery.message
                }()
            messages[beat] = message
            if !subscriber.isLagging { _ = send(message, to: subscriber, about: subscriber.scopes.first) }
        }
        beatIndex = (beatIndex + share) % all.count
    }
}

extension ScopeQuestions.Answer {
    fileprivate var isRefused: Bool { if case .refused = self { true } else { false } }
}
