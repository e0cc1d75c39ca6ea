internal import Crypto
internal import NephosCore
internal import NephosStorage

/// Attempts to give a password, counted on disk: a restart forgives nothing.
///
/// Bounded by what the password check can do: a row is written for an attempt
/// that is checked, some twenty a second, and goes an hour after the last one.
struct AttemptStore {
    /// Whom an attempt is counted against: one of these, and never both.
    enum Subject: Hashable, Sendable {
        /// A device of the account, past or present: whoever guesses at the account does not lock it out.
        case key(PublicKey)
        /// Everybody else who tries this name, whether or not there is such an account. Not their keys:
        /// a key costs nothing.
        case name(String)
        /// Whoever has a code of the account: who has one of its devices can make as many as there are guesses. Those of
        /// the operator's are counted by themselves.
        case code(AccountID, SignInCodeStore.Maker)

        /// What helps besides waiting, where anything does.
        fileprivate var cure: String {
            switch self {
            case .key: "Wait"
            case .name: "Wait, or use a code from a signed-in device: nephos devices allow-sign-in"
            case .code(_, .device):
                "Wait, or have the operator make a code: nephos devices allow-sign-in --account NAME. Whoever has used up the attempts of signed-in devices' codes has such a device: see nephos devices"
            case .code(_, .operator): "Wait, and have the operator make another code then"
            }
        }

        /// Hashed, since people type passwords where names belong.
        fileprivate var column: SQLValue {
            let text =
                switch self {
                case .key(let key): "key/" + key.z85
                case .name(let name): "name/" + name
                case .code(let account, let maker): "code/\(maker)/" + account.rawValue
                }
            return .blob([UInt8](SHA256.hash(data: Array(text.utf8))))
        }
    }

    /// Old rows removed with each new one.
    private static let pruneStep: Int64 = 16

    let transaction: any Transaction

    private static let select = SQL("SELECT attempts, last_at FROM attempts WHERE subject = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO attempts (subject, attempts, last_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (subject) DO UPDATE SET attempts = excluded.attempts, last_at = excluded.last_at
        """)
    private static let delete = SQL("DELETE FROM attempts WHERE subject = ?1")
    private static let deleteOld = SQL(
        """
        DELETE FROM attempts WHERE subject IN
            (SELECT subject FROM attempts WHERE last_at < ?1 ORDER BY last_at LIMIT ?2)
        """)

    /// What the count will be with another attempt. Writes nothing.
    ///
    /// - Throws: ``CloudError`` `.requestRateLimited`.
    func next(_ subject: Subject, at now: Timestamp) throws -> AttemptRule.Count {
        let known = try transaction.first(Self.select, [subject.column]) {
            AttemptRule.Count(attempts: Int($0.integer(0)), last: Timestamp(column: $0.integer(1)))
        }
        return try AttemptRule.begin(after: known, at: now, cure: subject.cure)
    }

    func save(_ count: AttemptRule.Count, of subject: Subject) throws {
        try transaction.execute(
            Self.upsert, [subject.column, .integer(Int64(count.attempts)), count.last.column])
        let old = count.last.advanced(by: .zero - AttemptRule.memory)
        try transaction.execute(Self.deleteOld, [old.column, .integer(Self.pruneStep)])
    }

    /// Forgets what was counted, because an attempt succeeded.
    func forget(_ subject: Subject) throws { try transaction.execute(Self.delete, [subject.column]) }
}
