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

    /// A store's row: what its entries add up to.
    private struct Store {
        var id: Int64
        var bytes: Int64
        /// Of the next entry.
        var number: Int64
    }

    private static let storeOf = SQL("SELECT id, bytes, next FROM key_history_stores WHERE account = ?1 AND store = ?2")
    private static let insertStore = SQL(
        """
        INSERT INTO key_history_stores (id, account, store, bytes, next)
        VALUES ((SELECT COALESCE(MAX(id), 0) + 1 FROM key_history_stores), ?1, ?2, 0, 1)
        """)
    private static let saveStore = SQL("UPDATE key_history_stores SET bytes = ?2, next = ?3 WHERE id = ?1")
    private static let takeBytes = SQL("UPDATE key_history_stores SET bytes = bytes - ?2 WHERE id = ?1")
    private static let storeOfAccount = SQL("SELECT id FROM key_history_stores WHERE account = ?1 ORDER BY id LIMIT 1")
    private static let removeStore = SQL("DELETE FROM key_history_stores WHERE id = ?1")

    private static let insert = SQL(
        """
        INSERT INTO key_history (store_id, own, number, item, written, device, mark, lost_conflict, winner_written,
            winner_device, recorded_at, size, sealed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (store_id, item, own, lost_conflict, written, mark, size) DO NOTHING
        """)
    private static let entryAt = SQL(
        """
        SELECT item, written, device, lost_conflict, winner_written, winner_device, recorded_at, size, mark, sealed
        FROM key_history WHERE own = ?2 AND store_id = ?1 AND number = ?3
        """)
    // Two halves, each of which lies in order. Of what is passed over no more is read than its place.
    static let ofStore = SQL(
        """
        SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 AND own = 0
        UNION ALL SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 AND own = 1
        ORDER BY number DESC LIMIT ?2
        """)
    static let ofKey = SQL(
        """
        SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 AND item = ?2
        ORDER BY number DESC LIMIT ?3
        """)
    /// What lost a conflict goes last: nobody has seen it.
    static let surplusOfKey = SQL(
        """
        SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 AND item = ?2 AND own = ?3
        ORDER BY lost_conflict DESC, written DESC, mark DESC LIMIT ?4 OFFSET ?5
        """)
    static let oldestOfStore = SQL(
        """
        SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 AND own = ?2 ORDER BY number LIMIT ?3
        """)
    static let anyOfStore = SQL(
        "SELECT store_id, own, number, size FROM key_history WHERE store_id = ?1 LIMIT ?2")
    private static let oldest = SQL(
        """
        SELECT store_id, own, number, size FROM key_history WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2
        """)
    private static let remove = SQL("DELETE FROM key_history WHERE own = ?2 AND store_id = ?1 AND number = ?3")

    /// Adds entries, and removes what there are too many of. An entry that is there already is left as it is.
    static func add(_ entries: [Entry], to scope: ScopeName, in transaction: any Transaction) throws {
        guard !entries.isEmpty else { return }
        var store = try openStore(scope, in: transaction)
        let first = store.number
        for entry in entries {
            let key: [SQLValue] = [.integer(store.id), .text(entry.loser.key.rawValue), .integer(entry.isOwn ? 1 : 0)]
            let count = try transaction.execute(
                insert,
                [
                    key[0], key[2], .integer(store.number), key[1],
                    .integer(Int64(bitPattern: entry.loser.stamp.timestamp.rawValue)),
                    .text(entry.loser.stamp.device.rawValue), .integer(entry.mark),
                    .integer(entry.lostConflict ? 1 : 0),
                    .integer(Int64(bitPattern: entry.winner.timestamp.rawValue)), .text(entry.winner.device.rawValue),
                    .integer(Int64(clamping: entry.recordedAt.milliseconds)), .integer(Int64(entry.loser.size)),
                    entry.loser.sealed.map { .blob($0.bytes) } ?? .null,
                ])
            guard count > 0 else { continue }
            store.number += 1
            store.bytes += Int64(entryBytes + entry.loser.size)
            let countMax = entry.isOwn ? ownEntriesPerKeyMax : entriesPerKeyMax
            store.bytes -= try removeAll(
                surplusOfKey, key + [.integer(Int64(pruneStep)), .integer(Int64(countMax))], in: transaction
            ).bytes
        }
        guard store.number > first else { return }
        try removeOldest(of: &store, own: true, beyond: ownBytesPerStoreMax, in: transaction)
        // By now the others' are all that is left.
        try removeOldest(of: &store, own: false, beyond: bytesPerStoreMax, in: transaction)
        try transaction.execute(saveStore, [.integer(store.id), .integer(store.bytes), .integer(store.number)])
    }

    /// The store's row; makes it when there is none.
    private static func openStore(_ scope: ScopeName, in transaction: any Transaction) throws -> Store {
        if let store = try find(scope, in: transaction) { return store }
        try transaction.execute(insertStore, values(scope))
        guard let store = try find(scope, in: transaction) else {
            throw CloudError(.storageFailure, "A store's history has no row.")
        }
        return store
    }

    private static func find(_ scope: ScopeName, in transaction: any ReadTransaction) throws -> Store? {
        try transaction.first(storeOf, values(scope)) {
            Store(id: $0.integer(0), bytes: $0.integer(1), number: $0.integer(2))
        }
    }

    private static func values(_ scope: ScopeName) -> [SQLValue] {
        [.text(scope.owner.rawValue), .text(scope.path.rawValue)]
    }

    /// Removes one after the other until no more than so many bytes are left, or nothing that could go.
    private static func removeOldest(
        of store: inout Store, own: Bool, beyond bytesMax: Int, in transaction: any Transaction
    ) throws {
        while store.bytes > bytesMax {
            let removed = try removeAll(
                oldestOfStore, [.integer(store.id), .integer(own ? 1 : 0), .integer(1)], in: transaction)
            guard removed.count > 0 else { return }
            store.bytes -= removed.bytes
        }
    }

    /// Removes the oldest entries from before the time, at most `limit` of them.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    static func prune(recordedBefore time: Timestamp, limit: Int, in transaction: any Transaction) throws -> Bool {
        let values: [SQLValue] = [.integer(Int64(clamping: time.milliseconds)), .integer(Int64(limit))]
        let removed = try removeAll(oldest, values, in: transaction)
        for (store, bytes) in removed.bytesOfStores.sorted(by: { $0.key < $1.key }) {
            try transaction.execute(takeBytes, [.integer(store), .integer(bytes)])
        }
        return removed.count == limit
    }

    /// Removes at most `limit` of an account's entries.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    static func remove(_ account: AccountID, limit: Int, in transaction: any Transaction) throws -> Bool {
        guard let store = try transaction.first(storeOfAccount, [.text(account.rawValue)], { $0.integer(0) })
        else { return false }
        let removed = try removeAll(anyOfStore, [.integer(store), .integer(Int64(limit))], in: transaction)
        if removed.count < limit { try transaction.execute(removeStore, [.integer(store)]) }
        return true
    }

    /// Where an entry lies.
    struct Place {
        fileprivate var key: [SQLValue]
        /// Bytes of its value.
        var size: Int
    }

    /// The places of a store's entries, newest first; those of one key, if one is given.
    static func places(
        of scope: ScopeName, key: ItemName?, skip: Int = 0, limit: Int, in transaction: any ReadTransaction
    ) throws -> [Place] {
        guard let store = try find(scope, in: transaction) else { return [] }
        var values: [SQLValue] = [.integer(store.id)]
        if let key { values.append(.text(key.rawValue)) }
        values.append(.integer(Int64(skip + limit)))
        var places: [Place] = []
        var passed = 0
        // Not by OFFSET, so that those that are passed over are counted.
        try transaction.query(key == nil ? ofStore : ofKey, values) { row in
            passed += 1
            guard passed > skip else { return true }
            places.append(
                Place(
                    key: [.integer(row.integer(0)), .integer(row.integer(1)), .integer(row.integer(2))],
                    size: Int(row.integer(3))))
            return true
        }
        return places
    }

    static func entry(at place: Place, in transaction: any ReadTransaction) throws -> Entry? {
        try transaction.first(entryAt, place.key) { row in
            Entry(
                loser: StoredKey(
                    key: ItemName(row.text(0)), stamp: stamp(row, 1),
                    sealed: row.isNull(9) ? nil : Sealed(bytes: row.blob(9)), size: Int(row.integer(7))),
                mark: row.integer(8),
                lostConflict: row.integer(3) != 0, winner: stamp(row, 4),
                recordedAt: Timestamp(milliseconds: UInt64(clamping: row.integer(6))))
        }
    }

    private static func stamp(_ row: any SQLRow, _ column: Int) -> MergeRule.Stamp {
        MergeRule.Stamp(
            timestamp: HybridTimestamp(rawValue: UInt64(bitPattern: row.integer(column))),
            device: DeviceID(row.text(column + 1)))
    }

    private struct Removed {
        var count = 0
        var bytesOfStores: [Int64: Int64] = [:]
        var bytes: Int64 { bytesOfStores.values.reduce(0, +) }
    }

    /// - Parameter selection: Gives store_id, own, number and size.
    private static func removeAll(
        _ selection: SQL, _ values: [SQLValue], in transaction: any Transaction
    ) throws -> Removed {
        var removed = Removed()
        var keys: [[SQLValue]] = []
        try transaction.query(selection, values) { row in
            keys.append([.integer(row.integer(0)), .integer(row.integer(1)), .integer(row.integer(2))])
            removed.count += 1
            removed.bytesOfStores[row.integer(0), default: 0] += Int64(entryBytes) + row.integer(3)
            return true
        }
        for key in keys { try transaction.execute(remove, key) }
        return removed
    }
}
