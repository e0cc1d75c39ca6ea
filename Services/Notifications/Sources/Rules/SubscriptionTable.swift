internal import Bus
internal import Core
internal import ServiceKit

/// One scope of one account.
struct ScopeKey: Hashable {
    var account: AccountID
    var service: ServiceName
    var scope: ItemName
}

/// A subscribed connection.
final class Subscriber {
    let peer: Peer
    let account: AccountID
    let device: DeviceID
    /// In the order of subscribing.
    fileprivate(set) var scopes: [ScopeKey] = []
    /// When the newest token ends, and the subscription with it.
    fileprivate(set) var expires: Timestamp
    /// Whose tokens it has subscribed with.
    fileprivate(set) var apps: Set<AppID> = []
    /// Where it stands among all.
    fileprivate var place = 0
    /// Scopes of which it was not told because it was too slow.
    var missed: [ScopeKey] = []
    var isLagging: Bool { !missed.isEmpty }

    init(peer: Peer, account: AccountID, device: DeviceID, expires: Timestamp) {
        self.peer = peer
        self.account = account
        self.device = device
        self.expires = expires
    }
}

/// Who follows what.
///
/// A scope's list keeps the order of subscribing, so that the same events give
/// the same deliveries in every run.
struct SubscriptionTable {
    private var byConnection: [UInt64: Subscriber] = [:]
    private var byScope: [ScopeKey: [Subscriber]] = [:]
    private var byDevice: [DeviceID: [Subscriber]] = [:]
    /// All, for the heartbeat to go round.
    private(set) var all: [Subscriber] = []

    var count: Int { all.count }

    func subscriber(_ peer: Peer) -> Subscriber? { byConnection[peer.connection] }
    func subscribers(to key: ScopeKey) -> [Subscriber] { byScope[key] ?? [] }
    func isFollowed(_ key: ScopeKey) -> Bool { byScope[key] != nil }

    /// Adds scopes to the connection's subscription, and renews it until the token ends.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` or `.serviceBusy`; then nothing has changed.
    mutating func subscribe(
        _ peer: Peer, as caller: Caller, to keys: [ScopeKey], limits: NotificationsConfiguration
    ) throws(CloudError) -> Subscriber {
        if let known = byConnection[peer.connection], known.device != caller.device { remove(known) }
        let known = byConnection[peer.connection]
        var fresh: [ScopeKey] = []
        for key in keys where known?.scopes.contains(key) != true && !fresh.contains(key) { fresh.append(key) }
        guard (known?.scopes.count ?? 0) + fresh.count <= limits.scopesPerConnectionMax else {
            throw CloudError(
                .limitExceeded, "One connection cannot follow so many scopes. Open another.",
                details: ["scopes_max": "\(limits.scopesPerConnectionMax)"])
        }
        let subscriber: Subscriber
        if let known {
            subscriber = known
            subscriber.expires = max(known.expires, caller.expires)
        } else {
            guard all.count < limits.connectionsMax else {
                throw CloudError(
                    .serviceBusy, "The server has as many subscriptions as it can carry. Try again later.",
                    retryAfter: .seconds(5))
            }
            guard (byDevice[caller.device]?.count ?? 0) < limits.connectionsPerDeviceMax else {
                throw CloudError(
                    .limitExceeded, "This device has too many subscribed connections. Close one.",
                    details: ["connections_max": "\(limits.connectionsPerDeviceMax)"])
            }
            subscriber = Subscriber(
                peer: peer, account: caller.account, device: caller.device, expires: caller.expires)
            byConnection[peer.connection] = subscriber
            byDevice[caller.device, default: []].append(subscriber)
            subscriber.place = all.count
            all.append(subscriber)
        }
        subscriber.apps.insert(caller.app)
        for key in fresh {
            subscriber.scopes.append(key)
            byScope[key, default: []].append(subscriber)
        }
        return subscriber
    }

    /// Ends some of the connection's subscription; all of it when nothing is left.
    mutating func unsubscribe(_ peer: Peer, from keys: [ScopeKey]) {
        guard let subscriber = byConnection[peer.connection] else { return }
        for key in keys { leave(key, subscriber) }
        subscriber.scopes.removeAll(where: keys.contains)
        subscriber.missed.removeAll(where: keys.contains)
        if subscriber.scopes.isEmpty { remove(subscriber) }
    }

    mutating func remove(_ subscriber: Subscriber) {
        guard byConnection[subscriber.peer.connection] === subscriber else { return }
        byConnection[subscriber.peer.connection] = nil
        for key in subscriber.scopes { leave(key, subscriber) }
        byDevice[subscriber.device]?.removeAll { $0 === subscriber }
        if byDevice[subscriber.device]?.isEmpty == true { byDevice[subscriber.device] = nil }
        // The last takes its place: with very many, closing the gap would take long.
        guard let last = all.popLast(), last !== subscriber else { return }
        last.place = subscriber.place
        all[subscriber.place] = last
    }

    private mutating func leave(_ key: ScopeKey, _ subscriber: Subscriber) {
        byScope[key]?.removeAll { $0 === subscriber }
        if byScope[key]?.isEmpty == true { byScope[key] = nil }
    }
}
