internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What the service publishes: one notification for each change of a zone or a database.
enum RecordEvents {
    /// Bytes of one item that travels inside its notification, and of all of them; the others are fetched.
    private static let itemBytesMax = 1 << 10
    private static let itemsBytesMax = 16 << 10

    static func changed(
        _ items: [ChangedRecord], by change: ScopeChange, _ context: RequestContext
    ) -> OutgoingEvent {
        var notification = WireNotification(.records, change)
        notification.deviceID = context.caller?.device.rawValue ?? ""
        notification.operationID = Data(context.id.bytes)
        var room = itemsBytesMax
        notification.changes = items.map { item in
            let wire = item.wire(at: 0, bytesMax: min(room, itemBytesMax))
            room -= wire.body.count
            return wire
        }
        return OutgoingEvent(change, notification: Frame(encoding: notification))
    }
}

/// An item that a request has changed.
struct ChangedRecord {
    var name: ItemName
    /// As devices get it; nil: it was deleted.
    var body: [UInt8]?

    /// - Parameter bytesMax: A longer body is left out, and fetched.
    func wire(at sequence: UInt64, bytesMax: Int = .max) -> WireChange {
        var change = WireChange()
        change.item = name.rawValue
        change.sequence = sequence
        change.deleted = body == nil
        if let body, body.count <= bytesMax { change.body = Data(body) }
        return change
    }
}
