internal import Crypto
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// A password for a program, in the place of the account's. Only a hash of it is kept, and a revoked one is removed.
struct AppPassword: Hashable, Sendable {
    /// Those of an account.
    static let ofAccountMax = 50

    /// The rights of the devices that signed in with it.
    enum Scope: Int64, Sendable {
        /// Files by WebDAV: the documents service alone.
        case webdav = 1

        var capabilities: Entitlements.Capabilities {
            switch self {
            case .webdav: .documents
            }
        }
    }

    var id: String
    var account: AccountID
    var name: String
    var scope: Scope
    var hash: [UInt8]
    var created: Timestamp
    /// When a device of it last signed in or renewed its tokens; nil: none ever did.
    var lastUsed: Timestamp?

    /// The text that is typed. It has 128 random bits, so it cannot be guessed and needs no slow hash.
    ///
    /// It comes from the request that makes it and a key outside of the database, so that a repeat is answered as the
    /// first was.
    struct Secret {
        private static let byteCount = 16
        private static let letterCount = 26
        private static let groupSize = 7

        let id: String
        private let letters: String

        init(madeBy operation: OperationID, key: SymmetricKey) {
            let derived = { (purpose: String) in
                [UInt8](HMAC<SHA256>.authenticationCode(for: Array(purpose.utf8) + operation.bytes, using: key))
            }
            id = AppToken.Secret.hexadecimal(derived("app password id").prefix(8))
            letters = Base32.text(Array(derived("app password").prefix(Self.byteCount)))
        }

        var text: String { Base32.grouped(letters, by: Self.groupSize) }
        var hash: [UInt8] { Self.hash(of: letters) }

        /// The hash of what was typed, with small letters, hyphens and blanks; nil: it is no app password.
        static func hash(ofTyped text: String) -> [UInt8]? {
            guard text.utf8.count <= 64, let letters = Base32.canonical(text), letters.utf8.count == letterCount else {
                return nil
            }
            return hash(of: letters)
        }

        private static func hash(of letters: String) -> [UInt8] { [UInt8](SHA256.hash(data: Array(letters.utf8))) }
    }
}

struct AppPasswordStore {
    let transaction: any Transaction

    private static let columns = "password_id, account_id, name, scope, hash, created_at, last_used_at"
    private static let select = SQL("SELECT \(columns) FROM app_passwords WHERE password_id = ?1")
    private static let selectByHash = SQL(
        "SELECT \(columns) FROM app_passwords WHERE account_id = ?1 AND hash = ?2")
    private static let selectOfAccount = SQL(
        "SELECT \(columns) FROM app_passwords WHERE account_id = ?1 ORDER BY created_at, password_id")
    private static let insert = SQL("INSERT INTO app_passwords (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)")
    private static let use = SQL("UPDATE app_passwords SET last_used_at = ?2 WHERE password_id = ?1")
    private static let delete = SQL("DELETE FROM app_passwords WHERE password_id = ?1")
    private static let deleteOfAccount = SQL("DELETE FROM app_passwords WHERE account_id = ?1")

    func password(_ id: String) throws -> AppPassword? {
        try transaction.first(Self.select, [.text(id)], Self.password)
    }

    /// The account's app password of this text; nil: the account has no such app password.
    func password(typed text: String, of account: AccountID) throws -> AppPassword? {
        guard let hash = AppPassword.Secret.hash(ofTyped: text) else { return nil }
        return try transaction.first(Self.selectByHash, [.text(account.rawValue), .blob(hash)], Self.password)
    }

    /// The oldest first.
    func passwords(of account: AccountID) throws -> [AppPassword] {
        try transaction.all(Self.selectOfAccount, [.text(account.rawValue)], Self.password)
    }

    func add(_ password: AppPassword) throws {
        try transaction.execute(
            Self.insert,
            [
                .text(password.id), .text(password.account.rawValue), .text(password.name),
                .integer(password.scope.rawValue), .blob(password.hash), password.created.column,
            ])
    }

    func noteUse(of id: String, at now: Timestamp) throws {
        try transaction.execute(Self.use, [.text(id), now.column])
    }

    func remove(_ id: String) throws { try transaction.execute(Self.delete, [.text(id)]) }

    func removeAll(of account: AccountID) throws {
        try transaction.execute(Self.deleteOfAccount, [.text(account.rawValue)])
    }

    private static func password(_ row: any SQLRow) throws -> AppPassword {
        guard let scope = AppPassword.Scope(rawValue: row.integer(3)) else {
            throw CloudError(
                .internalError, "A stored app password has an unknown scope.", details: ["password": row.text(0)])
        }
        return AppPassword(
            id: row.text(0), account: AccountID(row.text(1)), name: row.text(2), scope: scope, hash: row.blob(4),
            created: Timestamp(column: row.integer(5)),
            lastUsed: row.integer(6) == 0 ? nil : Timestamp(column: row.integer(6)))
    }
}

extension WireAppPassword {
    init(_ password: AppPassword) {
        self.init()
        passwordID = password.id
        name = password.name
        scope = password.scope.wire
        createdAt = password.created.milliseconds
        lastUsedAt = password.lastUsed?.milliseconds ?? 0
    }
}

extension AppPassword.Scope {
    /// Nil: one that this release does not know.
    init?(_ wire: WireAppPasswordScope) {
        switch wire {
        case .webdav: self = .webdav
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }

    var wire: WireAppPasswordScope {
        switch self {
        case .webdav: .webdav
        }
    }
}
