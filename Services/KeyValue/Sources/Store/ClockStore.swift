internal import NephosCore
internal import NephosStorage

/// How far the service's clock has come: one row.
struct ClockStore {
    let transaction: any Transaction

    private static let select = SQL("SELECT milliseconds FROM service_clock WHERE number = 1")
    private static let upsert = SQL(
        """
        INSERT INTO service_clock (number, milliseconds) VALUES (1, ?1)
        ON CONFLICT (number) DO UPDATE SET milliseconds = excluded.milliseconds
        """)

    /// Nil: nothing was ever written.
    func load() throws -> Timestamp? {
        try transaction.first(Self.select) { Timestamp(milliseconds: UInt64(clamping: $0.integer(0))) }
    }

    func save(_ time: Timestamp) throws {
        try transaction.execute(Self.upsert, [.integer(Int64(clamping: time.milliseconds))])
    }
}
