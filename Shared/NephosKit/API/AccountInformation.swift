public import Core
public import Wire

/// How a device is treated where room matters.
public enum DevicePolicyClass: String, Codable, Sendable {
    /// Keeps a copy of everything.
    case computer
    /// Fetches files when they are opened.
    case smallDevice = "small"
}

/// A device as the server knows it.
public struct DeviceInformation: Sendable, Hashable {
    public var id: DeviceID
    public var name: String
    public var model: String
    public var platform: String
    public var enrolled: Timestamp
    /// When it last signed in or renewed its tokens: to within about ten minutes of use.
    public var lastSeen: Timestamp
    public var isRevoked: Bool
    public var policyClass: DevicePolicyClass
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
        policyClass = wire.policyClass == .smallDevice ? .smallDevice : .computer
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

/// Something that happened to the account.
public struct AuditEntry: Sendable, Hashable {
    /// Rises; names the entry.
    public var number: UInt64
    public var time: Timestamp
    /// Such as `sign-in` or `device.revoked`. Stable across releases.
    public var event: String
    /// The device that did it, or tried; nil: it is not one of the account's.
    public var device: DeviceID?
    public var deviceName: String
    public var byOperator: Bool
    public var details: [String: String]

    public init(_ wire: WireAuditEntry) {
        number = wire.number
        time = Timestamp(milliseconds: wire.time)
        event = wire.event
        device = wire.deviceID.isEmpty ? nil : DeviceID(wire.deviceID)
        deviceName = wire.deviceName
        byOperator = wire.byOperator
        details = wire.details
    }
}

/// How full the account's plan is, and with what.
public struct StorageInformation: Sendable, Hashable {
    /// What one service stores.
    public struct Service: Sendable, Hashable {
        public var service: ServiceName
        public var bytes: UInt64
        /// Key-value content does not.
        public var countsOnPlan: Bool
        public var items: [Item]
    }

    /// What one device stored for one app.
    public struct Item: Sendable, Hashable {
        /// For key-value content the store, which may be several apps'.
        public var app: String
        /// Empty: not kept.
        public var device: String
        public var bytes: UInt64
    }

    public var plan: String
    public var planBytes: UInt64
    /// What counts on the plan, as the services last told identity.
    public var usedBytes: UInt64
    /// Services that could not be asked are left out.
    public var services: [Service]
}

/// The plan has become fuller than a threshold, or emptier.
public struct StorageNotice: Sendable, Hashable {
    public var planBytes: UInt64
    public var usedBytes: UInt64
    /// In percent: 0, 80, 90, 95, or 100 when nothing is left.
    public var level: Int
}
