import Core
import Foundation
import GRDB
import SwiftProtobuf
import Wire

/// One store inside a local transaction. Everything that SQL knows of items and
/// pending writes is here.
struct StoreTransaction {
    let database: Database
    let scope: StoreScope
    var account: String { scope.account?.rawValue ?? "" }
    var store: String { scope.store.rawValue }

    init(_ database: Database, _ scope: StoreScope) {
        self.database = database
        self.scope = scope
    }

    // MARK: State

    func state() throws -> StoreState {
        let row = try Row.fetchOne(
            cached(
                "SELECT epoch, sequence, token_check, digest, digest_key, synced, limits FROM stores "
                    + "WHERE account = ?1 AND store = ?2"),
            arguments: [account, store])
        guard let row else { return StoreState() }
        let limits: Data = row["limits"]
        return StoreState(
            head: ChangeToken(
                epoch: UInt64(bitPattern: row["epoch"] as Int64),
                sequence: UInt64(bitPattern: row["sequence"] as Int64),
                check: TokenCheck(bytes: [UInt8](row["token_check"] as Data))),
            digest: SetDigest(bytes: row["digest"] as Data) ?? .empty,
            digestKey: [UInt8](row["digest_key"] as Data),
            synced: row["synced"],
            limits: StoredLimits.decode(limits))
    }

    func save(_ state: StoreState) throws {
        try cached(
            "INSERT INTO stores (account, store, epoch, sequence, digest, digest_key, synced, limits, token_check) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (account, store) DO UPDATE SET "
                + "epoch = ?3, sequence = ?4, digest = ?5, digest_key = ?6, synced = ?7, limits = ?8, token_check = ?9"
        ).execute(arguments: [
            account, store, Int64(bitPattern: state.head.epoch), Int64(bitPattern: state.head.sequence),
            Data(state.digest.bytes), Data(state.digestKey), state.synced, StoredLimits.encode(state.limits),
            Data(state.head.check.bytes),
        ])
    }

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
    func items(after sequence: UInt64? = nil) throws -> [KeyValueItem] {
        try Row.fetchAll(
            cached(
                "SELECT key, value, timestamp, device, sequence FROM items "
                    + "WHERE account = ?1 AND store = ?2 AND sequence > ?3 ORDER BY key"),
            arguments: [account, store, sequence.map { Int64(bitPattern: $0) } ?? .min]
        ).map(Self.item)
    }

    func greatestSequence() throws -> UInt64 {
        let greatest = try Int64.fetchOne(
            cached("SELECT max(sequence) FROM items WHERE account = ?1 AND store = ?2"), arguments: [account, store])
        return UInt64(bitPattern: greatest ?? 0)
    }

    /// Whether the local content, at its head, has another digest than this
    /// (the bytes of a ``SetDigest/mark``). False where that cannot be said: none was told, or more is here already.
    func differs(_ state: StoreState, from digest: [UInt8]) throws -> Bool {
        guard !digest.isEmpty, digest != state.digest.markBytes else { return false }
        return try greatestSequence() <= state.head.sequence
    }

    /// Stores the item, and keeps the digest in step with the live items.
    func put(_ item: KeyValueItem, _ state: inout StoreState) throws {
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

    /// Forgets all items.
    func removeItems(_ state: inout StoreState) throws {
        try cached("DELETE FROM items WHERE account = ?1 AND store = ?2").execute(arguments: [account, store])
        state.digest = .empty
    }

    // MARK: Pending writes

    func pending(limit: Int = .max, where condition: String = "1") throws -> [PendingOperation] {
        try Row.fetchAll(
            database.makeStatement(
                sql: "SELECT * FROM pending WHERE account = ?1 AND store = ?2 AND \(condition) "
                    + "ORDER BY position LIMIT ?3"),
            arguments: [account, store, limit]
        ).map { row in
            let position: Int64 = row["position"]
            let head = (row["head"] as Data?).flatMap { try? WireChangeToken(serializedBytes: $0) }
            return PendingOperation(
                operation: OutboxOperation(
                    position: position,
                    id: OperationID(bytes: row["operation"] as Data) ?? OperationID(high: 0, low: 0),
                    head: head.map { ChangeToken($0) } ?? .zero,
                    state: OutboxOperation.State(rawValue: row["state"]) ?? .unsent,
                    writer: row["writer"],
                    created: Timestamp(milliseconds: UInt64(bitPattern: row["created"] as Int64)),
                    attempts: row["attempts"],
                    nextAttempt: Timestamp(milliseconds: UInt64(bitPattern: row["next_attempt"] as Int64)),
                    error: (row["error"] as Data?).flatMap(StoredError.decode)),
                writes: try writes(of: position))
        }
    }

    func pendingCount() throws -> Int {
        try Int.fetchOne(
            cached("SELECT count(*) FROM pending WHERE account = ?1 AND store = ?2"), arguments: [account, store]) ?? 0
    }

    func writes(of position: Int64) throws -> [KeyValueItem] {
        try Row.fetchAll(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence FROM pending_writes WHERE position = ?1 "
                    + "ORDER BY key"),
            arguments: [position]
        ).map(Self.item)
    }

    /// The newest pending write of this key, and where it stands.
    func pendingWrite(_ key: ItemName) throws -> (position: Int64, write: KeyValueItem)? {
        try Row.fetchOne(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence, position FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 AND key = ?3 ORDER BY position DESC LIMIT 1"),
            arguments: [account, store, key.rawValue]
        ).map { ($0["position"], try Self.item($0)) }
    }

    /// The newest operation with this key, if it has never been sent and has no other key: a later write may take its
    /// place.
    func coalescible(_ key: ItemName) throws -> Int64? {
        guard let position = try pendingWrite(key)?.position else { return nil }
        let may = try Bool.fetchOne(
            cached(
                "SELECT state = 'unsent' AND (SELECT count(*) FROM pending_writes WHERE position = ?1) = 1 "
                    + "FROM pending WHERE position = ?1"),
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
            if item.value != nil { state.digest.remove(item.digest(key: state.digestKey)) }
            try cached("DELETE FROM items WHERE account = ?1 AND store = ?2 AND key = ?3")
                .execute(arguments: [account, store, item.key.rawValue])
            try save(state)
        }
    }

    @discardableResult
    func append(_ writes: [KeyValueItem], id: OperationID, writer: Int64, now: Timestamp) throws -> Int64 {
        try cached(
            "INSERT INTO pending (account, store, operation, state, writer, created) "
                + "VALUES (?1, ?2, ?3, 'unsent', ?4, ?5)"
        ).execute(arguments: [account, store, Data(id.bytes), writer, Int64(bitPattern: now.milliseconds)])
        let position = database.lastInsertedRowID
        for write in writes { try put(write, at: position) }
        return position
    }

    func put(_ write: KeyValueItem, at position: Int64) throws {
        try cached(
            "INSERT INTO pending_writes (position, account, store, key, value, timestamp, device) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (position, key) DO UPDATE SET "
                + "value = ?5, timestamp = ?6, device = ?7"
        ).execute(arguments: [
            position, account, store, write.key.rawValue, write.value.map { Data($0.canonicalBytes) },
            Int64(bitPattern: write.timestamp.rawValue), write.deviceID.rawValue,
        ])
    }

    /// Whether the operation still waits, under this id.
    func isPending(_ operation: OutboxOperation) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM pending WHERE position = ?1 AND operation = ?2"),
            arguments: [operation.position, Data(operation.id.bytes)]) ?? false
    }

    func update(_ operation: OutboxOperation) throws {
        try cached(
            "UPDATE pending SET operation = ?2, state = ?3, attempts = ?4, next_attempt = ?5, error = ?6, "
                + "head = ?7 WHERE position = ?1"
        ).execute(arguments: [
            operation.position, Data(operation.id.bytes), operation.state.rawValue, operation.attempts,
            Int64(bitPattern: operation.nextAttempt.milliseconds), operation.error.map(StoredError.encode),
            operation.head == .zero ? nil : try WireChangeToken(operation.head).serializedData(),
        ])
    }

    func removePending(_ position: Int64) throws {
        try cached("DELETE FROM pending_writes WHERE position = ?1").execute(arguments: [position])
        try cached("DELETE FROM pending WHERE position = ?1").execute(arguments: [position])
    }

    // MARK: What the app sees

    /// The state of a key as the app reads it: the newest of what the server
    /// has and what waits to be sent.
    func visible(_ key: ItemName) throws -> KeyValueItem? {
        let item = try item(key)
        guard let write = try pendingWrite(key)?.write else { return item }
        guard let item, item.wins(over: write) else { return write }
        return item
    }

    func visibleItems() throws -> [ItemName: KeyValueItem] {
        var visible: [ItemName: KeyValueItem] = [:]
        for item in try items() { visible[item.key] = item }
        let writes = try Row.fetchCursor(
            cached(
                "SELECT key, value, timestamp, device, 0 AS sequence FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 ORDER BY position"),
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
                "SELECT key, length(value) AS size, 0 AS position FROM items WHERE account = ?1 AND store = ?2 "
                    + "UNION ALL SELECT key, length(value), position FROM pending_writes "
                    + "WHERE account = ?1 AND store = ?2 ORDER BY 3"),
            arguments: [account, store])
        while let row = try rows.next() { sizes[ItemName(row["key"])] = row["size"] as Int? }
        for key in keys { sizes[key] = nil }
        return (sizes.count, sizes.values.reduce(0, +))
    }

    // MARK: Refused writes

    /// Of the values of refused writes, in one store.
    private static let refusedBytesMax = 4 << 20

    func recordRefusal(_ writes: [KeyValueItem], _ error: CloudError, now: Timestamp) throws {
        let error = StoredError.encode(error)
        for write in writes {
            try cached(
                "INSERT INTO refused (account, store, key, refused_at, error, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                    + "ON CONFLICT (account, store, key) DO UPDATE SET refused_at = ?4, error = ?5, value = ?6"
            ).execute(arguments: [
                account, store, write.key.rawValue, Int64(bitPattern: now.milliseconds), error,
                write.value.map { Data($0.canonicalBytes) },
            ])
        }
        var bytes = 0
        let kept = try Row.fetchAll(
            cached(
                "SELECT key, length(value) AS size FROM refused WHERE account = ?1 AND store = ?2 "
                    + "AND value IS NOT NULL ORDER BY refused_at DESC, key"),
            arguments: [account, store])
        for row in kept {
            bytes += row["size"] as Int
            guard bytes > Self.refusedBytesMax else { continue }
            try cached("UPDATE refused SET value = NULL WHERE account = ?1 AND store = ?2 AND key = ?3")
                .execute(arguments: [account, store, row["key"] as String])
        }
    }

    func clearRefusal(_ key: ItemName) throws {
        try cached("DELETE FROM refused WHERE account = ?1 AND store = ?2 AND key = ?3")
            .execute(arguments: [account, store, key.rawValue])
    }

    func refusals() throws -> [RefusedWrite] {
        try Row.fetchAll(
            cached("SELECT key, refused_at, error, value FROM refused WHERE account = ?1 AND store = ?2 ORDER BY key"),
            arguments: [account, store]
        ).compactMap { row in
            StoredError.decode(row["error"]).map {
                RefusedWrite(
                    key: ItemName(row["key"]),
                    at: Timestamp(milliseconds: UInt64(bitPattern: row["refused_at"] as Int64)),
                    error: $0,
                    bytes: row["value"])
            }
        }
    }

    /// Forgets everything about the store.
    func removeAll() throws {
        for table in ["stores", "items", "pending_writes", "pending", "refused", "news"] {
            try database.execute(
                sql: "DELETE FROM \(table) WHERE account = ? AND store = ?", arguments: [account, store])
        }
    }

    func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    private static func item(_ row: Row) throws -> KeyValueItem {
        KeyValueItem(
            key: ItemName(row["key"]),
            value: try (row["value"] as Data?).map { try PropertyValue(canonicalBytes: [UInt8]($0)) },
            timestamp: HybridTimestamp(rawValue: UInt64(bitPattern: row["timestamp"] as Int64)),
            deviceID: DeviceID(row["device"] as String),
            sequence: UInt64(bitPattern: row["sequence"] as Int64))
    }
}
