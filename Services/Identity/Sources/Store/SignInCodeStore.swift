internal import Crypto
internal import NephosCore
internal import NephosStorage

/// Codes with which a new device may try to sign in once while others guess:
/// of each account one that a device has made and one of the operator's at a time, of which only the hash is kept.
///
/// A code does not stand for the password. It has 50 random bits, lives for ten
/// minutes, and is spent by the attempt that names it, whatever becomes of that.
struct SignInCodeStore {
    static let lifetime: Duration = .seconds(600)
    /// Without the letters that look like digits, or like each other.
    private static let alphabet = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    private static let length = 10

    /// Who has made a code: whoever has one of the account's devices keeps the operator's from nobody.
    enum Maker: Int64, Hashable, Sendable, CaseIterable {
        case device, `operator`

        fileprivate var column: SQLValue { .integer(rawValue) }
    }

    let transaction: any Transaction

    private static let upsert = SQL(
        """
        INSERT INTO sign_in_codes (account_id, maker, hash, expires_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (account_id, maker) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at
        """)
    private static let select = SQL(
        "SELECT hash, expires_at FROM sign_in_codes WHERE account_id = ?1 AND maker = ?2")
    private static let delete = SQL("DELETE FROM sign_in_codes WHERE account_id = ?1 AND maker = ?2")
    private static let deleteAll = SQL("DELETE FROM sign_in_codes WHERE account_id = ?1")

    /// Makes a code in place of the one before of the same maker.
    ///
    /// - Parameter random: At least ten random bytes.
    func make(for account: AccountID, by maker: Maker, random: [UInt8], at now: Timestamp) throws -> String {
        let letters = random.prefix(Self.length).map { Self.alphabet[Int($0) % Self.alphabet.count] }
        try transaction.execute(
            Self.upsert,
            [
                .text(account.rawValue), maker.column, .blob(Self.hash(String(letters))),
                now.advanced(by: Self.lifetime).column,
            ])
        return String(letters.prefix(Self.length / 2)) + "-" + String(letters.suffix(Self.length / 2))
    }

    /// Whose code of the account this is, as a person may have typed it; nil: it is none.
    func maker(of code: String, for account: AccountID, at now: Timestamp) throws -> Maker? {
        guard !code.isEmpty, code.utf8.count <= 64 else { return nil }
        return try Maker.allCases.first { try matches(code, of: account, by: $0, at: now) }
    }

    private func matches(_ code: String, of account: AccountID, by maker: Maker, at now: Timestamp) throws -> Bool {
        let known = try transaction.first(Self.select, [.text(account.rawValue), maker.column]) {
            (hash: $0.blob(0), expires: Timestamp(column: $0.integer(1)))
        }
        // One that ends later than any made now was made by a clock that was ahead, and would be good until that time.
        guard let known, known.expires > now, known.expires <= now.advanced(by: Self.lifetime * 2) else { return false }
        return ConstantTime.equal(known.hash, Self.hash(Self.canonical(code)))
    }

    func remove(of account: AccountID, by maker: Maker) throws {
        try transaction.execute(Self.delete, [.text(account.rawValue), maker.column])
    }

    func removeAll(of account: AccountID) throws { try transaction.execute(Self.deleteAll, [.text(account.rawValue)]) }

    private static func canonical(_ code: String) -> String {
        String(
            code.uppercased().compactMap { letter -> Character? in
                switch letter {
                case "-", " ": nil
                case "O": "0"
                case "I", "L": "1"
                default: letter
                }
            })
    }

    private static func hash(_ code: String) -> [UInt8] { [UInt8](SHA256.hash(data: Array(code.utf8))) }
}
