internal import Foundation
internal import GRDB
public import NephosCore

/// The pending changes of one store, container or database, to show before a sign-out.
public struct UnsentChanges: Hashable, Sendable {
    /// A key, file or record with a pending change.
    public struct Item: Hashable, Sendable {
        /// A key, a path, or a record's name.
        public var name: String
        /// Bytes of its content that the server does not have; 0: only the change is pending.
        public var bytes: UInt64
    }

    /// The app that sends the changes; if several apps share the store, the one that signed in. Nil: no app of the
    /// account has it any more.
    public var app: AppID?
    /// The service that will receive the changes.
    public var service: ServiceName
    /// The container, with the zone of a record; empty: the app has only one such store.
    public var name: String
    /// Number of pending requests.
    public var requestCount: Int
    /// The items with pending changes, at most 100.
    public var items: [Item] = []
    /// The number of all such items; 0: unknown.
    public var itemCount = 0
    /// Bytes of contents that the server does not have.
    public var bytes: UInt64 = 0
}

extension Session {
    /// All pending changes of the account on this device, also after it has signed out. Needs no network.
    ///
    /// ``signOut(keepsUnsent:timeout:)`` throws while there are any, unless they may stay here unsent.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func unsentChanges() async throws(CloudError) -> [UnsentChanges] {
        try await engine.perform { engine, completion in
            completion(
                Result { () throws(CloudError) in
                    try engine.local.read { database in
                        guard let session = try Facts(database).session else { return [] }
                        return try engine.unsentChanges(of: session, database)
                    }
                })
        }
    }
}

extension Session {
    /// How many changes of the account were refused, or conflict with others, and are nowhere but here, also of one that has
    /// signed out.
    package func undecidedCount() async throws(CloudError) -> Int {
        try await engine.perform { engine, completion in
            completion(
                Result { () throws(CloudError) in
                    try engine.local.read { database in
                        guard let session = try Facts(database).session else { return 0 }
                        return try UndecidedChanges.count(of: session.accountID, database)
                    }
                })
        }
    }
}

extension DeviceEngine {
    func unsentChanges(of session: SessionRecord, _ database: Database) throws -> [UnsentChanges] {
        try Row.fetchAll(
            database,
            sql: "SELECT service, scope, COUNT(*) AS count FROM outbox WHERE account = ? "
                + "GROUP BY service, scope ORDER BY service, scope",
            arguments: [session.accountID.rawValue]
        ).map { row in
            let changes = UnsentChanges(
                app: nil, service: ServiceName(row["service"]), name: row["scope"], requestCount: row["count"])
            return try kind(of: changes.service)?.describe(changes, of: session, database) ?? changes
        }
    }

    /// The commands that wait until all of it is sent, each once.
    func commands(sending unsent: [UnsentChanges], _ session: SessionRecord) -> [String] {
        unsent.reduce(into: []) { commands, changes in
            guard let app = changes.app, let kind = kind(of: changes.service) else { return }
            let options = ShellCommand.options(app: app, isDefault: app == session.defaultApp, home: local.home)
            let command = kind.command(sending: changes, options: options, session)
            if !commands.contains(command) { commands.append(command) }
        }
    }
}

extension UnsentChanges {
    private static let itemsMax = 100

    static func app(listing container: String, _ session: SessionRecord) -> AppID? {
        let apps = (session.containerIDs ?? [:]).filter { _, containers in
            containers.contains { $0.hasSameBytes(as: container) }
        }.keys.sorted()
        return (apps.first { $0 == session.defaultApp.rawValue } ?? apps.first).map { AppID($0) }
    }

    /// - Parameter describe: What is listed of one of them.
    mutating func set<Each>(_ all: [Each], _ describe: (Each) throws -> Item) rethrows {
        itemCount = all.count
        items = try all.prefix(Self.itemsMax).map(describe)
    }

    /// As many as are listed: of a scope a million may wait.
    mutating func setNames(
        _ column: String, of table: String, _ place: String, _ scope: String, _ session: SessionRecord,
        _ database: Database
    ) throws {
        let own = "FROM \(table) WHERE account = ?1 AND \(place) = ?2"
        let names = try String.fetchAll(
            database, sql: "SELECT DISTINCT \(column) \(own) ORDER BY \(column) LIMIT ?3",
            arguments: [session.accountID.rawValue, scope, Self.itemsMax])
        let count = try Int.fetchOne(
            database, sql: "SELECT COUNT(DISTINCT \(column)) \(own)", arguments: [session.accountID.rawValue, scope])
        items = names.map { Item(name: $0, bytes: 0) }
        itemCount = count ?? names.count
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
}
