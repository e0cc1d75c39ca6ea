internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
private import SwiftProtobuf
internal import Wire

private import struct Foundation.Data

/// What the service publishes: one notification for each push that changed
/// something, or that was refused by a limit.
enum KeyValueEvents {
    /// Bytes of one item that travels inside its notification.
    static let itemBytesMax = 1 << 10
    /// Bytes of all items inside one notification; the others are fetched.
    static let itemsBytesMax = 8 << 10

    /// The keys that a push changed, for the account's other devices.
    static func changed(
        _ items: [WireKeyValueItem], by change: ScopeChange, _ context: RequestContext
    ) throws -> OutgoingEvent {
        var notification = try notification(in: change.scope, context)
        notification.reason = .serverChange
        notification.token = WireChangeToken(change.token)
        notification.previousSequence = change.previousSequence
        var bytesLeft = itemsBytesMax
        notification.changes.reserveCapacity(items.count)
        for item in items {
            var change = WireChange()
            change.item = item.key
            change.deleted = !item.hasValue
            let body: Data = try item.serializedBytes()
            if body.count <= min(itemBytesMax, bytesLeft) {
                change.body = body
                bytesLeft -= body.count
            }
            notification.changes.append(change)
        }
        return OutgoingEvent(
            account: change.scope.account, partition: change.scope.partition, position: change.token,
            previousSequence: change.previousPartitionSequence, notification: Frame(encoding: notification))
    }

    /// The keys that a refused push offered, for the device that offered them. Stores nothing.
    static func quotaViolation(_ keys: [String], in store: KeyStore, _ context: RequestContext) throws -> OutgoingEvent
    {
        let head = try store.head()
        let position = try store.transaction.position(ofPartition: store.scope.partition)
        var notification = try notification(in: store.scope, context)
        notification.reason = .quotaViolationChange
        notification.token = WireChangeToken(head.token)
        notification.previousSequence = head.token.sequence
        notification.changes = keys.map {
            var change = WireChange()
            change.item = $0
            return change
        }
        return OutgoingEvent(
            account: store.scope.account, partition: store.scope.partition, position: position,
            previousSequence: position.sequence, notification: Frame(encoding: notification))
    }

    private static func notification(in scope: ScopeName, _ context: RequestContext) throws -> WireNotification {
        var notification = WireNotification()
        notification.service = ServiceName.keyValue.rawValue
        notification.scope = scope.name
        notification.deviceID = try context.requireCaller().device.rawValue
        notification.operationID = Data(context.id.bytes)
        return notification
    }
}
