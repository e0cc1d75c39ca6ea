import Foundation
import GRDB
import NephosCore

/// What one query has found, in a database of its own that SQLite keeps in memory up to ``cacheBytes``, and beyond in a
/// file that nobody else sees and that is gone with it.
///
/// `found` has a row for each item that matches, or that its reader believes to: what it is now, and what the reader was
/// told, each as a fingerprint; where they differ there is something to tell. `folders` are those that were walked, or
/// are still to be. On the query's thread only.
final class FoundDocuments {
    static let cacheBytes = 16 << 20
    private let queue: DatabaseQueue
    /// Which look at everything a row was found by.
    private var round: Int64 = 0

    init() throws {
        var configuration = Configuration()
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA cache_size = -\(Self.cacheBytes >> 10)")
        }
        // Without a name: SQLite's temporary database.
        queue = try DatabaseQueue(path: "", configuration: configuration)
        try queue.writeWithoutTransaction { database in
            // Nothing is taken back: a query in which something fails is over.
            try database.execute(sql: "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
            try database.execute(sql: Self.tables)
        }
    }

    // `now` is null of what does not match any more, `told` of what the reader has not heard of.
    private static let tables = """
        CREATE TABLE found (
            number INTEGER PRIMARY KEY, item BLOB NOT NULL UNIQUE, key BLOB NOT NULL, path BLOB NOT NULL,
            now INTEGER, told INTEGER, round INTEGER NOT NULL
        );
        CREATE INDEX found_by_news ON found (key) WHERE now IS NOT told;
        CREATE TABLE folders (
            item BLOB PRIMARY KEY, path BLOB, is_trashed INTEGER NOT NULL, depth INTEGER NOT NULL,
            walk INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX folders_to_walk ON folders (item) WHERE walk > 0;
        """

    /// In one transaction. When the body throws, what is here means nothing any more.
    func change<Value>(_ body: (Changes) throws -> Value) throws -> Value {
        try queue.writeWithoutTransaction { database in
            var value: Value?
            try database.inTransaction(.deferred) {
                let changes = Changes(database, round: round)
                value = try body(changes)
                round = changes.round
                return .commit
            }
            guard let value else { throw CloudError(.internalError, "The transaction had no result.") }
            return value
        }
    }

    /// What is known of a folder.
    struct Folder {
        var id: DocumentID
        /// Nil: no way leads there that the query is about.
        var location: DocumentLocation?
    }

    /// How much of a folder is to be looked at again.
    enum Walk: Int64 {
        case none
        /// What lies on the way to where the query looks.
        case way
        case everything
    }

    /// Something to tell.
    struct News {
        var number: Int64
        var id: DocumentID
        var key: Data
        var path: Data
        var now: Int64?
        var isKnown: Bool
    }

    /// One transaction.
    final class Changes {
        private let database: Database
        fileprivate(set) var round: Int64

        fileprivate init(_ database: Database, round: Int64) {
            self.database = database
            self.round = round
        }

        private func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

        // MARK: Found

        func put(_ id: DocumentID, key: Data, path: Data, now: Int64) throws {
            try cached(
                "INSERT INTO found (item, key, path, now, round) VALUES (?1, ?2, ?3, ?4, ?5) "
                    + "ON CONFLICT (item) DO UPDATE SET key = ?2, path = ?3, now = ?4, round = ?5"
            ).execute(arguments: [id.wire, key, path, now, round])
        }

        /// It does not match, or not any more.
        func drop(_ id: DocumentID) throws {
            try cached("DELETE FROM found WHERE item = ?1 AND told IS NULL").execute(arguments: [id.wire])
            guard database.changesCount == 0 else { return }
            try cached("UPDATE found SET now = NULL WHERE item = ?1").execute(arguments: [id.wire])
        }

        /// Everything is looked at again from here on.
        func beginRound() throws {
            round += 1
            try database.execute(sql: "DELETE FROM folders")
        }

        /// What this round has not found is not there.
        func endRound() throws {
            try cached("DELETE FROM found WHERE round <> ?1 AND told IS NULL").execute(arguments: [round])
            try cached("UPDATE found SET now = NULL WHERE round <> ?1").execute(arguments: [round])
        }

        // MARK: Folders

        func folder(_ id: DocumentID) throws -> Folder? {
            try Row.fetchOne(
                cached("SELECT item, path, is_trashed, depth FROM folders WHERE item = ?1"), arguments: [id.wire]
            ).flatMap(Self.folder)
        }

        func nextToWalk() throws -> (folder: Folder, walk: Walk)? {
            let row = try Row.fetchOne(
                cached("SELECT item, path, is_trashed, depth, walk FROM folders WHERE walk > 0 LIMIT 1"))
            guard let row, let folder = Self.folder(row) else { return nil }
            return (folder, Walk(rawValue: row["walk"]) ?? .everything)
        }

        private static func folder(_ row: Row) -> Folder? {
            guard let id = DocumentID(bytes: row["item"] as Data) else { return nil }
            let location = (row["path"] as Data?).map {
                DocumentLocation(bytes: $0, isTrashed: row["is_trashed"], depth: row["depth"])
            }
            return Folder(id: id, location: location)
        }

        func put(_ folder: Folder, walk: Walk) throws {
            try cached(
                "INSERT OR REPLACE INTO folders (item, path, is_trashed, depth, walk) VALUES (?1, ?2, ?3, ?4, ?5)"
            ).execute(arguments: [
                folder.id.wire, folder.location?.bytes, folder.location?.isTrashed ?? false,
                folder.location?.depth ?? 0, walk.rawValue,
            ])
        }

        // MARK: News

        /// What the reader has not heard of, in order, after the given one.
        func unknown(after last: (key: Data, number: Int64)?, limit: Int) throws -> [News] {
            try news(
                "told IS NULL AND (key, number) > (?1, ?2)", [last?.key ?? Data(), last?.number ?? -1], limit)
        }

        /// Everything that there is to tell, in order.
        func news(limit: Int) throws -> [News] { try news("TRUE", [], limit) }

        private func news(_ condition: String, _ arguments: StatementArguments, _ limit: Int) throws -> [News] {
            try Row.fetchAll(
                cached(
                    "SELECT number, item, key, path, now, told IS NOT NULL AS known FROM found "
                        + "WHERE now IS NOT told AND \(condition) ORDER BY key, number LIMIT \(limit)"),
                arguments: arguments
            ).compactMap { row in
                DocumentID(bytes: row["item"] as Data).map {
                    News(
                        number: row["number"], id: $0, key: row["key"], path: row["path"], now: row["now"],
                        isKnown: row["known"])
                }
            }
        }

        /// The reader hears of it now.
        func tell(_ news: News) throws {
            if news.now == nil {
                try cached("DELETE FROM found WHERE number = ?1").execute(arguments: [news.number])
            } else {
                try cached("UPDATE found SET told = now WHERE number = ?1").execute(arguments: [news.number])
            }
        }
    }
}
