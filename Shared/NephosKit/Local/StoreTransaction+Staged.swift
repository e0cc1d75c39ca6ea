import Core
import Foundation
import GRDB
import SwiftProtobuf
import Wire

/// What pages of a reading have brought, until it is whole: the newest state of each item.
///
/// In a temporary table of this process's connection: it takes no room in the
/// home, no other process sees it, and it is gone when the process ends.
extension StoreTransaction {
    /// - Parameter isFirst: Of a reading; what an earlier one has left is forgotten.
    func stage(_ changes: [WireChange], isFirst: Bool) throws {
        try database.execute(
            sql: """
                CREATE TEMP TABLE IF NOT EXISTS staged (
                    account TEXT NOT NULL, store TEXT NOT NULL, item TEXT NOT NULL, change BLOB NOT NULL,
                    PRIMARY KEY (account, store, item)
                ) WITHOUT ROWID
                """)
        if isFirst { try clearStage() }
        for change in changes {
            let bytes: Data = try change.serializedBytes()
            try cached("INSERT OR REPLACE INTO temp.staged (account, store, item, change) VALUES (?1, ?2, ?3, ?4)")
                .execute(arguments: [account, store, change.item, bytes])
        }
    }

    /// In the order of their names.
    func staged() throws -> [WireChange] {
        try Data.fetchAll(
            cached("SELECT change FROM temp.staged WHERE account = ?1 AND store = ?2 ORDER BY item"),
            arguments: [account, store]
        ).map { try WireChange(serializedBytes: $0) }
    }

    func clearStage() throws {
        try cached("DELETE FROM temp.staged WHERE account = ?1 AND store = ?2").execute(arguments: [account, store])
    }
}
