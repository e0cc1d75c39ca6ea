public import NephosCore
public import NephosWire

/// The reason for a notification. The numbers are those of `NSUbiquitousKeyValueStore`.
public enum ChangeReason: Int, Sendable, Hashable, Codable {
    /// Another device changed a value.
    case serverChange = 0
    /// The first download has finished.
    case initialSyncChange = 1
    /// The server rejected a write because the store is full. The previous values stay.
    case quotaViolationChange = 2
    /// Another account is signed in, or none. Read everything again.
    case accountChange = 3
}

/// A notification that a store changed from outside.
public struct ChangeNotification: Sendable {
    /// The reason.
    public var reason: ChangeReason
    /// The keys, in order. Empty when another account is signed in: read everything again. After a rejected write, the
    /// keys that it would have changed.
    public var changedKeys: [ItemName]
    /// The new states of the changed keys, as far as known. A nil value: deleted.
    public var items: [KeyValueItem]
    /// The device that made the change, if a device did.
    public var device: DeviceID?
    /// The store's head after the change.
    public var token: ChangeToken
    /// Why a write was rejected.
    public var error: CloudError?

    /// Creates a notification, for an app's tests.
    public init(
        reason: ChangeReason, changedKeys: [ItemName], items: [KeyValueItem] = [], device: DeviceID? = nil,
        token: ChangeToken = .zero, error: CloudError? = nil
    ) {
        self.reason = reason
        self.changedKeys = changedKeys
        self.items = items
        self.device = device
        self.token = token
        self.error = error
    }
}
