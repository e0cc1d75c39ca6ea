internal import NephosCore
internal import NephosStorage

/// The table of reservations.
enum ReservationStore {
    static let statements = [
        """
        CREATE TABLE storage_reservations (
            owner_id TEXT NOT NULL,
            id BLOB NOT NULL,
            app TEXT NOT NULL,
            device TEXT NOT NULL,
            bytes BIGINT NOT NULL,
            filled BIGINT NOT NULL,
            -- Milliseconds since 1970; 0: it was ended.
            expires BIGINT NOT NULL,
            -- On what it counts; empty: the plan.
            room TEXT NOT NULL,
            -- What an app's public databases have lies in several partitions.
            partition_number BIGINT NOT NULL,
            -- Of an app's room each account has a part; empty: the owner is an account.
            account TEXT NOT NULL,
            PRIMARY KEY (owner_id, id)
        )
        """,
        // So that owners take turns at those that were ended.
        "CREATE INDEX storage_reservations_by_end ON storage_reservations (expires, owner_id, id)",
        // Each save to a public database asks what its account has reserved.
        "CREATE INDEX storage_reservations_by_account ON storage_reservations (owner_id, account)",
    ]

    private static let columns = "owner_id, id, app, device, bytes, filled, expires, room, partition_number, account"
    private static let select = SQL("SELECT \(columns) FROM storage_reservations WHERE owner_id = ?1 AND id = ?2")
    private static let selectEnded = SQL(
        """
        SELECT \(columns) FROM storage_reservations WHERE expires = 0 AND owner_id > ?1
        ORDER BY expires, owner_id, id LIMIT 1
        """)
    private static let selectExpired = SQL(
        """
        SELECT \(columns) FROM storage_reservations WHERE expires > 0 AND expires <= ?1
        ORDER BY expires, owner_id, id LIMIT 1
        """)
    private static let selectIdle = SQL(
        """
        SELECT \(columns) FROM storage_reservations WHERE expires > 0 AND expires <= ?1 AND bytes > filled
        ORDER BY expires, owner_id, id LIMIT 1
        """)
    private static let bringForward = SQL("UPDATE storage_reservations SET expires = ?1 WHERE expires > ?1")
    private static let count = SQL("SELECT COUNT(*) FROM storage_reservations WHERE owner_id = ?1")
    /// Those that are closed have no time left.
    private static let countOfDevice = SQL(
        "SELECT COUNT(*) FROM storage_reservations WHERE owner_id = ?1 AND device = ?2 AND expires > ?3")
    private static let sumOfAccount = SQL(
        """
        SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(filled), 0) AS BIGINT)
        FROM storage_reservations WHERE owner_id = ?1 AND account = ?2
        """)
    private static let upsert = SQL(
        """
        INSERT INTO storage_reservations (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        ON CONFLICT (owner_id, id) DO UPDATE SET
            bytes = excluded.bytes, filled = excluded.filled, expires = excluded.expires
        """)
    private static let delete = SQL("DELETE FROM storage_reservations WHERE owner_id = ?1 AND id = ?2")
    /// Below zero nothing looks for it.
    private static let setAside = SQL("UPDATE storage_reservations SET expires = -1 WHERE owner_id = ?1 AND id = ?2")
    private static let deleteAll = SQL("DELETE FROM storage_reservations WHERE owner_id = ?1")

    static func find(
        _ id: ReservationID, of owner: Owner, in transaction: any ReadTransaction
    ) throws -> Reservation? {
        try transaction.first(select, [.text(owner.rawValue), .blob(id.bytes)], reservation) ?? nil
    }

    /// A row that was found by its end, not by its id.
    enum Row {
        case whole(Reservation)
        /// Nobody can have made a reservation under such an id.
        case damaged(owner: Owner, id: [UInt8])
    }

    /// One that was ended, of the first owner behind this one.
    static func ended(after owner: Owner, in transaction: any Transaction) throws -> Row? {
        try transaction.first(selectEnded, [.text(owner.rawValue)], row)
    }

    /// The first whose time is over.
    static func expired(at now: Timestamp, in transaction: any Transaction) throws -> Row? {
        try transaction.first(selectExpired, [.integer(Int64(clamping: now.milliseconds))], row)
    }

    /// The first that ends by then and is not filled.
    static func idle(endingBefore time: Timestamp, in transaction: any Transaction) throws -> Row? {
        try transaction.first(selectIdle, [.integer(Int64(clamping: time.milliseconds))], row)
    }

    /// Has none end later than this.
    static func bringForward(to latest: Timestamp, in transaction: any Transaction) throws {
        try transaction.execute(bringForward, [.integer(Int64(clamping: latest.milliseconds))])
    }

    /// Puts a row where neither of these finds it, and leaves it as it is otherwise.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: there is no row of this owner and id.
    static func setAside(_ id: [UInt8], of owner: Owner, in transaction: any Transaction) throws {
        guard try transaction.execute(setAside, [.text(owner.rawValue), .blob(id)]) == 1 else {
            throw CloudError(.storageFailure, "The row of a reservation cannot be found by its own id.")
        }
    }

    static func count(of owner: Owner, in transaction: any Transaction) throws -> Int {
        try transaction.first(count, [.text(owner.rawValue)]) { Int($0.integer(0)) } ?? 0
    }

    /// - Parameter areOpen: Without those that are closed, and not removed yet.
    static func count(
        of device: DeviceID, for owner: Owner, areOpen: Bool, in transaction: any Transaction
    ) throws -> Int {
        let values: [SQLValue] = [.text(owner.rawValue), .text(device.rawValue), .integer(areOpen ? 0 : -2)]
        return try transaction.first(countOfDevice, values) { Int($0.integer(0)) } ?? 0
    }

    /// Bytes that an account has reserved of an app's room, all together, and how many of them are stored.
    static func bytes(
        of account: AccountID, for owner: Owner, in transaction: any Transaction
    ) throws -> (reserved: UInt64, filled: UInt64) {
        try transaction.first(sumOfAccount, [.text(owner.rawValue), .text(account.rawValue)]) {
            (UInt64(clamping: $0.integer(0)), UInt64(clamping: $0.integer(1)))
        } ?? (0, 0)
    }

    static func save(_ reservation: Reservation, in transaction: any Transaction) throws {
        try transaction.execute(
            upsert,
            [
                .text(reservation.owner.rawValue), .blob(reservation.id.bytes), .text(reservation.app.rawValue),
                .text(reservation.device.rawValue), .integer(Int64(clamping: reservation.bytes)),
                .integer(Int64(clamping: reservation.filled)),
                .integer(Int64(clamping: reservation.expires.milliseconds)), .text(reservation.room.name),
                .integer(Int64(reservation.partition ?? -1)), .text(reservation.account?.rawValue ?? ""),
            ])
    }

    static func remove(_ reservation: Reservation, in transaction: any Transaction) throws {
        try transaction.execute(delete, [.text(reservation.owner.rawValue), .blob(reservation.id.bytes)])
    }

    static func removeAll(of owner: Owner, in transaction: any Transaction) throws {
        try transaction.execute(deleteAll, [.text(owner.rawValue)])
    }

    private static func row(_ row: any SQLRow) -> Row {
        reservation(row).map { .whole($0) } ?? .damaged(owner: Owner(row.text(0)), id: row.blob(1))
    }

    /// Nil: the id is none. Of damaged numbers it is what they can mean: no more is filled than there is room.
    private static func reservation(_ row: any SQLRow) -> Reservation? {
        guard let id = ReservationID(bytes: row.blob(1)) else { return nil }
        let bytes = UInt64(clamping: row.integer(4))
        let owner = Owner(row.text(0))
        let partition = Int(exactly: row.integer(8)).flatMap { (0..<partitionCount).contains($0) ? $0 : nil }
        return Reservation(
            id: id, owner: owner, partition: owner.account.map { ScopeName($0, "").partition } ?? partition,
            app: AppID(row.text(2)), device: DeviceID(row.text(3)),
            account: row.text(9).isEmpty ? nil : AccountID(row.text(9)),
            room: StorageRoom(named: row.text(7)), bytes: bytes, filled: min(bytes, UInt64(clamping: row.integer(5))),
            expires: Timestamp(milliseconds: UInt64(clamping: row.integer(6))))
    }
}
