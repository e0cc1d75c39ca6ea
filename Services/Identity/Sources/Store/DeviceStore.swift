internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// How a device is treated where room matters.
enum PolicyClass: Int64, Sendable {
    /// Keeps a copy of everything.
    case computer = 1
    /// Fetches files when they are opened.
    case smallDevice = 2
}

/// One enrolment: a CURVE key with an account.
struct DeviceRecord: Hashable, Sendable {
    enum State: Int64, Sendable {
        case active = 1
        /// The device left by itself, or its key went to another account. The
        /// key may sign in again, and is a new device then: an id that ended
        /// never comes back, so that nobody has to learn of a return.
        case signedOut = 2
        /// Someone locked it out (lost, stolen, sold). The key never signs in again.
        case revoked = 3
        /// Its refresh token was used from two places: whoever has the copy has the key. As revoked.
        case copied = 4

        /// Whether its key never signs in again.
        var isLockedOut: Bool { self == .revoked || self == .copied }

    }

    var id: DeviceID
    var account: AccountID
    var key: PublicKey
    var name: String
    var model: String
    var platform: String
    var policyClass: PolicyClass
    var enrolled: Timestamp
    var lastSeen: Timestamp
    var state: State
    /// When it was revoked; nil: it was not.
    var ended: Timestamp?
    /// The name of the device that revoked it; empty: the operator did.
    var endedBy = ""
    /// The app password that it signed in with; empty: the account's own.
    var appPassword = ""

    /// The answer to a locked-out key.
    var ending: CloudError {
        state == .copied ? .deviceCopied : DirectoryFact.Ending.revoked(at: ended, by: endedBy).error
    }
}

struct DeviceStore {
    let transaction: any Transaction

    private static let columns =
        "device_id, account_id, public_key, name, model, platform, enrolled_at, last_seen_at, state, policy_class, ended_at, ended_by, app_password_id"
    private static let selectByID = SQL("SELECT \(columns) FROM devices WHERE device_id = ?1")
    private static let selectByKey = SQL("SELECT \(columns) FROM devices WHERE public_key = ?1")
    private static let selectByAccount = SQL(
        "SELECT \(columns) FROM devices WHERE account_id = ?1 ORDER BY enrolled_at, device_id")
    // States are written out, not bound: with an index of `state = 1` alone, SQLite would prepare the statement anew
    // for each value.
    private static let signedOut = DeviceRecord.State.signedOut.rawValue
    private static let selectPage = SQL(
        """
        SELECT \(columns) FROM devices WHERE account_id = ?1 AND state <> \(signedOut)
            AND (enrolled_at, device_id) > (?2, ?3)
        ORDER BY enrolled_at, device_id LIMIT ?4
        """)
    private static let selectPageOfAll = SQL(
        """
        SELECT \(columns) FROM devices WHERE account_id = ?1 AND (enrolled_at, device_id) > (?2, ?3)
        ORDER BY enrolled_at, device_id LIMIT ?4
        """)
    private static let selectActive = SQL(
        "SELECT \(columns) FROM devices WHERE account_id = ?1 AND state = \(DeviceRecord.State.active.rawValue)")
    private static let countSince = SQL(
        "SELECT COUNT(*) FROM devices WHERE account_id = ?1 AND enrolled_at > ?2 AND enrolled_at <= ?3")
    private static let selectOldest = SQL(
        """
        SELECT device_id FROM devices WHERE account_id = ?1 AND state = \(signedOut) AND last_seen_at < ?2
        ORDER BY last_seen_at DESC, device_id LIMIT 256 OFFSET ?3
        """)
    private static let deleteOne = SQL("DELETE FROM devices WHERE device_id = ?1")
    private static let deleteByAccount = SQL("DELETE FROM devices WHERE account_id = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO devices (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (device_id) DO UPDATE SET
            name = excluded.name, model = excluded.model, platform = excluded.platform,
            last_seen_at = excluded.last_seen_at, state = excluded.state, policy_class = excluded.policy_class,
            ended_at = excluded.ended_at, ended_by = excluded.ended_by
        """)

    func device(_ id: DeviceID) throws -> DeviceRecord? {
        try transaction.first(Self.selectByID, [.text(id.rawValue)], Self.record)
    }

    /// All enrolments of a key, past ones too: at most one is active.
    func enrolments(of key: PublicKey) throws -> [DeviceRecord] {
        try transaction.all(Self.selectByKey, [.text(key.z85)], Self.record)
    }

    /// The account's devices, oldest first.
    func devices(of account: AccountID) throws -> [DeviceRecord] {
        try transaction.all(Self.selectByAccount, [.text(account.rawValue)], Self.record)
    }

    /// The account's devices, oldest first, after one of them.
    ///
    /// - Parameter withSignedOut: Whether those that have signed out are listed too.
    func page(
        of account: AccountID, after: DeviceRecord?, withSignedOut: Bool, limit: Int
    ) throws -> [DeviceRecord] {
        try transaction.all(
            withSignedOut ? Self.selectPageOfAll : Self.selectPage,
            [
                .text(account.rawValue),
                after?.enrolled.column ?? .integer(-1), .text(after?.id.rawValue ?? ""), .integer(Int64(limit)),
            ], Self.record)
    }

    /// The account's active devices, in no order.
    func active(of account: AccountID) throws -> [DeviceRecord] {
        try transaction.all(Self.selectActive, [.text(account.rawValue)], Self.record)
    }

    /// How many of the account's devices were enrolled in the time before now, whatever became of them. (Not those that
    /// were enrolled by a clock that was ahead.)
    func count(of account: AccountID, enrolledWithin time: Duration, before now: Timestamp) throws -> Int {
        try transaction.first(
            Self.countSince, [.text(account.rawValue), now.advanced(by: .zero - time).column, now.column]
        ) { Int($0.integer(0)) } ?? 0
    }

    /// Forgets devices that have signed out and were last seen before the time, but for so many, the newest of them.
    ///
    /// - Returns: Some of them; the others at the next call.
    func forgetSignedOut(of account: AccountID, but count: Int, seenBefore time: Timestamp) throws -> [DeviceID] {
        let forgotten = try transaction.all(
            Self.selectOldest,
            [.text(account.rawValue), time.column, .integer(Int64(count))]
        ) { DeviceID($0.text(0)) }
        for device in forgotten { try transaction.execute(Self.deleteOne, [.text(device.rawValue)]) }
        return forgotten
    }

    /// Inserts the device, or updates what may change of it (not its key, account and app password).
    func save(_ device: DeviceRecord) throws {
        try transaction.execute(
            Self.upsert,
            [
                .text(device.id.rawValue), .text(device.account.rawValue), .text(device.key.z85), .text(device.name),
                .text(device.model), .text(device.platform), device.enrolled.column, device.lastSeen.column,
                .integer(device.state.rawValue), .integer(device.policyClass.rawValue),
                device.ended?.column ?? .integer(0), .text(device.endedBy), .text(device.appPassword),
            ])
    }

    /// Removes all of the account's devices; their refresh families have to be gone before.
    func removeAll(of account: AccountID) throws {
        try transaction.execute(Self.deleteByAccount, [.text(account.rawValue)])
    }

    private static func record(_ row: any SQLRow) throws -> DeviceRecord {
        guard let key = PublicKey(z85: row.text(2)), let state = DeviceRecord.State(rawValue: row.integer(8)) else {
            throw CloudError(
                .internalError, "A stored device has an unreadable key or state.", details: ["device": row.text(0)])
        }
        return DeviceRecord(
            id: DeviceID(row.text(0)), account: AccountID(row.text(1)), key: key, name: row.text(3),
            model: row.text(4), platform: row.text(5),
            policyClass: PolicyClass(rawValue: row.integer(9)) ?? .computer,
            enrolled: Timestamp(column: row.integer(6)),
            lastSeen: Timestamp(column: row.integer(7)), state: state,
            ended: row.integer(10) == 0 ? nil : Timestamp(column: row.integer(10)), endedBy: row.text(11),
            appPassword: row.text(12))
    }
}
