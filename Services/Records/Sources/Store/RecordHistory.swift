internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What saves by force have overwritten, of one zone: kept for a while, bounded, and counted on the plan.
struct RecordHistory {
    /// Entries that are removed for one that is added, at most: so that no request waits long.
    private static let stepMax = 8
    /// Entries that one step of ``prune(before:)`` removes.
    static let pruneMax = 200

    let rows: ZoneRows
    private var transaction: any HandlerTransaction { rows.transaction }
    private var place: [SQLValue] { rows.place }

    struct Entry {
        var number: Int64
        var record: ItemName
        var sealed: [UInt8]
    }

    private static let selectSums = SQL("SELECT bytes, next FROM record_history_zones WHERE \(ZoneRows.key)")
    private static let upsertSums = SQL(
        """
        INSERT INTO record_history_zones (partition_number, owner, zone, bytes, next) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, zone) DO UPDATE SET bytes = excluded.bytes, next = excluded.next
        """)
    private static let insert = SQL(
        """
        INSERT INTO record_history (
            partition_number, owner, zone, number, record, recorded_at, counted, sealed, account)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        """)
    private static let delete = SQL("DELETE FROM record_history WHERE \(ZoneRows.key) AND number = ?4")
    private static let deleteOldest = SQL("DELETE FROM record_history WHERE \(ZoneRows.key) AND number <= ?4")
    private static let oldest = SQL(
        "SELECT number, counted FROM record_history WHERE \(ZoneRows.key) ORDER BY number")
    private static let surplus = SQL(
        """
        SELECT number, counted FROM record_history WHERE \(ZoneRows.key) AND record = ?4
        ORDER BY number DESC LIMIT ?5 OFFSET ?6
        """)
    private static let newest = SQL(
        """
        SELECT number, record, sealed FROM record_history WHERE \(ZoneRows.key)
        ORDER BY number DESC LIMIT ?4 OFFSET ?5
        """)
    private static let newestOfRecord = SQL(
        """
        SELECT number, record, sealed FROM record_history WHERE \(ZoneRows.key) AND record = ?6
        ORDER BY number DESC LIMIT ?4 OFFSET ?5
        """)
    private static let newestOfAccount = SQL(
        """
        SELECT number, record, sealed FROM record_history WHERE \(ZoneRows.key) AND account = ?6 AND account <> ''
        ORDER BY number DESC LIMIT ?4 OFFSET ?5
        """)
    private static let newestOfAccountAndRecord = SQL(
        """
        SELECT number, record, sealed FROM record_history
        WHERE \(ZoneRows.key) AND account = ?6 AND account <> '' AND record = ?7
        ORDER BY number DESC LIMIT ?4 OFFSET ?5
        """)
    private static let aged = SQL(
        "SELECT owner, zone FROM record_history WHERE recorded_at < ?1 ORDER BY recorded_at")
    private static let agedOfZone = SQL(
        """
        SELECT number, counted FROM record_history WHERE \(ZoneRows.key) AND recorded_at < ?4 ORDER BY number LIMIT ?5
        """)

    /// What the entries count, and the number of the next.
    private func sums() throws -> (bytes: Int64, next: Int64) {
        try transaction.first(Self.selectSums, place) { ($0.integer(0), $0.integer(1)) } ?? (0, 1)
    }

    private func set(_ sums: (bytes: Int64, next: Int64)) throws {
        try transaction.execute(
            Self.upsertSums, place + [.integer(sums.bytes), .integer(sums.next)])
    }

    /// What the zone's entries count, in bytes.
    func bytes() throws -> UInt64 { UInt64(clamping: try sums().bytes) }

    /// What an entry counts, in bytes.
    static func counted(_ record: ItemName, _ body: [UInt8]) -> Int64 {
        Int64(record.utf8.count + body.count + RecordLimits.rowBytes)
    }

    /// Adds entries, and removes what there are too many of.
    ///
    /// - Parameters:
    ///   - entries: With whose each save was, in a public database; else empty.
    ///   - seal: Seals the entry of that record and number.
    ///   - noted: Called with each record and the number of its entry.
    /// - Returns: What became free, in bytes.
    func add(
        _ entries: [(record: ItemName, account: String, body: [UInt8])], at now: Timestamp,
        seal: (_ body: [UInt8], _ record: ItemName, _ number: Int64) throws -> [UInt8],
        noted: (ItemName, Int64) throws -> Void
    ) throws -> Int64 {
        guard !entries.isEmpty else { return 0 }
        var sums = try sums()
        var freed: Int64 = 0
        for entry in entries {
            let counted = Self.counted(entry.record, entry.body)
            try transaction.execute(
                Self.insert,
                place + [
                    .integer(sums.next), .text(entry.record.rawValue), .integer(Int64(clamping: now.milliseconds)),
                    .integer(counted), .blob(try seal(entry.body, entry.record, sums.next)),
                    .text(entry.account),
                ])
            try noted(entry.record, sums.next)
            sums.next += 1
            sums.bytes += counted
            freed += try remove(
                transaction.all(
                    Self.surplus,
                    place + [
                        .text(entry.record.rawValue), .integer(Int64(Self.stepMax)),
                        .integer(Int64(RecordLimits.historyOfRecordMax)),
                    ], Self.numbered))
        }
        freed += try removeOldest(sums.bytes - freed - Int64(RecordLimits.historyBytesMax))
        sums.bytes -= freed
        try set(sums)
        return freed
    }

    private static func numbered(_ row: any SQLRow) -> (number: Int64, counted: Int64) {
        (row.integer(0), row.integer(1))
    }

    private func remove(_ entries: [(number: Int64, counted: Int64)]) throws -> Int64 {
        try entries.reduce(0) { sum, entry in
            try transaction.execute(Self.delete, place + [.integer(entry.number)])
            try AssetRows(rows: rows).end(from: entry.number, to: entry.number)
            return sum + entry.counted
        }
    }

    /// Removes so many bytes of the oldest entries, or more; all at once, since they may be small and many.
    private func removeOldest(_ bytes: Int64) throws -> Int64 {
        guard bytes > 0 else { return 0 }
        var freed: Int64 = 0
        var last: Int64 = 0
        try transaction.query(Self.oldest, place) {
            last = $0.integer(0)
            freed += $0.integer(1)
            return freed < bytes
        }
        try transaction.execute(Self.deleteOldest, place + [.integer(last)])
        try AssetRows(rows: rows).end(from: AssetRows.live + 1, to: last)
        return freed
    }

    /// The newest first, and whether there are more. No more of them are read than a reply has room for.
    ///
    /// - Parameter account: Whose saves they were; nil: anybody's. None is empty, of which none is known.
    func entries(
        of record: ItemName?, by account: AccountID?, limit: Int, skip: Int
    ) throws -> (entries: [Entry], hasMore: Bool) {
        var values = place + [.integer(Int64(limit + 1)), .integer(Int64(skip))]
        if let account { values.append(.text(account.rawValue)) }
        if let record { values.append(.text(record.rawValue)) }
        let statement =
            account == nil
            ? record == nil ? Self.newest : Self.newestOfRecord
            : record == nil ? Self.newestOfAccount : Self.newestOfAccountAndRecord
        var entries: [Entry] = []
        var hasMore = false
        var bytesLeft = RecordLimits.replyBytesMax
        try transaction.query(statement, values) { row in
            let entry = Entry(number: row.integer(0), record: ItemName(row.text(1)), sealed: row.blob(2))
            guard entries.isEmpty || entries.count < limit && entry.sealed.count <= bytesLeft else {
                hasMore = true
                return false
            }
            bytesLeft -= entry.sealed.count
            entries.append(entry)
            return true
        }
        return (entries, hasMore)
    }

    /// The zone of the oldest entry that is past its time.
    ///
    /// - Parameter failed: Zones whose entries could not be removed just now.
    static func zone(
        agedBefore time: Timestamp, passingOver failed: Set<ScopeName>, in transaction: any HandlerTransaction
    ) throws -> ScopeName? {
        var found: ScopeName?
        try transaction.query(aged, [.integer(Int64(clamping: time.milliseconds))]) { row in
            let zone = ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1)))
            guard failed.contains(zone) else {
                found = zone
                return false
            }
            return true
        }
        return found
    }

    /// Removes some entries that are past their time: the first ones were written first.
    ///
    /// - Returns: What became free, in bytes.
    func prune(before time: Timestamp) throws -> UInt64 {
        let removed = try remove(
            transaction.all(
                Self.agedOfZone,
                place + [.integer(Int64(clamping: time.milliseconds)), .integer(Int64(Self.pruneMax))], Self.numbered))
        var sums = try sums()
        sums.bytes -= removed
        try set(sums)
        return UInt64(clamping: removed)
    }
}
