internal import Bus
public import Core
public import ServiceKit
internal import Storage
internal import SwiftProtobuf
internal import Wire

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

    public func stop() {
        door?.close()
        door = nil
    }

    public func handle(_ event: ServiceEvent, in transaction: any HandlerTransaction) throws {
        guard let notification = event.notification else { return }
        let service = ServiceName(event.service)
        if service == .identity, notification.scope == directoryScope.name {
            for change in try notification.decoded().changes { try heed(change) }
            return
        }
        door?.deliver(notification, to: ScopeKey(account: event.account, service: service, scope: notification.scope))
    }

    /// Ends the subscriptions of whom identity has locked out. (Who may begin one, the host knows.)
    private func heed(_ change: WireChange) throws {
        switch change.item.prefix(while: { $0 != "/" }) {
        case "device":
            let device = try WireDeviceState(serializedBytes: change.body)
            guard device.revoked else { return }
            door?.end(because: device.copied ? .deviceCopied : SubscriptionDoor.revoked) {
                $0.device == DeviceID(device.deviceID)
            }
        case "account":
            let account = try WireAccountState(serializedBytes: change.body)
            guard account.state != .active else { return }
            door?.end(because: account.state == .closed ? .accountClosed : .accountLocked) {
                $0.account == AccountID(account.accountID)
            }
        case "app":
            let app = AppID(try WireAppState(serializedBytes: change.body).app.appID)
            door?.end(because: SubscriptionDoor.entitlementsChanged) { $0.apps.contains(app) }
        default: break
        }
    }

    public func restartFollowing(
        _ service: ServiceName, partition: Int, in transaction: any HandlerTransaction
    ) throws {
        door?.forgetHeads(of: service)
    }
}
