import GRDB
import NephosCore

/// Key-value stores: each app that this device has used has one.
struct KeyValueKind: ScopeKind {
    let service = ServiceName.keyValue

    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID] {
        let isSignedIn = session?.signedIn == true
        // What waits or was refused, or was written while nobody was signed in, under the app's own name.
        let waiting = try String.fetchAll(
            database,
            sql: isSignedIn
                ? "SELECT scope FROM outbox WHERE service = 'keyvalue' AND account = ?1 "
                    + "UNION SELECT scope FROM undecided WHERE service = 'keyvalue' AND account = ?1"
                : "SELECT DISTINCT store FROM items WHERE account = ?1",
            arguments: [isSignedIn ? session?.accountID.rawValue ?? "" : ""])
        // Of an app that may not use key-value (any more) that is told, and nothing is kept in step.
        let named = (session?.storeIDs ?? [:]).filter { app, store in
            session?.mayUseKeyValue(AppID(app)) == true || waiting.contains(store)
        }.keys
        return Set(Array(named) + waiting.compactMap(StoreScope.provisionalApp)).map {
            ScopeID(app: AppID($0), service: service)
        }
    }

    func open(_ id: ScopeID, on engine: DeviceEngine) -> ScopeDriver { engine.keyValue(id.app).driver }

    func describe(
        _ changes: UnsentChanges, of session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        var (changes, store) = (changes, changes.name)
        // Apps may share a store; any of them can send what waits there.
        let sharing = session.storeIDs.filter { $0.value == store }.keys.sorted()
        let app = sharing.first { $0 == session.defaultApp.rawValue } ?? sharing.first
        let owner = app ?? StoreScope.provisionalApp(of: store)
        (changes.app, changes.name) = (owner.map { AppID($0) }, owner == nil ? store : "")
        try changes.setNames("key", of: "pending_writes", "store", store, session, database)
        return changes
    }

    func command(sending changes: UnsentChanges, options: String, _ session: SessionRecord) -> String {
        "nephos kv sync\(options)"
    }
}
