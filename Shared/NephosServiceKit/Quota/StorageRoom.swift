internal import NephosCore
internal import NephosStorage

/// On what something that an owner stores counts: on the plan, or on a bound of its own beside it.
///
/// What does not count on the plan is bounded all the same, or one account fills the disk for all. Identity knows
/// nothing of such bounds: each is the service's own, and so is what is counted on it.
public struct StorageRoom: Hashable, Sendable {
    /// Empty: the plan.
    public let name: String
    /// Bytes of an owner. Of the plan identity says how many.
    public let bytesMax: UInt64

    public static let plan = StorageRoom(name: "", bytesMax: 0)

    public init(name: String, bytesMax: UInt64) {
        self.name = name
        self.bytesMax = bytesMax
    }

    /// Where something counts already, to give it back.
    public init(named name: String) { self.init(name: name, bytesMax: 0) }

    public var isPlan: Bool { name.isEmpty }
}

/// The rows of what counts beside plans.
enum RoomStore {
    static let statements = [
        """
        CREATE TABLE storage_rooms (
            owner_id TEXT NOT NULL,
            room TEXT NOT NULL,
            used BIGINT NOT NULL,
            PRIMARY KEY (owner_id, room)
        )
        """
    ]

    private static let select = SQL("SELECT used FROM storage_rooms WHERE owner_id = ?1 AND room = ?2")
    private static let upsert = SQL(
        """
        INSERT INTO storage_rooms (owner_id, room, used) VALUES (?1, ?2, ?3)
        ON CONFLICT (owner_id, room) DO UPDATE SET used = excluded.used
        """)
    private static let delete = SQL("DELETE FROM storage_rooms WHERE owner_id = ?1")

    static func used(of owner: Owner, on room: String, in transaction: any ReadTransaction) throws -> UInt64 {
        try transaction.first(select, [.text(owner.rawValue), .text(room)]) { UInt64(clamping: $0.integer(0)) } ?? 0
    }

    static func setUsed(
        _ bytes: UInt64, of owner: Owner, on room: String, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            upsert, [.text(owner.rawValue), .text(room), .integer(Int64(clamping: bytes))])
    }

    static func remove(_ owner: Owner, in transaction: any Transaction) throws {
        try transaction.execute(delete, [.text(owner.rawValue)])
    }
}

extension StorageLedger {
    /// - Throws: ``CloudError`` `.quotaExceeded`. Nothing is counted then.
    func charge(
        _ bytes: UInt64, to owner: Owner, beside room: StorageRoom, in transaction: any HandlerTransaction
    ) throws {
        let used = try RoomStore.used(of: owner, on: room.name, in: transaction)
        let (total, overflow) = used.addingReportingOverflow(bytes)
        guard !overflow, total <= min(room.bytesMax, UInt64(Int64.max)) else {
            throw CloudError(
                .quotaExceeded,
                "Containers of this class may not hold so much. Remove something from them, or ask the operator.",
                details: [
                    "bytes": "\(bytes)", "used_bytes": "\(used)", "class": room.name, "class_bytes": "\(room.bytesMax)",
                ])
        }
        try RoomStore.setUsed(total, of: owner, on: room.name, in: transaction)
    }

    func release(
        _ bytes: UInt64, of owner: Owner, beside room: StorageRoom, in transaction: any HandlerTransaction
    ) throws {
        let used = try RoomStore.used(of: owner, on: room.name, in: transaction)
        try RoomStore.setUsed(used - min(bytes, used), of: owner, on: room.name, in: transaction)
    }
}
