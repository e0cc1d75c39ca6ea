import Foundation
import GRDB
import NephosCore

/// Which files of this machine are copies of which items, and of which of their contents.
extension DocumentTransaction {
    static let localFiles = LocalMigration(
        name: "documents: local files",
        sql: """
            CREATE TABLE document_local_files (
                account TEXT NOT NULL, container TEXT NOT NULL, file BLOB NOT NULL,
                item TEXT NOT NULL, place BLOB NOT NULL, version BLOB, base BLOB, digest BLOB, stamp BLOB,
                PRIMARY KEY (account, container, file)
            ) WITHOUT ROWID;
            CREATE INDEX document_local_files_by_item ON document_local_files (account, container, item);
            """)

    private static let columns = "file, item, place, version, base, digest, stamp"

    /// - Parameter file: As ``LocalFileKeys`` names it.
    func localFile(_ file: LocalPath) throws -> LocalFileRecord? {
        try Row.fetchOne(
            cached(
                "SELECT \(Self.columns) FROM document_local_files WHERE account = ?1 AND container = ?2 AND file = ?3"),
            arguments: arguments(Data(file.bytes))
        ).flatMap(Self.record)
    }

    /// The files that are copies of the item, or were.
    func localFiles(of item: DocumentID) throws -> [(file: LocalPath, record: LocalFileRecord)] {
        try Row.fetchAll(
            cached(
                "SELECT \(Self.columns) FROM document_local_files WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(item.description)
        ).compactMap { row in Self.record(row).map { (LocalPath(bytes: row["file"] as Data), $0) } }
    }

    private static func record(_ row: Row) -> LocalFileRecord? {
        guard let item = DocumentID(row["item"] as String) else { return nil }
        func id(_ column: String) -> DocumentID? { (row[column] as Data?).flatMap { DocumentID(bytes: $0) } }
        let names = (row["place"] as Data).split(separator: UInt8(ascii: "/")).map { Data($0) }
        return LocalFileRecord(
            item: item, place: DocumentPath(names: names), version: id("version"), base: id("base"),
            digest: (row["digest"] as Data?).map { ContentDigest(data: $0) },
            stamp: (row["stamp"] as Data?).flatMap { FileStamp(data: $0) })
    }

    /// Records what the file is a copy of. The other files that are recorded for the item and are gone from the disk are
    /// forgotten, so that the table grows no further than the files do.
    func setLocalFile(_ file: LocalPath, _ record: LocalFileRecord) throws {
        for other in try localFiles(of: record.item).map(\.file) where other != file {
            // A disk that is not mounted is no reason to keep it: without a record there is a question more.
            if (try? other.status() == nil) ?? false { try removeLocalFile(other) }
        }
        try cached(
            "INSERT OR REPLACE INTO document_local_files (account, container, \(Self.columns)) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ).execute(
            arguments: arguments(
                Data(file.bytes), record.item.description, Data(record.place.names.joined(separator: Data("/".utf8))),
                record.version?.wire, record.base?.wire, record.digest?.data, record.stamp?.data))
    }

    func removeLocalFile(_ file: LocalPath) throws {
        try cached("DELETE FROM document_local_files WHERE account = ?1 AND container = ?2 AND file = ?3")
            .execute(arguments: arguments(Data(file.bytes)))
    }

    /// The server has the bytes of a content under another version.
    func renameVersion(ofLocalFilesOf item: DocumentID, _ version: Data, to other: Data) throws {
        try cached(
            "UPDATE document_local_files SET version = ?5 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND version = ?4"
        ).execute(arguments: arguments(item.description, version, other))
    }

    /// The server has refused a content: the files that have it were made from what it was to take the place of, and
    /// are changed since. Files of an item that never came to be are as if they had never been put.
    func refuseVersion(ofLocalFilesOf item: DocumentID, _ version: Data) throws {
        try cached(
            "DELETE FROM document_local_files WHERE account = ?1 AND container = ?2 AND item = ?3 AND version = ?4 "
                + "AND base IS NULL"
        ).execute(arguments: arguments(item.description, version))
        try cached(
            "UPDATE document_local_files SET version = base, base = NULL, digest = NULL, stamp = NULL "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND version = ?4"
        ).execute(arguments: arguments(item.description, version))
    }

    /// An item that waits gets another id.
    func renameItem(ofLocalFilesOf item: DocumentID, to other: DocumentID) throws {
        try cached("UPDATE document_local_files SET item = ?4 WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.description, other.description))
    }
}
