internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The ids of items that were removed for good. The feed's own records of that are few, and go; an id is never used again.
///
/// A container has ``DocumentLimits/endedMax`` of them at most, about 200 bytes each with their indexes: then the oldest
/// go. Each was an item that somebody had made before.
enum EndedRows {
    private static let key = "partition_number = ?1 AND owner = ?2 AND container = ?3"
    private static let insert = SQL(
        """
        INSERT INTO document_ended (partition_number, owner, container, item, number) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, item) DO NOTHING
        """)
    private static let select = SQL("SELECT 1 FROM document_ended WHERE \(key) AND item = ?4")
    private static let selectLast = SQL(
        "SELECT number FROM document_ended WHERE \(key) ORDER BY number DESC LIMIT 1")
    private static let deleteOld = SQL("DELETE FROM document_ended WHERE \(key) AND number <= ?4")

    private static func key(_ scope: ScopeName) -> [SQLValue] {
        [.integer(Int64(scope.partition)), .text(scope.owner.rawValue), .text(scope.path.rawValue)]
    }

    static func has(_ item: DocumentID, in scope: ScopeName, _ transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(select, key(scope) + [.blob(item.bytes)]) { _ in true } ?? false
    }

    /// - Parameter limit: How many the container has at most.
    static func add(
        _ items: [DocumentID], to scope: ScopeName, limit: Int = DocumentLimits.endedMax,
        in transaction: any Transaction
    ) throws {
        guard !items.isEmpty else { return }
        var number = try transaction.first(selectLast, key(scope)) { $0.integer(0) } ?? 0
        for item in items {
            // One that is there already keeps its number: there are gaps, and so fewer than the limit.
            number += 1
            try transaction.execute(insert, key(scope) + [.blob(item.bytes), .integer(number)])
        }
        let old = number - Int64(limit)
        if old > 0 { try transaction.execute(deleteOld, key(scope) + [.integer(old)]) }
    }
}
