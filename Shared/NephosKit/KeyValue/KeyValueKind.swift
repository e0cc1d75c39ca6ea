import GRDB
import NephosCore

/// Key-value stores: each app that this device has used has one.
struct KeyValueKind: ScopeKind {
    let service = ServiceName.keyValue

    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID] {
        let isSignedIn = session?.signedIn == true
        // What waits, or was written while nobody was signed in, under the app's own name.
        let unnamed = try String.fetchAll(
            database,
            sql: isSignedIn
                ? "SELECT DISTINCT scope FROM outbox WHERE service = 'keyvalue' AND account = ?"
                : "SELECT DISTINCT store FROM items WHERE account = ?",
            arguments: [isSignedIn ? session?.accountID.rawValue ?? "" : ""])
        let named = (session?.storeIDs.keys).map(Array.init) ?? []
        return Set(named + unnamed.compactMap(StoreScope.provisionalApp)).map {
            ScopeID(app: AppID($0), service: service)
        }
    }

    func open(_ id: ScopeID, on engine: DeviceEngine) -> ScopeDriver { engine.keyValue(id.app).driver }
}
