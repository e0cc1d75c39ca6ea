internal import NephosBus
public import NephosCore
public import NephosServiceKit
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// Carries the events of all services to the devices that may see them.
///
/// Stores nothing but how far it has followed. Its subscriptions live with
/// their connections: after a restart the devices, which notice the new
/// connection, subscribe again.
public final class NotificationsService: CloudService {
    public let name = ServiceName.notifications
    public var follows: [Following] { Self.followed.map { Following($0, cursorDelay: .seconds(1)) } }

    /// Events of these concern devices. A lost cursor costs nothing but a second look.
    static let followed: [ServiceName] = [.identity, .keyValue, .documents, .records]

    private let configuration: NotificationsConfiguration
    private var door: SubscriptionDoor?

    public init(configuration: NotificationsConfiguration = NotificationsConfiguration()) {
        self.configuration = configuration
    }

    /// Where `subscriptions` is bound, with the port that was chosen.
    public var subscriptionsEndpoint: String { door?.endpoint ?? "" }

    /// Nothing beyond what every service answers: subscriptions have a socket of their own.
    public func register(on router: inout Router) {}

    public func start(_ host: any ServiceRuntime) throws {
        door = try SubscriptionDoor(host: host, configuration: configuration)
    }

    public func stopsSoon() { door?.end(because: SubscriptionDoor.stopping) { _ in true } }

    public func stop() {
        door?.close()
        door = nil
    }

    public func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) { done(door?.figures ?? [:]) }

    public func handle(_ event: ServiceEvent, in transaction: any HandlerTransaction) throws {
        guard let notification = event.notification else { return }
        let key = ScopeKey(service: ServiceName(event.service), name: notification.scope)
        door?.deliver(notification, of: key, isHeadAlone: event.isHeadAlone)
    }

    /// Ends the subscriptions of whom identity has locked out. (Who may begin one, the host knows.)
    public func learned(_ fact: DirectoryFact) {
        switch fact {
        case .ended(let device, let ending):
            let isSignOut = ending == .revoked(at: nil, by: "")
            door?.end(because: isSignOut ? SubscriptionDoor.revoked : ending.error) { $0.device == device }
        case .account(let account, let standing, _):
            guard standing != .active else { return }
            door?.end(because: standing == .closed ? .accountClosed : .accountLocked) { $0.account == account }
        case .app(let app, let entitlements):
            door?.end(because: SubscriptionDoor.entitlementsChanged) { $0.isOutdated(by: entitlements, of: app) }
        case .appTokenEnded(let token):
            door?.end(because: .appTokenRevoked) { $0.appToken == token }
        case .tokenKey(let key):
            if let end = key.retires { door?.end(key: key.id, at: end) }
        case .forgotten, .container, .recall: break
        }
    }

    public func restartFollowing(
        _ service: ServiceName, partition: Int, in transaction: any HandlerTransaction
    ) throws {
        door?.forget(service)
    }
}
