import GRDB
import NephosCore

/// Databases and zones: those that this home has used of containers that an app lists.
struct RecordsKind: ScopeKind {
    let service = ServiceName.records

    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID] {
        guard let session, session.signedIn else { return [] }
        let used = try String.fetchAll(
            database,
            sql: """
                SELECT scope FROM scopes WHERE service = 'records' AND account = ?1
                UNION SELECT scope FROM outbox WHERE service = 'records' AND account = ?1
                UNION SELECT scope FROM undecided WHERE service = 'records' AND account = ?1
                """,
            arguments: [session.accountID.rawValue])
        // Apps may list one container: the first of them speaks for it.
        var owners: [String: String] = [:]
        for (app, containers) in (session.containerIDs ?? [:]).sorted(by: { $0.key < $1.key }) {
            for container in containers where owners[container] == nil { owners[container] = app }
        }
        return used.compactMap { name in
            let place = RecordPlace(name)
            return owners[place.container].map { ScopeID(app: AppID($0), service: service, name: place.name) }
        }
    }

    func open(_ id: ScopeID, on engine: DeviceEngine) throws(CloudError) -> ScopeDriver {
        switch RecordPlace(id.name) {
        case .database(let container):
            guard !container.isEmpty else {
                throw CloudError(.unknownItem, "Records are kept in containers. Name one, or one of its zones.")
            }
            let driver = try engine.open(RecordDatabaseModel(app: id.app, container: container, engine: engine))
            engine.sweepContents()
            return driver
        case .publicZone, .publicOutbox:
            return try engine.open(RecordZoneModel(app: id.app, RecordPlace(id.name), engine: engine))
        case .zone(let container, let zone):
            try RecordNames.check(zone: zone)
            // Which zones there are, the database tells.
            _ = try engine.scope(ScopeID(app: id.app, service: service, name: container))
            return try engine.open(RecordZoneModel(app: id.app, .zone(container, zone), engine: engine))
        }
    }

    func describe(
        _ changes: UnsentChanges, of session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        var (changes, scope) = (changes, changes.name)
        let place = RecordPlace(scope)
        (changes.app, changes.name) = (UnsentChanges.app(listing: place.container, session), place.name)
        try changes.setNames("name", of: "record_changes", "scope", scope, session, database)
        try changes.setAssetBytes(scope, session, database)
        return changes
    }

}

extension UnsentChanges {
    /// Of assets that requests have to store before they are sent. Those of a record that several name count once.
    fileprivate mutating func setAssetBytes(_ scope: String, _ session: SessionRecord, _ database: Database) throws {
        let waiting =
            "FROM content_holders AS n JOIN content_copies AS a ON a.account = n.account AND a.service = n.service "
            + "AND a.container = n.container AND a.root = n.root WHERE n.account = ?1 AND n.service = 'records' "
            + "AND n.container = ?3 AND n.scope = ?2 AND EXISTS (SELECT 1 FROM record_changes AS c "
            + "JOIN record_uploads AS u ON u.position = c.position WHERE c.account = n.account AND c.scope = n.scope "
            + "AND c.name = n.name AND u.is_stored = 0)"
        let values = [session.accountID.rawValue, scope, RecordPlace(scope).container]
        let all = try Int64.fetchOne(
            database, sql: "SELECT COALESCE(SUM(length), 0) FROM (SELECT DISTINCT a.root, a.length \(waiting))",
            arguments: StatementArguments(values))
        bytes = UInt64(clamping: all ?? 0)
        guard bytes > 0 else { return }
        for index in items.indices {
            let own = try Int64.fetchOne(
                database, sql: "SELECT COALESCE(SUM(a.length), 0) \(waiting) AND n.name = ?4",
                arguments: StatementArguments(values + [items[index].name]))
            items[index].bytes = UInt64(clamping: own ?? 0)
        }
    }
}

extension DeviceEngine {
    /// Which zones a database has may have changed: those that are followed begin, or end, in a moment.
    func reconsiderZones(of container: String) {
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !stopped else { return }
            for driver in scopes {
                guard let model = driver.model as? RecordZoneModel, model.container == container, !model.place.isPublic
                else { continue }
                driver.reconsider()
            }
        }
    }

    /// Whether the app lists the container.
    static func lists(_ container: String, _ app: AppID, in session: SessionRecord) -> Bool {
        session.containerIDs?[app.rawValue]?.contains { $0.hasSameBytes(as: container) } == true
    }
}
