internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Rows that say until when something of an item stays as it is.
enum OverdueRows: CaseIterable {
    /// It lies in the trash.
    case trash
    /// A content of it is said to be on its way.
    case announcements
    /// It is kept at all.
    case items

    private static let firstTrashed = SQL(
        "SELECT owner, container, item FROM document_trash WHERE ends <= ?1 ORDER BY ends LIMIT ?2")
    private static let firstAnnounced = SQL(
        "SELECT owner, container, item FROM document_announcements WHERE expires <= ?1 ORDER BY expires LIMIT ?2")
    private static let firstItems = SQL(
        "SELECT owner, container, item FROM document_items WHERE ends > 0 AND ends <= ?1 ORDER BY ends LIMIT ?2")
    private static let putOffTrashed = SQL(
        "UPDATE document_trash SET ends = ?5 WHERE \(ContainerRows.key) AND ends <= ?4")
    private static let putOffAnnounced = SQL(
        "UPDATE document_announcements SET expires = ?5 WHERE \(ContainerRows.key) AND expires <= ?4")
    private static let putOffItems = SQL(
        "UPDATE document_items SET ends = ?5 WHERE \(ContainerRows.key) AND ends > 0 AND ends <= ?4")

    /// Items of the container that has waited longest; nil: nothing is overdue.
    func first(
        at now: Timestamp, limit: Int, in transaction: any ReadTransaction
    ) throws -> (container: ScopeName, items: [DocumentID])? {
        let statement =
            switch self {
            case .trash: Self.firstTrashed
            case .announcements: Self.firstAnnounced
            case .items: Self.firstItems
            }
        let rows = try transaction.all(
            statement, [.integer(Int64(clamping: now.milliseconds)), .integer(Int64(limit))]
        ) { row in
            (container: ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1))), item: row.blob(2))
        }
        guard let container = rows.first?.container else { return nil }
        return (container, rows.filter { $0.container == container }.compactMap { DocumentID(bytes: $0.item) })
    }

    /// What is overdue of a container is looked at again at a time, as if it had until then.
    func putOff(_ container: ContainerRows, at now: Timestamp, until time: Timestamp) throws {
        let statement =
            switch self {
            case .trash: Self.putOffTrashed
            case .announcements: Self.putOffAnnounced
            case .items: Self.putOffItems
            }
        try container.transaction.execute(
            statement,
            container.place + [
                .integer(Int64(clamping: now.milliseconds)), .integer(Int64(clamping: time.milliseconds)),
            ])
    }
}
