public import NephosCore
package import NephosWire

/// How a device uses its disk.
public enum DevicePolicyClass: String, Codable, Sendable {
    /// Keeps a copy of everything.
    case computer
    /// Fetches files when they are opened.
    case smallDevice = "small"
}

/// A device as the server knows it.
public struct DeviceInformation: Sendable, Hashable {
    /// The device's permanent id; a new name does not change it.
    public var id: DeviceID
    /// The device's name for users: given at sign-in, changed by ``Session/rename(_:to:)``.
    public var name: String
    /// As it said at sign-in; may be empty.
    public var model: String
    /// As it said at sign-in, such as `linux`.
    public var platform: String
    /// When its key was first signed in, by the server's clock.
    public var enrolled: Timestamp
    /// When it last signed in or renewed its tokens: to within about ten minutes of use.
    public var lastSeen: Timestamp
    /// Whether it can neither read nor write any more.
    public var isRevoked: Bool
    /// How it is treated where room matters.
    public var policyClass: DevicePolicyClass
    /// CURVE public key, Z85.
    public var publicKey: String
    /// The name of the app password that it signed in with; nil: the account's own password.
    public var appPassword: String?

    init(_ wire: WireDevice) {
        id = DeviceID(wire.deviceID)
        name = wire.name
        model = wire.model
        platform = wire.platform
        enrolled = Timestamp(milliseconds: wire.enrolledAt)
        lastSeen = Timestamp(milliseconds: wire.lastSeenAt)
        isRevoked = wire.revoked
        publicKey = wire.publicKey
        appPassword = wire.appPassword.isEmpty ? nil : wire.appPassword
        policyClass = wire.policyClass == .smallDevice ? .smallDevice : .computer
    }
}

/// An account, seen from one of its devices.
public struct AccountInformation: Sendable, Hashable {
    /// The account's permanent id.
    public var accountID: AccountID
    /// The account's name, with which devices sign in.
    public var accountName: String
    /// This device.
    public var device: DeviceInformation
    /// The app that signed in.
    public var app: AppID
    /// The app's key-value store; other apps may share it.
    public var store: StoreID
}

/// Something that happened to the account.
public struct AuditEntry: Sendable, Hashable {
    /// Rises; names the entry.
    public var number: UInt64
    /// By the server's clock.
    public var time: Timestamp
    /// Such as `sign-in` or `device.revoked`. Stable across releases.
    public var event: String
    /// The device that did it, or tried; nil: it is not one of the account's.
    public var device: DeviceID?
    /// The device's name at that time; empty: unknown.
    public var deviceName: String
    /// Whether the operator did it, and none of the account's devices.
    public var byOperator: Bool
    /// The varying facts; keys are snake_case.
    public var details: [String: String]

    /// As the server tells it.
    package init(_ wire: WireAuditEntry) {
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
    /// The bytes that one service stores.
    public struct Service: Sendable, Hashable {
        /// Which service.
        public var service: ServiceName
        /// All bytes, as they are counted.
        public var bytes: UInt64
        /// Whether the bytes count on the plan; those of key-value stores do not.
        public var countsOnPlan: Bool
        /// The bytes of each device and app.
        public var items: [Item]
    }

    /// The bytes that one device stored for one app.
    public struct Item: Sendable, Hashable {
        /// The app; for key-value content the store, which several apps may share.
        public var app: String
        /// Empty: not kept.
        public var device: String
        /// As it counts.
        public var bytes: UInt64
    }

    /// The plan's name.
    public var plan: String
    /// How much may be stored.
    public var planBytes: UInt64
    /// Bytes that count on the plan, by the services' last report to identity.
    public var usedBytes: UInt64
    public var services: [Service]
    /// Services that did not say what they store: it is not in ``services``.
    public var silent: [ServiceName]
}

/// The plan has become fuller than a threshold, or emptier.
public struct StorageNotice: Sendable, Hashable, Codable {
    /// How much may be stored.
    public var planBytes: UInt64
    /// How much is.
    public var usedBytes: UInt64
    /// In percent: 0, 80, 90, 95, or 100 when nothing is left.
    public var level: Int
}
