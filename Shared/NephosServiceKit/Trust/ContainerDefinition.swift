public import NephosCore
public import NephosWire

/// What the operator has said that a container is.
public struct ContainerDefinition: Hashable, Sendable {
    /// Nil: one that this version does not know.
    public var containerClass: ContainerClass?
    /// Whether names that differ in capitals or composition alone clash.
    public var foldsNames: Bool
    /// The only app that changes it; nil: each that lists it.
    public var writer: AppID?
    /// Days that something stays in the trash, and that former versions are kept; nil: as the class says.
    public var trashDays: Int?
    public var versionDays: Int?
    /// Whose its public databases are; nil: that is not known yet.
    public var owner: AppID?
    /// Accounts that may do everything in those.
    public var administrators: [AccountID] = []
    /// Rises with each change; of two, the one with the higher version counts.
    public var version: UInt64

    /// Of a container of which nobody has said anything.
    public static let standard = ContainerDefinition(
        containerClass: .documents, foldsNames: false, writer: nil, version: 0)

    public init(
        containerClass: ContainerClass?, foldsNames: Bool, writer: AppID?, trashDays: Int? = nil,
        versionDays: Int? = nil, version: UInt64
    ) {
        (self.trashDays, self.versionDays) = (trashDays, versionDays)
        self.containerClass = containerClass
        self.foldsNames = foldsNames
        self.writer = writer
        self.version = version
    }

    public init(_ wire: WireContainerDefinition) {
        self.init(
            containerClass: ContainerClass(wire.containerClass), foldsNames: wire.names == .folded,
            writer: wire.writerApp.isEmpty ? nil : AppID(wire.writerApp), trashDays: Self.days(wire.trashDays),
            versionDays: Self.days(wire.versionDays), version: wire.version)
        owner = wire.ownerApp.isEmpty ? nil : AppID(wire.ownerApp)
        administrators = wire.administratorIds.map { AccountID($0) }
    }

    private static func days(_ days: UInt32) -> Int? {
        days == 0 ? nil : min(Int(days), DocumentLimits.retentionDaysMax)
    }

    /// Whether the app may change it.
    public func isChanged(by app: AppID) -> Bool { writer == nil || writer == app }
}

extension WireContainerDefinition {
    public init(_ definition: ContainerDefinition, of container: ItemName) {
        self.init()
        containerID = container.rawValue
        containerClass = definition.containerClass?.wire ?? .unspecified
        names = definition.foldsNames ? .folded : .bytes
        writerApp = definition.writer?.rawValue ?? ""
        trashDays = UInt32(clamping: definition.trashDays ?? 0)
        versionDays = UInt32(clamping: definition.versionDays ?? 0)
        ownerApp = definition.owner?.rawValue ?? ""
        administratorIds = definition.administrators.map(\.rawValue)
        version = definition.version
    }
}
