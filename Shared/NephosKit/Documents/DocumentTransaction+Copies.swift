import Foundation
import GRDB
import NephosCore
import NephosWire

/// A content in the home that the server has too: it is read from here, and goes when room is needed.
struct LocalCopy: Sendable {
    /// What its file is called.
    var file: DocumentID
    var length: UInt64
    /// In their order: what is read is checked by them.
    var chunks: [CutChunk]
    /// When it was read last.
    var used: Timestamp
}

/// Contents of a container that are here besides on the server. Which of them go is for ``ContentCache`` to decide.
extension DocumentTransaction {
    // An item's former content is found by the item, a content by its root: a copy of an item has it too. Those with
    // `is_kept` were found to be wanted, and are not counted; see ``ContentCache``. A further content's row does not name
    // its item as the others do (``renditionOwner(_:)``): it says nothing of where the item's own contents are.
    static let copies = """
        CREATE TABLE document_copies (
            account TEXT NOT NULL, container TEXT NOT NULL, root BLOB NOT NULL, item TEXT NOT NULL,
            file BLOB NOT NULL UNIQUE, length INTEGER NOT NULL, used INTEGER NOT NULL,
            is_kept INTEGER NOT NULL DEFAULT 0, chunks BLOB NOT NULL,
            UNIQUE (account, container, root)
        );
        CREATE INDEX document_copies_by_item ON document_copies (account, container, item);
        CREATE INDEX document_copies_by_use ON document_copies (is_kept, used, length);
        CREATE TABLE document_downloads (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            is_pinned INTEGER NOT NULL DEFAULT 0, is_requested INTEGER NOT NULL DEFAULT 0,
            position INTEGER NOT NULL DEFAULT 0, root BLOB, file BLOB, percent INTEGER NOT NULL DEFAULT 0,
            attempts INTEGER NOT NULL DEFAULT 0, next_attempt INTEGER NOT NULL DEFAULT 0, error BLOB,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_downloads_by_position ON document_downloads (account, container, position)
            WHERE is_requested;
        """

    /// The copy of these bytes; nil: there is none.
    func copy(of content: WireDocumentContent) throws -> LocalCopy? {
        try Row.fetchOne(
            cached(
                "SELECT file, length, chunks, used FROM document_copies "
                    + "WHERE account = ?1 AND container = ?2 AND root = ?3 AND length = ?4"),
            arguments: arguments(content.root, Int64(clamping: content.length))
        ).flatMap(Self.copy)
    }

    func hasCopy(of root: Data) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_copies WHERE account = ?1 AND container = ?2 AND root = ?3"),
            arguments: arguments(root)) ?? false
    }

    /// What is here of an item's contents, the one that was used last: most of its chunks may be in the next one.
    func lastCopy(of item: DocumentID) throws -> LocalCopy? {
        try Row.fetchOne(
            cached(
                "SELECT file, length, chunks, used FROM document_copies "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 ORDER BY used DESC LIMIT 1"),
            arguments: arguments(item.description)
        ).flatMap(Self.copy)
    }

    /// Whose content it came as.
    func owner(of copy: LocalCopy) throws -> DocumentID? {
        try String.fetchOne(
            cached("SELECT item FROM document_copies WHERE account = ?1 AND container = ?2 AND file = ?3"),
            arguments: arguments(copy.file.wire)
        ).flatMap { DocumentID($0) }
    }

    func hasCopy(ofItem item: DocumentID) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_copies WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(item.description)) ?? false
    }

    private static func copy(_ row: Row) -> LocalCopy? {
        DocumentID(bytes: row["file"] as Data).map {
            LocalCopy(
                file: $0, length: UInt64(clamping: row["length"] as Int64), chunks: CutChunk.decode(row["chunks"]),
                used: Timestamp(milliseconds: UInt64(clamping: row["used"] as Int64)))
        }
    }

    /// What stands for an item in the rows of its further contents.
    private static func renditionOwner(_ item: DocumentID) -> String { "\(item)/renditions" }

    /// Notes that a content is here, in a file of the home. What the item had before is of no use any more.
    ///
    /// - Returns: Files that nobody needs any more: this one, where the content was here already.
    func addCopy(
        of content: WireDocumentContent, for item: DocumentID, file: DocumentID, chunks: [CutChunk], now: Timestamp
    ) throws -> [DocumentID] {
        let held = try document(item)?.wire
        let isRendition = held?.isRendition(content) ?? false
        let owner = isRendition ? Self.renditionOwner(item) : item.description
        let contents =
            isRendition ? held?.renditions.map(\.content) ?? [] : held.map { [$0.content] + $0.conflicts } ?? []
        let former = try removeCopies(of: owner, besides: contents.map(\.root) + [content.root])
        if try hasCopy(of: content.root) {
            try noteUse(of: content.root, at: now)
            return former + [file]
        }
        try cached(
            "INSERT INTO document_copies (account, container, root, item, file, length, used, chunks) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ).execute(
            arguments: arguments(
                content.root, owner, file.wire, Int64(clamping: content.length),
                Int64(clamping: now.milliseconds), CutChunk.encode(chunks)))
        try touch(item.name)
        return former
    }

    func noteUse(of root: Data, at now: Timestamp) throws {
        try cached(
            "UPDATE document_copies SET used = ?4 WHERE account = ?1 AND container = ?2 AND root = ?3"
        ).execute(arguments: arguments(root, Int64(clamping: now.milliseconds)))
    }

    /// The content of this file is not here any more, or not as it was.
    func forgetCopy(in file: DocumentID) throws {
        let item = try String.fetchOne(
            cached("SELECT item FROM document_copies WHERE account = ?1 AND container = ?2 AND file = ?3"),
            arguments: arguments(file.wire))
        guard let item else { return }
        try cached("DELETE FROM document_copies WHERE account = ?1 AND container = ?2 AND file = ?3")
            .execute(arguments: arguments(file.wire))
        try touch(ItemName(item))
    }

    /// - Parameters:
    ///   - owner: The item, as the rows name it.
    ///   - roots: Of what stays.
    /// - Returns: The files that nobody needs any more.
    private func removeCopies(of owner: String, besides roots: [Data]) throws -> [DocumentID] {
        let rows = try Row.fetchAll(
            cached(
                "SELECT file, root FROM document_copies WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(owner))
        let files = rows.filter { !roots.contains($0["root"] as Data) }
            .compactMap { DocumentID(bytes: $0["file"] as Data) }
        for file in files { try forgetCopy(in: file) }
        return files
    }
}

extension WireDocumentContent {
    /// Whether it comes with its item, and so is here whatever happens.
    var isInline: Bool { root.isEmpty }
}
