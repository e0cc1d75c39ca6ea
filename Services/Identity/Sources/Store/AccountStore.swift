internal import NephosCore
internal import NephosStorage

struct AccountRecord: Hashable, Sendable {
    var id: AccountID
    var name: String
    var password: PasswordHash
    var created: Timestamp
    /// Its devices are refused until the operator unlocks it.
    var isLocked = false
    /// Rises with each locking and unlocking.
    var standingVersion: UInt64 = 0
    var plan: PlanID
}

struct AccountStore {
    let transaction: any Transaction

    private static let columns = """
        account_id, name, password_hash, password_salt, scrypt_rounds, scrypt_block_size, scrypt_parallelism, created_at,
        locked, plan_id, standing_version
        """
    private static let selectByName = SQL("SELECT \(columns) FROM accounts WHERE name = ?1")
    private static let selectByID = SQL("SELECT \(columns) FROM accounts WHERE account_id = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO accounts (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (account_id) DO UPDATE SET
            password_hash = excluded.password_hash, password_salt = excluded.password_salt,
            scrypt_rounds = excluded.scrypt_rounds, scrypt_block_size = excluded.scrypt_block_size,
            scrypt_parallelism = excluded.scrypt_parallelism, locked = excluded.locked, plan_id = excluded.plan_id,
            standing_version = excluded.standing_version
        """)
    private static let delete = SQL("DELETE FROM accounts WHERE account_id = ?1")
    private static let active = DeviceRecord.State.active.rawValue
    private static let selectAll = SQL(
        """
        SELECT a.account_id, a.name, a.created_at, a.locked, a.plan_id,
            (SELECT COUNT(*) FROM devices d WHERE d.account_id = a.account_id AND d.state = \(active)),
            (SELECT COALESCE(SUM(l.used), 0) FROM allotments l WHERE l.owner_id = a.account_id),
            (SELECT COALESCE(MAX(d.last_seen_at), 0) FROM devices d WHERE d.account_id = a.account_id)
        FROM accounts a WHERE a.name > ?1 ORDER BY a.name LIMIT ?2
        """)

    func account(named name: String) throws -> AccountRecord? {
        try transaction.first(Self.selectByName, [.text(name)], Self.record)
    }

    func account(_ id: AccountID) throws -> AccountRecord? {
        try transaction.first(Self.selectByID, [.text(id.rawValue)], Self.record)
    }

    /// Inserts the account, or updates what may change of it (not its name).
    func save(_ account: AccountRecord) throws {
        try transaction.execute(
            Self.upsert,
            [
                .text(account.id.rawValue), .text(account.name), .blob(account.password.hash),
                .blob(account.password.salt), .integer(Int64(account.password.cost.rounds)),
                .integer(Int64(account.password.cost.blockSize)), .integer(Int64(account.password.cost.parallelism)),
                account.created.column, .integer(account.isLocked ? 1 : 0), .text(account.plan.rawValue),
                .integer(Int64(clamping: account.standingVersion)),
            ])
    }

    /// Removes the account; its devices have to be gone before.
    func remove(_ account: AccountID) throws {
        try transaction.execute(Self.delete, [.text(account.rawValue)])
    }

    struct Summary {
        var id: AccountID
        var name: String
        var created: Timestamp
        var isLocked: Bool
        var plan: PlanID
        /// Active ones.
        var devices: Int
        /// Bytes that count on its plan.
        var used: UInt64
        /// When one of its devices was last seen; nil: never.
        var lastSeen: Timestamp?
    }

    /// Accounts after a name, in their order, with their active devices, used bytes and last use.
    func list(after name: String, limit: Int) throws -> [Summary] {
        let values: [SQLValue] = [.text(name), .integer(Int64(limit))]
        return try transaction.all(Self.selectAll, values) { row in
            Summary(
                id: AccountID(row.text(0)), name: row.text(1), created: Timestamp(column: row.integer(2)),
                isLocked: row.integer(3) != 0, plan: PlanID(row.text(4)), devices: Int(row.integer(5)),
                used: UInt64(clamping: row.integer(6)),
                lastSeen: row.integer(7) == 0 ? nil : Timestamp(column: row.integer(7)))
        }
    }

    private static func record(_ row: any SQLRow) -> AccountRecord {
        AccountRecord(
            id: AccountID(row.text(0)), name: row.text(1),
            password: PasswordHash(
                hash: row.blob(2), salt: row.blob(3),
                cost: ScryptCost(
                    rounds: Int(row.integer(4)), blockSize: Int(row.integer(5)), parallelism: Int(row.integer(6)))),
            created: Timestamp(column: row.integer(7)), isLocked: row.integer(8) != 0,
            standingVersion: UInt64(clamping: row.integer(10)), plan: PlanID(row.text(9)))
    }
}

extension Timestamp {
    /// A time from a column, which holds no negative ones.
    init(column: Int64) { self.init(milliseconds: UInt64(clamping: column)) }
    var column: SQLValue { .integer(Int64(clamping: milliseconds)) }
}
