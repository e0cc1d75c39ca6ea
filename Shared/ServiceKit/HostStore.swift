internal import Core
internal import Storage

/// The host's own tables, beside the service's and the feed's.
enum HostStore {
    static let migrations = [
        Migration(
            name: "host-001-followers-and-revocations",
            statements: [
                """
                CREATE TABLE follow_cursors (
                    service TEXT NOT NULL,
                    "partition" BIGINT NOT NULL,
                    epoch BIGINT NOT NULL,
                    sequence BIGINT NOT NULL,
                    PRIMARY KEY (service, "partition")
                )
                """,
                """
                CREATE TABLE revoked_devices (
                    device_id TEXT NOT NULL PRIMARY KEY,
                    revoked_at BIGINT NOT NULL
                )
                """,
            ])
    ]

    /// How long a revocation is remembered: far longer than any access token
    /// lives, after which identity gives the device no other.
    static let revocationRetention: Duration = .seconds(30 * 24 * 3600)

    private static let selectCursors = SQL(
        "SELECT \"partition\", epoch, sequence FROM follow_cursors WHERE service = ?1")
    private static let upsertCursor = SQL(
        """
        INSERT INTO follow_cursors (service, "partition", epoch, sequence) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (service, "partition") DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence
        """)
    private static let selectRevoked = SQL("SELECT device_id FROM revoked_devices")
    private static let deleteRevoked = SQL("DELETE FROM revoked_devices WHERE revoked_at < ?1")
    private static let selectOldRevoked = SQL("SELECT 1 FROM revoked_devices WHERE revoked_at < ?1 LIMIT 1")
    private static let insertRevoked = SQL(
        "INSERT INTO revoked_devices (device_id, revoked_at) VALUES (?1, ?2) ON CONFLICT (device_id) DO NOTHING")

    /// How far each partition of a followed service was followed.
    static func cursors(of service: ServiceName, in transaction: any Transaction) throws -> [Int: ChangeToken] {
        var cursors: [Int: ChangeToken] = [:]
        try transaction.query(selectCursors, [.text(service.rawValue)]) { row in
            cursors[Int(row.integer(0))] = ChangeToken(
                epoch: UInt64(bitPattern: row.integer(1)), sequence: UInt64(bitPattern: row.integer(2)))
            return true
        }
        return cursors
    }

    static func setCursor(
        _ token: ChangeToken, of service: ServiceName, partition: Int, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            upsertCursor,
            [
                .text(service.rawValue), .integer(Int64(partition)), .integer(Int64(bitPattern: token.epoch)),
                .integer(Int64(bitPattern: token.sequence)),
            ])
    }

    static func revokedDevices(in transaction: any Transaction) throws -> [DeviceID] {
        try transaction.all(selectRevoked) { DeviceID($0.text(0)) }
    }

    static func addRevoked(_ device: DeviceID, at time: Timestamp, in transaction: any Transaction) throws {
        try transaction.execute(insertRevoked, [.text(device.rawValue), .integer(Int64(clamping: time.milliseconds))])
    }

    /// Forgets revocations past their retention. Writes nothing if there are none.
    static func pruneRevoked(now: Timestamp, in transaction: any Transaction) throws {
        let bound = SQLValue.integer(Int64(clamping: now.advanced(by: .zero - revocationRetention).milliseconds))
        guard try transaction.first(selectOldRevoked, [bound], { _ in true }) != nil else { return }
        try transaction.execute(deleteRevoked, [bound])
    }
}
