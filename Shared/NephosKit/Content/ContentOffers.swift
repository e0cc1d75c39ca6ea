import Foundation
import GRDB
import NephosCore

/// When a scope's contents were offered again last: a row for each scope of which the server has lost chunks.
struct ContentOffers {
    static let migrations = [
        LocalMigration(
            name: "contents: offers",
            sql: """
                CREATE TABLE content_offers (
                    account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL,
                    lost INTEGER NOT NULL, ended INTEGER NOT NULL,
                    PRIMARY KEY (account, service, scope)
                ) WITHOUT ROWID;
                """)
    ]

    /// All contents of the scope that are here were offered.
    struct Pass: Equatable {
        /// The smallest number of lost chunks that the server has said since the pass began.
        var lost: Int
        var ended: Timestamp
    }

    /// After a pass, if the number has grown since. A disk that loses the same chunks again and again is not sent them
    /// all day long.
    private static let pause: Duration = .seconds(3600)
    /// If it has not: while one chunk was sent another may have been lost.
    private static let pauseUnlessGrown: Duration = .seconds(24 * 3600)

    let rows: ScopeTransaction

    init(_ rows: ScopeTransaction) { self.rows = rows }

    private var arguments: StatementArguments { [rows.account, rows.service, rows.scope.name] }

    func last() throws -> Pass? {
        try Row.fetchOne(
            rows.cached("SELECT lost, ended FROM content_offers WHERE account = ?1 AND service = ?2 AND scope = ?3"),
            arguments: arguments
        ).map { Pass(lost: $0[0], ended: Timestamp(milliseconds: UInt64(clamping: $0[1] as Int64))) }
    }

    func save(_ pass: Pass) throws {
        try rows.cached(
            "INSERT OR REPLACE INTO content_offers (account, service, scope, lost, ended) VALUES (?1, ?2, ?3, ?4, ?5)"
        ).execute(arguments: arguments + [pass.lost, Int64(clamping: pass.ended.milliseconds)])
    }

    /// The server has said what it has lost.
    func note(_ loss: ContentLoss) throws {
        guard var last = try last(), loss.lostChunks < last.lost else { return }
        last.lost = loss.lostChunks
        try save(last)
    }

    /// How long it is until the next pass; nil: there is nothing to offer.
    func wait(for loss: ContentLoss, at now: Timestamp) throws -> Duration? {
        guard loss.isOffered else { return nil }
        // No clock that was ahead keeps it waiting.
        guard let last = try last(), last.ended <= now else { return .zero }
        let pause = loss.lostChunks > last.lost ? Self.pause : Self.pauseUnlessGrown
        return max(.zero, pause - now.since(last.ended))
    }

    /// Whether a content that is here may be the last copy of something that the server has lost, and was not offered yet.
    func isPending(_ loss: ContentLoss) throws -> Bool {
        guard loss.isAny else { return false }
        return try loss.isAllMissing || last().map { $0.lost < loss.lostChunks } ?? true
    }
}
