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
    /// The present state of one thing.
    enum State {
        /// Every device that is not active counts as revoked: its tokens are void.
        case device(DeviceRecord)
        case app(AppRecord)
        case account(AccountID, WireAccountState.State)
        /// Retires 0: not known yet.
        case tokenKey(id: String, publicKey: [UInt8], retires: Timestamp?)
        /// Room of this owner that is not used is wanted back, for this many times.
        case recall(owner: String, count: UInt64)
    }

    /// Stores the states in the feed, as one change, and publishes them after the commit.
    static func publish(
        _ states: [State], operation: OperationID?, by device: DeviceID? = nil,
        in transaction: any HandlerTransaction
    ) throws {
        guard !states.isEmpty else { return }
        let items = states.map(item)
        let change = try transaction.put(directoryScope, items)
        var notification = WireNotification()
        notification.service = ServiceName.identity.rawValue
        notification.scope = directoryScope.name
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
                account: directoryScope.account, partition: directoryScope.partition, position: change.token,
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
            wire.removed = app.isRemoved
            return item("app/" + app.id.rawValue, wire)
        case .account(let account, let state):
            var wire = WireAccountState()
            wire.accountID = account.rawValue
            wire.state = state
            return item("account/" + account.rawValue, wire)
        case .tokenKey(let id, let publicKey, let retires):
            var wire = WireTokenKeyState()
            wire.keyID = id
            wire.publicKey = Data(publicKey)
            wire.retiresAt = retires?.milliseconds ?? 0
            return item("token-key/" + id, wire)
        case .recall(let owner, let count):
            var wire = WireRecallState()
            wire.ownerID = owner
            wire.count = count
            return item("recall/" + owner, wire)
        }
    }

    private static func item(_ name: String, _ state: some SwiftProtobuf.Message) -> FeedItem {
        let body = Frame(encoding: state).bytes
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: Array(name.utf8) + [0] + body), size: body.count,
            body: body)
    }
}
