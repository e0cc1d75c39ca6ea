internal import Core
internal import Storage

/// An app and what it is entitled to.
struct AppRecord: Hashable, Sendable {
    var id: AppID
    var name: String
    var store: StoreID
    /// The first is the default.
    var containers: [String]
}

struct AppStore {
    let transaction: any Transaction

    private static let selectAll = SQL("SELECT app_id, name, store_id FROM apps ORDER BY app_id")
    private static let selectByID = SQL("SELECT app_id, name, store_id FROM apps WHERE app_id = ?1")
    private static let insertApp = SQL("INSERT INTO apps (app_id, name, store_id) VALUES (?1, ?2, ?3)")
    private static let selectContainers = SQL(
        "SELECT container_id FROM app_containers WHERE app_id = ?1 ORDER BY place")
    private static let insertContainer = SQL(
        "INSERT INTO app_containers (app_id, place, container_id) VALUES (?1, ?2, ?3)")

    func app(_ id: AppID) throws -> AppRecord? {
        try transaction.first(Self.selectByID, [.text(id.rawValue)], Self.record).map(addingContainers)
    }

    /// Every app, by id.
    func list() throws -> [AppRecord] {
        try transaction.all(Self.selectAll, [], Self.record).map(addingContainers)
    }

    func insert(_ app: AppRecord) throws {
        try transaction.execute(
            Self.insertApp, [.text(app.id.rawValue), .text(app.name), .text(app.store.rawValue)])
        for (place, container) in app.containers.enumerated() {
            try transaction.execute(
                Self.insertContainer, [.text(app.id.rawValue), .integer(Int64(place)), .text(container)])
        }
    }

    private func addingContainers(_ app: AppRecord) throws -> AppRecord {
        var app = app
        app.containers = try transaction.all(Self.selectContainers, [.text(app.id.rawValue)]) { $0.text(0) }
        return app
    }

    private static func record(_ row: any SQLRow) -> AppRecord {
        AppRecord(id: AppID(row.text(0)), name: row.text(1), store: StoreID(row.text(2)), containers: [])
    }
}
