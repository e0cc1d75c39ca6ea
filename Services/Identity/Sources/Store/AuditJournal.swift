internal import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// What a person can read of what happened to the account. Names are stable: scripts read them.
enum AuditEvent: String {
    case accountCreated = "account.created"
    case accountLocked = "account.locked"
    case accountUnlocked = "account.unlocked"
    case passwordChanged = "password.changed"
    case passwordRefused = "password.refused"
    case planChanged = "plan.changed"
    case signIn = "sign-in"
    case signInRefused = "sign-in.refused"
    /// A code was made with which a new device may try to sign in.
    case signInAllowed = "sign-in.allowed"
    case signOut = "sign-out"
    case deviceRenamed = "device.renamed"
    case deviceRevoked = "device.revoked"
    case appPasswordCreated = "app-password.created"
    case appPasswordRevoked = "app-password.revoked"
    /// A used refresh token came back: there is a copy of the device's home. The device was ended.
    case tokenReused = "token.reused"
}

/// Who did, or tried.
enum AuditActor {
    case device(DeviceRecord)
    /// A device that is not enrolled, by the name that it gave itself.
    case stranger(String)
    case administrator
}

/// The journal of each account: the newest ``entriesMax`` entries.
struct AuditJournal {
    static let entriesMax = 1000

    let transaction: any Transaction

    private static let selectNewest = SQL("SELECT MAX(number) FROM audit WHERE account_id = ?1")
    private static let insert = SQL(
        "INSERT INTO audit (account_id, number, recorded_at, body) VALUES (?1, ?2, ?3, ?4)")
    private static let deleteOld = SQL("DELETE FROM audit WHERE account_id = ?1 AND number <= ?2")
    private static let select = SQL(
        "SELECT number, body FROM audit WHERE account_id = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3")

    func record(
        _ event: AuditEvent, of account: AccountID, by actor: AuditActor, at time: Timestamp,
        details: [String: String] = [:]
    ) throws {
        var entry = WireAuditEntry()
        entry.time = time.milliseconds
        entry.event = event.rawValue
        entry.details = details
        switch actor {
        case .device(let device):
            entry.deviceID = device.id.rawValue
            entry.deviceName = device.name
        case .stranger(let name): entry.deviceName = name
        case .administrator: entry.byOperator = true
        }
        let id = SQLValue.text(account.rawValue)
        let number = (try transaction.first(Self.selectNewest, [id]) { $0.integer(0) } ?? 0) + 1
        try transaction.execute(
            Self.insert, [id, .integer(number), time.column, .blob(try entry.serializedBytes())])
        try transaction.execute(Self.deleteOld, [id, .integer(number - Int64(Self.entriesMax))])
    }

    /// Newest first, from before the numbered one.
    func entries(of account: AccountID, before: UInt64, limit: Int) throws -> [WireAuditEntry] {
        let values: [SQLValue] = [
            .text(account.rawValue), .integer(before == 0 ? .max : Int64(clamping: before)), .integer(Int64(limit)),
        ]
        return try transaction.all(Self.select, values) { row in
            var entry = try WireAuditEntry(serializedBytes: row.blob(1))
            entry.number = UInt64(clamping: row.integer(0))
            return entry
        }
    }

    func removeAll(of account: AccountID) throws {
        try transaction.execute(Self.deleteOld, [.text(account.rawValue), .integer(.max)])
    }
}
