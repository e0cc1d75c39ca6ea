internal import Core
internal import Wire

/// What an app may be called and may list.
enum EntitlementRule {
    static let containersMax = 100

    /// The app as it is stored: the store is the app's own unless it names another.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a malformed or repeated name. Wildcards are malformed.
    static func app(_ wire: WireApp) throws(CloudError) -> AppRecord {
        let store = wire.storeID.isEmpty ? wire.appID : wire.storeID
        try check(wire.appID, argument: "app_id")
        try check(store, argument: "store_id")
        try TextRule.check(wire.name, argument: "name")
        for container in wire.containerIds { try check(container, argument: "container_ids") }
        guard wire.containerIds.count <= containersMax, Set(wire.containerIds).count == wire.containerIds.count else {
            throw CloudError(
                .invalidArguments, "An app lists too many containers, or one of them twice.",
                details: ["argument": "container_ids", "count_max": "\(containersMax)"])
        }
        return AppRecord(
            id: AppID(wire.appID), name: wire.name.isEmpty ? wire.appID : wire.name, store: StoreID(store),
            containers: wire.containerIds)
    }

    private static func check(_ name: String, argument: String) throws(CloudError) {
        guard NameRule.accepts(name) else {
            throw CloudError(
                .invalidArguments, "A name has 1 to 128 letters, digits, dots, hyphens and underscores; no wildcards.",
                details: ["argument": argument])
        }
    }
}
