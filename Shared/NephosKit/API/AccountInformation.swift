public import Core
internal import Wire

/// A device as the server knows it.
public struct DeviceInformation: Sendable, Hashable {
    public var id: DeviceID
    public var name: String
    public var model: String
    public var platform: String
    public var enrolled: Timestamp
    public var lastSeen: Timestamp
    public var isRevoked: Bool
    /// CURVE public key, Z85.
    public var publicKey: String

    init(_ wire: WireDevice) {
        id = DeviceID(wire.deviceID)
        name = wire.name
        model = wire.model
        platform = wire.platform
        enrolled = Timestamp(milliseconds: wire.enrolledAt)
        lastSeen = Timestamp(milliseconds: wire.lastSeenAt)
        isRevoked = wire.revoked
        publicKey = wire.publicKey
    }
}

/// An account, seen from one of its devices.
public struct AccountInformation: Sendable, Hashable {
    public var accountID: AccountID
    public var accountName: String
    public var device: DeviceInformation
    public var app: AppID
    public var store: StoreID
}
