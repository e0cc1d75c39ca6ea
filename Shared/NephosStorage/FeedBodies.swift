internal import NephosCore

/// Large bodies, which lie in a table of their own, and are read only where they are wanted.
///
/// In the items' table, a walk over a scope would read them all: see `docs/decisions/measurements.md`.
enum FeedBodies {
    /// A larger body has a row of its own. Up to here it overflows to one page, and to write a second row costs more.
    static let inlineMax = 4096

    /// Stores what does not belong into the item's row.
    ///
    /// - Parameter old: The body that the item has had; 0: none apart.
    /// - Returns: What belongs there, and the number of the rest; 0: there is none.
    static func replace(
        _ old: Int64, by body: [UInt8], in transaction: any Transaction
    ) throws -> (inline: [UInt8], id: Int64) {
        if old != 0 { try transaction.execute(FeedStatements.removeBody, [.integer(old)]) }
        guard body.count > inlineMax else { return (body, 0) }
        let newest = try transaction.first(FeedStatements.newestBody) { $0.integer(0) } ?? 0
        let id = newest + 1
        try transaction.execute(FeedStatements.insertBody, [.integer(id), .blob(body)])
        return ([], id)
    }

    /// The body of the columns `body_id` and `body`; empty where it is lost, which whoever opens it finds.
    static func body(
        of row: any SQLRow, from column: Int, in transaction: any ReadTransaction
    ) throws -> [UInt8] {
        let id = row.integer(column)
        guard id != 0 else { return row.blob(column + 1) }
        return try transaction.first(FeedStatements.body, [.integer(id)]) { $0.blob(0) } ?? []
    }
}
