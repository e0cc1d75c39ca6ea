public import NephosCore
public import NephosWire

/// What an app may use.
public struct Entitlements: Hashable, Sendable {
    public struct Capabilities: OptionSet, Hashable, Sendable {
        public let rawValue: UInt8
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        public static let keyValue = Capabilities(rawValue: 1)
        public static let documents = Capabilities(rawValue: 2)
        public static let records = Capabilities(rawValue: 4)
        public static let all: Capabilities = [.keyValue, .documents, .records]
    }

    /// Rises with each change; of two, the one with the higher version counts.
    public var version: UInt64
    public var capabilities: Capabilities
    public var store: StoreID?
    /// The first is the default.
    public var containers: [ItemName]

    public init(version: UInt64 = 1, capabilities: Capabilities = .all, store: StoreID?, containers: [ItemName]) {
        self.version = version
        self.capabilities = capabilities
        self.store = store
        self.containers = containers
    }

    /// What identity published of an app; a removed one has no capabilities.
    public init(_ app: WireApp, isRemoved: Bool = false) {
        self.init(
            version: app.version, capabilities: isRemoved ? [] : Capabilities(app.capabilities),
            store: app.storeID.isEmpty ? nil : StoreID(app.storeID), containers: app.containerIds.map { ItemName($0) })
    }

    /// Whether the scope (a store or a container) is one that the app lists, and may use with this service.
    public func include(_ scope: ItemName, of service: ServiceName) -> Bool {
        switch service {
        case .keyValue: capabilities.contains(.keyValue) && store.map { ItemName($0.rawValue) } == scope
        case .documents: capabilities.contains(.documents) && containers.contains(scope)
        case .records: capabilities.contains(.records) && containers.contains(scope)
        default: false
        }
    }
}

extension Entitlements.Capabilities {
    private static let byWire: [(WireCapability, Self)] = [
        (.keyValue, .keyValue), (.documents, .documents), (.records, .records),
    ]

    /// What this build does not know grants nothing.
    public init(_ wire: [WireCapability]) {
        self = Self.byWire.reduce(into: []) { if wire.contains($1.0) { $0.insert($1.1) } }
    }

    public var wire: [WireCapability] { Self.byWire.filter { contains($0.1) }.map(\.0) }
}
