internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

/// What an app may be called and may list.
enum EntitlementRule {
    /// Apps of a deployment, removed ones included: every service knows them all.
    static let appsMax = 2000
    /// They travel in each access token.
    static let containersMax = 16
    static let teamLengthMax = 32

    /// The app as it is stored: the store is the app's own unless it names
    /// another, and it may use everything unless it says what.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a malformed or repeated
    ///   name, or one of another team. Wildcards are malformed.
    static func app(_ wire: WireApp, version: UInt64) throws(CloudError) -> AppRecord {
        let store = wire.storeID.isEmpty ? wire.appID : wire.storeID
        let team = try team(of: wire.appID)
        try check(store, of: team, argument: "store_id")
        try TextRule.check(wire.name, argument: "name")
        for container in wire.containerIds { try check(container, of: team, argument: "container_ids") }
        let containers = wire.containerIds.map { ItemName($0) }
        guard containers.count <= containersMax, Set(containers).count == containers.count else {
            throw CloudError(
                .invalidArguments, "An app lists too many containers, or one of them twice.",
                details: ["argument": "container_ids", "count_max": "\(containersMax)"])
        }
        let capabilities = wire.capabilities.isEmpty ? .all : Entitlements.Capabilities(wire.capabilities)
        guard !capabilities.isEmpty else {
            throw CloudError(
                .invalidArguments, "There are the capabilities key-value, documents and records.",
                details: ["argument": "capabilities"])
        }
        return AppRecord(
            id: AppID(wire.appID), name: wire.name.isEmpty ? wire.appID : wire.name,
            entitlements: Entitlements(
                version: version, capabilities: capabilities, store: StoreID(store), containers: containers))
    }

    /// The team's prefix, with its dot: the part of the id up to the first dot.
    /// Only apps of one team share stores and containers, so that a stranger's
    /// app cannot list what is not its own.
    private static func team(of id: String) throws(CloudError) -> String {
        guard let prefix = prefix(of: id) else {
            throw CloudError(
                .invalidArguments,
                "An app id is a team's prefix of capital letters and digits, a dot, and a name, such as A1B2C3.com.example.notes.",
                details: ["argument": "app_id", "length_max": "\(NameRule.lengthMax)"])
        }
        return prefix
    }

    /// - Returns: Nil: the id is none of a team's.
    private static func prefix(of id: String) -> String? {
        let parts = id.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard NameRule.accepts(id), parts.count == 2, !parts[1].isEmpty, 1...teamLengthMax ~= parts[0].utf8.count,
            parts[0].allSatisfy({ $0.isASCII && ($0.isUppercase || $0.isNumber) })
        else { return nil }
        return parts[0] + "."
    }

    /// Containers of a deployment, as of which it is known at least whose they are: every service knows them all.
    static let definitionsMax = appsMax * containersMax
    static let administratorsMax = 16

    /// What a container is, as it is stored.
    ///
    /// The container of the app that is always there is no team's, and that app's alone.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a container that is no team's, for a writer or an owner of another
    ///   team, for days beyond the bound, and for a class or a rule that this version does not know.
    static func definition(_ wire: WireContainerDefinition, version: UInt64) throws(CloudError) -> ContainerDefinition {
        let isDefault = IdentityService.defaultApp.entitlements.containers.contains(ItemName(wire.containerID))
        guard isDefault || prefix(of: wire.containerID) != nil else {
            throw CloudError(
                .invalidArguments,
                "A container's id is a team's prefix of capital letters and digits, a dot, and a name.",
                details: ["argument": "container_id", "length_max": "\(NameRule.lengthMax)"])
        }
        for (argument, app) in [("writer_app", wire.writerApp), ("owner_app", wire.ownerApp)] where !app.isEmpty {
            try check(app, ofContainer: wire.containerID, argument: argument)
        }
        let definition = ContainerDefinition(wire)
        guard definition.containerClass != nil else {
            throw CloudError(
                .invalidArguments, "There are the classes documents, backup, stream and library.",
                details: ["argument": "container_class"])
        }
        if case .UNRECOGNIZED = wire.names {
            throw CloudError(
                .invalidArguments, "Names clash by their bytes, or folded.", details: ["argument": "names"])
        }
        for (argument, days) in [("trash_days", wire.trashDays), ("version_days", wire.versionDays)] {
            guard days <= DocumentLimits.retentionDaysMax else {
                throw CloudError(
                    .invalidArguments, "What is removed is kept for 1 to \(DocumentLimits.retentionDaysMax) days.",
                    details: ["argument": argument, "maximum": "\(DocumentLimits.retentionDaysMax)"])
            }
        }
        var stored = definition
        stored.version = version
        return stored
    }

    /// Whether the app may have a part in the container.
    private static func check(_ app: String, ofContainer container: String, argument: String) throws(CloudError) {
        if let prefix = prefix(of: container) { return try check(app, of: prefix, argument: argument) }
        guard app == IdentityService.defaultApp.id.rawValue else {
            throw CloudError(
                .invalidArguments, "This container is the default app's alone.",
                details: ["argument": argument, "app": IdentityService.defaultApp.id.rawValue])
        }
    }

    private static func check(_ name: String, of team: String, argument: String) throws(CloudError) {
        guard NameRule.accepts(name) else {
            throw CloudError(
                .invalidArguments, "A name has 1 to 128 letters, digits, dots, hyphens and underscores; no wildcards.",
                details: ["argument": argument])
        }
        guard name.hasPrefix(team) else {
            throw CloudError(
                .invalidArguments,
                "An app can only list what is its own team's. Begin the name with the team's prefix.",
                details: ["argument": argument, "prefix": team])
        }
    }
}
