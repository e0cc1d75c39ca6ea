internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosFiles

/// The merge base of one folder, in the agent's database.
///
/// Each row is written after its data: a row says only what is on disk, flushed.
struct SyncedTree {
    let database: Database
    let folder: Int64
    /// The item of the folder itself, which has no row.
    let root: DocumentID

    static let schema = """
        CREATE TABLE items (
            folder INTEGER NOT NULL REFERENCES folders (id) ON DELETE CASCADE,
            item BLOB NOT NULL, parent BLOB NOT NULL, name BLOB NOT NULL, kind INTEGER NOT NULL, version BLOB,
            inode INTEGER NOT NULL, born INTEGER NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
            changed INTEGER NOT NULL, is_executable INTEGER NOT NULL, is_racy INTEGER NOT NULL,
            digest BLOB, is_rejected INTEGER NOT NULL, base BLOB, is_evicted INTEGER NOT NULL,
            PRIMARY KEY (folder, item)
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX items_by_place ON items (folder, parent, name);
        CREATE INDEX items_by_inode ON items (folder, inode);

        """

    private static let columns =
        "item, parent, name, kind, version, inode, born, size, modified, changed, is_executable, is_racy, digest, "
        + "is_rejected, base, is_evicted"

    // MARK: Read

    func item(_ id: DocumentID) throws -> SyncedItem? { try items(where: "item = ?2", data(id)).first }

    func child(of parent: DocumentID, named name: FileName) throws -> SyncedItem? {
        try items(where: "parent = ?2 AND name = ?3", data(parent), Data(name)).first
    }

    func children(of parent: DocumentID) throws -> [SyncedItem] { try items(where: "parent = ?2", data(parent)) }

    /// The item of a file or folder, wherever that was when it was last synced.
    func item(identifiedBy facts: FileFacts) throws -> SyncedItem? { try items(identifiedBy: facts).first }

    /// The same of all names of a file.
    func items(identifiedBy facts: FileFacts) throws -> [SyncedItem] {
        try items(where: "inode = ?2", Int64(bitPattern: facts.inode)).filter { $0.stamp.isFile(facts) }
    }

    /// Everything in a folder, each folder before its contents.
    func descendants(of id: DocumentID) throws -> [SyncedItem] {
        var found: [SyncedItem] = []
        var left = [id]
        while let folder = left.popLast() {
            let children = try children(of: folder)
            found += children
            left += children.filter { $0.kind == .folder }.map(\.id)
        }
        return found
    }

    /// Items whose contents the server rejected.
    func rejected() throws -> [DocumentID] { try items(where: "is_rejected").map(\.id) }

    func count() throws -> Int {
        try Int.fetchOne(cached("SELECT count(*) FROM items WHERE folder = ?1"), arguments: [folder]) ?? 0
    }

    /// Without folders.
    func fileCount() throws -> Int {
        try Int.fetchOne(
            cached("SELECT count(*) FROM items WHERE folder = ?1 AND kind <> ?2"),
            arguments: [folder, FileFacts.Kind.folder.rawValue]) ?? 0
    }

    /// Files whose contents are not on disk.
    func evictedCount() throws -> Int {
        try Int.fetchOne(
            cached("SELECT count(*) FROM items WHERE folder = ?1 AND is_evicted"), arguments: [folder]) ?? 0
    }

    /// Files that may be evicted, those of a folder together.
    func evictable() throws -> [SyncedItem] {
        try items(
            where: "kind = ?2 AND NOT is_evicted AND NOT is_rejected AND size >= ?3 ORDER BY parent",
            FileFacts.Kind.file.rawValue, Placeholder.fileSizeMin)
    }

    /// The files at a path, which may be a placeholder's, and beneath it; nil: it has no item.
    ///
    /// - Parameter path: Names from the root on; none: everything.
    func files(at path: [FileName]) throws -> [SyncedItem]? {
        var found: SyncedItem?
        for name in path {
            let parent = found?.id ?? root
            found =
                try child(of: parent, named: name) ?? child(of: parent, named: name + Placeholder.suffix)
                ?? Placeholder.file(of: name).flatMap { try child(of: parent, named: $0) }
            if found == nil { return nil }
        }
        let all = try found.map { [$0] + ($0.kind == .folder ? try descendants(of: $0.id) : []) }
        return try (all ?? descendants(of: root)).filter { $0.kind == .file }
    }

    /// The names that lead from the root to a folder, which may be parked; nil: it has no row.
    func path(of id: DocumentID) throws -> [FileName]? {
        var names: [FileName] = []
        var next = id
        while next != root {
            guard let item = try item(next), names.count < Self.depthMax else { return nil }
            names.append(item.name)
            guard !item.isParked else { return RootFolder.parkingPath + names.reversed() }
            next = item.parent
        }
        return names.reversed()
    }

    private static let depthMax = 512

    // MARK: Write

    func put(_ item: SyncedItem) throws {
        // The place may have had another item, which has gone from there.
        try cached("DELETE FROM items WHERE folder = ?1 AND parent = ?2 AND name = ?3 AND item <> ?4")
            .execute(arguments: [folder, data(item.parent), Data(item.name), data(item.id)])
        try cached(
            "INSERT OR REPLACE INTO items (folder, \(Self.columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
                + "?12, ?13, ?14, ?15, ?16, ?17)"
        ).execute(
            arguments: [
                folder, data(item.id), data(item.parent), Data(item.name), item.kind.rawValue, item.version.map(data),
                Int64(bitPattern: item.stamp.inode), item.stamp.born, item.stamp.size, item.stamp.modified,
                item.stamp.changed, item.stamp.isExecutable, item.isRacy, item.digest,
                item.isRejected, item.base.map(data), item.isEvicted,
            ])
    }

    /// Forgets an item, and everything in it.
    func remove(_ id: DocumentID) throws {
        for item in try descendants(of: id).reversed() + [item(id)].compactMap({ $0 }) {
            try cached("DELETE FROM items WHERE folder = ?1 AND item = ?2").execute(arguments: [folder, data(item.id)])
        }
    }

    /// Gives an item and what is in it to another id, which has no row.
    func rename(_ old: DocumentID, to new: DocumentID) throws {
        try cached("UPDATE items SET item = ?3 WHERE folder = ?1 AND item = ?2")
            .execute(arguments: [folder, data(old), data(new)])
        try cached("UPDATE items SET parent = ?3 WHERE folder = ?1 AND parent = ?2")
            .execute(arguments: [folder, data(old), data(new)])
    }

    // MARK: Rows

    private func items(where condition: String, _ values: (any DatabaseValueConvertible)...) throws -> [SyncedItem] {
        try Row.fetchAll(
            cached("SELECT \(Self.columns) FROM items WHERE folder = ?1 AND \(condition)"),
            arguments: StatementArguments([folder] + values)
        ).compactMap(Self.item)
    }

    private static func item(_ row: Row) -> SyncedItem? {
        guard let id = DocumentID(bytes: row[0] as Data), let parent = DocumentID(bytes: row[1] as Data),
            let kind = FileFacts.Kind(rawValue: row[3])
        else { return nil }
        return SyncedItem(
            id: id, parent: parent, name: FileName(row[2] as Data), kind: kind,
            version: (row[4] as Data?).flatMap { DocumentID(bytes: $0) },
            stamp: FileStamp(
                inode: UInt64(bitPattern: row[5]), born: row[6], size: row[7], modified: row[8], changed: row[9],
                isExecutable: row[10]),
            digest: row[12], isRacy: row[11], isRejected: row[13],
            base: (row[14] as Data?).flatMap { DocumentID(bytes: $0) }, isEvicted: row[15])
    }

    private func data(_ id: DocumentID) -> Data { Data(id.bytes) }
    private func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }
}
