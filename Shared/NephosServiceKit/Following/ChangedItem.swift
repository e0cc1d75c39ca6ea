internal import Foundation
internal import NephosBus
public import NephosCore
public import NephosStorage
public import NephosWire

/// An item that a request has changed, as devices get it.
public struct ChangedItem: Sendable {
    public var name: ItemName
    /// Its encoded state; nil: it was deleted.
    public var body: [UInt8]?
    /// What is told of its deletion besides.
    public var deletion: [UInt8]

    public init(name: ItemName, body: [UInt8]?, deletion: [UInt8] = []) {
        self.name = name
        self.body = body
        self.deletion = deletion
    }

    /// - Parameter bytesMax: A longer body is left out, and fetched.
    public func wire(at sequence: UInt64, bytesMax: Int = .max) -> WireChange {
        var change = WireChange()
        change.item = name.rawValue
        change.sequence = sequence
        change.deleted = body == nil
        let told = body ?? deletion
        if told.count <= bytesMax { change.body = Data(told) }
        return change
    }
}

extension OutgoingEvent {
    /// Bytes of one item that travels inside its notification, and of all of them; the others are fetched.
    private static let itemBytesMax = 1 << 10
    private static let itemsBytesMax = 16 << 10

    /// What has become of items in one change of a scope.
    ///
    /// - Parameters:
    ///   - device: Which has made it, by this operation; nil: the service by itself.
    public init(
        _ service: ServiceName, _ items: [ChangedItem], by change: ScopeChange, device: DeviceID?,
        _ operation: OperationID?
    ) {
        var notification = WireNotification(service, change)
        notification.deviceID = device?.rawValue ?? ""
        notification.operationID = operation.map { Data($0.bytes) } ?? Data()
        var room = Self.itemsBytesMax
        notification.changes = items.map { item in
            let wire = item.wire(at: 0, bytesMax: min(room, Self.itemBytesMax))
            room -= wire.body.count
            return wire
        }
        self.init(change, notification: Frame(encoding: notification))
    }

    /// Items whose state devices have to fetch anew. Nobody has written them.
    public init(_ service: ServiceName, moved items: [ItemName], by change: ScopeChange) {
        var notification = WireNotification(service, change)
        notification.changes = items.map {
            var moved = WireChange()
            moved.item = $0.rawValue
            return moved
        }
        self.init(change, notification: Frame(encoding: notification))
    }
}
