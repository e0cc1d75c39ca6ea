public import NephosCore
public import NephosStorage

/// Items that were found damaged, and where each was written before it was moved to the head to call for help.
///
/// Devices know by that which of them has it: who has it from before has what it was before, which takes no damaged
/// one's place. A row holds as long as its item is where it was moved to: what is written anew is whole.
public enum DamagedItems {
    static let migrations = [
        Migration(
            name: "host-005-damaged-items",
            statements: [
                """
                CREATE TABLE damaged_items (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    scope TEXT NOT NULL,
                    name TEXT NOT NULL,
                    written BIGINT NOT NULL,
                    sequence BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, scope, name))
                """
            ])
    ]

    /// Rows in all. What is found beyond them is reported, and waits for a reader of everything.
    static let countMax = 100_000

    private static let key = "partition_number = ?1 AND owner = ?2 AND scope = ?3 AND name = ?4"
    private static let select = SQL("SELECT written, sequence FROM damaged_items WHERE \(key)")
    private static let upsert = SQL(
        """
        INSERT INTO damaged_items (partition_number, owner, scope, name, written, sequence)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (partition_number, owner, scope, name) DO UPDATE SET
            written = excluded.written, sequence = excluded.sequence
        """)
    private static let delete = SQL("DELETE FROM damaged_items WHERE \(key)")
    private static let deleteOfOwner = SQL(
        """
        DELETE FROM damaged_items WHERE partition_number = ?1 AND owner = ?2 AND (scope, name) IN (
            SELECT scope, name FROM damaged_items WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
        """)
    private static let selectNext = SQL(
        """
        SELECT owner, scope, name, sequence, partition_number FROM damaged_items
        WHERE (partition_number, owner, scope, name) > (?1, ?2, ?3, ?4)
        ORDER BY partition_number, owner, scope, name LIMIT ?5
        """)

    private static func place(_ scope: ScopeName, _ name: ItemName) -> [SQLValue] {
        [
            .integer(Int64(scope.partition)), .text(scope.owner.rawValue), .text(scope.path.rawValue),
            .text(name.rawValue),
        ]
    }

    /// Where in the feed an item was written that is damaged: where it is, unless it has called for help since.
    public static func written(
        _ item: FeedItem, of scope: ScopeName, in transaction: any ReadTransaction
    ) throws -> UInt64 {
        try calledFrom(item, of: scope, in: transaction) ?? item.sequence
    }

    /// - Returns: Nil: it has not called for help.
    static func calledFrom(
        _ item: FeedItem, of scope: ScopeName, in transaction: any ReadTransaction
    ) throws -> UInt64? {
        let row = try transaction.first(select, place(scope, item.name)) {
            (written: UInt64(clamping: $0.integer(0)), sequence: UInt64(clamping: $0.integer(1)))
        }
        return row.flatMap { $0.sequence == item.sequence ? $0.written : nil }
    }

    /// - Parameter sequence: Where it has been moved to.
    public static func note(
        _ item: ItemName, of scope: ScopeName, written: UInt64, movedTo sequence: UInt64,
        in transaction: any HandlerTransaction
    ) throws {
        try transaction.execute(
            upsert,
            place(scope, item) + [.integer(Int64(clamping: written)), .integer(Int64(clamping: sequence))])
    }

    /// Removes some of an account's rows.
    ///
    /// - Returns: Whether there may be more.
    static func removeAll(of owner: Owner, limit: Int, in transaction: any HandlerTransaction) throws -> Bool {
        let partition = ScopeName(owner, "").partition
        return try transaction.execute(
            deleteOfOwner, [.integer(Int64(partition)), .text(owner.rawValue), .integer(Int64(limit))]) == limit
    }

    /// Goes through some of the rows, and removes those of items that are whole again, or gone.
    ///
    /// - Parameter place: Behind which row to go on; where this has got to afterwards, nil: at the end.
    /// - Returns: How many of them are damaged still.
    static func forgetMended(
        _ place: inout [SQLValue]?, limit: Int, in transaction: any HandlerTransaction
    ) throws -> Int {
        let start = place ?? [.integer(-1), .text(""), .text(""), .text("")]
        let rows = try transaction.all(selectNext, start + [.integer(Int64(limit))]) {
            (
                scope: ScopeName(Owner(rawValue: $0.text(0)), ItemName($0.text(1))), name: ItemName($0.text(2)),
                sequence: UInt64(clamping: $0.integer(3))
            )
        }
        place = rows.count < limit ? nil : rows.last.map { Self.place($0.scope, $0.name) }
        var count = 0
        for row in rows {
            let item = try transaction.item(row.scope, row.name)
            if let item, item.sequence == row.sequence {
                count += 1
            } else {
                try transaction.execute(delete, Self.place(row.scope, row.name))
            }
        }
        return count
    }
}
