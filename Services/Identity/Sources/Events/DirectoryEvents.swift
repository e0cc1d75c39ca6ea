internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import SwiftProtobuf
internal import Wire

private import struct Foundation.Data

/// What the other services must know: the one scope in which identity keeps it,
/// and the one way by which it gets there.
enum DirectoryEvents {
    /// The deployment's directory belongs to nobody; no account has this id, since theirs begin with `acct_`.
    static let scope = ScopeName(account: AccountID("directory"), name: "directory")

    /// The present state of one thing.
    enum State {
        /// Every device that is not active counts as revoked: its tokens are void.
        case device(DeviceRecord)
        case app(AppRecord)
        case account(AccountID)
    }

    /// Stores the states in the feed, as one change, and publishes them after the commit.
    static func publish(
        _ states: [State], operation: OperationID?, by device: DeviceID? = nil,
        in transaction: any HandlerTransaction
    ) throws {
        guard !states.isEmpty else { return }
        let items = states.map(item)
        let change = try transaction.put(scope, items)
        var notification = WireNotification()
        notification.service = ServiceName.identity.rawValue
        notification.scope = scope.name
        notification.token = WireChangeToken(change.token)
        notification.previousSequence = change.previousSequence
        notification.deviceID = device?.rawValue ?? ""
        notification.operationID = Data(operation?.bytes ?? [])
        notification.changes = items.map { item in
            var change = WireChange()
            change.item = item.name
            change.body = Data(item.body)
            return change
        }
        transaction.publish(
            OutgoingEvent(
                account: scope.account, partition: scope.partition, position: change.token,
                previousSequence: change.previousPartitionSequence, notification: Frame(encoding: notification)))
    }

    private static func item(_ state: State) -> FeedItem {
        switch state {
        case .device(let device):
            var wire = WireDeviceState()
            wire.deviceID = device.id.rawValue
            wire.accountID = device.account.rawValue
            wire.publicKey = device.key.z85
            wire.revoked = device.state != .active
            return item("device/" + device.id.rawValue, wire)
        case .app(let app):
            var wire = WireAppState()
            wire.app = WireApp(app)
            return item("app/" + app.id.rawValue, wire)
        case .account(let account):
            var wire = WireAccountState()
            wire.accountID = account.rawValue
            return item("account/" + account.rawValue, wire)
        }
    }

    private static func item(_ name: String, _ state: some SwiftProtobuf.Message) -> FeedItem {
        let body = Frame(encoding: state).bytes
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: Array(name.utf8) + [0] + body), size: body.count,
            body: body)
    }
}
