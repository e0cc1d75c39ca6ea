import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

extension WireReadChangesReply {
    /// The page's changes, and the names alone of what is in quarantine.
    var staged: [WireChange] { changes + quarantined.map { name in WireChange.with { $0.item = name } } }
}

extension WireChange {
    var isQuarantined: Bool { body.isEmpty && !deleted }
}

extension [WireChange] {
    /// About how much room they take once they are staged.
    var stagedBytes: Int { reduce(0) { $0 + $1.item.utf8.count + $1.body.count } }
}

/// One scope inside a local transaction: what every scope has on disk, whatever is in it. Its items are in its model's
/// own tables.
///
/// Each table that has something of an account says whose in a column `account`, by which it goes with the account.
struct ScopeTransaction {
    let database: Database
    let scope: LocalScope
    var account: String { scope.account?.rawValue ?? "" }
    var service: String { scope.service.rawValue }

    init(_ database: Database, _ scope: LocalScope) {
        self.database = database
        self.scope = scope
    }

    func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    // MARK: State

    func state() throws -> ScopeState {
        let row = try Row.fetchOne(
            cached(
                "SELECT epoch, sequence, token_check, digest, digest_key, synced, info, epochs, fetched FROM scopes "
                    + "WHERE account = ?1 AND service = ?2 AND scope = ?3"),
            arguments: [account, service, scope.name])
        guard let row else { return ScopeState() }
        var state = ScopeState(
            head: ChangeToken(
                epoch: UInt64(bitPattern: row["epoch"] as Int64),
                sequence: UInt64(bitPattern: row["sequence"] as Int64),
                check: TokenCheck(bytes: [UInt8](row["token_check"] as Data))),
            digest: SetDigest(bytes: row["digest"] as Data) ?? .empty,
            digestKey: [UInt8](row["digest_key"] as Data),
            synced: row["synced"],
            info: row["info"])
        state.epochBytes = row["epochs"]
        state.fetched = Timestamp(milliseconds: UInt64(bitPattern: row["fetched"] as Int64))
        return state
    }

    /// Whether anything was saved of where it stands: it is here, or about to be.
    func hasState() throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT EXISTS (SELECT 1 FROM scopes WHERE account = ?1 AND service = ?2 AND scope = ?3)"),
            arguments: [account, service, scope.name]) ?? false
    }

    func save(_ state: ScopeState) throws {
        try cached(
            "INSERT INTO scopes (account, service, scope, epoch, sequence, digest, digest_key, synced, info, "
                + "token_check, epochs, fetched) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
                + "ON CONFLICT (account, service, scope) DO UPDATE SET epoch = ?4, sequence = ?5, digest = ?6, "
                + "digest_key = ?7, synced = ?8, info = ?9, token_check = ?10, "
                + "epochs = ?11, fetched = ?12"
        ).execute(arguments: [
            account, service, scope.name, Int64(bitPattern: state.head.epoch), Int64(bitPattern: state.head.sequence),
            Data(state.digest.bytes), Data(state.digestKey), state.synced, state.info, Data(state.head.check.bytes),
            state.epochBytes, Int64(bitPattern: state.fetched.milliseconds),
        ])
    }

    // MARK: Pages

    /// Keeps what a page has brought until its reading is whole: the newest state of each item.
    ///
    /// In a temporary table of this process's connection: it takes no room in the home, no other process sees it, and
    /// it is gone when the process ends.
    ///
    /// - Parameters:
    ///   - isFirst: Of a reading; what an earlier one has left is forgotten.
    ///   - reader: Whose reading it is: two apps of a process may read one scope at the same time.
    func stage(_ changes: [WireChange], isFirst: Bool, by reader: Int) throws {
        try database.execute(
            sql: """
                CREATE TEMP TABLE IF NOT EXISTS staged (
                    account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL, reader INTEGER NOT NULL,
                    item TEXT NOT NULL, change BLOB, PRIMARY KEY (account, service, scope, reader, item)
                ) WITHOUT ROWID
                """)
        if isFirst { try clearStage(of: reader) }
        for change in changes {
            let bytes: Data? = change.isQuarantined ? nil : try change.serializedBytes()
            try cached(
                "INSERT OR REPLACE INTO temp.staged (account, service, scope, reader, item, change) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ).execute(arguments: [account, service, scope.name, reader, change.item, bytes])
        }
    }

    /// In the order of their names, one by one: of a whole scope they would not fit into memory.
    func staged(by reader: Int) throws -> some Cursor<WireChange> {
        // A statement of its own: what is read meanwhile must not begin it anew.
        let statement = try database.makeStatement(
            sql: "SELECT change FROM temp.staged WHERE account = ?1 AND service = ?2 AND scope = ?3 AND reader = ?4 "
                + "AND change IS NOT NULL ORDER BY item")
        return try Data.fetchCursor(statement, arguments: [account, service, scope.name, reader])
            .map { try WireChange(serializedBytes: $0) }
    }

    /// How many names are looked up at a time that are not staged.
    private static let unstagedEach = 1000

    /// Tells the names of a model's items that are not staged, or are as quarantined, in their order. The body may remove
    /// them.
    func forEachUnstaged(
        of items: ItemTable, by reader: Int, _ body: (ItemName, _ isQuarantined: Bool) throws -> Void
    ) throws {
        let (table, name) = (items.table, "t.\(items.name)")
        var after = ""
        while true {
            // Nothing is read from the table while it is changed.
            let found = try Row.fetchAll(
                cached(
                    "SELECT \(name), s.item IS NOT NULL FROM \(table) t LEFT JOIN temp.staged s ON s.account = ?1 "
                        + "AND s.service = ?2 AND s.scope = ?3 AND s.reader = ?4 AND s.item = \(name) "
                        + "WHERE t.account = ?1 AND t.\(items.scope) = ?3 AND \(name) > ?5 AND s.change IS NULL "
                        + "ORDER BY \(name) LIMIT \(Self.unstagedEach)"),
                arguments: [account, service, scope.name, reader, after]
            ).map { (name: $0[0] as String, isQuarantined: $0[1] as Bool) }
            for row in found { try body(ItemName(row.name), row.isQuarantined) }
            guard found.count == Self.unstagedEach, let last = found.last else { return }
            after = last.name
        }
    }

    /// Forgets what a reader has staged, of whichever scope.
    static func clearStage(of reader: Int, _ database: Database) throws {
        let isThere = try Bool.fetchOne(
            database, sql: "SELECT EXISTS (SELECT 1 FROM sqlite_temp_master WHERE name = 'staged')")
        guard isThere == true else { return }
        try database.execute(sql: "DELETE FROM temp.staged WHERE reader = ?", arguments: [reader])
    }

    func clearStage(of reader: Int) throws {
        try cached("DELETE FROM temp.staged WHERE account = ?1 AND service = ?2 AND scope = ?3 AND reader = ?4")
            .execute(arguments: [account, service, scope.name, reader])
    }

    // MARK: Leaving

    /// Forgets everything about an account, in whichever table it is.
    static func removeAll(of account: AccountID, _ database: Database) throws {
        let tables = try String.fetchAll(
            database,
            sql: """
                SELECT name FROM sqlite_master WHERE type = 'table'
                AND EXISTS (SELECT 1 FROM pragma_table_info(sqlite_master.name) WHERE name = 'account')
                """)
        for table in tables {
            try database.execute(
                sql: "DELETE FROM \"\(table)\" WHERE account = ?", arguments: [account.rawValue])
        }
        // What was read of it and not brought in yet.
        let isStaged = try Bool.fetchOne(
            database, sql: "SELECT EXISTS (SELECT 1 FROM sqlite_temp_master WHERE name = 'staged')")
        guard isStaged == true else { return }
        try database.execute(sql: "DELETE FROM temp.staged WHERE account = ?", arguments: [account.rawValue])
    }
}
