internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The keys that access tokens are signed with: the deployment's first, from
/// the secret file, and those that came after it, sealed in the database.
///
/// A new key is published before it signs, and the one before it stays valid as
/// long as the tokens that it has signed: so a rotation needs no restart, and
/// no device notices it.
struct SigningKeys {
    /// Until a new key signs: what services need to hear of it, many times over.
    static let announcement: Duration = .seconds(30)

    private struct Key {
        var signer: TokenSigner
        var signsFrom: Timestamp
        /// Nil: nothing was said of its end.
        var retires: Timestamp?

        func signs(at now: Timestamp) -> Bool { signsFrom <= now && retires.map { now < $0 } ?? true }
    }

    private static let select = SQL(
        "SELECT key_id, sealed, signs_from, retires_at FROM signing_keys WHERE sealed IS NOT NULL ORDER BY signs_from")
    // One that ends later than those that are retired now was retired by a clock that was ahead.
    private static let selectUnretired = SQL(
        "SELECT key_id, public_key FROM signing_keys WHERE retires_at = 0 OR retires_at > ?1")
    private static let insert = SQL(
        """
        INSERT INTO signing_keys (key_id, sealed, public_key, signs_from, retires_at) VALUES (?1, ?2, ?3, ?4, 0)
        ON CONFLICT (key_id) DO NOTHING
        """)
    private static let retire = SQL("UPDATE signing_keys SET retires_at = ?2 WHERE key_id = ?1")
    private static let selectRetirement = SQL("SELECT retires_at FROM signing_keys WHERE key_id = ?1")
    private static let forget = SQL("UPDATE signing_keys SET sealed = NULL WHERE key_id = ?1")

    private let first: TokenSigner
    /// Oldest first.
    private let keys: [Key]

    /// The first, and those in the database.
    init(first: TokenSigner, _ ownerKeys: OwnerKeys, in transaction: any Transaction) throws {
        self.first = first
        var keys = [Key(signer: first, signsFrom: Timestamp(milliseconds: 0))]
        let rows = try transaction.all(Self.select) {
            (
                id: $0.text(0), sealed: Sealed(bytes: $0.blob(1)), signsFrom: Timestamp(column: $0.integer(2)),
                retires: $0.integer(3) == 0 ? nil : Timestamp(column: $0.integer(3))
            )
        }
        if !rows.isEmpty, let seal = try ownerKeys.existingKey(of: directoryScope.owner, in: transaction) {
            for row in rows {
                let bytes = try seal.open(row.sealed, boundTo: Self.context(row.id))
                keys.append(
                    Key(
                        signer: try TokenSigner(key: bytes, id: row.id), signsFrom: row.signsFrom,
                        retires: row.retires))
            }
        }
        self.keys = keys
    }

    /// Who signs at this time.
    func signer(at now: Timestamp) -> TokenSigner {
        keys.last { $0.signs(at: now) }?.signer ?? first
    }

    struct Rotation {
        var keyID: String
        var signsFrom: Timestamp
        var previousUntil: Timestamp
    }

    /// Makes the next key, in the database alone.
    ///
    /// - Parameter tokenLifetime: How long the last token of the present key lives.
    /// - Returns: What was made, and the states to publish.
    func rotate(
        id: String, at now: Timestamp, tokenLifetime: Duration, _ ownerKeys: OwnerKeys,
        in transaction: any Transaction
    ) throws -> (Rotation, [DirectoryEvents.State]) {
        let bytes = TokenSigner.makeKey()
        let signer = try TokenSigner(key: bytes, id: id)
        let rotation = Rotation(
            keyID: id, signsFrom: now.advanced(by: Self.announcement),
            previousUntil: now.advanced(by: Self.announcement + tokenLifetime))
        // The first key has a row from its first rotation on.
        try transaction.execute(
            Self.insert, [.text(first.keyID), .null, .blob(first.publicKey), .integer(0)])
        var states: [DirectoryEvents.State] = []
        let unretired = try transaction.all(Self.selectUnretired, [rotation.previousUntil.column]) {
            (id: $0.text(0), key: $0.blob(1))
        }
        for former in unretired {
            try transaction.execute(Self.retire, [.text(former.id), rotation.previousUntil.column])
            states.append(.tokenKey(id: former.id, publicKey: former.key, retires: rotation.previousUntil))
        }
        let seal = try ownerKeys.key(of: directoryScope.owner, in: transaction)
        let sealed = try seal.seal(bytes, boundTo: Self.context(id))
        try transaction.execute(
            Self.insert,
            [.text(id), .blob(sealed.bytes), .blob(signer.publicKey), rotation.signsFrom.column])
        states.append(.tokenKey(id: id, publicKey: signer.publicKey, retires: nil))
        // Whoever signs no more is not needed any more.
        let present = self.signer(at: now).keyID
        for key in keys.prefix(while: { $0.signer.keyID != present }) {
            try transaction.execute(Self.forget, [.text(key.signer.keyID)])
        }
        return (rotation, states)
    }

    /// How this database knows a key.
    enum Standing {
        case unknown
        /// Nothing was said of its end.
        case valid
        case retired
    }

    func standing(of id: String, in transaction: any Transaction) throws -> Standing {
        let retires = try transaction.first(Self.selectRetirement, [.text(id)]) { $0.integer(0) }
        guard let retires else { return id == first.keyID ? .valid : .unknown }
        return retires == 0 ? .valid : .retired
    }

    private static func context(_ id: String) -> String { "signing-key/" + id }
}
