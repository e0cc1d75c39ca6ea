public import NephosCore
public import NephosWire

/// Why an app is told of a change. The numbers are those of `NSUbiquitousKeyValueStore`.
public enum ChangeReason: Int, Sendable, Hashable, Codable {
    /// Another device changed a value.
    case serverChange = 0
    /// The first download has finished.
    case initialSyncChange = 1
    /// The server refused a write for want of room. The previous values stay.
    case quotaViolationChange = 2
    /// Another account is signed in, or none. Read everything again.
    case accountChange = 3
}

/// What an app is told when a store changes from outside.
public struct ChangeNotification: Sendable {
    /// Why the app is told.
    public var reason: ChangeReason
    /// The keys, in order. None when another account is signed in: read everything again. When a write was refused,
    /// those that it would have changed.
    public var changedKeys: [ItemName]
    /// The new states of the changed keys, as far as they are known. A nil value: deleted.
    public var items: [KeyValueItem]
    /// The device that made the change, if it was one.
    public var device: DeviceID?
    /// The store's head after the change.
    public var token: ChangeToken
    /// Why a write was refused.
    public var error: CloudError?

    /// One of an app's own making, for its tests.
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
