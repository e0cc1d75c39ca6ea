import Foundation
import GRDB
import NephosCore

/// When a scope's contents were offered again last: one row for each scope of which the server has lost something.
struct ContentOffers {
    static let migrations = [
        LocalMigration(
            name: "contents: offers",
            sql: """
                CREATE TABLE content_offers (
                    account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL,
                    lost INTEGER NOT NULL, began INTEGER NOT NULL, is_done INTEGER NOT NULL,
                    PRIMARY KEY (account, service, scope)
                ) WITHOUT ROWID;
                """)
    ]

    /// A pass over all contents of the scope that are here.
    struct Pass: Equatable {
        /// How many chunks the server had lost when it began.
        var lost: Int
        var began: Timestamp
        var isDone = false
    }

    let rows: ScopeTransaction

    init(_ rows: ScopeTransaction) { self.rows = rows }

    private var arguments: StatementArguments { [rows.account, rows.service, rows.scope.name] }

    func last() throws -> Pass? {
        try Row.fetchOne(
            rows.cached(
                "SELECT lost, began, is_done FROM content_offers WHERE account = ?1 AND service = ?2 AND scope = ?3"),
            arguments: arguments
        ).map { row in
            Pass(
                lost: row[0], began: Timestamp(milliseconds: UInt64(clamping: row[1] as Int64)), isDone: row[2])
        }
    }

    func save(_ pass: Pass) throws {
        try rows.cached(
            "INSERT OR REPLACE INTO content_offers (account, service, scope, lost, began, is_done) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        ).execute(arguments: arguments + [pass.lost, Int64(clamping: pass.began.milliseconds), pass.isDone])
    }

    /// Whether a content that is here may be the last copy of something that the server has lost: until it was offered.
    func isPending(_ loss: ContentLoss) throws -> Bool {
        guard loss.isAny else { return false }
        return try loss.isAllMissing || last().map { !$0.isDone || $0.lost != loss.lostChunks } ?? true
    }

    /// Between two passes. A disk that loses the same again and again is not sent it all day long.
    private static let pause: Duration = .seconds(3600)
    /// Where the last pass came to its end and the number is the same: one chunk may have come back and another be lost.
    private static let pauseWhenDone: Duration = .seconds(24 * 3600)

    /// How long it is until the next pass begins.
    static func wait(for loss: ContentLoss, after last: Pass?, at now: Timestamp) -> Duration {
        guard let last, last.began <= now else { return .zero }
        let pause = last.isDone && last.lost == loss.lostChunks ? pauseWhenDone : pause
        return max(.zero, pause - now.since(last.began))
    }
}
