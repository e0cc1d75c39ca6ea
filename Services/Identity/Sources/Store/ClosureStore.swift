internal import NephosCore
internal import NephosStorage

/// Closed accounts, and which services have removed what they stored.
struct ClosureStore {
    let transaction: any Transaction

    private static let insert = SQL("INSERT INTO closures (account_id, closed_at) VALUES (?1, ?2)")
    private static let select = SQL("SELECT closed_at FROM closures WHERE account_id = ?1")
    private static let insertReport = SQL(
        """
        INSERT INTO closure_reports (account_id, service, done_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (account_id, service) DO NOTHING
        """)
    private static let selectReports = SQL("SELECT service, done_at FROM closure_reports WHERE account_id = ?1")

    func insert(_ account: AccountID, at time: Timestamp) throws {
        try transaction.execute(Self.insert, [.text(account.rawValue), time.column])
    }

    /// When the account was closed; nil: it was not.
    func closedAt(_ account: AccountID) throws -> Timestamp? {
        try transaction.first(Self.select, [.text(account.rawValue)]) { Timestamp(column: $0.integer(0)) }
    }

    func report(_ account: AccountID, by service: ServiceName, at time: Timestamp) throws {
        try transaction.execute(
            Self.insertReport, [.text(account.rawValue), .text(service.rawValue), time.column])
    }

    /// When each service was done.
    func reports(of account: AccountID) throws -> [ServiceName: Timestamp] {
        let rows = try transaction.all(Self.selectReports, [.text(account.rawValue)]) {
            (ServiceName($0.text(0)), Timestamp(column: $0.integer(1)))
        }
        return Dictionary(rows) { first, _ in first }
    }
}
