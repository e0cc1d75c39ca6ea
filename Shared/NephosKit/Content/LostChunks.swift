import Foundation
import GRDB
import NephosCore

/// Chunks of a scope that the service has lost and that this home was to heal: how often, and when next. What the service
/// names no more has no row once its pause is over.
struct LostChunks {
    static let migrations = [
        LocalMigration(
            name: "contents: lost chunks",
            sql: """
                CREATE TABLE content_losses (
                    account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL, id BLOB NOT NULL,
                    attempts INTEGER NOT NULL, next_attempt INTEGER NOT NULL, is_damaged INTEGER NOT NULL,
                    PRIMARY KEY (account, service, scope, id)
                ) WITHOUT ROWID;
                """),
        LocalMigration(
            name: "contents: where none of what is lost was found",
            sql: """
                CREATE TABLE content_searches (
                    account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL, beyond BLOB NOT NULL,
                    PRIMARY KEY (account, service, scope)
                ) WITHOUT ROWID;
                """),
    ]

    /// An attempt to heal one.
    struct Attempt: Sendable {
        var count: Int
        var next: Timestamp
        /// The copy that is here is not what it was either.
        var isDamagedHere: Bool

        /// Whether it is time for the next one. No clock that was ahead keeps it waiting longer than the longest pause.
        func isDue(at now: Timestamp) -> Bool {
            next <= now || next > now.advanced(by: LostChunks.pauseMax)
        }
    }

    private static let pauseMax: Duration = .seconds(24 * 3600)

    let rows: ScopeTransaction

    init(_ rows: ScopeTransaction) { self.rows = rows }

    private var arguments: StatementArguments { [rows.account, rows.service, rows.scope.name] }

    func all() throws -> [ChunkID: Attempt] {
        let found = try Row.fetchAll(
            rows.cached(
                "SELECT id, attempts, next_attempt, is_damaged FROM content_losses "
                    + "WHERE account = ?1 AND service = ?2 AND scope = ?3"), arguments: arguments)
        return Dictionary(
            found.compactMap { row in
                ChunkID(bytes: [UInt8](row[0] as Data)).map { id in
                    (
                        id,
                        Attempt(
                            count: row[1], next: Timestamp(milliseconds: UInt64(bitPattern: row[2] as Int64)),
                            isDamagedHere: row[3])
                    )
                }
            }
        ) { first, _ in first }
    }

    /// Notes an attempt: the next one is a minute later, and each time twice as long, at most a day. A disk that loses the
    /// same again and again is not sent it all day long.
    func note(_ id: ChunkID, isDamagedHere: Bool, at now: Timestamp, after attempts: Int) throws {
        let pause = min(Self.pauseMax, .seconds(60 << min(max(0, attempts), 12)))
        try rows.cached(
            "INSERT OR REPLACE INTO content_losses (account, service, scope, id, attempts, next_attempt, is_damaged) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(
            arguments: arguments + [
                Data(id.bytes), attempts + 1, Int64(bitPattern: now.advanced(by: pause).milliseconds), isDamagedHere,
            ])
    }

    // MARK: What is not here

    /// Notes that none of what is lost is in this home, of all that comes after this id, where the service has named some;
    /// nil: some is, or that is not known.
    ///
    /// - Returns: Whether it was not noted so before.
    func noteNone(beyond id: Data?) throws -> Bool {
        guard let id else {
            try rows.cached("DELETE FROM content_searches WHERE account = ?1 AND service = ?2 AND scope = ?3")
                .execute(arguments: arguments)
            return false
        }
        guard try !hasNone(beyond: id) else { return false }
        try rows.cached(
            "INSERT OR REPLACE INTO content_searches (account, service, scope, beyond) VALUES (?1, ?2, ?3, ?4)"
        )
        .execute(arguments: arguments + [id])
        return true
    }

    func hasNone(beyond id: Data) throws -> Bool {
        try Bool.fetchOne(
            rows.cached(
                "SELECT 1 FROM content_searches WHERE account = ?1 AND service = ?2 AND scope = ?3 AND beyond = ?4"),
            arguments: arguments + [id]) ?? false
    }

    /// Forgets all but these, and those whose pause is not over: they may be lost again.
    func keep(_ lost: Set<ChunkID>, at now: Timestamp) throws {
        for (id, attempt) in try all() where !lost.contains(id) && attempt.isDue(at: now) {
            try rows.cached(
                "DELETE FROM content_losses WHERE account = ?1 AND service = ?2 AND scope = ?3 AND id = ?4"
            ).execute(arguments: arguments + [Data(id.bytes)])
        }
    }
}
