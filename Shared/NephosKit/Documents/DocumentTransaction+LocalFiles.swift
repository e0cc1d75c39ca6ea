import Foundation
import GRDB
import NephosCore

/// Which files of this machine are copies of which items, and of which of their contents.
extension DocumentTransaction {
    static let localFiles = """
        CREATE TABLE document_local_files (
            account TEXT NOT NULL, container TEXT NOT NULL, file BLOB NOT NULL,
            item TEXT NOT NULL, place BLOB NOT NULL, version BLOB, base BLOB, digest BLOB, stamp BLOB,
            identity BLOB, executable INTEGER,
            PRIMARY KEY (account, container, file, place)
        ) WITHOUT ROWID;
        CREATE INDEX document_local_files_by_item ON document_local_files (account, container, item);

        """

    private static let columns = "file, item, place, version, base, digest, stamp, identity, executable"

    /// What is recorded of a file, once for each place that it was put at or got from.
    ///
    /// - Parameter file: As ``LocalFileKeys`` names it.
    func records(of file: LocalPath) throws -> [LocalFileRecord] {
        try Row.fetchAll(
            cached(
                "SELECT \(Self.columns) FROM document_local_files WHERE account = ?1 AND container = ?2 AND file = ?3"),
            arguments: arguments(Data(file.bytes))
        ).compactMap(Self.record).compactMap(accepted)
    }

    /// The record without contents that the server rejected: the file was made from the version before them, and is changed
    /// since. A file of an item that was never made counts as never put.
    private func accepted(_ record: LocalFileRecord) throws -> LocalFileRecord? {
        var record = record
        while let version = record.version, let refusal = try refusals(bringing: version.wire).first {
            guard let base = refusal.change?.content.flatMap({ DocumentID(bytes: $0.base) }) else { return nil }
            (record.version, record.base, record.digest, record.stamp) = (base, nil, nil, nil)
        }
        return record
    }

    /// What is recorded of a file for a place; else for the item that is there.
    func record(of file: LocalPath, at place: DocumentPath, item: DocumentID? = nil) throws -> LocalFileRecord? {
        let records = try records(of: file)
        return records.first { $0.place == place } ?? records.first { $0.item == item }
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
            stamp: (row["stamp"] as Data?).flatMap { FileStamp(data: $0) },
            identity: (row["identity"] as Data?).flatMap { FileIdentity(data: $0) },
            isExecutable: row["executable"] as Bool?)
    }

    private static func data(_ place: DocumentPath) -> Data { Data(place.names.joined(separator: Data("/".utf8))) }

    /// Records what the file is a copy of at that place, instead of where the item was before. The other files that are
    /// recorded for the item and are gone from the disk are forgotten, so that the table grows no further than the files
    /// do.
    func setLocalFile(_ file: LocalPath, _ record: LocalFileRecord) throws {
        for other in try localFiles(of: record.item).map(\.file) where other != file {
            // A disk that is not mounted is no reason to keep it: without a record there is a question more.
            if (try? other.status() == nil) ?? false { try removeLocalFile(other) }
        }
        let old = try self.record(of: file, at: record.place)
        if record.version == nil, let old, old.item != record.item, old.identity != record.identity {
            try removeLocalFiles(in: file)
        }
        try cached(
            "DELETE FROM document_local_files "
                + "WHERE account = ?1 AND container = ?2 AND file = ?3 AND item = ?4 AND place <> ?5"
        ).execute(arguments: arguments(Data(file.bytes), record.item.description, Self.data(record.place)))
        try cached(
            "INSERT OR REPLACE INTO document_local_files (account, container, \(Self.columns)) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
        ).execute(
            arguments: arguments(
                Data(file.bytes), record.item.description, Self.data(record.place), record.version?.wire,
                record.base?.wire, record.digest?.data, record.stamp?.data, record.identity?.data,
                record.isExecutable))
    }

    /// The folder is another than the one that was recorded: so is what lies in it.
    private func removeLocalFiles(in folder: LocalPath) throws {
        try cached(
            "DELETE FROM document_local_files WHERE account = ?1 AND container = ?2 AND file > ?3 AND file < ?4"
        ).execute(
            arguments: arguments(
                Data(folder.bytes + [UInt8(ascii: "/")]), Data(folder.bytes + [UInt8(ascii: "/") + 1])))
    }

    /// Forgets a file, at every place.
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

    /// The server will never have this rejected content: files that have it were made from the version before it, and are
    /// changed since. Files of an item that was never made are as if they had never been put.
    func forgetVersion(ofLocalFilesOf refusal: Refusal) throws {
        guard let change = refusal.change, change.renditionName == nil, let content = change.content else { return }
        let place = "WHERE account = ?1 AND container = ?2 AND item = ?3 AND version = ?4"
        guard !content.base.isEmpty else {
            return try cached("DELETE FROM document_local_files \(place)")
                .execute(arguments: arguments(refusal.item.rawValue, content.version))
        }
        try cached(
            "UPDATE document_local_files SET version = ?5, base = NULL, digest = NULL, stamp = NULL \(place)"
        ).execute(arguments: arguments(refusal.item.rawValue, content.version, content.base))
    }

    /// An item that waits gets another id.
    func renameItem(ofLocalFilesOf item: DocumentID, to other: DocumentID) throws {
        try cached("UPDATE document_local_files SET item = ?4 WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.description, other.description))
    }
}
