internal import Foundation
internal import GRDB
public import NephosCore

/// What waits to be sent of one store, container or database, as somebody sees it who is about to sign out.
public struct UnsentChanges: Hashable, Sendable {
    /// Something of which a change waits.
    public struct Item: Hashable, Sendable {
        /// A key, a path, or a record's name.
        public var name: String
        /// Bytes of the content that the server has not got; 0: none is to be sent.
        public var bytes: UInt64
    }

    /// The app that sends it; of several that share it the one that signed in. Nil: no app of the account has it any more.
    public var app: AppID?
    /// Which service it waits for.
    public var service: ServiceName
    /// Which of those that the app has there: a container, with the zone of a record; empty: it has one.
    public var name: String
    /// How many requests wait.
    public var requestCount: Int
    /// Of what something waits, the first 100 of them.
    public var items: [Item] = []
    /// How many these are in all; 0: it is not known item by item.
    public var itemCount = 0
    /// Bytes of contents that the server has not got.
    public var bytes: UInt64 = 0
}

extension Session {
    /// What waits to be sent of all that the account has here, also of one that has signed out. Needs no network.
    ///
    /// ``signOut(keepsUnsent:timeout:)`` refuses to go on while there is something, unless it may stay here unsent.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func unsentChanges() async throws(CloudError) -> [UnsentChanges] {
        try local.read { database in
            guard let session = try Facts(database).session else { return [] }
            return try UnsentChanges.list(of: session, database)
        }
    }
}

extension UnsentChanges {
    private static let itemsMax = 100

    static func list(of session: SessionRecord, _ database: Database) throws -> [UnsentChanges] {
        try Row.fetchAll(
            database,
            sql: "SELECT service, scope, COUNT(*) AS count FROM outbox WHERE account = ? "
                + "GROUP BY service, scope ORDER BY service, scope",
            arguments: [session.accountID.rawValue]
        ).map { row in
            let (service, scope) = (ServiceName(row["service"] as String), row["scope"] as String)
            switch service {
            case .documents: return try documents(in: scope, row["count"], session, database)
            case .records: return try records(in: scope, row["count"], session, database)
            default: return try keys(of: scope, service, row["count"], session, database)
            }
        }
    }

    private static func keys(
        of store: String, _ service: ServiceName, _ count: Int, _ session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        // Apps may share a store; any of them can send what waits there.
        let sharing = session.storeIDs.filter { $0.value == store }.keys.sorted()
        let app = sharing.first { $0 == session.defaultApp.rawValue } ?? sharing.first
        let owner = app ?? StoreScope.provisionalApp(of: store)
        var changes = UnsentChanges(
            app: owner.map { AppID($0) }, service: service, name: owner == nil ? store : "", requestCount: count)
        try changes.setNames("key", of: "pending_writes", "store", store, session, database)
        return changes
    }

    private static func documents(
        in container: String, _ count: Int, _ session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        var changes = UnsentChanges(
            app: app(listing: container, session), service: .documents, name: container, requestCount: count)
        let documents = DocumentTransaction(
            ScopeTransaction(database, LocalScope(account: session.accountID, service: .documents, path: container)))
        let pending = try documents.pendingItems()
        changes.set(
            try pending.prefix(itemsMax).map {
                Item(name: try documents.pathText(of: $0.id) ?? "\($0.id)", bytes: $0.bytes)
            }, of: pending.count)
        changes.bytes = pending.reduce(0) { $0.addingClamped($1.bytes) }
        return changes
    }

    private static func records(
        in scope: String, _ count: Int, _ session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        let place = RecordPlace(scope)
        var changes = UnsentChanges(
            app: app(listing: place.container, session), service: .records, name: place.name, requestCount: count)
        try changes.setNames("name", of: "record_changes", "scope", scope, session, database)
        try changes.setAssetBytes(scope, session, database)
        return changes
    }

    /// Of assets that requests have to store before they are sent. Those of a record that several name count once.
    private mutating func setAssetBytes(_ scope: String, _ session: SessionRecord, _ database: Database) throws {
        let waiting =
            "FROM record_asset_needs AS n JOIN record_assets AS a ON a.account = n.account AND a.root = n.root "
            + "WHERE n.account = ?1 AND n.scope = ?2 AND EXISTS (SELECT 1 FROM record_changes AS c "
            + "JOIN record_uploads AS u ON u.position = c.position WHERE c.account = n.account AND c.scope = n.scope "
            + "AND c.name = n.name AND u.is_stored = 0)"
        let values = [session.accountID.rawValue, scope]
        let all = try Int64.fetchOne(
            database, sql: "SELECT COALESCE(SUM(length), 0) FROM (SELECT DISTINCT a.root, a.length \(waiting))",
            arguments: StatementArguments(values))
        bytes = UInt64(clamping: all ?? 0)
        guard bytes > 0 else { return }
        for index in items.indices {
            let own = try Int64.fetchOne(
                database, sql: "SELECT COALESCE(SUM(a.length), 0) \(waiting) AND n.name = ?3",
                arguments: StatementArguments(values + [items[index].name]))
            items[index].bytes = UInt64(clamping: own ?? 0)
        }
    }

    private static func app(listing container: String, _ session: SessionRecord) -> AppID? {
        let apps = (session.containerIDs ?? [:]).filter { _, containers in
            containers.contains { $0.hasSameBytes(as: container) }
        }.keys.sorted()
        return (apps.first { $0 == session.defaultApp.rawValue } ?? apps.first).map { AppID($0) }
    }

    private mutating func set(_ items: [Item], of count: Int) {
        itemCount = count
        self.items = Array(items.prefix(Self.itemsMax))
    }

    /// As many as are listed: of a scope a million may wait.
    private mutating func setNames(
        _ column: String, of table: String, _ place: String, _ scope: String, _ session: SessionRecord,
        _ database: Database
    ) throws {
        let own = "FROM \(table) WHERE account = ?1 AND \(place) = ?2"
        let names = try String.fetchAll(
            database, sql: "SELECT DISTINCT \(column) \(own) ORDER BY \(column) LIMIT ?3",
            arguments: [session.accountID.rawValue, scope, Self.itemsMax])
        let count = try Int.fetchOne(
            database, sql: "SELECT COUNT(DISTINCT \(column)) \(own)", arguments: [session.accountID.rawValue, scope])
        set(names.map { Item(name: $0, bytes: 0) }, of: count ?? names.count)
    }

    // MARK: For people

    /// The command that waits until it is sent; nil: no app has it any more.
    fileprivate func command(_ session: SessionRecord, home: String?) -> String? {
        guard let app else { return nil }
        let options = ShellCommand.options(app: app, isDefault: app == session.defaultApp, home: home)
        let listed = session.containerIDs?[app.rawValue] ?? []
        func container(_ id: String) -> String {
            listed.first == id ? "" : " --container=\(ShellCommand.word(id))"
        }
        switch service {
        case .documents: return "nephos docs status\(options)\(container(name))"
        case .records: return "nephos why\(options) --service=\(service)"
        default: return "nephos kv sync\(options)"
        }
    }
}

extension [UnsentChanges] {
    /// As an error tells of them.
    ///
    /// - Parameter commands: Those that have them sent.
    func details(_ session: SessionRecord, commands: [String] = []) -> [String: String] {
        var details = [
            "account": session.accountName, "unsent": "\(reduce(0) { $0 + $1.requestCount })",
            "apps": map { changes in
                let owner = changes.app?.rawValue ?? changes.name
                let service = changes.service == .keyValue ? "" : " (\(changes.service))"
                return "\(owner)\(service): \(changes.requestCount)"
            }.joined(separator: ", "),
        ]
        if !commands.isEmpty { details["send"] = commands.joined(separator: "; ") }
        return details
    }

    /// The commands that wait until all of it is sent, each once.
    func commands(_ session: SessionRecord, home: String?) -> [String] {
        reduce(into: []) { commands, changes in
            guard let command = changes.command(session, home: home), !commands.contains(command) else { return }
            commands.append(command)
        }
    }
}
