internal import Core
internal import ServiceKit
internal import Storage

/// What lost a conflict or was overwritten before its writer's peers had seen it.
enum KeyHistory {
    /// How long an entry is kept.
    static let retention: Duration = .seconds(30 * 86_400)
    /// Entries of one key.
    static let entriesPerKeyMax = 100
    /// Bytes of one store's entries; an entry counts at least ``entryBytes``.
    static let bytesPerStoreMax = 8 << 20
    private static let entryBytes = 256
    static let pruneInterval: Duration = .seconds(600)
    /// Entries removed for each one that is added, so that no request waits long.
    private static let pruneStep = 8

    struct Entry {
        var loser: StoredKey
        var lostConflict: Bool
        var winner: MergeRule.Stamp
        var recordedAt: Timestamp
    }

    private static let insert = SQL(
        """
        INSERT INTO key_history (account, store, item, written, device, lost_conflict, winner_written, winner_device,
            recorded_at, size, sealed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (account, store, item, written, device) DO NOTHING
        """)
    private static let addBytes = SQL(
        """
        INSERT INTO key_history_totals (account, store, bytes) VALUES (?1, ?2, ?3)
        ON CONFLICT (account, store) DO UPDATE SET bytes = key_history_totals.bytes + ?3
        """)
    private static let bytes = SQL("SELECT bytes FROM key_history_totals WHERE account = ?1 AND store = ?2")
    private static let columns =
        "item, written, device, lost_conflict, winner_written, winner_device, recorded_at, size"
    private static let ofStore = SQL(
        """
        SELECT \(columns), sealed FROM key_history WHERE account = ?1 AND store = ?2
        ORDER BY recorded_at DESC, written DESC, item, device LIMIT ?3
        """)
    private static let ofKey = SQL(
        """
        SELECT \(columns), sealed FROM key_history WHERE account = ?1 AND store = ?2 AND item = ?3
        ORDER BY recorded_at DESC, written DESC, device LIMIT ?4
        """)
    private static let surplusOfKey = SQL(
        """
        SELECT account, store, item, written, device, size FROM key_history
        WHERE account = ?1 AND store = ?2 AND item = ?3
        ORDER BY written DESC, device DESC LIMIT ?4 OFFSET ?5
        """)
    private static let oldestOfStore = SQL(
        """
        SELECT account, store, item, written, device, size FROM key_history
        WHERE account = ?1 AND store = ?2 ORDER BY recorded_at LIMIT ?3
        """)
    private static let oldest = SQL(
        """
        SELECT account, store, item, written, device, size FROM key_history
        WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2
        """)
    private static let ofAccount = SQL(
        "SELECT account, store, item, written, device, size FROM key_history WHERE account = ?1 LIMIT ?2")
    private static let removeTotals = SQL("DELETE FROM key_history_totals WHERE account = ?1")
    private static let remove = SQL(
        """
        DELETE FROM key_history
        WHERE account = ?1 AND store = ?2 AND item = ?3 AND written = ?4 AND device = ?5
        """)

    /// Adds an entry, and removes what there are too many of. Does nothing when the entry is there.
    static func add(_ entry: Entry, to scope: ScopeName, in transaction: any Transaction) throws {
        let store: [SQLValue] = [.text(scope.account.rawValue), .text(scope.name)]
        let key = store + [.text(entry.loser.key)]
        let count = try transaction.execute(
            insert,
            key + [
                .integer(Int64(bitPattern: entry.loser.stamp.timestamp.rawValue)),
                .text(entry.loser.stamp.device.rawValue), .integer(entry.lostConflict ? 1 : 0),
                .integer(Int64(bitPattern: entry.winner.timestamp.rawValue)), .text(entry.winner.device.rawValue),
                .integer(Int64(clamping: entry.recordedAt.milliseconds)), .integer(Int64(entry.loser.size)),
                entry.loser.sealed.map { .blob($0.bytes) } ?? .null,
            ])
        guard count > 0 else { return }
        try transaction.execute(addBytes, store + [.integer(Int64(entryBytes + entry.loser.size))])
        try removeAll(
            surplusOfKey, key + [.integer(Int64(pruneStep)), .integer(Int64(entriesPerKeyMax))], in: transaction)
        var surplus = (try transaction.first(bytes, store) { $0.integer(0) } ?? 0) - Int64(bytesPerStoreMax)
        while surplus > 0 {
            let removed = try removeAll(oldestOfStore, store + [.integer(1)], in: transaction)
            if removed.count == 0 { break }
            surplus -= removed.bytes
        }
    }

    /// Removes the oldest entries from before the time, at most `limit` of them.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    static func prune(recordedBefore time: Timestamp, limit: Int, in transaction: any Transaction) throws -> Bool {
        let values: [SQLValue] = [.integer(Int64(clamping: time.milliseconds)), .integer(Int64(limit))]
        return try removeAll(oldest, values, in: transaction).count == limit
    }

    /// Removes at most `limit` of an account's entries.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    static func remove(_ account: AccountID, limit: Int, in transaction: any Transaction) throws -> Bool {
        let removed = try removeAll(
            ofAccount, [.text(account.rawValue), .integer(Int64(limit))], in: transaction)
        if removed.count < limit { try transaction.execute(removeTotals, [.text(account.rawValue)]) }
        return removed.count == limit
    }

    /// A store's entries, newest first; those of one key, if one is given.
    static func entries(
        of scope: ScopeName, key: String?, limit: Int, in transaction: any Transaction,
        _ entry: (Entry) throws -> Bool
    ) throws {
        let store: [SQLValue] = [.text(scope.account.rawValue), .text(scope.name)]
        let values = store + (key.map { [.text($0)] } ?? []) + [.integer(Int64(limit))]
        try transaction.query(key == nil ? ofStore : ofKey, values) { row in
            try entry(
                Entry(
                    loser: StoredKey(
                        key: row.text(0), stamp: stamp(row, 1),
                        sealed: row.isNull(8) ? nil : Sealed(bytes: row.blob(8)), size: Int(row.integer(7))),
                    lostConflict: row.integer(3) != 0, winner: stamp(row, 4),
                    recordedAt: Timestamp(milliseconds: UInt64(clamping: row.integer(6)))))
        }
    }

    private static func stamp(_ row: any SQLRow, _ column: Int) -> MergeRule.Stamp {
        MergeRule.Stamp(
            timestamp: HybridTimestamp(rawValue: UInt64(bitPattern: row.integer(column))),
            device: DeviceID(row.text(column + 1)))
    }

    @discardableResult
    private static func removeAll(
        _ selection: SQL, _ values: [SQLValue], in transaction: any Transaction
    ) throws -> (count: Int, bytes: Int64) {
        let found = try transaction.all(selection, values) { row in
            (
                key: [
                    SQLValue.text(row.text(0)), .text(row.text(1)), .text(row.text(2)), .integer(row.integer(3)),
                    .text(row.text(4)),
                ], bytes: Int64(entryBytes) + row.integer(5)
            )
        }
        for entry in found {
            try transaction.execute(remove, entry.key)
            try transaction.execute(addBytes, [entry.key[0], entry.key[1], .integer(-entry.bytes)])
        }
        return (found.count, found.reduce(0) { $0 + $1.bytes })
    }
}
