internal import NephosBus
internal import NephosCore
internal import NephosServiceKit

/// One scope of one service.
struct ScopeKey: Hashable, Comparable {
    var service: ServiceName
    var name: ScopeName

    static func < (left: ScopeKey, right: ScopeKey) -> Bool {
        (left.service, left.name.owner, left.name.path) < (right.service, right.name.owner, right.name.path)
    }
}

/// A subscribed connection.
final class Subscriber {
    /// A scope that it has asked for.
    fileprivate struct Asked {
        /// As whom: of several apps the first, or the first that was granted it.
        var caller: Caller
        /// Where it stands among the scope's followers; nil: its service has not said yet that it may be one.
        var place: Int?
        /// Whether it was told that it follows the scope: then it is told as well when it does not any more.
        var isAnswered = false
        /// Those of its subscriptions that name the scope and are not answered yet.
        var claims: Set<UInt64> = []
    }

    let peer: Peer
    let account: AccountID
    let device: DeviceID
    /// What it follows, in the order in which that was granted.
    fileprivate(set) var scopes: [ScopeKey] = []
    fileprivate var asked: [ScopeKey: Asked] = [:]
    /// When the token that lasts longest ends, and the subscription with it.
    fileprivate(set) var expires: Timestamp
    /// The key that this token was signed with.
    fileprivate var keyID: String
    /// By app, what the oldest of the tokens that it has subscribed with says that this may use.
    fileprivate var entitlements: [AppID: Entitlements] = [:]
    /// Without an account: which token of its app's has let it in.
    let appToken: String?
    private let isNarrow: Bool
    /// Where it stands among all.
    fileprivate var place = 0
    /// Scopes of which it was not told because it was too slow.
    var missed: [ScopeKey] = []
    var isLagging: Bool { !missed.isEmpty }

    init(peer: Peer, caller: Caller) {
        appToken = caller.appToken
        isNarrow = caller.isNarrow
        self.peer = peer
        account = caller.account
        device = caller.device
        expires = caller.expires
        keyID = caller.keyID
    }

    /// As whom it has asked for the scope; nil: it has not.
    func caller(of key: ScopeKey) -> Caller? { asked[key]?.caller }

    /// Whether it subscribed for the app with a token that knows nothing of this yet.
    ///
    /// After a restore identity's whole directory is told again, the things that everybody knows as well as old ones.
    /// For those nobody is ended: each device would renew its token, all at one time and for nothing, and one whose
    /// home came back from a copy meanwhile would be taken for two.
    func isOutdated(by told: Entitlements, of app: AppID) -> Bool {
        guard let own = entitlements[app] else { return false }
        // A narrow token says less than its app may use.
        let isSame = own == told || isNarrow && own.version == told.version
        return told.version >= own.version && !isSame
    }

    func follows(_ key: ScopeKey) -> Bool { asked[key]?.place != nil }
    func isAnswered(_ key: ScopeKey) -> Bool { asked[key]?.isAnswered ?? false }

    /// Scopes that it follows, and that it may follow yet.
    var scopeCount: Int { asked.count }

    /// What it has asked for, and the service has not said yet whether it may.
    var waiting: [ScopeKey] {
        guard asked.count > scopes.count else { return [] }
        return asked.filter { $0.value.place == nil }.map(\.key).sorted()
    }
}

/// Who follows what, and who wants to.
///
/// Each list is in an order that follows from what happened, so that the same events give the same deliveries in every
/// run.
struct SubscriptionTable {
    private var byConnection: [UInt64: Subscriber] = [:]
    private var byScope: [ScopeKey: [Subscriber]] = [:]
    private var byDevice: [DeviceID: [Subscriber]] = [:]
    /// All, for the heartbeat to go round.
    private(set) var all: [Subscriber] = []
    private var claimCount: UInt64 = 0
    /// Of those that have no account.
    private var publicCount = 0

    var count: Int { all.count }
    /// Devices with a subscribed connection.
    var deviceCount: Int { byDevice.count }

    func subscriber(_ peer: Peer) -> Subscriber? { byConnection[peer.connection] }
    func subscribers(to key: ScopeKey) -> [Subscriber] { byScope[key] ?? [] }
    func isFollowed(_ key: ScopeKey) -> Bool { byScope[key] != nil }
    /// The service's scopes that others than their owners follow. It looks at all, which is for rare occasions.
    func followedByOthers(of service: ServiceName) -> [ScopeKey] {
        byScope.filter { key, followers in
            key.service == service && followers.contains { Owner($0.account) != key.name.owner }
        }.map(\.key).sorted()
    }

    /// Notes the scopes that the connection wants to follow, and renews its subscription until the token ends. What it
    /// does not follow yet it does once it is granted.
    ///
    /// - Returns: What it is answered by: ``noteAnswered(_:_:of:)`` or ``refuse(_:_:as:of:without:)``.
    /// - Throws: ``CloudError`` `.limitExceeded` or `.serviceBusy`; then nothing has changed.
    mutating func subscribe(
        _ peer: Peer, as caller: Caller, to keys: [ScopeKey], limits: NotificationsConfiguration
    ) throws(CloudError) -> UInt64 {
        if let known = byConnection[peer.connection], known.device != caller.device { remove(known) }
        let known = byConnection[peer.connection]
        let fresh = Set(keys.filter { known?.asked[$0] == nil })
        guard (known?.asked.count ?? 0) + fresh.count <= limits.scopesPerConnectionMax else {
            throw CloudError(
                .limitExceeded, "One connection cannot follow so many scopes. Open another.",
                details: ["scopes_max": "\(limits.scopesPerConnectionMax)"])
        }
        let subscriber: Subscriber
        if let known {
            subscriber = known
            if caller.expires > known.expires { (known.expires, known.keyID) = (caller.expires, caller.keyID) }
        } else {
            guard all.count < limits.connectionsMax else {
                throw CloudError(
                    .serviceBusy, "The server has as many subscriptions as it can carry. Try again later.",
                    retryAfter: .seconds(5))
            }
            // Keys and addresses cost nothing: whoever has an account finds a place all the same.
            guard !caller.isPublic || publicCount < limits.connectionsMax / 2 else {
                throw CloudError(
                    .serviceBusy,
                    "The server has as many subscriptions without an account as it takes. Try again later.",
                    retryAfter: .seconds(5))
            }
            guard (byDevice[caller.device]?.count ?? 0) < limits.connectionsPerDeviceMax else {
                throw CloudError(
                    .limitExceeded, "This device has too many subscribed connections. Close one.",
                    details: ["connections_max": "\(limits.connectionsPerDeviceMax)"])
            }
            subscriber = Subscriber(peer: peer, caller: caller)
            if caller.isPublic { publicCount += 1 }
            byConnection[peer.connection] = subscriber
            byDevice[caller.device, default: []].append(subscriber)
            subscriber.place = all.count
            all.append(subscriber)
        }
        let oldest = subscriber.entitlements[caller.app]
        if oldest.map({ $0.version > caller.entitlements.version }) ?? true {
            subscriber.entitlements[caller.app] = caller.entitlements
        }
        claimCount += 1
        for key in keys {
            var asked = subscriber.asked[key] ?? Subscriber.Asked(caller: caller)
            // What another of its apps may do is not known yet.
            if asked.caller.app == caller.app { asked.caller = caller }
            asked.claims.insert(claimCount)
            subscriber.asked[key] = asked
        }
        return claimCount
    }

    /// No subscription outlives the key that its token was signed with. It looks at all, which is for rare occasions.
    func end(key: String, at end: Timestamp) {
        for subscriber in all where subscriber.keyID == key { subscriber.expires = min(subscriber.expires, end) }
    }

    /// It follows the scope from now on.
    mutating func grant(_ key: ScopeKey, to subscriber: Subscriber, as caller: Caller) {
        guard let asked = subscriber.asked[key], asked.place == nil else { return }
        subscriber.asked[key]?.caller = caller
        subscriber.asked[key]?.place = byScope[key]?.count ?? 0
        byScope[key, default: []].append(subscriber)
        subscriber.scopes.append(key)
    }

    /// It follows the scope no more until that is granted anew.
    mutating func suspend(_ key: ScopeKey, of subscriber: Subscriber) {
        leave(key, subscriber)
    }

    /// It was told that it follows these, or will.
    func noteAnswered(_ claim: UInt64, _ keys: [ScopeKey], of subscriber: Subscriber) {
        for key in keys {
            subscriber.asked[key]?.claims.remove(claim)
            subscriber.asked[key]?.isAnswered = true
        }
    }

    /// It was told that it may not follow some of these: then it follows none of them that it does not follow, or wait
    /// to follow, by another of its subscriptions.
    ///
    /// - Parameter refused: Those that it may not follow as this caller. What was granted to another app stays.
    mutating func refuse(
        _ claim: UInt64, _ keys: [ScopeKey], as caller: Caller, of subscriber: Subscriber, without refused: [ScopeKey]
    ) {
        for key in refused where subscriber.asked[key]?.caller.app == caller.app {
            leave(key, subscriber)
            subscriber.asked[key]?.isAnswered = false
        }
        for key in keys {
            subscriber.asked[key]?.claims.remove(claim)
            if let asked = subscriber.asked[key], !asked.isAnswered, asked.claims.isEmpty { forget(key, subscriber) }
        }
        if subscriber.asked.isEmpty { remove(subscriber) }
    }

    /// Ends some of the connection's subscription; all of it when nothing is left.
    mutating func unsubscribe(_ peer: Peer, from keys: [ScopeKey]) {
        guard let subscriber = byConnection[peer.connection] else { return }
        for key in keys { forget(key, subscriber) }
        if subscriber.asked.isEmpty { remove(subscriber) }
    }

    mutating func remove(_ subscriber: Subscriber) {
        guard byConnection[subscriber.peer.connection] === subscriber else { return }
        byConnection[subscriber.peer.connection] = nil
        if subscriber.appToken != nil { publicCount -= 1 }
        for key in Array(subscriber.asked.keys) { forget(key, subscriber) }
        byDevice[subscriber.device]?.removeAll { $0 === subscriber }
        if byDevice[subscriber.device]?.isEmpty == true { byDevice[subscriber.device] = nil }
        // The last takes its place: with very many, closing the gap would take long.
        guard let last = all.popLast(), last !== subscriber else { return }
        last.place = subscriber.place
        all[subscriber.place] = last
    }

    private mutating func forget(_ key: ScopeKey, _ subscriber: Subscriber) {
        leave(key, subscriber)
        subscriber.asked[key] = nil
    }

    private mutating func leave(_ key: ScopeKey, _ subscriber: Subscriber) {
        guard let place = subscriber.asked[key]?.place, let last = byScope[key]?.popLast() else { return }
        // Again the last: a public scope has as many followers as there are devices.
        if last !== subscriber {
            byScope[key]?[place] = last
            last.asked[key]?.place = place
        }
        if byScope[key]?.isEmpty == true { byScope[key] = nil }
        subscriber.asked[key]?.place = nil
        subscriber.scopes.removeAll { $0 == key }
        subscriber.missed.removeAll { $0 == key }
    }
}
