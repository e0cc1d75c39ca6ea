internal import NephosCore
internal import NephosStorage

/// Items whose rows did not open: each was moved here whole, and is not in its scope any more.
///
/// A row goes when the item is there again, or ``retention`` has passed. It takes no more room here than it took there.
enum QuarantinedItems {
    static let migrations = [
        Migration(
            name: "host-005-quarantined-items",
            statements: [
                """
                CREATE TABLE quarantined_items (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    scope TEXT NOT NULL,
                    name TEXT NOT NULL,
                    sequence BIGINT NOT NULL,
                    size BIGINT NOT NULL,
                    digest BLOB NOT NULL,
                    body BLOB NOT NULL,
                    -- Milliseconds since 1970.
                    found BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, scope, name))
                """,
                "CREATE INDEX quarantined_items_by_time ON quarantined_items (found)",
            ])
    ]

    /// How long an item is kept, and what its service keeps beside it.
    static let retention: Duration = .seconds(30 * 24 * 3600)
    /// Of more the oldest go before their time.
    static let countMax = 100_000

    /// One of them.
    struct Place: Hashable, Sendable {
        var scope: ScopeName
        var name: ItemName

        fileprivate var values: [SQLValue] { QuarantinedItems.values(of: scope) + [.text(name.rawValue)] }
    }

    private static func values(of scope: ScopeName) -> [SQLValue] {
        [.integer(Int64(scope.partition)), .text(scope.owner.rawValue), .text(scope.path.rawValue)]
    }

    /// One that was just moved here.
    struct Moved: Sendable {
        var scope: ScopeName
        /// Where it stood in its scope.
        var sequence: UInt64
    }

    private static let key = "partition_number = ?1 AND owner = ?2 AND scope = ?3 AND name = ?4"
    private static let select = SQL("SELECT 1 FROM quarantined_items WHERE \(key)")
    private static let selectNames = SQL(
        "SELECT name FROM quarantined_items WHERE partition_number = ?1 AND owner = ?2 AND scope = ?3 LIMIT ?4")
    private static let insert = SQL(
        """
        INSERT INTO quarantined_items (partition_number, owner, scope, name, sequence, size, digest, body, found)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        """)
    private static let endTime = SQL("UPDATE quarantined_items SET found = 0 WHERE \(key)")
    private static let delete = SQL("DELETE FROM quarantined_items WHERE \(key)")
    private static let deleteOfOwner = SQL(
        """
        DELETE FROM quarantined_items WHERE partition_number = ?1 AND owner = ?2 AND (scope, name) IN (
            SELECT scope, name FROM quarantined_items WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
        """)
    private static let selectCount = SQL("SELECT COUNT(*) FROM quarantined_items")
    private static let selectOldest = SQL(
        "SELECT owner, scope, name, found FROM quarantined_items ORDER BY found LIMIT ?1")

    static func names(in scope: ScopeName, limit: Int, _ transaction: any ReadTransaction) throws -> [ItemName] {
        try transaction.all(selectNames, values(of: scope) + [.integer(Int64(limit))]) { ItemName($0.text(0)) }
    }

    static func has(_ place: Place, in transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(select, place.values) { _ in true } ?? false
    }

    static func add(_ item: FeedItem, at place: Place, found: Timestamp, in transaction: any Transaction) throws {
        try transaction.execute(delete, place.values)
        try transaction.execute(
            insert,
            place.values + [
                .integer(Int64(clamping: item.sequence)), .integer(Int64(item.size)), .blob(item.digest.bytes),
                .blob(item.body), .integer(Int64(clamping: found.milliseconds)),
            ])
    }

    /// Has the item go in the next round, with what its service keeps beside it.
    static func endTime(of place: Place, in transaction: any Transaction) throws {
        try transaction.execute(endTime, place.values)
    }

    static func remove(_ place: Place, in transaction: any Transaction) throws {
        try transaction.execute(delete, place.values)
    }

    /// Removes some of an account's.
    ///
    /// - Returns: Whether there may be more.
    static func removeAll(of owner: Owner, limit: Int, in transaction: any Transaction) throws -> Bool {
        let partition = ScopeName(owner, "").partition
        return try transaction.execute(
            deleteOfOwner, [.integer(Int64(partition)), .text(owner.rawValue), .integer(Int64(limit))]) == limit
    }

    static func count(in transaction: any ReadTransaction) throws -> Int {
        try transaction.first(selectCount) { Int($0.integer(0)) } ?? 0
    }

    /// Those whose time has come: they are from before, or there are too many.
    static func overdue(before time: Timestamp, limit: Int, in transaction: any ReadTransaction) throws -> [Place] {
        let tooMany = try count(in: transaction) - countMax
        return try transaction.all(selectOldest, [.integer(Int64(limit))]) {
            (
                place: Place(
                    scope: ScopeName(Owner(rawValue: $0.text(0)), ItemName($0.text(1))), name: ItemName($0.text(2))),
                found: $0.integer(3)
            )
        }.enumerated().filter { $0 < tooMany || $1.found < Int64(clamping: time.milliseconds) }.map(\.element.place)
    }
}

/// What is known without looking of the quarantine, and of rows that change without their scope's moving.
final class QuarantineNote {
    /// False: there is nothing in it.
    var hasItems = true
    /// Rises with each such change: whoever has counted a scope meanwhile has counted no state of it.
    var quietChanges: UInt64 = 0
    let clock: PurgeClock

    init(_ clock: PurgeClock) { self.clock = clock }
}
