internal import Core
internal import ServiceKit
internal import Storage

/// What lost a conflict or was overwritten.
///
/// What a device overwrote itself is a convenience, and no conflict: it never drives out the others' entries.
enum KeyHistory {
    /// How long an entry is kept.
    static let retention: Duration = .seconds(30 * 86_400)
    /// Entries of one key, of writes that other devices replaced.
    static let entriesPerKeyMax = 100
    /// Entries of one key, of writes that the same device replaced.
    static let ownEntriesPerKeyMax = 10
    /// How long a value must have stood to be kept when the same device replaces it: what is written many times a
    /// second costs no more for it.
    static let ownStandingMin: Duration = .milliseconds(100)
    /// Bytes of one store's entries; an entry counts at least ``entryBytes``.
    static let bytesPerStoreMax = 8 << 20
    /// Beyond so many bytes in all, the oldest that the same device replaced go.
    static let ownBytesPerStoreMax = 4 << 20
    private static let entryBytes = 256
    static let pruneInterval: Duration = .seconds(600)
    /// Between two steps of one round.
    static let prunePause: Duration = .milliseconds(20)
    /// Entries removed for each one that is added, so that no request waits long.
    private static let pruneStep = 8

    struct Entry {
        var loser: StoredKey
        /// Of its content.
        var mark: Int64
        var lostConflict: Bool
        var winner: MergeRule.Stamp
        var recordedAt: Timestamp

        /// Whether a device replaced what it had written itself.
        var isOwn: Bool { loser.stamp.device == winner.device }
    }

    private static let insert = SQL(
        """
        INSERT INTO key_history (account, store, item, written, device, lost_conflict, winner_written, winner_device,
            recorded_at, own, size, sealed, mark)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (account, store, item, written, device, mark) DO NOTHING
        """)
    private static let addBytes = SQL(
        """
        INSERT INTO key_history_totals (account, store, bytes) VALUES (?1, ?2, ?3)
        ON CONFLICT (account, store) DO UPDATE SET bytes = key_history_totals.bytes + ?3
        """)
    private static let bytes = SQL("SELECT bytes FROM key_history_totals WHERE account = ?1 AND store = ?2")
    private static let columns =
        "item, written, device, lost_conflict, winner_written, winner_device, recorded_at, size, mark"
    private static let ofStore = SQL(
        """
        SELECT \(columns), sealed FROM key_history WHERE account = ?1 AND store = ?2
        ORDER BY recorded_at DESC, written DESC, item, device LIMIT ?3
        """)
    // An expression, since SQLite would read the whole store by the index of its times, for the order of a few.
    static let ofKey = SQL(
        """
        SELECT \(columns), sealed FROM key_history WHERE account = ?1 AND store = ?2 AND item = ?3
        ORDER BY recorded_at + 0 DESC, written DESC, device LIMIT ?4
        """)
    // Two statements, since `own = ?` would be prepared anew for each value: an index is of `own = 1` alone.
    private static let surplusOfKey = surplus("own = 0")
    private static let ownSurplusOfKey = surplus("own = 1")
    private static func surplus(_ condition: String) -> SQL {
        SQL(
            """
            SELECT account, store, item, written, device, mark, size FROM key_history
            WHERE account = ?1 AND store = ?2 AND item = ?3 AND \(condition)
            ORDER BY written DESC, device DESC LIMIT ?4 OFFSET ?5
            """)
    }
    private static let oldestOfStore = SQL(
        """
        SELECT account, store, item, written, device, mark, size FROM key_history
        WHERE account = ?1 AND store = ?2 ORDER BY recorded_at LIMIT ?3
        """)
    private static let oldestOwnOfStore = SQL(
        """
        SELECT account, store, item, written, device, mark, size FROM key_history
        WHERE account = ?1 AND store = ?2 AND own = 1 ORDER BY recorded_at LIMIT ?3
        """)
    private static let oldest = SQL(
        """
        SELECT account, store, item, written, device, mark, size FROM key_history
        WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2
        """)
    private static let ofAccount = SQL(
        "SELECT account, store, item, written, device, mark, size FROM key_history WHERE account = ?1 LIMIT ?2")
    private static let removeTotals = SQL("DELETE FROM key_history_totals WHERE account = ?1")
    private static let remove = SQL(
        """
        DELETE FROM key_history
        WHERE account = ?1 AND store = ?2 AND item = ?3 AND written = ?4 AND device = ?5
            AND mark = ?6
        """)

    /// Adds entries, and removes what there are too many of. An entry that is there already is left as it is.
    static func add(_ entries: [Entry], to scope: ScopeName, in transaction: any Transaction) throws {
        guard !entries.isEmpty else { return }
        let store: [SQLValue] = [.text(scope.account.rawValue), .text(scope.name.rawValue)]
        var added: Int64 = 0
        for entry in entries {
            let key = store + [.text(entry.loser.key.rawValue)]
            let count = try transaction.execute(
                insert,
                key + [
                    .integer(Int64(bitPattern: entry.loser.stamp.timestamp.rawValue)),
                    .text(entry.loser.stamp.device.rawValue), .integer(entry.lostConflict ? 1 : 0),
                    .integer(Int64(bitPattern: entry.winner.timestamp.rawValue)), .text(entry.winner.device.rawValue),
                    .integer(Int64(clamping: entry.recordedAt.milliseconds)), .integer(entry.isOwn ? 1 : 0),
                    .integer(Int64(entry.loser.size)),
                    entry.loser.sealed.map { .blob($0.bytes) } ?? .null, .integer(entry.mark),
                ])
            guard count > 0 else { continue }
            added += Int64(entryBytes + entry.loser.size)
            let countMax = entry.isOwn ? ownEntriesPerKeyMax : entriesPerKeyMax
            try removeAll(
                entry.isOwn ? ownSurplusOfKey : surplusOfKey,
                key + [.integer(Int64(pruneStep)), .integer(Int64(countMax))], in: transaction)
        }
        guard added > 0 else { return }
        // Once for all of them: a push may overwrite a thousand keys.
        try transaction.execute(addBytes, store + [.integer(added)])
        var bytes = try transaction.first(bytes, store) { $0.integer(0) } ?? 0
        try removeAll(oldestOwnOfStore, of: store, beyond: ownBytesPerStoreMax, &bytes, in: transaction)
        try removeAll(oldestOfStore, of: store, beyond: bytesPerStoreMax, &bytes, in: transaction)
    }

    /// Removes one after the other until no more than so many bytes are left, or nothing that could go.
    private static func removeAll(
        _ oldest: SQL, of store: [SQLValue], beyond bytesMax: Int, _ bytes: inout Int64, in transaction: any Transaction
    ) throws {
        while bytes > bytesMax {
            let removed = try removeAll(oldest, store + [.integer(1)], in: transaction)
            guard removed.count > 0 else { return }
            bytes -= removed.bytes
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
        of scope: ScopeName, key: ItemName?, skip: Int = 0, limit: Int, in transaction: any ReadTransaction,
        _ entry: (Entry) throws -> Bool
    ) throws {
        let store: [SQLValue] = [.text(scope.account.rawValue), .text(scope.name.rawValue)]
        let values = store + (key.map { [.text($0.rawValue)] } ?? []) + [.integer(Int64(skip + limit))]
        var passed = 0
        try transaction.query(key == nil ? ofStore : ofKey, values) { row in
            // Here, and not by OFFSET, so that they are counted.
            passed += 1
            guard passed > skip else { return true }
            return try entry(
                Entry(
                    loser: StoredKey(
                        key: ItemName(row.text(0)), stamp: stamp(row, 1),
                        sealed: row.isNull(9) ? nil : Sealed(bytes: row.blob(9)), size: Int(row.integer(7))),
                    mark: row.integer(8),
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
                    .text(row.text(4)), .integer(row.integer(5)),
                ], bytes: Int64(entryBytes) + row.integer(6)
            )
        }
        for entry in found {
            try transaction.execute(remove, entry.key)
            try transaction.execute(addBytes, [entry.key[0], entry.key[1], .integer(-entry.bytes)])
        }
        return (found.count, found.reduce(0) { $0 + $1.bytes })
    }
}
