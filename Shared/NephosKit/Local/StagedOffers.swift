import Foundation
import GRDB

/// What is to be offered to the server again, until it is queued: after a restore that may be all that a scope has.
///
/// In a temporary table of this process's connection, as what is read is (``ScopeTransaction/stage(_:isFirst:by:)``).
/// One at a time, and within one transaction.
final class StagedOffers {
    struct Offer {
        /// Its group: they are offered in the order of these, those of one in the order in which they were added.
        var turn: Int
        var change: Data
        /// What it was made from, where its model keeps that.
        var ancestor: Data?
        /// What it changes, and what that belongs to, where ``rank(turn:upTo:isFirst:)`` has to know.
        var name: String?
        var parent: String?
    }

    private let database: Database
    private(set) var isEmpty = true

    init(in rows: ScopeTransaction) { database = rows.database }

    func add(_ offer: Offer) throws {
        if isEmpty { try begin() }
        isEmpty = false
        try database.cachedStatement(
            sql: "INSERT INTO temp.offers (turn, name, parent, change, ancestor) VALUES (?1, ?2, ?3, ?4, ?5)"
        ).execute(arguments: [offer.turn, offer.name, offer.parent, offer.change, offer.ancestor])
    }

    /// Most readings find nothing to offer, and need no table.
    private func begin() throws {
        try database.execute(
            sql: """
                CREATE TEMP TABLE IF NOT EXISTS offers (
                    number INTEGER PRIMARY KEY, turn INTEGER NOT NULL, rank INTEGER NOT NULL DEFAULT 0,
                    name TEXT, parent TEXT, change BLOB NOT NULL, ancestor BLOB
                );
                CREATE INDEX IF NOT EXISTS temp.offers_in_order ON offers (turn, rank, number);
                CREATE INDEX IF NOT EXISTS temp.offers_by_name ON offers (turn, name) WHERE name IS NOT NULL;
                DELETE FROM temp.offers;
                """)
    }

    /// How many are looked at together.
    private static let eachMax = 1000

    /// Puts those of a turn in order by how many of the same turn they are within, each of what the one before belongs to.
    ///
    /// - Parameters:
    ///   - limit: What is deeper counts as this deep: they may be in a circle.
    ///   - isFirst: Whether the outermost come first; else the innermost.
    func rank(turn: Int, upTo limit: Int, outermostFirst isFirst: Bool) throws {
        guard !isEmpty else { return }
        var after: Int64 = 0
        while true {
            let found = try Row.fetchAll(
                database.cachedStatement(
                    sql: "SELECT number, parent FROM temp.offers WHERE turn = ?1 AND number > ?2 "
                        + "AND parent IS NOT NULL ORDER BY number LIMIT \(Self.eachMax)"),
                arguments: [turn, after])
            for row in found {
                let depth = try depth(below: row["parent"], turn: turn, upTo: limit)
                guard depth > 0 else { continue }
                try database.cachedStatement(sql: "UPDATE temp.offers SET rank = ?2 WHERE number = ?1")
                    .execute(arguments: [row["number"] as Int64, isFirst ? depth : -depth])
            }
            guard found.count == Self.eachMax, let last = found.last else { return }
            after = last["number"]
        }
    }

    private func depth(below parent: String, turn: Int, upTo limit: Int) throws -> Int {
        var (depth, above) = (0, String?.some(parent))
        while let name = above, depth < limit {
            let row = try Row.fetchOne(
                database.cachedStatement(
                    sql: "SELECT parent FROM temp.offers WHERE turn = ?1 AND name = ?2 ORDER BY number DESC LIMIT 1"),
                arguments: [turn, name])
            guard let row else { break }
            depth += 1
            above = row["parent"]
        }
        return depth
    }

    /// In their order, one by one. Other tables may be changed meanwhile.
    func forEach(_ body: (Offer) throws -> Void) throws {
        guard !isEmpty else { return }
        let rows = try Row.fetchCursor(
            database.makeStatement(
                sql: "SELECT turn, change, ancestor FROM temp.offers ORDER BY turn, rank, number"))
        while let row = try rows.next() {
            try body(Offer(turn: row["turn"], change: row["change"], ancestor: row["ancestor"]))
        }
    }

    /// Forgets all of them.
    func clear() throws {
        guard !isEmpty else { return }
        try database.execute(sql: "DELETE FROM temp.offers")
        isEmpty = true
    }
}
