internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// An asset that a record has: what it rests on.
struct StoredAsset: Hashable {
    var root: ChunkID
    var depth: Int
    var length: UInt64

    /// Nil: no content has such a root, or it has no bytes.
    init?(_ asset: WireRecordAsset) {
        guard asset.length > 0, let root = ChunkID(bytes: [UInt8](asset.root)), let depth = Int(exactly: asset.depth)
        else { return nil }
        self.init(root: root, depth: depth, length: asset.length)
    }

    init(root: ChunkID, depth: Int, length: UInt64) {
        self.root = root
        self.depth = depth
        self.length = length
    }

    /// What it counts besides its bytes is counted with its record.
    var content: UsedContent {
        UsedContent(length: length, isInline: false, root: root, depth: depth, app: AppID(""), device: DeviceID(""))
    }
}

extension WireRecord {
    /// What it rests on, each once.
    var storedAssets: Set<StoredAsset> { Set(assets.compactMap(StoredAsset.init)) }
}

/// Which assets the records of a zone have, and the entries of what was overwritten: in rows, so that what rests on one
/// that cannot be read any more is still given back. Those of deleted records have negative numbers until that is done.
struct AssetRows {
    /// Of the records as they are.
    static let live: Int64 = 0

    let rows: ZoneRows
    private var transaction: any HandlerTransaction { rows.transaction }

    private static let insert = SQL(
        """
        INSERT INTO record_assets (
            partition_number, owner, zone, entry, record, root, depth, length, container, readers)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        ON CONFLICT (partition_number, owner, zone, entry, record, root) DO NOTHING
        """)
    private static let delete = SQL(
        "DELETE FROM record_assets WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5 AND root = ?6")
    private static let select = SQL(
        """
        SELECT root, depth, length, container FROM record_assets
        WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5 ORDER BY root
        """)
    private static let selectContainers = SQL(
        "SELECT DISTINCT container FROM record_assets WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5")
    private static let selectReadable = SQL(
        """
        SELECT DISTINCT container FROM record_assets
        WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5 AND readers = ?6
        """)
    private static let updateReaders = SQL(
        "UPDATE record_assets SET readers = ?6 WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5")
    private static let selectBetween = SQL(
        """
        SELECT entry, record, root, depth, length, container FROM record_assets
        WHERE \(ZoneRows.key) AND entry >= ?4 AND entry <= ?5 ORDER BY entry, record, root LIMIT ?6
        """)
    private static let insertEnding = SQL(
        """
        INSERT INTO record_asset_endings (partition_number, owner, zone, first_entry, last_entry)
        VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, zone, first_entry) DO UPDATE SET last_entry = excluded.last_entry
        """)
    private static let deleteEnding = SQL(
        "DELETE FROM record_asset_endings WHERE \(ZoneRows.key) AND first_entry = ?4")
    private static let nextZone = SQL(
        """
        SELECT owner, zone FROM record_asset_endings WHERE (partition_number, owner, zone) > (?1, ?2, ?3)
        ORDER BY partition_number, owner, zone LIMIT 1
        """)
    private static let firstEnding = SQL(
        """
        SELECT first_entry, last_entry FROM record_asset_endings WHERE \(ZoneRows.key) ORDER BY first_entry LIMIT 1
        """)

    private static func asset(_ row: any SQLRow, _ first: Int) -> StoredAsset? {
        ChunkID(bytes: row.blob(first)).map {
            StoredAsset(
                root: $0, depth: Int(clamping: row.integer(first + 1)),
                length: UInt64(clamping: row.integer(first + 2)))
        }
    }

    /// What it has, and in which container each is used.
    func assets(of record: ItemName) throws -> [StoredAsset: ItemName] {
        let found = try transaction.all(Self.select, rows.place + [.integer(Self.live), .text(record.rawValue)]) {
            (asset: Self.asset($0, 0), container: ItemName($0.text(3)))
        }
        return found.reduce(into: [:]) { assets, row in
            if let asset = row.asset { assets[asset] = row.container }
        }
    }

    /// In which containers what it has is used.
    func containers(of record: ItemName) throws -> Set<String> {
        Set(
            try transaction.all(
                Self.selectContainers, rows.place + [.integer(Self.live), .text(record.rawValue)]
            ) { $0.text(0) })
    }

    /// In which containers what a record of a public database has is used; none: it has nothing, or it is not the record
    /// any more that a caller was let in for.
    static func containers(
        of record: ItemName, in zone: ScopeName, readBy readers: String, _ transaction: any ReadTransaction
    ) throws -> Set<String> {
        let values = ZoneRows.place(of: zone) + [.integer(live), .text(record.rawValue), .text(readers)]
        return Set(try transaction.all(selectReadable, values) { $0.text(0) })
    }

    /// Another may read the record from now on.
    func setReaders(_ readers: String, of record: ItemName) throws {
        try transaction.execute(
            Self.updateReaders, rows.place + [.integer(Self.live), .text(record.rawValue), .text(readers)])
    }

    /// - Parameters:
    ///   - assets: And in which container each is used.
    ///   - readers: In a public database who may read the record.
    func add(
        _ assets: [StoredAsset: ItemName], of record: ItemName, entry: Int64 = live, readers: String = ""
    ) throws {
        for (asset, container) in assets {
            try transaction.execute(
                Self.insert,
                rows.place + [
                    .integer(entry), .text(record.rawValue), .blob(asset.root.bytes), .integer(Int64(asset.depth)),
                    .integer(Int64(clamping: asset.length)), .text(container.rawValue), .text(readers),
                ])
        }
    }

    func remove(_ assets: Set<StoredAsset>, of record: ItemName, entry: Int64 = live) throws {
        for asset in assets {
            try transaction.execute(
                Self.delete, rows.place + [.integer(entry), .text(record.rawValue), .blob(asset.root.bytes)])
        }
    }

    // MARK: Ends

    struct Entry {
        var entry: Int64
        var record: ItemName
        var asset: StoredAsset
        var container: ItemName
    }

    /// Some of those of these entries. What is damaged of them is left out.
    func assets(from first: Int64, to last: Int64, limit: Int) throws -> (entries: [Entry], hasMore: Bool) {
        let values = rows.place + [.integer(first), .integer(last), .integer(Int64(limit))]
        let found = try transaction.all(Self.selectBetween, values) { row in
            Self.asset(row, 2).map {
                Entry(
                    entry: row.integer(0), record: ItemName(row.text(1)), asset: $0, container: ItemName(row.text(5)))
            }
        }
        return (found.compactMap { $0 }, found.count == limit)
    }

    /// These entries of what was overwritten are not kept any more: what they have is given back in steps.
    func end(from first: Int64, to last: Int64) throws {
        guard try !assets(from: first, to: last, limit: 1).entries.isEmpty else { return }
        try transaction.execute(Self.insertEnding, rows.place + [.integer(first), .integer(last)])
    }

    private static let update = SQL(
        "UPDATE record_assets SET entry = ?6 WHERE \(ZoneRows.key) AND entry = ?4 AND record = ?5")

    /// A record is deleted: what it has is given back in steps, however much that is.
    ///
    /// - Parameter sequence: The zone's before that.
    func retire(_ record: ItemName, at sequence: UInt64) throws {
        let entry = -1 - Int64(clamping: sequence)
        try transaction.execute(
            Self.update,
            rows.place + [.integer(Self.live), .text(record.rawValue), .integer(entry)])
        try transaction.execute(Self.insertEnding, rows.place + [.integer(entry), .integer(entry)])
    }

    struct Ending {
        var zone: ScopeName
        var first: Int64
        var last: Int64
    }

    /// The first zone with some, behind another.
    static func nextZone(after zone: ScopeName?, in transaction: any HandlerTransaction) throws -> ScopeName? {
        try transaction.first(nextZone, ZoneRows.place(after: zone)) {
            ScopeName(Owner(rawValue: $0.text(0)), ItemName($0.text(1)))
        }
    }

    /// The first of a zone.
    static func ending(of zone: ScopeName, in transaction: any HandlerTransaction) throws -> Ending? {
        try transaction.first(firstEnding, ZoneRows.place(of: zone)) { row in
            Ending(zone: zone, first: row.integer(0), last: row.integer(1))
        }
    }

    func finish(_ ending: Ending) throws {
        try transaction.execute(Self.deleteEnding, rows.place + [.integer(ending.first)])
    }
}
