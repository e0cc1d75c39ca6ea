import Foundation
import GRDB
import Logging
import NephosCore
import NephosWire
import SwiftProtobuf

/// Assets of an account that are in this home: those that wait to be sent, and those that the server has too, which are
/// read from here and go when room is needed.
///
/// `record_assets` has one row for each content, whichever records name it. `record_asset_needs` says which of a record's
/// unsettled things name it: what waits to be sent, a conflict, a refusal; what is named there stays
/// (``RecordTransaction/settleNeeds(of:)``). `record_uploads` has the operations that have to wait until their assets are
/// stored.
struct RecordAssets {
    static let tables = """
        CREATE TABLE record_assets (
            account TEXT NOT NULL, root BLOB NOT NULL, length INTEGER NOT NULL, depth INTEGER NOT NULL,
            file BLOB NOT NULL UNIQUE, chunks BLOB NOT NULL, used INTEGER NOT NULL,
            PRIMARY KEY (account, root, length, depth)
        );
        CREATE INDEX record_assets_by_use ON record_assets (used);
        CREATE TABLE record_asset_needs (
            account TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, root BLOB NOT NULL,
            PRIMARY KEY (account, scope, name, root)
        ) WITHOUT ROWID;
        CREATE INDEX record_asset_needs_by_root ON record_asset_needs (account, root);
        CREATE TABLE record_uploads (
            position INTEGER PRIMARY KEY, account TEXT NOT NULL, scope TEXT NOT NULL,
            transfer BLOB NOT NULL, container TEXT,
            is_stored INTEGER NOT NULL DEFAULT 0, percent INTEGER NOT NULL DEFAULT 0,
            sendings INTEGER NOT NULL DEFAULT 0
        );

        """

    /// What may stay that the server has too, where nobody has said otherwise; and how many.
    static let defaultBytesMax: UInt64 = 1 << 30
    static let countMax = 10_000
    private static let fact = "asset_cache"
    /// Rows that are looked at in one go.
    private static let batchCount = 100
    /// When one was used that no record here names any more.
    private static let unnamed: Int64 = -1

    let database: Database
    let account: String

    private func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    // MARK: What is here

    /// The asset's file; nil: it is not here.
    func copy(of asset: WireRecordAsset) throws -> LocalCopy? {
        try Row.fetchOne(
            cached(
                "SELECT file, length, chunks, used FROM record_assets "
                    + "WHERE account = ?1 AND root = ?2 AND length = ?3 AND depth = ?4"),
            arguments: arguments(asset)
        ).flatMap { row in
            DocumentID(bytes: row["file"] as Data).map { file in
                LocalCopy(
                    file: file, length: UInt64(clamping: row["length"] as Int64),
                    chunks: CutChunk.decode(row["chunks"]),
                    used: Timestamp(milliseconds: UInt64(max(0, row["used"] as Int64))))
            }
        }
    }

    /// Files of assets that are here, and their chunks: behind this file, in the order of the files.
    func keptContents(after file: Data) throws -> RowCursor {
        try Row.fetchCursor(
            cached("SELECT file, chunks FROM record_assets WHERE account = ?1 AND file > ?2 ORDER BY file"),
            arguments: [account, file])
    }

    private func arguments(_ asset: WireRecordAsset) -> StatementArguments {
        [account, asset.root, Int64(clamping: asset.length), Int64(asset.depth)]
    }

    /// Whether any is here: as good as always this is all that has to be asked.
    func isAnyHere() throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT EXISTS (SELECT 1 FROM record_assets WHERE account = ?1)"), arguments: [account]) ?? false
    }

    /// The asset is here from now on.
    ///
    /// - Returns: The file that it was in before, which nobody needs any more.
    func add(_ asset: WireRecordAsset, in file: DocumentID, _ chunks: [CutChunk], now: Timestamp) throws -> DocumentID?
    {
        let former = try copy(of: asset)?.file
        try cached(
            "INSERT OR REPLACE INTO record_assets (account, root, length, depth, file, chunks, used) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(arguments: [
            account, asset.root, Int64(clamping: asset.length), Int64(asset.depth), file.wire, CutChunk.encode(chunks),
            Int64(clamping: now.milliseconds),
        ])
        return former == file ? nil : former
    }

    func noteUse(of asset: WireRecordAsset, now: Timestamp) throws {
        try cached(
            "UPDATE record_assets SET used = ?5 WHERE account = ?1 AND root = ?2 AND length = ?3 AND depth = ?4"
        ).execute(arguments: arguments(asset) + [Int64(clamping: now.milliseconds)])
    }

    /// Assets that a record had, and no more: they need not stay. Where another has one still, it is fetched again.
    func noteUnnamed(_ assets: some Sequence<WireRecordAsset>) throws {
        for asset in assets {
            try cached(
                "UPDATE record_assets SET used = ?5 WHERE account = ?1 AND root = ?2 AND length = ?3 AND depth = ?4"
            ).execute(arguments: arguments(asset) + [Self.unnamed])
        }
    }

    /// Of the asset that is in the file; nil: none is.
    func root(in file: DocumentID) throws -> Data? {
        try Data.fetchOne(
            cached("SELECT root FROM record_assets WHERE file = ?1 AND account = ?2"), arguments: [file.wire, account])
    }

    /// The file is not what it was.
    func forget(_ file: DocumentID) throws {
        try cached("DELETE FROM record_assets WHERE file = ?1 AND account = ?2")
            .execute(arguments: [file.wire, account])
    }

    /// The same, unless something unsettled names it: then whoever sends it says so.
    func forgetUnneeded(_ file: DocumentID) throws {
        try cached(
            "DELETE FROM record_assets AS a WHERE file = ?1 AND account = ?2 AND NOT EXISTS ("
                + "SELECT 1 FROM record_asset_needs AS n WHERE n.account = a.account AND n.root = a.root)"
        ).execute(arguments: [file.wire, account])
    }

    // MARK: What stays

    static func setting(_ database: Database) throws -> UInt64? {
        try Facts(database).value(fact, as: UInt64.self)
    }

    static func set(_ bytes: UInt64?, _ database: Database) throws { try Facts(database).set(fact, bytes) }

    private static let unneeded =
        " FROM record_assets AS a WHERE NOT EXISTS (SELECT 1 FROM record_asset_needs AS n "
        + "WHERE n.account = a.account AND n.root = a.root)"

    /// Those that are here and may go, of whichever account.
    static func held(_ database: Database) throws -> (bytes: UInt64, count: Int) {
        let row = try Row.fetchOne(
            database.cachedStatement(sql: "SELECT coalesce(sum(length), 0) AS bytes, count(*) AS count\(unneeded)"))
        return (UInt64(clamping: row?["bytes"] as Int64? ?? 0), row?["count"] as Int? ?? 0)
    }

    /// Bytes that may stay.
    static func bound(_ database: Database, _ folder: ContentFolder) throws -> UInt64 {
        try folder.bound(of: setting(database), byDefault: defaultBytesMax, held: held(database).bytes)
    }

    /// Accounts that may have the last copy here of something that the service has lost: nothing of them goes until it was
    /// offered.
    private static func lastCopies(_ database: Database) throws -> Set<String> {
        let scopes = try Row.fetchAll(
            database.cachedStatement(
                sql: "SELECT account, scope, info FROM scopes WHERE service = ?1 AND instr(scope, '/') = 0"),
            arguments: [ServiceName.records.rawValue])
        return try Set(
            scopes.compactMap { scope -> String? in
                guard let info = try? WireDatabaseInfo(serializedBytes: scope["info"] as Data) else { return nil }
                let account: String = scope["account"]
                let place = RecordPlace.database(scope["scope"]).scope(of: AccountID(account))
                return try ContentOffers(ScopeTransaction(database, place)).isPending(ContentLoss(info)) ? account : nil
            })
    }

    /// Removes rows until no more stays than may: what no record here names any more, and then what was used longest ago.
    /// What the server may have lost stays: nobody else may have it.
    ///
    /// - Returns: The files that nobody needs any more, once this transaction is over.
    static func trim(_ database: Database, _ folder: ContentFolder) throws -> [DocumentID] {
        var (bytes, count) = try held(database)
        let bound = try bound(database, folder)
        guard count > 0 else { return [] }
        let lastCopies = try lastCopies(database)
        var files: [DocumentID] = []
        var last: (used: Int64, row: Int64) = (.min, 0)
        while count > 0 {
            let rows = try Row.fetchAll(
                database.cachedStatement(
                    sql: "SELECT a.rowid, a.account, a.file, a.length, a.used\(unneeded) "
                        + "AND (a.used, a.rowid) > (?2, ?3) ORDER BY a.used, a.rowid LIMIT ?1"),
                arguments: [batchCount, last.used, last.row])
            guard !rows.isEmpty else { break }
            for row in rows {
                last = (row["used"], row["rowid"])
                guard last.used == unnamed || bytes > bound || count > countMax else { return files }
                guard last.used == unnamed || !lastCopies.contains(row["account"]) else { continue }
                try database.cachedStatement(sql: "DELETE FROM record_assets WHERE rowid = ?1")
                    .execute(arguments: [row["rowid"] as Int64])
                bytes -= min(bytes, UInt64(clamping: row["length"] as Int64))
                count -= 1
                if let file = DocumentID(bytes: row["file"] as Data) { files.append(file) }
            }
        }
        return files
    }
}

extension Session {
    /// How many bytes of records' assets may stay in this home that the server has too: what was fetched, and what was
    /// saved here. They are read from here then, also without a connection. What was used longest ago goes first. What
    /// waits to be sent, and what a conflict or a refusal names, stays in any case and does not count.
    ///
    /// It holds for all processes of the home, and is remembered.
    ///
    /// - Parameter maxBytes: 0: none; nil: 1 GiB, or an eighth of what the disk has left where that is less.
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func setAssetCache(maxBytes: UInt64?) throws(CloudError) {
        try local.prepare(RecordItems.migrations)
        let folder = try ContentFolder(home: local.home)
        let files = try local.write { database in
            try RecordAssets.set(maxBytes, database)
            return try RecordAssets.trim(database, folder)
        }
        for file in files { folder.remove(file) }
    }

    /// Bytes of records' assets in this home that the server has too and that may go, and how many may stay.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func assetCache() throws(CloudError) -> (bytes: UInt64, maxBytes: UInt64) {
        try local.prepare(RecordItems.migrations)
        let folder = try ContentFolder(home: local.home)
        return try local.read { database in
            (try RecordAssets.held(database).bytes, try RecordAssets.bound(database, folder))
        }
    }
}

extension DeviceEngine {
    /// How long after something came that may be too much: what comes in one go is looked at once.
    private static let trimDelay: Duration = .seconds(1)

    /// Has no more assets stay than may.
    func trimAssetsSoon() {
        guard !stopped, trimmingAssets == nil else { return }
        trimmingAssets = loop.schedule(after: Self.trimDelay) { [weak self] in
            guard let self else { return }
            trimmingAssets = nil
            guard !stopped, canSweepContents, let folder = try? ContentFolder(home: local.home) else { return }
            do throws(CloudError) {
                let files = try local.write { try RecordAssets.trim($0, folder) }
                for file in files { folder.remove(file) }
            } catch { logger.error("assets that nobody needs could not be removed", error) }
        }
    }
}
