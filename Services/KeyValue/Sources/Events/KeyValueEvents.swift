internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

private import struct Foundation.Data

/// A key that a push has changed.
struct ChangedKey {
    var key: ItemName
    var stamp: MergeRule.Stamp
    /// Canonical; nil: deleted.
    var value: [UInt8]?

    /// A `KeyValueItem`.
    func write(sequence: UInt64, to writer: inout FieldWriter) {
        writer.item(
            key: key, timestamp: stamp.timestamp, deviceID: stamp.device, sequence: sequence, canonicalValue: value)
    }
}

/// What the service publishes: one notification for each push that changed
/// something, or that was refused by a limit.
enum KeyValueEvents {
    /// Bytes of one item that travels inside its notification.
    static let itemBytesMax = 1 << 10
    /// Bytes of all items inside one notification; the others are fetched.
    static let itemsBytesMax = 8 << 10

    /// The keys that a push changed, for the account's other devices.
    static func changed(
        _ items: [ChangedKey], by change: ScopeChange, _ context: RequestContext
    ) throws -> OutgoingEvent {
        let device = try context.requireCaller().device
        var writer = FieldWriter(reserving: 512)
        writer.text(1, ServiceName.keyValue.rawValue)
        writer.text(2, change.scope.path.rawValue)
        // Field 3, the reason, is 0: a server change.
        writer.token(4, change.token)
        writer.number(5, change.previousSequence)
        writer.text(6, device.rawValue)
        var bytesLeft = itemsBytesMax
        for item in items {
            writer.message(7) {
                $0.text(1, item.key.rawValue)
                $0.flag(2, item.value == nil)
                // With a value like that it is too large anyway.
                guard item.value?.count ?? 0 <= min(itemBytesMax, bytesLeft) else { return }
                let written = $0.message(3, ofAtMost: min(itemBytesMax, bytesLeft)) {
                    item.write(sequence: change.token.sequence, to: &$0)
                }
                bytesLeft -= written ?? 0
            }
        }
        writer.operation(8, context.id)
        writer.mark(9, of: change.digest)
        writer.text(10, change.scope.owner.rawValue)
        return OutgoingEvent(change, notification: Frame(taking: &writer))
    }

    /// The keys that a refused push offered, for the device that offered them. Stores nothing.
    static func quotaViolation(_ keys: [ItemName], in store: KeyStore, _ context: RequestContext) throws
        -> OutgoingEvent
    {
        let head = try store.head()
        let position = try store.transaction.position(ofPartition: store.partition)
        var notification = WireNotification()
        notification.service = ServiceName.keyValue.rawValue
        notification.owner = store.scope.owner.rawValue
        notification.scope = store.scope.path.rawValue
        notification.deviceID = try context.requireCaller().device.rawValue
        notification.operationID = Data(context.id.bytes)
        notification.reason = .quotaViolationChange
        notification.token = WireChangeToken(head.token)
        notification.previousSequence = head.token.sequence
        notification.changes = keys.map {
            var change = WireChange()
            change.item = $0.rawValue
            return change
        }
        return OutgoingEvent(in: store.scope, at: position, notification: Frame(encoding: notification))
    }
}
