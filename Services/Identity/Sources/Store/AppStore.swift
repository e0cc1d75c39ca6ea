internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// An app and what it is entitled to.
struct AppRecord: Hashable, Sendable {
    var id: AppID
    var name: String
    var entitlements: Entitlements
    /// It has no entitlements any more; its row keeps their version from starting over.
    var isRemoved = false
    /// What its public databases may hold.
    var plan = PlanID.standard
}

struct AppStore {
    let transaction: any Transaction

    private static let columns = "app_id, name, store_id, capabilities, version, removed, plan_id"
    private static let selectAll = SQL(
        "SELECT \(columns) FROM apps WHERE removed = 0 AND app_id > ?1 ORDER BY app_id LIMIT ?2")
    private static let selectCount = SQL("SELECT COUNT(*) FROM apps")
    private static let selectByID = SQL("SELECT \(columns) FROM apps WHERE app_id = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO apps (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT (app_id) DO UPDATE SET
            name = excluded.name, store_id = excluded.store_id, capabilities = excluded.capabilities,
            version = excluded.version, removed = excluded.removed, plan_id = excluded.plan_id
        """)
    private static let selectContainers = SQL(
        "SELECT container_id FROM app_containers WHERE app_id = ?1 ORDER BY place")
    private static let deleteContainers = SQL("DELETE FROM app_containers WHERE app_id = ?1")
    private static let insertContainer = SQL(
        "INSERT INTO app_containers (app_id, place, container_id) VALUES (?1, ?2, ?3)")

    /// The app, or nil if there is none or it was removed.
    func app(_ id: AppID) throws -> AppRecord? {
        guard let app = try record(id), !app.isRemoved else { return nil }
        return app
    }

    /// The app's row, also when it was removed.
    func record(_ id: AppID) throws -> AppRecord? {
        try transaction.first(Self.selectByID, [.text(id.rawValue)], Self.record).map(addingContainers)
    }

    /// Apps after an id, in their order.
    func list(after id: String, limit: Int) throws -> [AppRecord] {
        try transaction.all(Self.selectAll, [.text(id), .integer(Int64(limit))], Self.record).map(addingContainers)
    }

    /// How many there are, removed ones too.
    func count() throws -> Int { try transaction.first(Self.selectCount) { Int($0.integer(0)) } ?? 0 }

    /// Inserts the app, or replaces it.
    func save(_ app: AppRecord) throws {
        let id = SQLValue.text(app.id.rawValue)
        try transaction.execute(
            Self.upsert,
            [
                id, .text(app.name), .text(app.entitlements.store?.rawValue ?? ""),
                .integer(Int64(app.entitlements.capabilities.rawValue)),
                .integer(Int64(clamping: app.entitlements.version)), .integer(app.isRemoved ? 1 : 0),
                .text(app.plan.rawValue),
            ])
        try transaction.execute(Self.deleteContainers, [id])
        for (place, container) in app.entitlements.containers.enumerated() {
            try transaction.execute(Self.insertContainer, [id, .integer(Int64(place)), .text(container.rawValue)])
        }
    }

    private func addingContainers(_ app: AppRecord) throws -> AppRecord {
        var app = app
        app.entitlements.containers = try transaction.all(Self.selectContainers, [.text(app.id.rawValue)]) {
            ItemName($0.text(0))
        }
        return app
    }

    private static func record(_ row: any SQLRow) -> AppRecord {
        let store = row.text(2)
        return AppRecord(
            id: AppID(row.text(0)), name: row.text(1),
            entitlements: Entitlements(
                version: UInt64(clamping: row.integer(4)),
                capabilities: Entitlements.Capabilities(rawValue: UInt8(clamping: row.integer(3))),
                store: store.isEmpty ? nil : StoreID(store), containers: []),
            isRemoved: row.integer(5) != 0, plan: PlanID(row.text(6)))
    }
}
