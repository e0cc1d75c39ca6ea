internal import NephosCore
internal import NephosStorage

/// How far other services were followed, in the host's own tables.
enum FollowCursors {
    static let migrations = [
        Migration(
            name: "host-001-followers",
            statements: [
                """
                CREATE TABLE follow_cursors (
                    service TEXT NOT NULL,
                    "partition" BIGINT NOT NULL,
                    epoch BIGINT NOT NULL,
                    sequence BIGINT NOT NULL,
                    token_check BLOB NOT NULL,
                    PRIMARY KEY (service, "partition")
                )
                """
            ])
    ]

    private static let selectCursors = SQL(
        "SELECT \"partition\", epoch, sequence, token_check FROM follow_cursors WHERE service = ?1")
    private static let upsertCursor = SQL(
        """
        INSERT INTO follow_cursors (service, "partition", epoch, sequence, token_check) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (service, "partition") DO UPDATE SET
            epoch = excluded.epoch, sequence = excluded.sequence, token_check = excluded.token_check
        """)

    /// How far each partition of a followed service was followed.
    static func cursors(of service: ServiceName, in transaction: any Transaction) throws -> [Int: ChangeToken] {
        var cursors: [Int: ChangeToken] = [:]
        try transaction.query(selectCursors, [.text(service.rawValue)]) { row in
            cursors[Int(row.integer(0))] = ChangeToken(
                epoch: UInt64(bitPattern: row.integer(1)), sequence: UInt64(bitPattern: row.integer(2)),
                check: TokenCheck(bytes: row.blob(3)))
            return true
        }
        return cursors
    }

    static func cursor(
        of service: ServiceName, partition: Int, in transaction: any Transaction
    ) throws -> ChangeToken? { try cursors(of: service, in: transaction)[partition] }

    static func setCursor(
        _ token: ChangeToken, of service: ServiceName, partition: Int, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            upsertCursor,
            [
                .text(service.rawValue), .integer(Int64(partition)), .integer(Int64(bitPattern: token.epoch)),
                .integer(Int64(bitPattern: token.sequence)), .blob(token.check.bytes),
            ])
    }
}
