public import Core
internal import Crypto
public import Storage

private import struct Foundation.Data

/// The data keys of those whose content a service has, each wrapped by the deployment's
/// master key in the table `owner_keys`.
///
/// Rotating the master key rewraps the table and leaves the data alone;
/// destroying an owner's key makes everything sealed with it unreadable.
/// On the service's loop only.
public final class OwnerKeys {
    static let migrations = [
        Migration(
            name: "sealing-001",
            statements: [
                """
                CREATE TABLE owner_keys (
                    owner TEXT NOT NULL PRIMARY KEY,
                    master_key_id TEXT NOT NULL,
                    wrapped BLOB NOT NULL)
                """
            ])
    ]

    private static let select = SQL("SELECT master_key_id, wrapped FROM owner_keys WHERE owner = ?1")
    private static let insert = SQL("INSERT INTO owner_keys (owner, master_key_id, wrapped) VALUES (?1, ?2, ?3)")
    private static let update = SQL("UPDATE owner_keys SET master_key_id = ?2, wrapped = ?3 WHERE owner = ?1")
    private static let delete = SQL("DELETE FROM owner_keys WHERE owner = ?1")
    private static let outdated = SQL(
        "SELECT owner, master_key_id, wrapped FROM owner_keys WHERE master_key_id <> ?1 ORDER BY owner LIMIT ?2")

    private let masters: [String: OwnerKey]
    private let newest: String
    /// Opened keys. Emptied when full: opening one again costs microseconds.
    private var cache: [Owner: OwnerKey] = [:]
    private let cacheMax: Int

    /// Those whose key was made in ``maker``. They are not cached until that
    /// has ended: if it is rolled back, the key does not exist.
    private var made: Set<Owner> = []
    private weak var maker: (any Transaction)?

    /// - Parameter masterKeys: 32 bytes each, in base64, newest first (``ServiceSecrets/masterKeys``).
    /// - Throws: ``CloudError`` `.configurationInvalid` when there is none, or one is malformed.
    public init(masterKeys: [String], cacheMax: Int = 10_000) throws(CloudError) {
        var masters: [String: OwnerKey] = [:]
        var newest: String?
        for text in masterKeys {
            guard let bytes = Data(base64Encoded: text), bytes.count == OwnerKey.byteCount else {
                throw CloudError(.configurationInvalid, "A master key must be 32 bytes in base64.")
            }
            let id = SHA256.hash(data: bytes).prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            masters[id] = OwnerKey(SymmetricKey(data: bytes))
            if newest == nil { newest = id }
        }
        guard let newest else { throw CloudError(.configurationInvalid, "The service's secrets have no master key.") }
        self.masters = masters
        self.newest = newest
        self.cacheMax = cacheMax
    }

    /// The owner's key; makes one when it has none, which is a write.
    public func key(of owner: Owner, in transaction: any Transaction) throws -> OwnerKey {
        if let key = try existingKey(of: owner, in: transaction) { return key }
        let key = OwnerKey.random()
        try transaction.execute(
            Self.insert, [.text(owner.rawValue), .text(newest), .blob(try wrapped(key, of: owner))])
        if maker !== transaction { made = [] }
        maker = transaction
        made.insert(owner)
        return key
    }

    /// The owner's key, or nil when nothing was ever sealed for it.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` when the master key that wrapped it is not among the secrets.
    public func existingKey(of owner: Owner, in transaction: any Transaction) throws -> OwnerKey? {
        if let key = cache[owner] { return key }
        let row = try transaction.first(Self.select, [.text(owner.rawValue)]) { ($0.text(0), $0.blob(1)) }
        guard let row else { return nil }
        let key = try opened(row.1, by: row.0, of: owner)
        if !(maker === transaction && made.contains(owner)) {
            if cache.count >= cacheMax { cache.removeAll() }
            cache[owner] = key
        }
        return key
    }

    /// Wraps keys with the newest master key that an older one wraps, at most `limit` in one call.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    func rewrap(limit: Int, in transaction: any Transaction) throws -> Bool {
        let rows = try transaction.all(Self.outdated, [.text(newest), .integer(Int64(max(1, limit)))]) {
            (owner: Owner($0.text(0)), master: $0.text(1), wrapped: $0.blob(2))
        }
        for row in rows {
            let key = try opened(row.wrapped, by: row.master, of: row.owner)
            try transaction.execute(
                Self.update, [.text(row.owner.rawValue), .text(newest), .blob(try wrapped(key, of: row.owner))])
        }
        return rows.count == max(1, limit)
    }

    /// Destroys the owner's key, and with it all that was sealed for the owner.
    func destroy(_ owner: Owner, in transaction: any Transaction) throws {
        cache[owner] = nil
        try transaction.execute(Self.delete, [.text(owner.rawValue)])
    }

    /// Forgets what is known of one partition: somebody else may write to it.
    func drop(partition: Int) {
        cache = cache.filter { !$0.key.mayLie(in: partition) }
        made = made.filter { !$0.mayLie(in: partition) }
    }

    private func wrapped(_ key: OwnerKey, of owner: Owner) throws(CloudError) -> [UInt8] {
        guard let master = masters[newest] else { throw Self.masterMissing(newest) }
        return try master.seal(key.bytes, boundTo: Self.context(owner)).bytes
    }

    private func opened(_ wrapped: [UInt8], by id: String, of owner: Owner) throws(CloudError) -> OwnerKey {
        guard let master = masters[id] else { throw Self.masterMissing(id) }
        return OwnerKey(SymmetricKey(data: try master.open(Sealed(bytes: wrapped), boundTo: Self.context(owner))))
    }

    private static func context(_ owner: Owner) -> String { "owner-key/" + owner.rawValue }

    private static func masterMissing(_ id: String) -> CloudError {
        CloudError(
            .configurationInvalid, "An owner's key is wrapped by a master key that the secrets do not have.",
            details: ["master_key_id": id])
    }
}
