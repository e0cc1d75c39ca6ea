import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// Deletions that the server has told of, as it told them: one that comes back from an old copy has lost some of them, and
/// is told of them again.
extension RecordItems {
    static let tombstones = """
        CREATE TABLE record_tombstones (
            account TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            sequence INTEGER NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (account, scope, name)
        ) WITHOUT ROWID;
        CREATE INDEX record_tombstones_by_sequence ON record_tombstones (account, scope, sequence);

        """

    /// Those that are kept of a scope, the newest, as many as the server keeps; each takes some 400 bytes. Of an older one that
    /// is lost the record is there again.
    static let tombstonesMax = 4096

    /// Keeps what is told of the item's deletion, or forgets that of one that is there again.
    func noteEnd(of item: Item) throws {
        guard item.body == nil else {
            try rows.cached("DELETE FROM record_tombstones WHERE account = ?1 AND scope = ?2 AND name = ?3")
                .execute(arguments: [rows.account, rows.scope.name, item.name.rawValue])
            return
        }
        guard let tombstone = item.tombstone, !tombstone.isEmpty else { return }
        try rows.cached(
            "INSERT OR REPLACE INTO record_tombstones (account, scope, name, sequence, body) "
                + "VALUES (?1, ?2, ?3, ?4, ?5)"
        ).execute(arguments: [
            rows.account, rows.scope.name, item.name.rawValue, Int64(clamping: item.sequence), tombstone,
        ])
    }

    /// Of which type a record was that is deleted; nil: nobody here was told, or it is long ago.
    func endedType(of name: String) throws -> String? {
        let body = try Data.fetchOne(
            rows.cached("SELECT body FROM record_tombstones WHERE account = ?1 AND scope = ?2 AND name = ?3"),
            arguments: [rows.account, rows.scope.name, name])
        let type = body.flatMap { try? WireRecord(serializedBytes: $0) }?.type
        return type.flatMap { $0.isEmpty ? nil : $0 }
    }

    /// - Parameter sequence: The server may have lost what comes after it.
    func tombstones(after sequence: UInt64) throws -> [ItemName: (sequence: UInt64, body: Data)] {
        let found = try Row.fetchAll(
            rows.cached(
                "SELECT name, sequence, body FROM record_tombstones WHERE account = ?1 AND scope = ?2 "
                    + "AND sequence > ?3"),
            arguments: [rows.account, rows.scope.name, Int64(clamping: sequence)])
        return Dictionary(
            found.map { (ItemName($0["name"]), (UInt64(clamping: $0["sequence"] as Int64), $0["body"] as Data)) }
        ) { $1 }
    }

    func forgetOldestTombstones() throws {
        try rows.cached(
            "DELETE FROM record_tombstones WHERE account = ?1 AND scope = ?2 AND sequence <= ("
                + "SELECT sequence FROM record_tombstones WHERE account = ?1 AND scope = ?2 "
                + "ORDER BY sequence DESC LIMIT 1 OFFSET \(Self.tombstonesMax))"
        ).execute(arguments: [rows.account, rows.scope.name])
    }
}
