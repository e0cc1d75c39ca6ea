internal import NephosCore
internal import NephosStorage

/// The tables of a service's ledger.
enum LedgerStore {
    static let migrations = [
        Migration(
            name: "ledger",
            statements: [
                """
                CREATE TABLE storage_owners (
                    owner_id TEXT NOT NULL PRIMARY KEY,
                    revision BIGINT NOT NULL,
                    allotted BIGINT NOT NULL,
                    used BIGINT NOT NULL,
                    -- What identity knows of.
                    told BIGINT NOT NULL,
                    -- -1: it is not known.
                    plan BIGINT NOT NULL
                )
                """,
                // `told` is -1 after the allotment was lowered, until identity knows.
                "CREATE INDEX storage_owners_untold ON storage_owners (owner_id) WHERE used <> told",
                """
                CREATE TABLE storage_usage (
                    owner_id TEXT NOT NULL,
                    app TEXT NOT NULL,
                    device TEXT NOT NULL,
                    used BIGINT NOT NULL,
                    PRIMARY KEY (owner_id, app, device)
                )
                """,
            ] + ReservationStore.statements + RoomStore.statements)
    ]

    private static let columns = "revision, allotted, used, plan"
    private static let select = SQL("SELECT \(columns) FROM storage_owners WHERE owner_id = ?1")
    private static let insert = SQL(
        "INSERT INTO storage_owners (owner_id, \(columns), told) VALUES (?1, ?2, ?3, ?4, ?5, 0)")
    private static let updateUsed = SQL("UPDATE storage_owners SET used = used + ?2 WHERE owner_id = ?1")
    private static let updateAllotment = SQL(
        "UPDATE storage_owners SET revision = ?2, allotted = ?3, told = ?4, plan = ?5 WHERE owner_id = ?1")
    private static let selectUntold = SQL(
        "SELECT owner_id FROM storage_owners WHERE used <> told ORDER BY owner_id LIMIT ?1")
    private static let selectOwners = SQL("SELECT owner_id FROM storage_owners ORDER BY owner_id")
    private static let addUsage = SQL(
        """
        INSERT INTO storage_usage (owner_id, app, device, used) VALUES (?1, ?2, ?3, CASE WHEN ?4 > 0 THEN ?4 ELSE 0 END)
        ON CONFLICT (owner_id, app, device) DO UPDATE SET
            used = CASE WHEN storage_usage.used + ?4 > 0 THEN storage_usage.used + ?4 ELSE 0 END
        """)
    private static let selectUsage = SQL(
        "SELECT app, device, used FROM storage_usage WHERE owner_id = ?1 AND used > 0 ORDER BY used DESC, app, device")
    private static let sumUsed = SQL("SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM storage_owners")
    private static let deleteOwner = SQL("DELETE FROM storage_owners WHERE owner_id = ?1")
    private static let deleteUsage = SQL("DELETE FROM storage_usage WHERE owner_id = ?1")

    static func find(_ owner: Owner, in transaction: any Transaction) throws -> StoredAllotment? {
        try transaction.first(select, [.text(owner.rawValue)]) {
            StoredAllotment(
                revision: UInt64(clamping: $0.integer(0)), allotted: UInt64(clamping: $0.integer(1)),
                used: UInt64(clamping: $0.integer(2)), plan: UInt64(exactly: $0.integer(3)))
        }
    }

    static func add(_ known: StoredAllotment, of owner: Owner, in transaction: any Transaction) throws {
        try transaction.execute(
            insert,
            [
                .text(owner.rawValue), .integer(Int64(clamping: known.revision)),
                .integer(Int64(clamping: known.allotted)), .integer(Int64(clamping: known.used)),
                plan(of: known),
            ])
    }

    /// - Parameter told: What identity knows to be used; nil: it has to be told.
    static func setAllotment(
        _ known: StoredAllotment, told: UInt64?, of owner: Owner, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            updateAllotment,
            [
                .text(owner.rawValue), .integer(Int64(clamping: known.revision)),
                .integer(Int64(clamping: known.allotted)), .integer(told.map { Int64(clamping: $0) } ?? -1),
                plan(of: known),
            ])
    }

    private static func plan(of known: StoredAllotment) -> SQLValue {
        .integer(known.plan.map { Int64(clamping: $0) } ?? -1)
    }

    /// - Parameter bytes: More that is used; below zero: less.
    static func addUsed(
        _ bytes: Int64, of owner: Owner, app: AppID, device: DeviceID, in transaction: any HandlerTransaction
    ) throws {
        let rows = try transaction.execute(updateUsed, [.text(owner.rawValue), .integer(bytes)])
        if rows > 0 { transaction.noteStored(bytes) }
        try transaction.execute(
            addUsage, [.text(owner.rawValue), .text(app.rawValue), .text(device.rawValue), .integer(bytes)])
    }

    /// What is stored for the owner, the most first.
    static func usage(of owner: Owner, in transaction: any Transaction) throws -> [StorageLedger.Usage] {
        try transaction.all(selectUsage, [.text(owner.rawValue)]) {
            StorageLedger.Usage(
                app: AppID($0.text(0)), device: DeviceID($0.text(1)), bytes: UInt64(clamping: $0.integer(2)))
        }
    }

    /// Owners of whom identity does not know the newest.
    static func untold(limit: Int, in transaction: any Transaction) throws -> [Owner] {
        try transaction.all(selectUntold, [.integer(Int64(limit))]) { Owner($0.text(0)) }
    }

    static func owners(in transaction: any Transaction) throws -> [Owner] {
        try transaction.all(selectOwners, []) { Owner($0.text(0)) }
    }

    /// What is stored in all. It looks at every owner.
    static func used(in transaction: any ReadTransaction) throws -> Int64 {
        try transaction.first(sumUsed) { $0.integer(0) } ?? 0
    }

    static func remove(_ owner: Owner, in transaction: any HandlerTransaction) throws {
        if let known = try find(owner, in: transaction) { transaction.noteStored(-Int64(clamping: known.used)) }
        try transaction.execute(deleteOwner, [.text(owner.rawValue)])
        try transaction.execute(deleteUsage, [.text(owner.rawValue)])
        try ReservationStore.removeAll(of: owner, in: transaction)
        try RoomStore.remove(owner, in: transaction)
    }
}
