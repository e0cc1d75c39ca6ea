import Foundation
import GRDB
import NephosCore

/// Which files of this machine have the bytes of which items: what is put again as it was need not be read.
extension DocumentTransaction {
    static let stamps = LocalMigration(
        name: "documents: stamps",
        sql: """
            CREATE TABLE document_stamps (
                account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
                version BLOB NOT NULL, stamp BLOB NOT NULL,
                PRIMARY KEY (account, container, item)
            ) WITHOUT ROWID;
            """)

    /// Notes that the file has the bytes of the version. One file for each item: the last that was put.
    func setStamp(_ stamp: FileStamp, of item: DocumentID, version: DocumentID) throws {
        try cached(
            "INSERT OR REPLACE INTO document_stamps (account, container, item, version, stamp) "
                + "VALUES (?1, ?2, ?3, ?4, ?5)"
        ).execute(arguments: arguments(item.description, version.wire, stamp.data))
    }

    /// Whether the file has the bytes that the item has now.
    func hasBytes(of item: HeldDocument, _ stamp: FileStamp) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM document_stamps WHERE account = ?1 AND container = ?2 AND item = ?3 "
                    + "AND version = ?4 AND stamp = ?5"),
            arguments: arguments(item.id.description, item.wire.content.version, stamp.data)) ?? false
    }

    /// Forgets the file of an item that is not there any more.
    func removeStamp(of name: ItemName) throws {
        try cached("DELETE FROM document_stamps WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(name.rawValue))
    }
}
