internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Each folder's digest, kept in step with what lies in it: the sum of its items' shares, and of the digests of those that
/// are folders. So it is of all that lies in the folder, however deep, and changes with it: what changes one item is added
/// to each folder above, and a folder that moves takes its digest along.
///
/// A row has a folder's digest and where it lies. What lies in a folder that was removed hangs on that folder's row alone,
/// until it is gone too. Nothing but ``ListItemDigests`` rests on it: whoever compares proves by the container's digest that
/// what was found is all.
struct FolderDigests {
    private struct Row {
        /// Nil: it lies nowhere; the folder was removed, or is one of the two without an item.
        var parent: DocumentID?
        var digest = SetDigest.empty
        var isThere = false
    }

    /// An item that lay too deep was moved there with what is above it.
    private static let depthMax = 4 * DocumentLimits.depthMax

    private let rows: ContainerRows
    private var known: [DocumentID: Row] = [:]
    private var changed: Set<DocumentID> = []

    init(_ rows: ContainerRows) { self.rows = rows }

    /// Where an item lies.
    struct Place: Equatable {
        /// Nil: in no folder, as what a device is about to make.
        var parent: DocumentID?
        var isFolder: Bool
    }

    /// An item has become another.
    ///
    /// - Parameters:
    ///   - former: Where it lay, and its share; nil: it is new.
    ///   - now: Nil: it is removed.
    mutating func change(
        _ id: DocumentID, from former: (place: Place, share: SetDigest)?, to now: (place: Place, share: SetDigest)?
    ) throws {
        if let former, let now, former.place == now.place {
            var share = now.share
            share.remove(former.share)
            return try add(share, to: now.place.parent)
        }
        if let former {
            var share = SetDigest.empty
            share.remove(former.share)
            if former.place.isFolder {
                var row = try row(of: id)
                share.remove(row.digest)
                row.parent = nil
                set(row, of: id)
            }
            try add(share, to: former.place.parent)
        }
        guard let now else { return }
        var share = now.share
        if now.place.isFolder {
            var row = try row(of: id)
            share.add(row.digest)
            row.parent = now.place.parent
            set(row, of: id)
        }
        try add(share, to: now.place.parent)
    }

    private mutating func add(_ share: SetDigest, to folder: DocumentID?) throws {
        var next = folder
        for _ in 0..<Self.depthMax {
            guard let folder = next else { return }
            var row = try row(of: folder)
            row.digest.add(share)
            set(row, of: folder)
            next = folder == .documents ? .top : row.parent
        }
    }

    private mutating func row(of folder: DocumentID) throws -> Row {
        if let row = known[folder] { return row }
        let row = try rows.tree(of: folder).map { Row(parent: $0.parent, digest: $0.digest, isThere: true) } ?? Row()
        known[folder] = row
        return row
    }

    private mutating func set(_ row: Row, of folder: DocumentID) {
        known[folder] = row
        changed.insert(folder)
    }

    /// Writes what has changed.
    func save() throws {
        for folder in changed.sorted() {
            guard let row = known[folder] else { continue }
            let isNeeded = row.parent != nil || row.digest != .empty
            if isNeeded || row.isThere { try rows.setTree(of: folder, isNeeded ? (row.parent, row.digest) : nil) }
        }
    }
}

extension ContainerRows {
    private static let selectTree = SQL("SELECT parent, digest FROM document_trees WHERE \(key) AND folder = ?4")
    private static let saveTree = SQL(
        """
        INSERT INTO document_trees (partition_number, owner, container, folder, parent, digest)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (partition_number, owner, container, folder) DO UPDATE SET
            parent = excluded.parent, digest = excluded.digest
        """)
    private static let deleteTree = SQL("DELETE FROM document_trees WHERE \(key) AND folder = ?4")

    /// A folder's digest, and where the folder lies (nil: nowhere); nil: it has no row.
    func tree(of folder: DocumentID) throws -> (parent: DocumentID?, digest: SetDigest)? {
        try Self.tree(of: folder, at: place, in: transaction)
    }

    static func tree(
        of folder: DocumentID, at place: [SQLValue], in transaction: any ReadTransaction
    ) throws -> (parent: DocumentID?, digest: SetDigest)? {
        try transaction.first(selectTree, place + [.blob(folder.bytes)]) {
            (DocumentID(bytes: $0.blob(0)), SetDigest(bytes: $0.blob(1)) ?? .empty)
        }
    }

    func setTree(of folder: DocumentID, _ tree: (parent: DocumentID?, digest: SetDigest)?) throws {
        let values = place + [.blob(folder.bytes)]
        guard let tree else { return _ = try transaction.execute(Self.deleteTree, values) }
        try transaction.execute(Self.saveTree, values + [.blob(tree.parent?.bytes ?? []), .blob(tree.digest.bytes)])
    }
}
