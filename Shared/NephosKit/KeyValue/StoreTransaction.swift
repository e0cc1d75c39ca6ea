import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// One key-value store inside a local transaction. Everything that SQL knows of its items and their pending writes is
/// here; where it stands, and what waits to be sent, is as of every scope (``ScopeTransaction``).
struct StoreTransaction {
    let rows: ScopeTransaction
    var database: Database { rows.database }
    var account: String { rows.account }
    var store: String { rows.scope.name }
    var scope: StoreScope { StoreScope(account: rows.scope.account, store: StoreID(store)) }

    init(_ rows: ScopeTransaction) { self.rows = rows }

    init(_ database: Database, _ scope: StoreScope) { self.init(ScopeTransaction(database, scope.local)) }

    func state() throws -> ScopeState { try rows.state() }
    func save(_ state: ScopeState) throws { try rows.save(state) }

    // MARK: Items

    func item(_ key: ItemName) throws -> KeyValueItem? {
        try Row.fetchOne(
            cached(
                "SELECT key, value, timestamp, device, sequence FROM items "
                    + "WHERE account = ?1 AND store = ?2 AND key = ?3"),
            arguments: [account, store, key.rawValue]
        ).map(Self.item)
    }

    /// All items, deleted ones included, in the order of their keys.
    func items() throws -> [KeyValueItem] {
        try Row.fetchAll(
            cached(
                "SELECT key, value, timestamp, device, sequence FROM items "
                    + "WHERE account = ?1 AND store = ?2 ORDER BY key"), arguments: [account, store]
        ).map(Self.item)
    }

    func greatestSequence() throws -> UInt64 {
        // They are kept bit for bit, so that those of 2^63 and more are negative.
        let greatest = try Int64.fetchOne(
            cached(
                "SELECT coalesce(max(CASE WHEN sequence < 0 THEN sequence END), max(sequence)) "
                    + "FROM items WHERE account = ?1 AND store = ?2"), arguments: [account, store])
        return UInt64(bitPattern: greatest ?? 0)
    }

    /// Stores the item, and keeps the digest in step with the live items.
    func put(_ item: KeyValueItem, _ state: inout ScopeState) throws {
        if let old = try self.item(item.key), old.value != nil {
            state.digest.remove(old.digest(key: state.digestKey))
        }
        if item.value != nil { state.digest.add(item.digest(key: state.digestKey)) }
        try cached(
            "INSERT INTO items (account, store, key, value, timestamp, device, sequence) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (account, store, key) DO UPDATE SET "
                + "value = ?4, timestamp = ?5, device = ?6, sequence = ?7"
        ).execute(arguments: [
            account, store, item.key.rawValue, item.value.map { Data($0.canonicalBytes) },
            Int64(bitPattern: item.timestamp.rawValue),
            item.deviceID.rawValue, Int64(bitPattern: item.sequence),
        ])
    }

    static let table = ItemTable(table: "items", scope: "store", name: "key")

    /// Forgets the item.
    func remove(_ item: KeyValueItem, _ state: inout ScopeState) throws {
        if item.value != nil { state.digest.remove(item.digest(key: state.digestKey)) }
        try cached("DELETE FROM items WHERE account = ?1 AND store = ?2 AND key = ?3")
            .execute(arguments: [account, store, item.key.rawValue])
    }

    // MARK: Pending writes

    func pending(limit: Int = .max) throws -> [PendingOperation] {
        try rows.operations(limit: limit).map { PendingOperation(operation: $0, writes: try writes(of: $0.position)) }
    }

    func writes(of position: Int64) throws -> [KeyValueItem] {
        try Row.fetchAll(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence FROM pending_writes WHERE position = ?1 "
                    + "ORDER BY key"),
            arguments: [position]
        ).map(Self.item)
    }

    /// The timestamps of what the server had given of an operation's keys when they were written.
    func seenTimestamps(of position: Int64) throws -> [ItemName: HybridTimestamp] {
        let rows = try Row.fetchAll(
            cached("SELECT key, seen FROM pending_writes WHERE position = ?1"), arguments: [position])
        return Dictionary(
            rows.map {
                (ItemName($0["key"] as String), HybridTimestamp(rawValue: UInt64(bitPattern: $0["seen"] as Int64)))
            }
        ) { first, _ in first }
    }

    /// The newest pending write of this key: what is queued later need not be newer, it may be adopted, or offered
    /// again.
    func pendingWrite(_ key: ItemName) throws -> KeyValueItem? {
        try Row.fetchOne(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 AND key = ?3 "
                    + "ORDER BY timestamp DESC, device DESC, position DESC LIMIT 1"),
            arguments: [account, store, key.rawValue]
        ).map(Self.item)
    }

    /// The last operation with this key, if it has never been sent and has no other key: a later write may take its
    /// place.
    func coalescible(_ key: ItemName) throws -> Int64? {
        let last = try Int64.fetchOne(
            cached("SELECT max(position) FROM pending_writes WHERE account = ?1 AND store = ?2 AND key = ?3"),
            arguments: [account, store, key.rawValue])
        guard let position = last else { return nil }
        let may = try Bool.fetchOne(
            cached(
                "SELECT state = 'unsent' AND (SELECT count(*) FROM pending_writes WHERE position = ?1) = 1 "
                    + "FROM outbox WHERE position = ?1"),
            arguments: [position])
        return may == true ? position : nil
    }

    /// The greatest timestamp of what waits of these keys, but for one operation.
    func greatestPending(_ keys: [ItemName], except position: Int64?) throws -> HybridTimestamp {
        try keys.reduce(.zero) { greatest, key in
            let timestamp = try Int64.fetchOne(
                cached(
                    "SELECT max(timestamp) FROM pending_writes "
                        + "WHERE account = ?1 AND store = ?2 AND key = ?3 AND position <> ?4"),
                arguments: [account, store, key.rawValue, position ?? -1])
            return max(greatest, HybridTimestamp(rawValue: UInt64(bitPattern: timestamp ?? 0)))
        }
    }

    /// Whether this very write waits to be sent.
    func isWaiting(_ write: KeyValueItem) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM pending_writes WHERE account = ?1 AND store = ?2 AND key = ?3 AND timestamp = ?4 "
                    + "AND device = ?5"),
            arguments: [
                account, store, write.key.rawValue, Int64(bitPattern: write.timestamp.rawValue),
                write.deviceID.rawValue,
            ]) ?? false
    }

    /// Removes from what was written while signed out these very writes: an account has them.
    func forgetAdopted(_ writes: [KeyValueItem]) throws {
        for write in writes {
            guard let item = try item(write.key), item.timestamp == write.timestamp, item.value == write.value else {
                continue
            }
            var state = try state()
            try remove(item, &state)
            try save(state)
        }
    }

    @discardableResult
    func append(_ writes: [KeyValueItem], id: OperationID, writer: Int64, now: Timestamp) throws -> Int64 {
        let position = try rows.append(id: id, writer: writer, now: now)
        for write in writes { try put(write, at: position) }
        return position
    }

    func put(_ write: KeyValueItem, at position: Int64) throws {
        try cached(
            "INSERT INTO pending_writes (position, account, store, key, value, timestamp, device, seen) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce((SELECT timestamp FROM items "
                + "WHERE account = ?2 AND store = ?3 AND key = ?4), 0)) ON CONFLICT (position, key) DO UPDATE SET "
                + "value = ?5, timestamp = ?6, device = ?7, seen = excluded.seen"
        ).execute(arguments: [
            position, account, store, write.key.rawValue, write.value.map { Data($0.canonicalBytes) },
            Int64(bitPattern: write.timestamp.rawValue), write.deviceID.rawValue,
        ])
    }

    /// Takes an operation out, with its writes.
    func removePending(_ position: Int64) throws {
        try cached("DELETE FROM pending_writes WHERE position = ?1").execute(arguments: [position])
        try rows.removeOperation(at: position)
    }

    // MARK: What the app sees

    /// The state of a key as the app reads it: the newest of what the server
    /// has and what waits to be sent.
    func visible(_ key: ItemName) throws -> KeyValueItem? {
        let item = try item(key)
        guard let write = try pendingWrite(key) else { return item }
        guard let item, item.wins(over: write) else { return write }
        return item
    }

    func visibleItems() throws -> [ItemName: KeyValueItem] {
        var visible: [ItemName: KeyValueItem] = [:]
        for item in try items() { visible[item.key] = item }
        let writes = try Row.fetchCursor(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 ORDER BY timestamp, device, position"),
            arguments: [account, store])
        while let row = try writes.next() {
            let write = try Self.item(row)
            if let item = visible[write.key], item.wins(over: write) { continue }
            visible[write.key] = write
        }
        return visible
    }

    /// Keys with a value, and the bytes of all values, pending writes included,
    /// but without one key.
    func usage(without keys: some Collection<ItemName>) throws -> (keys: Int, bytes: Int) {
        var sizes: [ItemName: Int] = [:]
        let rows = try Row.fetchCursor(
            cached(
                "SELECT key, length(value) AS size, 0 AS pending, timestamp, device, 0 AS position FROM items "
                    + "WHERE account = ?1 AND store = ?2 "
                    + "UNION ALL SELECT key, length(value), 1, timestamp, device, position FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 ORDER BY 3, 4, 5, 6"),
            arguments: [account, store])
        while let row = try rows.next() { sizes[ItemName(row["key"])] = row["size"] as Int? }
        for key in keys { sizes[key] = nil }
        return (sizes.count, sizes.values.reduce(0, +))
    }

    // MARK: Refused writes

    /// Of the values of refused writes, in one store.
    private static let refusedBytesMax = 4 << 20

    /// Lists these as refused, each unless a newer write of its key is.
    func recordRefusal(_ writes: [KeyValueItem], _ error: CloudError, now: Timestamp) throws {
        for write in writes {
            let stamp = Int64(bitPattern: write.timestamp.rawValue)
            let former = try rows.undecided.all(.rejected, of: write.key)
            guard former.allSatisfy({ $0.stamp <= stamp }) else { continue }
            for one in former { try rows.undecided.remove(one.number) }
            try rows.undecided.add(
                Undecided(
                    kind: .rejected, name: write.key, found: now, error: error,
                    mine: write.value.map { Data($0.canonicalBytes) }, stamp: stamp, isOnlyHere: write.value != nil))
        }
        var bytes = 0
        for var change in try rows.undecided.all(.rejected).reversed() where change.mine != nil {
            bytes += change.mine?.count ?? 0
            guard bytes > Self.refusedBytesMax else { continue }
            // It stays listed, without its value.
            try rows.undecided.remove(change.number)
            (change.mine, change.isOnlyHere) = (nil, false)
            try rows.undecided.add(change)
        }
    }

    /// - Parameter timestamp: What is newer stays listed.
    func clearRefusal(_ key: ItemName, upTo timestamp: HybridTimestamp = HybridTimestamp(rawValue: .max)) throws {
        try rows.undecided.removeRejected(key, upTo: Int64(clamping: timestamp.rawValue))
    }

    /// - Parameter keys: Nil: all.
    /// - Returns: Those that there were.
    func dismissRefusals(_ keys: [ItemName]?) throws -> [ItemName] {
        let dismissed = try refusals().map(\.key).filter { keys?.contains($0) ?? true }
        for key in dismissed { try clearRefusal(key) }
        return dismissed
    }

    /// In the order of their keys.
    func refusals() throws -> [RefusedWrite] {
        try rows.undecided.all(.rejected).sorted { $0.name < $1.name }.map {
            RefusedWrite(key: $0.name, at: $0.found, error: $0.error, bytes: $0.mine)
        }
    }

    func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    private static func item(_ row: Row) throws -> KeyValueItem {
        let key: String = row["key"]
        return KeyValueItem(
            key: ItemName(key),
            value: try (row["value"] as Data?).map { bytes in
                do { return try PropertyValue(canonicalBytes: [UInt8](bytes)) } catch {
                    throw LocalFailure.damagedRow(["key": key])
                }
            },
            timestamp: HybridTimestamp(rawValue: UInt64(bitPattern: row["timestamp"] as Int64)),
            deviceID: DeviceID(row["device"] as String),
            sequence: UInt64(bitPattern: row["sequence"] as Int64))
    }
}
