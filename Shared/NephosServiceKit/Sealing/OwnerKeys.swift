internal import Crypto
public import NephosCore
public import NephosStorage

private import struct Foundation.Data

/// The data keys of those whose content a service has, each wrapped by the deployment's
/// master key in the table `owner_keys`.
///
/// Rotating the master key rewraps the table and leaves the data alone;
/// destroying an owner's key makes everything sealed with it unreadable.
///
/// A key that does not open is damaged only if its master key is certain to be the right one and to work: the row names
/// it by its hash, and what it has sealed by itself in `master_keys` opens. Else a wrong or missing secret would make
/// every owner's key look damaged, and whatever is done about damage would be done to all.
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
                """,
                // What each master key has sealed of its own, to prove that it opens it still.
                "CREATE TABLE master_keys (id TEXT NOT NULL PRIMARY KEY, proof BLOB NOT NULL)",
                // Keys that were found damaged, as they lay, for whoever can still make something of them.
                """
                CREATE TABLE owner_keys_damaged (
                    owner TEXT NOT NULL,
                    master_key_id TEXT NOT NULL,
                    wrapped BLOB NOT NULL,
                    PRIMARY KEY (owner, wrapped))
                """,
            ])
    ]

    private static let select = SQL("SELECT master_key_id, wrapped FROM owner_keys WHERE owner = ?1")
    private static let insert = SQL("INSERT INTO owner_keys (owner, master_key_id, wrapped) VALUES (?1, ?2, ?3)")
    private static let update = SQL("UPDATE owner_keys SET master_key_id = ?2, wrapped = ?3 WHERE owner = ?1")
    private static let delete = SQL("DELETE FROM owner_keys WHERE owner = ?1")
    private static let outdated = SQL(
        """
        SELECT owner, master_key_id, wrapped FROM owner_keys WHERE master_key_id <> ?1 AND owner > ?2
        ORDER BY owner LIMIT ?3
        """)
    private static let selectProof = SQL("SELECT proof FROM master_keys WHERE id = ?1")
    private static let insertProof = SQL(
        "INSERT INTO master_keys (id, proof) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING")
    private static let selectDamaged = SQL("SELECT 1 FROM owner_keys_damaged WHERE owner = ?1 AND wrapped = ?2")
    private static let insertDamaged = SQL(
        """
        INSERT INTO owner_keys_damaged (owner, master_key_id, wrapped) VALUES (?1, ?2, ?3)
        ON CONFLICT (owner, wrapped) DO NOTHING
        """)
    private static let deleteDamaged = SQL("DELETE FROM owner_keys_damaged WHERE owner = ?1")

    private let masters: [String: OwnerKey]
    /// Which master key wraps keys from now on.
    let newest: String
    /// Opened keys. Emptied when full: opening one again costs microseconds.
    private var cache: [Owner: OwnerKey] = [:]
    private let cacheMax: Int
    /// Of the cached ones the one asked for last, and most likely next: comparing costs less than hashing.
    private var latest: (owner: Owner, key: OwnerKey)?

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
            let id = Self.id(ofMasterKey: bytes)
            masters[id] = OwnerKey(SymmetricKey(data: bytes))
            if newest == nil { newest = id }
        }
        guard let newest else { throw CloudError(.configurationInvalid, "The service's secrets have no master key.") }
        self.masters = masters
        self.newest = newest
        self.cacheMax = cacheMax
    }

    /// What a master key is called. Nobody learns the key by it.
    private static func id(ofMasterKey bytes: Data) -> String {
        SHA256.hash(data: bytes).prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// What there is of an owner's key.
    public enum Standing: Sendable {
        /// Nothing was ever sealed for the owner, or its key was destroyed.
        case none
        case whole(OwnerKey)
        /// It is lost, and with it whatever it has sealed.
        case damaged
    }

    /// As the table has it.
    private struct Row {
        var owner: Owner
        var master: String
        var wrapped: [UInt8]

        var values: [SQLValue] { [.text(owner.rawValue), .text(master), .blob(wrapped)] }
    }

    /// The owner's key; makes one when it has none, which is a write. A key has sealed nothing yet when it is made: it
    /// stays though the request fails that it is made for, which may have asked for it before it decided.
    ///
    /// - Throws: As ``existingKey(of:in:)``.
    public func key(of owner: Owner, in transaction: any Transaction) throws -> OwnerKey {
        if let key = try existingKey(of: owner, in: transaction) { return key }
        let key = OwnerKey.random()
        let wrapped = try wrapped(key, of: owner)
        try transaction.lasting {
            try prove(in: transaction)
            try transaction.execute(Self.insert, [.text(owner.rawValue), .text(newest), .blob(wrapped)])
        }
        if maker !== transaction { made = [] }
        maker = transaction
        made.insert(owner)
        return key
    }

    /// The owner's key, if it was asked for of late; without a look at the table.
    public func cachedKey(of owner: Owner) -> OwnerKey? { cache[owner] }

    /// The owner's key, or nil when nothing was ever sealed for it.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when it is damaged, or cannot be opened with the secrets' master
    ///   keys.
    public func existingKey(of owner: Owner, in transaction: any Transaction) throws -> OwnerKey? {
        switch try standing(of: owner, in: transaction) {
        case .none: return nil
        case .whole(let key): return key
        case .damaged: throw Self.damaged
        }
    }

    /// The owner's key, if it has one, and if that is whole.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when it cannot be opened, and that need not be for damage: the master
    ///   key that wrapped it is not among the secrets, or does not open what it has sealed.
    public func standing(of owner: Owner, in transaction: any Transaction) throws -> Standing {
        if let latest, latest.owner == owner { return .whole(latest.key) }
        if let key = cache[owner] {
            latest = (owner, key)
            return .whole(key)
        }
        guard let row = try row(of: owner, in: transaction) else { return .none }
        guard let key = opened(row) else {
            try checkDamaged(row, in: transaction)
            return .damaged
        }
        if !(maker === transaction && made.contains(owner)) {
            if cache.count >= cacheMax { cache.removeAll() }
            cache[owner] = key
        }
        return .whole(key)
    }

    /// Keeps an owner's damaged key apart from the others, so that it can have another one.
    ///
    /// - Returns: False when it has none, or one that opens.
    public func setAside(_ owner: Owner, in transaction: any Transaction) throws -> Bool {
        guard case .damaged = try standing(of: owner, in: transaction), let row = try row(of: owner, in: transaction)
        else { return false }
        try transaction.execute(Self.insertDamaged, row.values)
        try transaction.execute(Self.delete, [.text(owner.rawValue)])
        return true
    }

    /// What a step of wrapping anew has come to.
    struct Rewrapped {
        /// The last owner that had its turn; nil: there are no more.
        var last: Owner?
        /// Those whose keys were found damaged just now: they stay as they are.
        var damaged: [Owner] = []
        /// Those whose keys do not open, and it is not certain that they are damaged: older master keys are needed.
        var unopened: [Owner] = []
    }

    /// Wraps keys with the newest master key that an older one wraps, at most `limit` in one call. Those that do not
    /// open keep no others from it.
    ///
    /// - Parameter last: Whoever had its turn last; go on in a later group.
    func rewrap(after last: Owner?, limit: Int, in transaction: any Transaction) throws -> Rewrapped {
        let limit = max(1, limit)
        let rows = try transaction.all(
            Self.outdated, [.text(newest), .text(last?.rawValue ?? ""), .integer(Int64(limit))]
        ) { Row(owner: Owner($0.text(0)), master: $0.text(1), wrapped: $0.blob(2)) }
        var outcome = Rewrapped(last: rows.count == limit ? rows.last?.owner : nil)
        if !rows.isEmpty { try prove(in: transaction) }
        for row in rows {
            if let key = opened(row) {
                try transaction.execute(
                    Self.update, [.text(row.owner.rawValue), .text(newest), .blob(try wrapped(key, of: row.owner))])
            } else if (try? checkDamaged(row, in: transaction)) != nil {
                // So it is known also when its master key is gone, and told once, however often this runs.
                if try transaction.execute(Self.insertDamaged, row.values) == 1 { outcome.damaged.append(row.owner) }
            } else {
                outcome.unopened.append(row.owner)
            }
        }
        return outcome
    }

    /// Destroys the owner's key, and with it all that was sealed for the owner.
    func destroy(_ owner: Owner, in transaction: any Transaction) throws {
        cache[owner] = nil
        latest = nil
        try transaction.execute(Self.delete, [.text(owner.rawValue)])
        try transaction.execute(Self.deleteDamaged, [.text(owner.rawValue)])
    }

    private func wrapped(_ key: OwnerKey, of owner: Owner) throws(CloudError) -> [UInt8] {
        guard let master = masters[newest] else { throw Self.masterMissing(newest) }
        return try master.seal(key.bytes, boundTo: Self.context(owner)).bytes
    }

    private func row(of owner: Owner, in transaction: any Transaction) throws -> Row? {
        try transaction.first(Self.select, [.text(owner.rawValue)]) {
            Row(owner: owner, master: $0.text(0), wrapped: $0.blob(1))
        }
    }

    /// The key; nil: no master key opens it.
    private func opened(_ row: Row) -> OwnerKey? {
        func opened(by master: OwnerKey) -> OwnerKey? {
            let bytes = try? master.open(Sealed(bytes: row.wrapped), boundTo: Self.context(row.owner))
            return bytes.map { OwnerKey(SymmetricKey(data: $0)) }
        }
        if let master = masters[row.master], let key = opened(by: master) { return key }
        // The name of the master key may be all that is damaged.
        for (id, master) in masters where id != row.master {
            if let key = opened(by: master) { return key }
        }
        return nil
    }

    /// - Throws: ``CloudError`` `.storageFailure` when a key that does not open may yet be whole.
    private func checkDamaged(_ row: Row, in transaction: any Transaction) throws {
        let known: [SQLValue] = [.text(row.owner.rawValue), .blob(row.wrapped)]
        if try transaction.first(Self.selectDamaged, known, { _ in true }) != nil { return }
        guard let master = masters[row.master] else { throw Self.masterMissing(row.master) }
        let proof = try transaction.first(Self.selectProof, [.text(row.master)]) { Sealed(bytes: $0.blob(0)) }
        guard let proof, (try? master.open(proof, boundTo: Self.proofContext(row.master))) != nil else {
            throw Self.masterUnproven(row.master)
        }
    }

    /// Has the newest master key seal something of its own, once.
    private func prove(in transaction: any Transaction) throws {
        guard let master = masters[newest] else { throw Self.masterMissing(newest) }
        guard try transaction.first(Self.selectProof, [.text(newest)], { _ in true }) == nil else { return }
        let proof = try master.seal([UInt8](newest.utf8), boundTo: Self.proofContext(newest))
        try transaction.execute(Self.insertProof, [.text(newest), .blob(proof.bytes)])
    }

    private static func context(_ owner: Owner) -> String { "owner-key/" + owner.rawValue }

    private static func proofContext(_ id: String) -> String { "master-key/" + id }

    private static let damaged = CloudError(
        .storageFailure,
        "The account's key in this service is damaged, and nothing that it sealed can be read. Restore a backup of the "
            + "service.",
        details: ["reason": "damaged"])

    private static func masterMissing(_ id: String) -> CloudError {
        CloudError(
            .storageFailure,
            "An account's key is wrapped by a master key that the secrets do not have. Bring the service's secret file "
                + "back.",
            details: ["master_key_id": id])
    }

    private static func masterUnproven(_ id: String) -> CloudError {
        CloudError(
            .storageFailure,
            "Neither an account's key opens, nor what its master key was to be known by. Restore a backup of the "
                + "service.",
            details: ["master_key_id": id])
    }
}
