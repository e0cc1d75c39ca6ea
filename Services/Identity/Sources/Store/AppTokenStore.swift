internal import Crypto
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What an app ships, so that devices without an account may read a container's public database. Only a hash of it is
/// kept; one that was revoked is gone.
struct AppToken: Hashable, Sendable {
    /// Those of an app.
    static let ofAppMax = 16

    var id: String
    var app: AppID
    var container: ItemName
    var hash: [UInt8]
    var created: Timestamp

    /// The text that the app ships names the token, and has a secret. Both come from the request that makes it and a key
    /// outside of the database, so that a repeat is answered as the first was.
    struct Secret {
        private static let prefix = "nephos-app"
        private static let idByteCount = 8
        private static let secretByteCount = 24

        let id: String
        private let secret: [UInt8]

        init(madeBy operation: OperationID, key: SymmetricKey) {
            let derived = { (purpose: String) in
                [UInt8](HMAC<SHA256>.authenticationCode(for: Array(purpose.utf8) + operation.bytes, using: key))
            }
            id = Self.hexadecimal(derived("app token id").prefix(Self.idByteCount))
            secret = Array(derived("app token").prefix(Self.secretByteCount))
        }

        /// Nil: it is none.
        init?(text: String) {
            guard text.utf8.count <= 128 else { return nil }
            let parts = text.split(separator: ".", omittingEmptySubsequences: false)
            guard parts.count == 3, parts[0] == Self.prefix, parts[1].utf8.count == Self.idByteCount * 2,
                let secret = Base64URL.decode(String(parts[2])), secret.count == Self.secretByteCount
            else { return nil }
            id = String(parts[1])
            self.secret = secret
        }

        var text: String { [Self.prefix, id, Base64URL.encode(secret)].joined(separator: ".") }
        var hash: [UInt8] { [UInt8](SHA256.hash(data: Array(id.utf8) + secret)) }

        static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
            bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
    }
}

struct AppTokenStore {
    let transaction: any Transaction

    private static let columns = "token_id, app_id, container_id, hash, created_at"
    private static let select = SQL("SELECT \(columns) FROM app_tokens WHERE token_id = ?1")
    private static let selectOfApp = SQL(
        "SELECT \(columns) FROM app_tokens WHERE app_id = ?1 ORDER BY created_at, token_id")
    private static let insert = SQL("INSERT INTO app_tokens (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5)")
    private static let delete = SQL("DELETE FROM app_tokens WHERE token_id = ?1")

    func token(_ id: String) throws -> AppToken? {
        try transaction.first(Self.select, [.text(id)], Self.token)
    }

    func tokens(of app: AppID) throws -> [AppToken] {
        try transaction.all(Self.selectOfApp, [.text(app.rawValue)], Self.token)
    }

    func add(_ token: AppToken) throws {
        try transaction.execute(
            Self.insert,
            [
                .text(token.id), .text(token.app.rawValue), .text(token.container.rawValue), .blob(token.hash),
                token.created.column,
            ])
    }

    func remove(_ id: String) throws { try transaction.execute(Self.delete, [.text(id)]) }

    private static func token(_ row: any SQLRow) -> AppToken {
        AppToken(
            id: row.text(0), app: AppID(row.text(1)), container: ItemName(row.text(2)), hash: row.blob(3),
            created: Timestamp(column: row.integer(4)))
    }
}
