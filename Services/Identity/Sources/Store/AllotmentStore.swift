internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What one service may store for one owner, as this side of the ledger has it:
/// never less than what the service itself believes.
struct Allotment: Hashable, Sendable {
    var service: ServiceName
    /// The service's, of its newest settlement.
    var revision: UInt64
    var allotted: UInt64
    /// As the service last told.
    var used: UInt64
}

struct AllotmentStore {
    let transaction: any Transaction

    private static let select = SQL(
        "SELECT service, revision, allotted, used FROM allotments WHERE owner_id = ?1 ORDER BY service")
    private static let upsert = SQL(
        """
        INSERT INTO allotments (owner_id, service, revision, allotted, used) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (owner_id, service) DO UPDATE SET
            revision = excluded.revision, allotted = excluded.allotted, used = excluded.used
        """)
    private static let delete = SQL("DELETE FROM allotments WHERE owner_id = ?1")
    private static let selectRecall = SQL("SELECT count, recalled_at FROM recalls WHERE owner_id = ?1")
    private static let upsertRecall = SQL(
        """
        INSERT INTO recalls (owner_id, count, recalled_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (owner_id) DO UPDATE SET count = excluded.count, recalled_at = excluded.recalled_at
        """)
    private static let deleteRecall = SQL("DELETE FROM recalls WHERE owner_id = ?1")

    func allotments(of owner: Owner) throws -> [Allotment] {
        try transaction.all(Self.select, [.text(owner.rawValue)]) { row in
            Allotment(
                service: ServiceName(row.text(0)), revision: UInt64(clamping: row.integer(1)),
                allotted: UInt64(clamping: row.integer(2)), used: UInt64(clamping: row.integer(3)))
        }
    }

    func save(_ allotment: Allotment, of owner: Owner) throws {
        try transaction.execute(
            Self.upsert,
            [
                .text(owner.rawValue), .text(allotment.service.rawValue), .integer(Int64(clamping: allotment.revision)),
                .integer(Int64(clamping: allotment.allotted)), .integer(Int64(clamping: allotment.used)),
            ])
    }

    func removeAll(of owner: Owner) throws {
        try transaction.execute(Self.delete, [.text(owner.rawValue)])
        try transaction.execute(Self.deleteRecall, [.text(owner.rawValue)])
    }

    /// Counts a recall, unless there was one a moment ago.
    ///
    /// - Returns: Its number; nil if there was one.
    func countRecall(of owner: Owner, at now: Timestamp, pause: Duration) throws -> UInt64? {
        let last = try transaction.first(Self.selectRecall, [.text(owner.rawValue)]) {
            (count: UInt64(clamping: $0.integer(0)), time: Timestamp(column: $0.integer(1)))
        }
        if let last, now >= last.time, now.since(last.time) < pause { return nil }
        let count = (last?.count ?? 0) + 1
        try transaction.execute(
            Self.upsertRecall, [.text(owner.rawValue), .integer(Int64(clamping: count)), now.column])
        return count
    }
}
