internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

private import struct Foundation.Data

/// The one way by which anything gets into identity's feed, and from there to
/// the other services, or to devices.
enum IdentityFeed {
    /// Stores the items in the scope, as one change, and publishes them after the commit.
    static func publish(
        _ items: [FeedItem], in scope: ScopeName, operation: OperationID? = nil, by device: DeviceID? = nil,
        _ transaction: any HandlerTransaction
    ) throws {
        let change = try transaction.put(scope, items)
        var notification = WireNotification(.identity, change)
        notification.deviceID = device?.rawValue ?? ""
        notification.operationID = Data(operation?.bytes ?? [])
        notification.changes = items.map { item in
            var change = WireChange()
            change.item = item.name.rawValue
            change.deleted = item.deleted
            change.body = Data(item.body)
            return change
        }
        transaction.publish(OutgoingEvent(change, notification: Frame(encoding: notification)))
    }

    static func item(_ name: String, _ state: some SwiftProtobuf.Message) -> FeedItem {
        item(name, body: Frame(encoding: state).bytes)
    }

    static func item(_ name: String, body: [UInt8]) -> FeedItem {
        FeedItem(
            name: ItemName(name), deleted: false, digest: SetDigest(ofItem: Array(name.utf8) + [0] + body),
            size: body.count,
            body: body)
    }
}
