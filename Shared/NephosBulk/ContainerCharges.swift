public import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What is counted of a container besides contents: by whom, and how much more or less than before.
public struct CountChanges: Hashable, Sendable {
    /// Whom it counts for in the ledger.
    public struct Maker: Hashable, Sendable {
        public var app: AppID
        public var device: DeviceID

        public init(app: AppID, device: DeviceID) {
            self.app = app
            self.device = device
        }
    }

    private(set) var bytes: [Maker: Int64] = [:]

    public init() {}

    /// - Parameter more: Bytes; below zero: less.
    public mutating func add(_ more: Int64, by maker: Maker) { bytes[maker, default: 0] += more }

    var total: Int64 { bytes.values.reduce(0, +) }
}

/// What one container counts: on the plan or in a room of its own, and in a sum of the container's. Both change in the
/// transaction that stores what is counted.
struct ContainerCharges {
    let place: HoldStore.Place
    let container: String
    let ledger: StorageLedger
    let room: StorageRoom
    let transaction: any HandlerTransaction

    /// - Parameter changes: What else is counted in the same go. Less of it is given back in any case.
    /// - Throws: As ``StorageLedger/charge(_:to:on:app:device:in:)``. Nothing is counted then.
    func charge(_ bytes: UInt64, and changes: CountChanges = CountChanges(), app: AppID, device: DeviceID) throws {
        let total = changes.total
        let more = bytes + UInt64(max(0, total))
        try ledger.charge(more, to: place.owner, on: room, app: app, device: device, in: transaction)
        try spread(changes, from: CountChanges.Maker(app: app, device: device))
        if total < 0 {
            try ledger.release(
                total.magnitude, of: place.owner, on: room, app: app, device: device, in: transaction)
        }
        try SumStore.add(Int64(clamping: bytes) + total, to: container, at: place, in: transaction)
    }

    /// What was counted for one counts for those who made it.
    private func spread(_ changes: CountChanges, from own: CountChanges.Maker) throws {
        guard room.isPlan else { return }
        // What becomes less first: nobody's is below zero meanwhile.
        for (maker, bytes) in changes.bytes.sorted(by: { $0.value < $1.value }) where maker != own {
            let (from, to) = bytes < 0 ? (maker, own) : (own, maker)
            try ledger.move(
                bytes.magnitude, of: place.owner, from: (from.app, from.device), to: (to.app, to.device),
                in: transaction)
        }
    }

    func release(_ bytes: UInt64, app: AppID, device: DeviceID) throws {
        guard bytes > 0 else { return }
        try ledger.release(bytes, of: place.owner, on: room, app: app, device: device, in: transaction)
        try SumStore.add(-Int64(clamping: bytes), to: container, at: place, in: transaction)
    }

    /// Keeps what an upload has stored.
    func keep(_ bytes: UInt64, of upload: Reservation, app: AppID, device: DeviceID) throws {
        guard bytes > 0 else { return }
        try ledger.keep(bytes, of: upload, app: app, device: device, in: transaction)
        try SumStore.add(Int64(clamping: bytes), to: container, at: place, in: transaction)
    }

    /// Counts bytes in another container that are counted here, for whom it has there.
    func move(
        _ bytes: UInt64, from old: (app: AppID, device: DeviceID), to new: (app: AppID, device: DeviceID),
        in other: String
    ) throws {
        if room.isPlan { try ledger.move(bytes, of: place.owner, from: old, to: new, in: transaction) }
        try SumStore.add(-Int64(clamping: bytes), to: container, at: place, in: transaction)
        try SumStore.add(Int64(clamping: bytes), to: other, at: place, in: transaction)
    }
}

/// What each container counts, in bytes: kept beside the ledger, which knows apps and devices.
enum SumStore {
    static let migration = Migration(
        name: "bulk-004-sums",
        statements: [
            """
            CREATE TABLE content_sums (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                container TEXT NOT NULL,
                bytes BIGINT NOT NULL,
                PRIMARY KEY (partition_number, owner, container)) WITHOUT ROWID
            """
        ])

    private static let select = SQL(
        "SELECT bytes FROM content_sums WHERE partition_number = ?1 AND owner = ?2 AND container = ?3")
    private static let upsert = SQL(
        """
        INSERT INTO content_sums (partition_number, owner, container, bytes)
        VALUES (?1, ?2, ?3, CASE WHEN ?4 > 0 THEN ?4 ELSE 0 END)
        ON CONFLICT (partition_number, owner, container) DO UPDATE SET
            bytes = CASE WHEN content_sums.bytes + ?4 > 0 THEN content_sums.bytes + ?4 ELSE 0 END
        """)

    private static let deleteEmpty = SQL(
        "DELETE FROM content_sums WHERE partition_number = ?1 AND owner = ?2 AND container = ?3 AND bytes = 0")

    static func sum(
        of container: String, at place: HoldStore.Place, in transaction: any ReadTransaction
    ) throws -> UInt64 {
        try transaction.first(select, place.values + [.text(container)]) { UInt64(clamping: $0.integer(0)) } ?? 0
    }

    static func add(
        _ bytes: Int64, to container: String, at place: HoldStore.Place, in transaction: any Transaction
    ) throws {
        guard bytes != 0 else { return }
        try transaction.execute(upsert, place.values + [.text(container), .integer(bytes)])
        // Of a container that counts nothing any more no row is left: there may be any number of them.
        if bytes < 0 { try transaction.execute(deleteEmpty, place.values + [.text(container)]) }
    }
}
