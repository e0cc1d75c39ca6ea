import GRDB
import NephosCore

/// Operations that were too much for one request, and go in parts.
extension RecordTransaction {
    static let parts = """
        CREATE TABLE record_parts (
            position INTEGER PRIMARY KEY, account TEXT NOT NULL, size INTEGER NOT NULL
        );

        """

    /// How many of the operation's changes go at once; nil: all.
    func partSize(at position: Int64) throws -> Int? {
        try Int.fetchOne(rows.cached("SELECT size FROM record_parts WHERE position = ?1"), arguments: [position])
    }

    /// From here on so many go at once; the first time they are put in an order in which they can.
    func divide(_ pending: [Pending], into size: Int) throws {
        guard let position = pending.first?.position else { return }
        if try partSize(at: position) == nil {
            try removeChanges(at: position)
            for (place, change) in Pending.inOrder(pending).enumerated() {
                var change = change
                change.place = place
                try put(change)
            }
        }
        try rows.cached("INSERT OR REPLACE INTO record_parts (position, account, size) VALUES (?1, ?2, ?3)")
            .execute(arguments: [position, rows.account, max(1, size)])
    }

    /// What goes next of the operation.
    func nextPart(at position: Int64) throws -> (sent: [Pending], isLast: Bool) {
        let all = try pending(at: position)
        guard let size = try partSize(at: position), size < all.count else { return (all, true) }
        return (Array(all.prefix(size)), false)
    }
}
