internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// The rows beside a container's items.
struct ContainerRows {
    let place: [SQLValue]
    let transaction: any HandlerTransaction

    init(_ scope: ScopeName, in transaction: any HandlerTransaction) {
        place = Self.place(of: scope)
        self.transaction = transaction
    }

    static func place(of scope: ScopeName) -> [SQLValue] {
        [.integer(Int64(scope.partition)), .text(scope.owner.rawValue), .text(scope.path.rawValue)]
    }

    static let key = "partition_number = ?1 AND owner = ?2 AND container = ?3"

    // MARK: Names

    private static let selectPlace = SQL(
        "SELECT item FROM document_places WHERE \(key) AND folder = ?4 AND name_key = ?5")
    private static let insertPlace = SQL(
        """
        INSERT INTO document_places (partition_number, owner, container, folder, name_key, item)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        """)
    private static let deletePlace = SQL("DELETE FROM document_places WHERE \(key) AND folder = ?4 AND name_key = ?5")

    /// The item that a name of a folder is.
    func item(in folder: DocumentID, called nameKey: [UInt8]) throws -> DocumentID? {
        try transaction.first(Self.selectPlace, place + [.blob(folder.bytes), .blob(nameKey)]) {
            DocumentID(bytes: $0.blob(0))
        } ?? nil
    }

    func set(_ item: DocumentID?, in folder: DocumentID, called nameKey: [UInt8]) throws {
        let values = place + [.blob(folder.bytes), .blob(nameKey)]
        try transaction.execute(Self.deletePlace, values)
        if let item { try transaction.execute(Self.insertPlace, values + [.blob(item.bytes)]) }
    }

    // MARK: Folders

    private static let selectCount = SQL("SELECT item_count FROM document_folders WHERE \(key) AND folder = ?4")
    private static let saveCount = SQL(
        """
        INSERT INTO document_folders (partition_number, owner, container, folder, item_count) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, folder) DO UPDATE SET item_count = excluded.item_count
        """)
    private static let deleteCount = SQL("DELETE FROM document_folders WHERE \(key) AND folder = ?4")

    func count(of folder: DocumentID) throws -> Int {
        try transaction.first(Self.selectCount, place + [.blob(folder.bytes)]) { Int($0.integer(0)) } ?? 0
    }

    func setCount(_ count: Int, of folder: DocumentID) throws {
        if count > 0 {
            try transaction.execute(Self.saveCount, place + [.blob(folder.bytes), .integer(Int64(count))])
        } else {
            try transaction.execute(Self.deleteCount, place + [.blob(folder.bytes)])
        }
    }

    private static let selectHeight = SQL("SELECT height FROM document_heights WHERE \(key) AND folder = ?4")
    private static let saveHeight = SQL(
        """
        INSERT INTO document_heights (partition_number, owner, container, folder, height) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, folder) DO UPDATE SET height = excluded.height
        """)
    private static let deleteHeight = SQL("DELETE FROM document_heights WHERE \(key) AND folder = ?4")

    func height(of folder: DocumentID) throws -> Int {
        try transaction.first(Self.selectHeight, place + [.blob(folder.bytes)]) { Int($0.integer(0)) } ?? 0
    }

    func setHeight(_ height: Int, of folder: DocumentID) throws {
        if height > 0 {
            try transaction.execute(Self.saveHeight, place + [.blob(folder.bytes), .integer(Int64(height))])
        } else {
            try transaction.execute(Self.deleteHeight, place + [.blob(folder.bytes)])
        }
    }

    private static let insertChild = SQL(
        """
        INSERT INTO document_children (partition_number, owner, container, folder, item) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, folder, item) DO NOTHING
        """)
    private static let deleteChild = SQL("DELETE FROM document_children WHERE \(key) AND folder = ?4 AND item = ?5")
    private static let selectChildren = SQL(
        "SELECT item FROM document_children WHERE \(key) AND folder = ?4 AND item > ?5 ORDER BY item LIMIT ?6")

    func addChild(_ item: DocumentID, of folder: DocumentID) throws {
        try transaction.execute(Self.insertChild, place + [.blob(folder.bytes), .blob(item.bytes)])
    }

    func removeChild(_ item: DocumentID, of folder: DocumentID) throws {
        try transaction.execute(Self.deleteChild, place + [.blob(folder.bytes), .blob(item.bytes)])
    }

    private static let selectFolder = SQL("SELECT folder FROM document_children WHERE \(key) AND item = ?4 LIMIT 1")
    private static let deletePlaceOfItem = SQL(
        "DELETE FROM document_places WHERE \(key) AND folder = ?4 AND item = ?5")

    /// Where an item lies, of one that does not say so itself. Goes through what lies in the container until it is found.
    func folder(of item: DocumentID) throws -> DocumentID? {
        try transaction.first(Self.selectFolder, place + [.blob(item.bytes)]) { DocumentID(bytes: $0.blob(0)) } ?? nil
    }

    /// Frees the name of an item that does not say it itself. Goes through the folder's names.
    ///
    /// - Returns: Whether it had one there.
    func removePlace(of item: DocumentID, in folder: DocumentID) throws -> Bool {
        try transaction.execute(Self.deletePlaceOfItem, place + [.blob(folder.bytes), .blob(item.bytes)]) > 0
    }

    /// - Parameter last: Those behind it; nil: from the first one.
    func children(of folder: DocumentID, after last: DocumentID? = nil, limit: Int) throws -> [DocumentID] {
        try Self.children(of: folder, after: last, limit: limit, at: place, in: transaction)
    }

    static func children(
        of folder: DocumentID, after last: DocumentID?, limit: Int, at place: [SQLValue],
        in transaction: any ReadTransaction
    ) throws -> [DocumentID] {
        try transaction.all(
            selectChildren,
            place + [.blob(folder.bytes), .blob(last?.bytes ?? []), .integer(Int64(limit))]
        ) { DocumentID(bytes: $0.blob(0)) }.compactMap { $0 }
    }

    // MARK: Further contents

    private static let insertRendition = SQL(
        """
        INSERT INTO document_renditions (partition_number, owner, container, item, version, sealed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        """)
    private static let selectRenditions = SQL(
        "SELECT version, sealed FROM document_renditions WHERE \(key) AND item = ?4 ORDER BY version LIMIT ?5")
    private static let selectRendition = SQL(
        "SELECT 1 FROM document_renditions WHERE \(key) AND item = ?4 AND version = ?5")
    private static let deleteRendition = SQL(
        "DELETE FROM document_renditions WHERE \(key) AND item = ?4 AND version = ?5")

    struct Rendition {
        var version: [UInt8]
        var sealed: [UInt8]
    }

    func hasRendition(_ version: [UInt8], of item: DocumentID) throws -> Bool {
        try transaction.first(Self.selectRendition, place + [.blob(item.bytes), .blob(version)]) { _ in true } ?? false
    }

    func addRendition(_ version: [UInt8], sealed: [UInt8], of item: DocumentID) throws {
        try transaction.execute(Self.insertRendition, place + [.blob(item.bytes), .blob(version), .blob(sealed)])
    }

    func renditions(of item: DocumentID, limit: Int) throws -> [Rendition] {
        try transaction.all(Self.selectRenditions, place + [.blob(item.bytes), .integer(Int64(limit))]) {
            Rendition(version: $0.blob(0), sealed: $0.blob(1))
        }
    }

    func removeRendition(_ version: [UInt8], of item: DocumentID) throws {
        try transaction.execute(Self.deleteRendition, place + [.blob(item.bytes), .blob(version)])
    }

    // MARK: Trash

    private static let insertTrashed = SQL(
        """
        INSERT INTO document_trash (partition_number, owner, container, item, trashed, ends)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (partition_number, owner, container, item) DO UPDATE SET
            trashed = excluded.trashed, ends = excluded.ends
        """)
    private static let deleteTrashed = SQL("DELETE FROM document_trash WHERE \(key) AND item = ?4")

    /// - Parameters:
    ///   - note: Nil: it is not in the trash any more.
    ///   - end: When it is removed from there.
    func setTrashed(
        _ item: DocumentID, _ note: WireTrashNote?, until end: Timestamp = Timestamp(milliseconds: 0)
    ) throws {
        let values = place + [.blob(item.bytes)]
        guard let note else { return _ = try transaction.execute(Self.deleteTrashed, values) }
        try transaction.execute(
            Self.insertTrashed,
            values + [
                .integer(Int64(clamping: Timestamp(stamped: note.trashed).milliseconds)),
                .integer(Int64(clamping: end.milliseconds)),
            ])
    }

    // MARK: Announcements

    private static let insertAnnounced = SQL(
        """
        INSERT INTO document_announcements (partition_number, owner, container, item, expires) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, item) DO UPDATE SET expires = excluded.expires
        """)
    private static let deleteAnnounced = SQL("DELETE FROM document_announcements WHERE \(key) AND item = ?4")

    /// - Parameter time: When the first of its announcements expires; nil: it has none.
    func setAnnounced(_ item: DocumentID, until time: Timestamp?) throws {
        let values = place + [.blob(item.bytes)]
        guard let time else { return _ = try transaction.execute(Self.deleteAnnounced, values) }
        try transaction.execute(Self.insertAnnounced, values + [.integer(Int64(clamping: time.milliseconds))])
    }

    // MARK: Removals

    private static let insertRemoval = SQL(
        """
        INSERT INTO document_removals (partition_number, owner, container, folder) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, owner, container, folder) DO NOTHING
        """)
    private static let deleteRemoval = SQL("DELETE FROM document_removals WHERE \(key) AND folder = ?4")

    func addRemoval(of folder: DocumentID) throws {
        try transaction.execute(Self.insertRemoval, place + [.blob(folder.bytes)])
    }

    func endRemoval(of folder: DocumentID) throws {
        try transaction.execute(Self.deleteRemoval, place + [.blob(folder.bytes)])
    }

    private static let isRemovedRow = SQL("SELECT 1 FROM document_removals WHERE \(key) AND folder = ?4")
    private static let selectTurn = SQL(
        """
        SELECT partition_number, owner, container FROM document_removals
        WHERE (partition_number, owner, container) > (?1, ?2, ?3)
        ORDER BY partition_number, owner, container LIMIT 1
        """)
    private static let selectRemovals = SQL(
        "SELECT folder FROM document_removals WHERE \(key) ORDER BY folder LIMIT ?4")

    /// Whether what follows from the item's removal is still to be done.
    func isRemoved(_ id: DocumentID) throws -> Bool {
        try transaction.first(Self.isRemovedRow, place + [.blob(id.bytes)]) { _ in true } ?? false
    }

    /// The first container, behind this one, in which items are removed with what lies in them still to be; nil: none.
    static func nextRemoval(after scope: ScopeName?, in transaction: any ReadTransaction) throws -> ScopeName? {
        let start: [SQLValue] = [
            .integer(scope.map { Int64($0.partition) } ?? -1), .text(scope?.owner.rawValue ?? ""),
            .text(scope?.path.rawValue ?? ""),
        ]
        return try transaction.first(selectTurn, start) { ScopeName(Owner(rawValue: $0.text(1)), ItemName($0.text(2))) }
    }

    /// Those items. A row that names none is removed.
    func removals(limit: Int) throws -> [DocumentID] {
        try transaction.all(Self.selectRemovals, place + [.integer(Int64(limit))]) { $0.blob(0) }.compactMap { row in
            if let folder = DocumentID(bytes: row) { return folder }
            try transaction.execute(Self.deleteRemoval, place + [.blob(row)])
            return nil
        }
    }

    private static let deletePlaces = SQL(
        """
        DELETE FROM document_places WHERE \(key) AND folder = ?4 AND name_key IN (
            SELECT name_key FROM document_places WHERE \(key) AND folder = ?4 LIMIT ?5)
        """)

    /// Frees the names of a folder that is removed.
    ///
    /// - Returns: Whether there may be more.
    func removePlaces(of folder: DocumentID, limit: Int) throws -> Bool {
        try transaction.execute(Self.deletePlaces, place + [.blob(folder.bytes), .integer(Int64(limit))]) == limit
    }

    // MARK: The end of an account

    private static let remains = [
        ("places", "folder, name_key"), ("folders", "folder"), ("trees", "folder"), ("children", "folder, item"),
        ("versions", "item, version"), ("trash", "item"), ("removals", "folder"), ("heights", "folder"),
        ("links", "link"), ("renditions", "item, version"), ("ended", "item"), ("announcements", "item"),
        ("items", "item"),
    ].map { table, columns in
        SQL(
            """
            DELETE FROM document_\(table) WHERE partition_number = ?1 AND owner = ?2 AND (container, \(columns)) IN (
                SELECT container, \(columns) FROM document_\(table)
                WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
            """)
    }

    /// Removes some of what an account leaves.
    ///
    /// - Returns: Whether there may be more.
    static func removeRemains(of account: AccountID, limit: Int, in transaction: any HandlerTransaction) throws -> Bool
    {
        let owner = Owner(account)
        let values: [SQLValue] = [
            .integer(Int64(ScopeName(owner, "").partition)), .text(owner.rawValue), .integer(Int64(limit)),
        ]
        return try remains.reduce(false) { try transaction.execute($1, values) > 0 || $0 }
    }
}
