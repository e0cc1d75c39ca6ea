internal import NephosCore

/// When an item was written, whether it was deleted, and what readers see of it, as two columns have it.
///
/// A negative sequence is of an item that no page has: whoever reads what comes after a sequence does not come by it. The
/// time of the deletion is 0 of what lives, and -1 of what lives and is told as gone.
struct StoredShowing {
    let sequence: UInt64
    let deleted: Bool
    let showing: ItemShowing

    private static let absent: Int64 = -1

    /// From the columns sequence and deleted_at.
    init(_ row: any SQLRow, _ first: Int) {
        let (order, deletedAt) = (row.integer(first), row.integer(first + 1))
        sequence = UInt64(order.magnitude)
        deleted = deletedAt > 0
        showing = order < 0 ? .nothing : deletedAt < 0 ? .absence : .item
    }

    static func columns(
        of item: FeedItem, _ sequence: UInt64, at now: Timestamp
    ) -> (sequence: Int64, deletedAt: Int64) {
        let order = Int64(clamping: sequence)
        let deletedAt = item.deleted ? max(1, Int64(clamping: now.milliseconds)) : item.showing == .absence ? absent : 0
        return (item.showing == .nothing ? -order : order, deletedAt)
    }
}
