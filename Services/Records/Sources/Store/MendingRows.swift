internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Scopes whose digests are being made anew, and how far that has come.
enum MendingRows {
    private static let key = "partition_number = ?1 AND owner = ?2 AND scope = ?3"
    private static let insert = SQL(
        """
        INSERT INTO record_mendings (partition_number, owner, scope, item) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, owner, scope) DO UPDATE SET item = excluded.item
        """)
    private static let delete = SQL("DELETE FROM record_mendings WHERE \(key)")
    private static let select = SQL(
        "SELECT owner, scope, item FROM record_mendings ORDER BY partition_number, owner, scope")

    static func add(_ scope: ScopeName, in transaction: any HandlerTransaction) throws {
        try set(ItemName(""), scope, in: transaction)
    }

    /// - Parameter item: The last that is done.
    static func set(_ item: ItemName, _ scope: ScopeName, in transaction: any HandlerTransaction) throws {
        try transaction.execute(insert, ZoneRows.place(of: scope) + [.text(item.rawValue)])
    }

    static func remove(_ scope: ScopeName, in transaction: any HandlerTransaction) throws {
        try transaction.execute(delete, ZoneRows.place(of: scope))
    }

    /// - Parameter failed: Scopes whose digests could not be made anew just now.
    static func first(
        passingOver failed: Set<ScopeName>, in transaction: any HandlerTransaction
    ) throws -> (scope: ScopeName, after: ItemName)? {
        var found: (scope: ScopeName, after: ItemName)?
        try transaction.query(select, []) { row in
            let scope = ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1)))
            guard !failed.contains(scope) else { return true }
            found = (scope, ItemName(row.text(2)))
            return false
        }
        return found
    }
}
