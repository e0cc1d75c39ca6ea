import Foundation
import GRDB
import NephosCore
import NephosWire

/// Contents of a container that are here besides on the server. Which of them go is for ``ContentCache`` to decide.
extension DocumentTransaction {
    // An item's former content is found by the item, a content by its root: a copy of an item has it too. Those with
    // `is_kept` 1 were found to be wanted, and are not counted; with 2 that may have ended, and is found out anew; see
    // ``ContentCache``. A further content's row does not name its item as the others do (``renditionOwner(_:)``): it says
    // nothing of where the item's own contents are.
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
            beats INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_downloads_by_turn ON document_downloads (account, container, attempts, position)
            WHERE is_requested;
        CREATE INDEX document_downloads_by_time ON document_downloads (account, container, next_attempt)
            WHERE is_requested AND next_attempt > 0;

        """

    // Items besides the one that a copy came for, that have the same bytes and want them here.
    static let sharers = """
        CREATE TABLE document_copy_sharers (
            account TEXT NOT NULL, container TEXT NOT NULL, root BLOB NOT NULL, item TEXT NOT NULL,
            PRIMARY KEY (account, container, root, item)
        ) WITHOUT ROWID;

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
        let former = try removeCopies(of: owner, besides: contents.map(\.root) + [content.root]).map(\.file)
        if try hasCopy(of: content.root) {
            try noteUse(of: content.root, at: now)
            try keepCopy(of: content.root, for: item)
            return former + [file]
        }
        try cached(
            "INSERT INTO document_copies (account, container, root, item, file, length, used, chunks, is_kept) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ).execute(
            arguments: arguments(
                content.root, owner, file.wire, Int64(clamping: content.length),
                Int64(clamping: newest(now).milliseconds), CutChunk.encode(chunks), try !isRendition && isWanted(item)))
        try touch(item.name)
        return former
    }

    func noteUse(of root: Data, at now: Timestamp) throws {
        let now = try newest(now)
        try cached(
            "UPDATE document_copies SET used = ?4 WHERE account = ?1 AND container = ?2 AND root = ?3"
        ).execute(arguments: arguments(root, Int64(clamping: now.milliseconds)))
    }

    /// A time that is after all that something was used at, whatever the clock said then: else what has just come would
    /// be the first to go.
    private func newest(_ now: Timestamp) throws -> Timestamp {
        let last = try Int64.fetchOne(cached("SELECT max(used) FROM document_copies WHERE is_kept = 0"))
        return max(now, Timestamp(milliseconds: UInt64(clamping: (last ?? 0) + 1)))
    }

    /// The content of this file is not here any more, or not as it was.
    func forgetCopy(in file: DocumentID) throws {
        let row = try Row.fetchOne(
            cached("SELECT item, root FROM document_copies WHERE account = ?1 AND container = ?2 AND file = ?3"),
            arguments: arguments(file.wire))
        guard let row else { return }
        try cached("DELETE FROM document_copies WHERE account = ?1 AND container = ?2 AND file = ?3")
            .execute(arguments: arguments(file.wire))
        try touch(ItemName(row["item"] as String))
        // They are to have it again.
        for sharer in try sharers(of: row["root"]) { try removeSharer(sharer, of: row["root"]) }
    }

    /// Removes what is here of an item's contents, but for what another wants to have here that has the same bytes.
    ///
    /// - Parameter roots: Of what stays.
    /// - Returns: The files that nobody needs any more, and how long they are.
    func removeCopies(
        of item: DocumentID, besides roots: [Data] = []
    ) throws -> [(file: DocumentID, length: UInt64)] {
        try removeCopies(of: item.description, besides: roots)
    }

    /// - Parameter owner: The item, or its further contents, as the rows name it.
    private func removeCopies(
        of owner: String, besides roots: [Data]
    ) throws -> [(file: DocumentID, length: UInt64)] {
        let rows = try Row.fetchAll(
            cached(
                "SELECT file, root, length FROM document_copies "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(owner))
        var removed: [(file: DocumentID, length: UInt64)] = []
        for row in rows where !roots.contains(row["root"] as Data) {
            guard let file = DocumentID(bytes: row["file"] as Data) else { continue }
            guard try !mayBeLastCopy() else {
                try weighCopy(in: file)
                continue
            }
            guard try !handOver(row["root"], from: DocumentID(owner)) else { continue }
            try forgetCopy(in: file)
            removed.append((file, UInt64(clamping: row["length"] as Int64)))
        }
        return removed
    }

    // MARK: Whom they are for

    private func sharers(of root: Data) throws -> [DocumentID] {
        try String.fetchAll(
            cached("SELECT item FROM document_copy_sharers WHERE account = ?1 AND container = ?2 AND root = ?3"),
            arguments: arguments(root)
        ).compactMap { DocumentID($0) }
    }

    private func removeSharer(_ item: DocumentID, of root: Data) throws {
        try cached(
            "DELETE FROM document_copy_sharers WHERE account = ?1 AND container = ?2 AND root = ?3 AND item = ?4"
        ).execute(arguments: arguments(root, item.description))
        try touch(item.name)
    }

    /// Whether the item wants to have this content of it here.
    private func wants(_ item: DocumentID, _ root: Data) throws -> Bool {
        guard try isWanted(item), let held = try document(item) else { return false }
        // Until the next one is here, most of its chunks may be in this one.
        return try ([held.wire.content] + held.wire.conflicts).contains { $0.root == root } || !isHere(held)
    }

    /// Whom a copy came for does not need it any more: one that has the same bytes and wants them here gets it.
    ///
    /// - Parameter item: Nil: it came as a further content of one.
    /// - Returns: False: there is none.
    private func handOver(_ root: Data, from item: DocumentID?) throws -> Bool {
        for sharer in try sharers(of: root) {
            try removeSharer(sharer, of: root)
            guard sharer != item, try document(sharer)?.wire.content.root == root, try isWanted(sharer) else {
                continue
            }
            try cached(
                "UPDATE document_copies SET item = ?4, is_kept = 1 "
                    + "WHERE account = ?1 AND container = ?2 AND root = ?3"
            ).execute(arguments: arguments(root, sharer.description))
            return true
        }
        return false
    }

    /// Whether a copy has to stay.
    ///
    /// - Parameter owner: Whom it came for.
    func isWanted(copyOf root: Data, for owner: DocumentID?) throws -> Bool {
        if try mayBeLastCopy() { return true }
        if let owner, try wants(owner, root) { return true }
        return try handOver(root, from: owner)
    }

    /// Whether it is yet to be noted that the item, which is wanted, wants the copy of its content.
    func hasUnkeptCopy(_ item: HeldDocument) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM document_copies c WHERE account = ?1 AND container = ?2 AND root = ?3 "
                    + "AND (is_kept <> 1 OR item <> ?4 AND NOT EXISTS (SELECT 1 FROM document_copy_sharers s "
                    + "WHERE s.account = ?1 AND s.container = ?2 AND s.root = c.root AND s.item = ?4))"),
            arguments: arguments(item.wire.content.root, item.id.description)) ?? false
    }

    /// Notes that the item wants the copy of these bytes, if it does.
    func keepCopy(of root: Data, for item: DocumentID) throws {
        guard try isWanted(item) else { return }
        try cached(
            "INSERT INTO document_copy_sharers (account, container, root, item) "
                + "SELECT ?1, ?2, root, ?4 FROM document_copies "
                + "WHERE account = ?1 AND container = ?2 AND root = ?3 AND item <> ?4 ON CONFLICT DO NOTHING"
        ).execute(arguments: arguments(root, item.description))
        try cached("UPDATE document_copies SET is_kept = 1 WHERE account = ?1 AND container = ?2 AND root = ?3")
            .execute(arguments: arguments(root))
    }

    // MARK: What the server may have lost

    /// Whether what is here may be the last copy of something that the server has lost: nothing goes until it was offered.
    func mayBeLastCopy() throws -> Bool {
        if let isLast = known.isLastCopy { return isLast }
        let isLast = try ContentOffers(rows).isPending(loss())
        known.isLastCopy = isLast
        return isLast
    }

    /// Files of contents that are here whole, copies and those that wait, with their chunks: behind this one, in the order
    /// of the files.
    func keptContents(after file: Data) throws -> RowCursor {
        try Row.fetchCursor(
            cached(
                "SELECT file, chunks FROM document_copies WHERE account = ?1 AND container = ?2 AND file > ?3 "
                    + "UNION ALL SELECT version, chunks FROM document_contents "
                    + "WHERE account = ?1 AND container = ?2 AND version > ?3 AND source IS NULL ORDER BY file"),
            arguments: arguments(file))
    }

    // MARK: What is found out anew

    /// Whether each content that is here is wanted is found out anew.
    func weighCopies() throws {
        try cached("UPDATE document_copies SET is_kept = 2 WHERE account = ?1 AND container = ?2 AND is_kept = 1")
            .execute(arguments: arguments())
    }

    /// The same of one that may be of use for something else still.
    private func weighCopy(in file: DocumentID) throws {
        try cached("UPDATE document_copies SET is_kept = 2 WHERE account = ?1 AND container = ?2 AND file = ?3")
            .execute(arguments: arguments(file.wire))
    }

    /// The same of what is here of an item.
    func weighCopies(of item: ItemName) throws {
        try cached(
            "UPDATE document_copies SET is_kept = 2 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_kept = 1"
        ).execute(arguments: arguments(item.rawValue))
    }

    /// The same after an item has changed; of everything, where that may be in it.
    ///
    /// - Parameter item: Nil: it was removed.
    func weighCopies(of name: ItemName, _ former: WireDocumentItem, now item: WireDocumentItem?) throws {
        let isSame =
            item.map {
                $0.parent == former.parent && $0.hasTrash == former.hasTrash && $0.content.root == former.content.root
            } ?? false
        guard !isSame else { return }
        try former.kind == .folder ? weighCopies() : weighCopies(of: name)
    }
}

extension WireDocumentContent {
    /// Whether it comes with its item, and so is here whatever happens.
    var isInline: Bool { root.isEmpty }
}
