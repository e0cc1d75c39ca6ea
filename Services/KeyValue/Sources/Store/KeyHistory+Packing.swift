internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

// What a large push has replaced is packed in its transaction, some entries to a row, and each row is unpacked by
// itself after it: three B-trees are changed for each entry, and meanwhile everybody else would wait.
extension KeyHistory {
    /// Entries removed in one step to make room for a row of packed ones.
    private static let removedAtOnceMax = 64
    private static let insertPacked = SQL(
        "INSERT INTO key_history_packed (store_id, number, count, bytes, entries) VALUES (?1, ?2, ?3, ?4, ?5)")
    static let packedOfStore = SQL(
        "SELECT number, entries FROM key_history_packed WHERE store_id = ?1 ORDER BY number DESC")
    static let nextPackedStore = SQL(
        "SELECT store_id FROM key_history_packed WHERE store_id > ?1 ORDER BY store_id LIMIT 1")
    static let firstPacked = SQL(
        """
        SELECT number, count, bytes, entries FROM key_history_packed WHERE store_id = ?1 ORDER BY number LIMIT 1
        """)
    private static let removePackedRow = SQL("DELETE FROM key_history_packed WHERE store_id = ?1 AND number = ?2")
    static let removePacked = SQL("DELETE FROM key_history_packed WHERE store_id = ?1")

    /// - Returns: The newest of them, newest first.
    static func packedPlaces(
        of store: Store, _ key: ItemName?, conflictsOnly: Bool, limit: Int, in transaction: any ReadTransaction
    ) throws -> [Place] {
        var places: [Place] = []
        try transaction.query(packedOfStore, [.integer(store.id)]) { row in
            let number = row.integer(0)
            for (index, entry) in PackedHistory.unpack(row.blob(1)).entries.enumerated().reversed()
            where (key == nil || entry.loser.key == key) && (entry.lostConflict || !conflictsOnly) {
                places.append(
                    Place(
                        store: store.id, own: entry.isOwn ? 1 : 0, number: number &+ Int64(index),
                        size: entry.loser.size, packed: entry))
            }
            return places.count < limit
        }
        return places
    }

    /// - Throws: ``CloudError`` `.serviceBusy` when the store has too much that is packed for another large push.
    static func checkRoom(of scope: ScopeName, in transaction: any ReadTransaction) throws {
        guard let store = try find(scope, in: transaction) else { return }
        guard store.packed <= Int64(packedMax), store.packedBytes <= Int64(packedBytesMax) else {
            throw CloudError(
                .serviceBusy, "What large pushes have replaced is still being put away. Try again soon.",
                retryAfter: .milliseconds(500))
        }
    }

    /// They have their numbers now, so that the history is in order also before they have their rows.
    static func pack(
        _ entries: [Entry], into store: inout Store, in transaction: any HandlerTransaction
    ) throws {
        for start in stride(from: 0, to: entries.count, by: packedPerRowMax) {
            let part = entries[start..<min(start + packedPerRowMax, entries.count)]
            let bytes = part.reduce(0) { $0 + $1.bytes }
            try transaction.execute(
                insertPacked,
                [
                    .integer(store.id), .integer(store.number), .integer(Int64(part.count)), .integer(bytes),
                    .blob(PackedHistory.pack(part)),
                ])
            store.number += Int64(part.count)
            store.packed += Int64(part.count)
            store.packedBytes += bytes
        }
        // Their rows, and those that go for them.
        transaction.charge(rows: 2 * entries.count)
    }

    /// What one step of unpacking has come to.
    struct Unpacked {
        var scope: ScopeName
        /// Entries that were damaged, and are left out.
        var damaged = 0
    }

    /// The store whose turn it is to be unpacked; nil: there is none.
    ///
    /// - Parameter last: The one that had its turn last.
    static func storeToUnpack(after last: Int64, in transaction: any ReadTransaction) throws -> Int64? {
        try transaction.first(nextPackedStore, [.integer(last)]) { $0.integer(0) }
            ?? transaction.first(nextPackedStore, [.integer(0)]) { $0.integer(0) }
    }

    /// Gives the entries of the store's first packed row rows of their own, or first removes some older ones for which
    /// there will be no room beside them.
    ///
    /// - Returns: Nil: there is no such store any more.
    static func unpack(of id: Int64, in transaction: any Transaction) throws -> Unpacked? {
        let row = try transaction.first(firstPacked, [.integer(id)]) {
            (
                number: $0.integer(0), count: Int(clamping: $0.integer(1)), bytes: $0.integer(2), entries: $0.blob(3)
            )
        }
        guard let row else { return nil }
        let found = try transaction.first(storeByID, [.integer(id)]) {
            (store: Store($0), scope: ScopeName(Owner($0.text(6)), ItemName($0.text(7))))
        }
        // Nobody could ask for them.
        guard var store = found?.store, let scope = found?.scope else {
            try transaction.execute(removePacked, [.integer(id)])
            return nil
        }
        let (entries, isWhole) = PackedHistory.unpack(row.entries)
        guard try makeRoom(for: entries, in: &store, in: transaction) else {
            try save(store, in: transaction)
            return Unpacked(scope: scope)
        }
        for (index, entry) in entries.enumerated() {
            _ = try insert(entry, as: row.number &+ Int64(index), into: &store, in: transaction)
        }
        try removeSurplus(of: &store, in: transaction)
        try transaction.execute(removePackedRow, [.integer(id), .integer(row.number)])
        store.packed = max(0, store.packed &- Int64(row.count))
        store.packedBytes = max(0, store.packedBytes &- row.bytes)
        try save(store, in: transaction)
        return Unpacked(scope: scope, damaged: isWhole ? 0 : max(1, row.count &- entries.count))
    }

    /// - Returns: Whether there is room now, or nothing left that could go for it; else another step is needed.
    private static func makeRoom(
        for entries: [Entry], in store: inout Store, in transaction: any Transaction
    ) throws -> Bool {
        let bytes = entries.reduce(0) { $0 + $1.bytes }
        let bytesOfOthers = entries.reduce(0) { $0 + ($1.isOwn ? 0 : $1.bytes) }
        var count = try removeOldest(
            of: &store, own: true, beyond: Int64(ownBytesPerStoreMax) - bytes, countMax: removedAtOnceMax,
            in: transaction)
        // For what the same device replaced no other goes.
        count += try removeOldest(
            of: &store, own: false, beyond: Int64(bytesPerStoreMax) - bytesOfOthers,
            countMax: removedAtOnceMax - count, in: transaction)
        return count < removedAtOnceMax
    }
}
