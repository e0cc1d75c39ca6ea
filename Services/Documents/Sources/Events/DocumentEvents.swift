internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What the service publishes: one notification for each batch that changed something.
enum DocumentEvents {
    /// Bytes of one item that travels inside its notification, and of all of them; the others are fetched.
    static let itemBytesMax = 1 << 10
    static let itemsBytesMax = 16 << 10

    static func changed(
        _ items: [ChangedItem], by change: ScopeChange, device: DeviceID?, _ operation: OperationID?
    ) -> OutgoingEvent {
        var notification = WireNotification(.documents, change)
        notification.deviceID = device?.rawValue ?? ""
        notification.operationID = operation.map { Data($0.bytes) } ?? Data()
        var room = itemsBytesMax
        notification.changes = items.map { item in
            let wire = item.wire(at: 0, bytesMax: min(room, itemBytesMax))
            room -= wire.body.count
            return wire
        }
        return OutgoingEvent(change, notification: Frame(encoding: notification))
    }
}
