import Foundation
import GRDB
import NephosCore

/// A change that the server has rejected, or that met another which had not seen it. It is nowhere but here, and stays
/// until somebody has decided, or the server has it all the same.
struct Undecided {
    enum Kind: Int64 {
        /// The server does not take it.
        case rejected
        /// Something else was written meanwhile.
        case conflict
    }

    /// Its row's: a later one has a greater number, and none is given twice.
    var number: Int64 = 0
    var kind: Kind
    /// Of the item.
    var name: ItemName
    /// When it came here, by this device's clock.
    var found: Timestamp
    var error: CloudError
    /// What was to be, what that was made from, and what the server has, as the scope's model writes them.
    var mine: Data?
    var ancestor: Data?
    var theirs: Data?
    /// Of keys: the time of the write.
    var stamp: Int64 = 0
    /// Of documents: where it was to be, which content was to be there, and that content's root.
    var path: String?
    var content: Data?
    var root: Data?
    /// Whether this device alone has what was to be: a sign-out would lose it.
    var isOnlyHere: Bool
}

/// What is undecided in a scope.
struct UndecidedChanges {
    let rows: ScopeTransaction

    static let table = """
        CREATE TABLE undecided (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            kind INTEGER NOT NULL, found INTEGER NOT NULL, error BLOB NOT NULL,
            mine BLOB, ancestor BLOB, theirs BLOB, stamp INTEGER NOT NULL, path TEXT, content BLOB, root BLOB,
            is_only_here INTEGER NOT NULL
        );
        CREATE INDEX undecided_by_name ON undecided (account, service, scope, name);
        CREATE INDEX undecided_by_path ON undecided (account, service, scope, path) WHERE path IS NOT NULL;
        CREATE INDEX undecided_by_content ON undecided (account, service, scope, content) WHERE content IS NOT NULL;
        CREATE INDEX undecided_by_root ON undecided (account, service, scope, root) WHERE root IS NOT NULL;

        """

    /// What a scope may have of one kind before nothing more of it is sent: none is ever dropped, and each request may add
    /// some.
    private static let bytesMax = 32 << 20
    private static let countMax = 10_000

    private static let isHere = "account = ?1 AND service = ?2 AND scope = ?3"

    private func arguments(_ others: (any DatabaseValueConvertible)?...) -> StatementArguments {
        StatementArguments([rows.account, rows.service, rows.scope.name] + others)
    }

    /// - Returns: Its number.
    @discardableResult
    func add(_ change: Undecided) throws -> Int64 {
        try rows.cached(
            "INSERT INTO undecided (account, service, scope, name, kind, found, error, mine, ancestor, theirs, stamp, "
                + "path, content, root, is_only_here) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
        ).execute(
            arguments: arguments(
                change.name.rawValue, change.kind.rawValue, Int64(bitPattern: change.found.milliseconds),
                StoredError.encode(change.error), change.mine, change.ancestor, change.theirs, change.stamp,
                change.path, change.content, change.root, change.isOnlyHere))
        return rows.database.lastInsertedRowID
    }

    /// - Returns: False: it is not there any more.
    @discardableResult
    func remove(_ number: Int64) throws -> Bool {
        try rows.cached("DELETE FROM undecided WHERE number = ?1 AND account = ?2")
            .execute(arguments: [number, rows.account])
        return rows.database.changesCount > 0
    }

    private static let removeRejected =
        "DELETE FROM undecided WHERE \(isHere) AND name = ?4 AND kind = 0 AND stamp <= ?5"

    /// Removes what was rejected of the item and is no newer than that.
    func removeRejected(_ name: ItemName, upTo stamp: Int64) throws {
        try rows.cached(Self.removeRejected).execute(arguments: arguments(name.rawValue, stamp))
    }

    func removeAll() throws {
        try rows.cached("DELETE FROM undecided WHERE \(Self.isHere)").execute(arguments: arguments())
    }

    /// Has all of it be another scope's.
    func moveAll(to scope: LocalScope) throws {
        try rows.cached("UPDATE undecided SET scope = ?4 WHERE \(Self.isHere)")
            .execute(arguments: arguments(scope.name))
    }

    /// The newest number that any change has been given; 0: none ever came here.
    func lastNumber() throws -> Int64 {
        try Int64.fetchOne(rows.cached("SELECT seq FROM sqlite_sequence WHERE name = 'undecided'")) ?? 0
    }

    func isEmpty(_ kind: Undecided.Kind) throws -> Bool {
        try
            !(Bool.fetchOne(
                rows.cached("SELECT EXISTS (SELECT 1 FROM undecided WHERE \(Self.isHere) AND kind = ?4)"),
                arguments: arguments(kind.rawValue)) ?? false)
    }

    /// All of a kind, in the order in which they came.
    ///
    /// - Parameter withStates: Whether with ``Undecided/mine``, `ancestor` and `theirs`: they may be long.
    func all(_ kind: Undecided.Kind, withStates: Bool = true) throws -> [Undecided] {
        try found("AND kind = ?4", arguments(kind.rawValue), withStates: withStates)
    }

    func all(_ kind: Undecided.Kind, of name: ItemName) throws -> [Undecided] {
        try found("AND kind = ?4 AND name = ?5", arguments(kind.rawValue, name.rawValue))
    }

    func all(of name: ItemName) throws -> [Undecided] { try found("AND name = ?4", arguments(name.rawValue)) }
    func all(at path: String) throws -> [Undecided] { try found("AND path = ?4", arguments(path)) }
    func all(withContent version: Data) throws -> [Undecided] { try found("AND content = ?4", arguments(version)) }
    func all(withRoot root: Data) throws -> [Undecided] { try found("AND root = ?4", arguments(root)) }

    private func found(
        _ condition: String, _ arguments: StatementArguments, withStates: Bool = true
    ) throws -> [Undecided] {
        let states = withStates ? "mine, ancestor, theirs" : "NULL AS mine, NULL AS ancestor, NULL AS theirs"
        return try Row.fetchAll(
            rows.cached(
                "SELECT number, name, kind, found, error, \(states), stamp, path, content, root, is_only_here "
                    + "FROM undecided WHERE \(Self.isHere) \(condition) ORDER BY number"),
            arguments: arguments
        ).compactMap { row in
            guard let kind = Undecided.Kind(rawValue: row["kind"]) else { return nil }
            let error =
                StoredError.decode(row["error"]) ?? CloudError(.internalError, "The reason cannot be read any more.")
            return Undecided(
                number: row["number"], kind: kind, name: ItemName(row["name"] as String),
                found: Timestamp(milliseconds: UInt64(bitPattern: row["found"] as Int64)), error: error,
                mine: row["mine"], ancestor: row["ancestor"], theirs: row["theirs"], stamp: row["stamp"],
                path: row["path"], content: row["content"], root: row["root"], isOnlyHere: row["is_only_here"])
        }
    }

    func count(_ kind: Undecided.Kind) throws -> Int {
        try Int.fetchOne(
            rows.cached("SELECT COUNT(*) FROM undecided WHERE \(Self.isHere) AND kind = ?4"),
            arguments: arguments(kind.rawValue)) ?? 0
    }

    /// Whether there is as much of a kind as there may be.
    func isFull(_ kind: Undecided.Kind) throws -> Bool {
        let row = try Row.fetchOne(
            rows.cached(
                "SELECT COUNT(*) AS found, coalesce(sum(coalesce(length(mine), 0) + coalesce(length(ancestor), 0) "
                    + "+ coalesce(length(theirs), 0)), 0) AS bytes FROM undecided WHERE \(Self.isHere) AND kind = ?4"),
            arguments: arguments(kind.rawValue))
        guard let row else { return false }
        return (row["found"] as Int) >= Self.countMax || (row["bytes"] as Int) >= Self.bytesMax
    }

    // MARK: Of an account

    /// How many changes of the account are nowhere but here.
    static func count(of account: AccountID, _ database: Database) throws -> Int {
        try Int.fetchOne(
            database, sql: "SELECT COUNT(*) FROM undecided WHERE account = ?1 AND is_only_here",
            arguments: [account.rawValue]) ?? 0
    }

    /// Names of the service's scopes that have some, also of such as are gone.
    static func scopes(of service: ServiceName, _ account: AccountID, _ database: Database) throws -> [String] {
        try String.fetchAll(
            database, sql: "SELECT DISTINCT scope FROM undecided WHERE account = ?1 AND service = ?2 ORDER BY scope",
            arguments: [account.rawValue, service.rawValue])
    }
}

extension ScopeTransaction {
    var undecided: UndecidedChanges { UndecidedChanges(rows: self) }
}
