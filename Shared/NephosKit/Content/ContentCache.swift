import Foundation
import GRDB
import Logging
import NephosCore
import NephosWire

/// The address of a content: root hash, length and depth of its tree, as an item or an asset has it.
protocol ContentAddress {
    var root: Data { get }
    var length: UInt64 { get }
    var depth: UInt32 { get }
}

extension WireDocumentContent: ContentAddress {}
extension WireRecordAsset: ContentAddress {}
extension RecordAsset: ContentAddress {}

/// Copies of contents that are in the home: of documents, and of records' assets. Only this decides which of them stay
/// and which go.
///
/// `content_copies` has a row for each, which names its file in the home's folder of contents. `content_holders` says
/// for what it is here: a document that it came for or that wants it here, or a record of which something unsettled
/// names it. `need` is what was found of that: 0 nothing needs the copy, and it counts; 1 something does; 2 that may
/// have ended, and ``trim(_:_:)`` finds it out.
///
/// A file gets its row in one transaction, under a claim that keeps sweeps away until then; a row goes before its file.
/// So a process may end at any point: a file without a row is swept, and a row without its file, or with another than
/// it was, is dropped by whoever reads it. Contents of documents that wait to be sent are in other rows
/// (``WaitingContent``), which nothing here touches.
struct ContentCache {
    static let migrations =
        [
            LocalMigration(
                name: "contents: copies",
                sql: """
                    CREATE TABLE content_copies (
                        account TEXT NOT NULL, service TEXT NOT NULL, container TEXT NOT NULL,
                        root BLOB NOT NULL, length INTEGER NOT NULL, depth INTEGER NOT NULL,
                        file BLOB NOT NULL UNIQUE, chunks BLOB NOT NULL, used INTEGER NOT NULL,
                        need INTEGER NOT NULL,
                        UNIQUE (account, service, container, root, length, depth)
                    );
                    CREATE INDEX content_copies_by_use ON content_copies (need, used, length);
                    CREATE TABLE content_holders (
                        account TEXT NOT NULL, service TEXT NOT NULL, container TEXT NOT NULL,
                        scope TEXT NOT NULL, name TEXT NOT NULL, root BLOB NOT NULL,
                        PRIMARY KEY (account, service, container, scope, name, root)
                    ) WITHOUT ROWID;
                    CREATE INDEX content_holders_by_root ON content_holders (account, service, container, root);
                    """)
        ] + ContentOffers.migrations

    /// Default bounds of the cache, in bytes and in copies.
    static let defaultBytesMax: UInt64 = 1 << 30
    static let countMax = 100_000
    /// How exactly it is known when something was used: nobody writes at each reading.
    static let useGrain: Duration = .seconds(60)
    /// Rows that are looked at in one go.
    private static let batchCount = 100
    /// Of how many it is found out in one transaction whether they are needed.
    private static let weighedMax = 500
    /// When a copy was used that its holder has replaced: it is the first to go.
    private static let replaced: Int64 = -1
    private static let fact = "content_cache"

    /// The container.
    let rows: ScopeTransaction
    /// Nil: the copies are of records' assets.
    private let documents: DocumentTransaction?

    init(_ documents: DocumentTransaction) { (rows, self.documents) = (documents.rows, documents) }

    /// - Parameter scope: The container's, or of records its database's.
    init(_ database: Database, _ scope: LocalScope) {
        rows = ScopeTransaction(database, scope)
        documents = scope.service == .documents ? DocumentTransaction(rows) : nil
    }

    private static let place = "account = ?1 AND service = ?2 AND container = ?3"
    private static let content = "\(place) AND root = ?4 AND length = ?5 AND depth = ?6"
    private static let holder = "\(place) AND scope = ?4 AND name = ?5"

    private func statement(_ sql: String) throws -> Statement { try rows.cached(sql) }

    private func arguments(_ others: (any DatabaseValueConvertible)?...) -> StatementArguments {
        StatementArguments([rows.account, rows.service, rows.scope.name] + others)
    }

    private func arguments(_ content: some ContentAddress) -> StatementArguments {
        arguments(content.root, Int64(clamping: content.length), Int64(content.depth))
    }

    // MARK: Reading

    /// The copy of a content; nil: this home has no copy.
    func copy(of content: some ContentAddress) throws -> LocalCopy? {
        try Row.fetchOne(
            statement("SELECT file, length, chunks, used FROM content_copies WHERE \(Self.content)"),
            arguments: arguments(content)
        ).flatMap(LocalCopy.init)
    }

    func has(_ content: some ContentAddress) throws -> Bool {
        try Bool.fetchOne(
            statement("SELECT EXISTS (SELECT 1 FROM content_copies WHERE \(Self.content))"),
            arguments: arguments(content)) ?? false
    }

    /// Whether there is any copy: as good as always this is all that has to be asked.
    func isAnyHere() throws -> Bool {
        try Bool.fetchOne(
            statement("SELECT EXISTS (SELECT 1 FROM content_copies WHERE \(Self.place))"), arguments: arguments())
            ?? false
    }

    /// The most recently used copy that a document holds. Most of its chunks may be in the document's next content.
    func lastCopy(heldBy name: String) throws -> LocalCopy? {
        try Row.fetchOne(
            statement(
                "SELECT file, length, chunks, used FROM content_copies WHERE \(Self.place) AND root IN "
                    + "(SELECT root FROM content_holders WHERE \(Self.holder)) ORDER BY used DESC LIMIT 1"),
            arguments: arguments(rows.scope.name, name)
        ).flatMap(LocalCopy.init)
    }

    /// Files of copies, and their chunks: behind this file, in the order of the files.
    func files(after file: Data) throws -> RowCursor {
        try Row.fetchCursor(
            statement("SELECT file, chunks FROM content_copies WHERE \(Self.place) AND file > ?4 ORDER BY file"),
            arguments: arguments(file))
    }

    /// Of the copy in the file; nil: none is.
    func root(in file: DocumentID) throws -> Data? {
        try Data.fetchOne(
            statement("SELECT root FROM content_copies WHERE \(Self.place) AND file = ?4"),
            arguments: arguments(file.wire))
    }

    /// Notes that a content is here, in a file of the home.
    ///
    /// - Parameter damaged: The file that it was in, and is not any more as it was; nil: none.
    /// - Returns: The file that nobody needs: this one, where the content was here already.
    func add(
        _ content: some ContentAddress, in file: DocumentID, _ chunks: [CutChunk], now: Timestamp,
        replacing damaged: DocumentID? = nil
    ) throws -> DocumentID? {
        let held = try copy(of: content)?.file
        if let held, held != damaged {
            try noteUse(of: content, now: now)
            try note(isNeeded(content.root) ? 1 : 0, of: content.root)
            return held == file ? nil : file
        }
        try statement(
            "INSERT OR REPLACE INTO content_copies "
                + "(account, service, container, root, length, depth, file, chunks, used, need) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        ).execute(
            arguments: arguments(content) + [
                file.wire, CutChunk.encode(chunks), try newest(now), try isNeeded(content.root) ? 1 : 0,
            ])
        return held
    }

    func noteUse(of content: some ContentAddress, now: Timestamp) throws {
        try statement("UPDATE content_copies SET used = ?7 WHERE \(Self.content)")
            .execute(arguments: arguments(content) + [try newest(now)])
    }

    /// A time that is after all that something was used at, whatever the clock said then: else what has just come would
    /// be the first to go.
    private func newest(_ now: Timestamp) throws -> Int64 {
        let last = try Int64.fetchOne(statement("SELECT max(used) FROM content_copies WHERE need = 0"))
        return max(Int64(clamping: now.milliseconds), (last ?? 0) + 1)
    }

    /// The content of this file is not here any more, or not as it was.
    func forget(_ file: DocumentID) throws {
        guard let root = try root(in: file) else { return }
        try statement("DELETE FROM content_copies WHERE \(Self.place) AND file = ?4")
            .execute(arguments: arguments(file.wire))
        // A pending record keeps holding a content while its copy is missing.
        guard let documents else { return }
        for name in try holders(of: root) { try documents.touch(ItemName(name)) }
        try statement("DELETE FROM content_holders WHERE \(Self.place) AND root = ?4").execute(
            arguments: arguments(root))
    }

    /// The content of this file is damaged. If an unsettled record names it, whoever sends it says so.
    func forgetDamaged(_ file: DocumentID) throws {
        if let root = try root(in: file), try documents == nil && isNeeded(root) { return }
        try forget(file)
    }

    // MARK: Holders

    /// - Parameters:
    ///   - name: Of a document or a record.
    ///   - scope: The record's zone; nil: it is a document.
    ///   - isNeeded: False: whether it needs the content here is yet to be found out.
    func hold(_ root: Data, by name: String, of scope: String? = nil, isNeeded: Bool = true) throws {
        try statement(
            "INSERT OR IGNORE INTO content_holders (account, service, container, scope, name, root) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        ).execute(arguments: arguments(scope ?? rows.scope.name, name, root))
        if isNeeded { try note(1, of: root) }
    }

    /// Whether there is a copy of which it is yet to be noted that this document needs it.
    func hasUnkept(_ root: Data, of name: String) throws -> Bool {
        try Bool.fetchOne(
            statement(
                "SELECT EXISTS (SELECT 1 FROM content_copies WHERE \(Self.place) AND root = ?6 AND (need <> 1 "
                    + "OR NOT EXISTS (SELECT 1 FROM content_holders WHERE \(Self.holder) AND root = ?6)))"),
            arguments: arguments(rows.scope.name, name, root)) ?? false
    }

    /// It holds none any more but these.
    func release(_ name: String, of scope: String? = nil, besides kept: [Data] = []) throws {
        for root in try roots(heldBy: name, of: scope) where !kept.contains(root) {
            try statement("DELETE FROM content_holders WHERE \(Self.holder) AND root = ?6")
                .execute(arguments: arguments(scope ?? rows.scope.name, name, root))
            try note(2, of: root)
        }
    }

    /// The same of everything in a zone.
    func releaseAll(of scope: String) throws {
        for name in try holders(of: scope) { try release(name, of: scope) }
    }

    /// The names of those in a zone that hold something.
    func holders(of scope: String) throws -> [String] {
        try String.fetchAll(
            statement("SELECT DISTINCT name FROM content_holders WHERE \(Self.place) AND scope = ?4"),
            arguments: arguments(scope))
    }

    /// The holder has a newer content. Without another holder this copy is removed first.
    func noteReplaced(_ root: Data) throws {
        try statement(
            "UPDATE content_copies SET used = ?5, need = 2 WHERE \(Self.place) AND root = ?4 AND NOT EXISTS "
                + "(SELECT 1 FROM content_holders WHERE \(Self.place) AND root = ?4)"
        ).execute(arguments: arguments(root, Self.replaced))
    }

    /// Removes the copies that a document holds, and that of this content, but for those that another needs.
    func drop(heldBy name: String, and content: some ContentAddress) throws -> [LocalCopy] {
        let roots = try Set(roots(heldBy: name, of: nil) + [content.root])
        try release(name)
        return try roots.sorted { $0.lexicographicallyPrecedes($1) }.filter { try !isNeeded($0) }.flatMap { root in
            let copies = try Row.fetchAll(
                statement("SELECT file, length, chunks, used FROM content_copies WHERE \(Self.place) AND root = ?4"),
                arguments: arguments(root)
            ).compactMap(LocalCopy.init)
            for copy in copies { try forget(copy.file) }
            return copies
        }
    }

    func roots(heldBy name: String, of scope: String?) throws -> [Data] {
        try Data.fetchAll(
            statement("SELECT root FROM content_holders WHERE \(Self.holder)"),
            arguments: arguments(scope ?? rows.scope.name, name))
    }

    private func holders(of root: Data) throws -> [String] {
        try String.fetchAll(
            statement("SELECT name FROM content_holders WHERE \(Self.place) AND root = ?4"), arguments: arguments(root))
    }

    /// Whether a document or a record needs the copy here. A document whose row cannot be read may need it: its copy
    /// stays, and other copies are kept and removed as usual.
    private func isNeeded(_ root: Data) throws -> Bool {
        let holders = try holders(of: root)
        guard let documents else { return !holders.isEmpty }
        return holders.contains { name in
            guard let id = DocumentID(name) else { return false }
            return (try? documents.wants(id, root)) ?? true
        }
    }

    private func note(_ need: Int, of root: Data) throws {
        try statement("UPDATE content_copies SET need = ?5 WHERE \(Self.place) AND root = ?4")
            .execute(arguments: arguments(root, need))
    }

    /// Marks copies as possibly not needed any more; the next trim finds out.
    ///
    /// - Parameter name: What a document holds; nil: everything.
    func weigh(heldBy name: String? = nil) throws {
        if let name {
            for root in try roots(heldBy: name, of: nil) { try note(2, of: root) }
        } else {
            try statement("UPDATE content_copies SET need = 2 WHERE \(Self.place) AND need = 1")
                .execute(arguments: arguments())
        }
    }

    /// Whether what is here may be the last copy of something that the server has lost: nothing goes until it was
    /// offered.
    func mayBeLastCopy() throws -> Bool { try ContentOffers(rows).isPending(ContentLoss(in: rows)) }
}

// MARK: - What stays

extension ContentCache {
    /// What somebody has set; nil: nobody has.
    static func setting(_ database: Database) throws -> UInt64? {
        try Facts(database).value(fact, as: UInt64.self)
    }

    static func set(_ bytes: UInt64?, _ database: Database) throws { try Facts(database).set(fact, bytes) }

    /// Bytes that are here and may go, and in how many copies.
    static func held(_ database: Database) throws -> (bytes: UInt64, count: Int) {
        let row = try Row.fetchOne(
            database.cachedStatement(
                sql: "SELECT coalesce(sum(length), 0) AS bytes, count(*) AS count FROM content_copies WHERE need = 0"))
        return (UInt64(clamping: row?["bytes"] as Int64? ?? 0), row?["count"] as Int? ?? 0)
    }

    /// Bytes that may stay.
    static func bound(_ database: Database, _ folder: ContentFolder) throws -> UInt64 {
        try folder.bound(of: setting(database), byDefault: defaultBytesMax, held: held(database).bytes)
    }

    /// Whether there are some of which it is yet to be found out whether something needs them.
    static func hasUnweighed(_ database: Database) throws -> Bool { try !copies(" need = 2", [1], database).isEmpty }

    /// Removes rows until no more stays than may: what was replaced, and then what was used longest ago. Nothing goes
    /// that is needed, nor what the server may have lost.
    ///
    /// - Returns: The files that nobody needs any more, once this transaction is over.
    static func trim(_ database: Database, _ folder: ContentFolder) throws -> [DocumentID] {
        // What is looked up of a container is looked up once.
        var known: [LocalScope: (cache: ContentCache, mayBeLast: Bool)] = [:]
        func place(of row: Row) throws -> (cache: ContentCache, mayBeLast: Bool) {
            let (account, service): (String, String) = (row["account"], row["service"])
            let scope = LocalScope(
                account: account.isEmpty ? nil : AccountID(account), service: ServiceName(service),
                path: row["container"])
            if let place = known[scope] { return place }
            let cache = ContentCache(database, scope)
            // A container whose info cannot be read keeps what it has, and stops no other.
            let place = (cache, (try? cache.mayBeLastCopy()) ?? true)
            known[scope] = place
            return place
        }
        func isNeeded(_ row: Row) throws -> Bool {
            let (cache, root) = (try place(of: row).cache, row["root"] as Data)
            let isNeeded = try cache.isNeeded(root)
            try cache.note(isNeeded ? 1 : 0, of: root)
            return isNeeded
        }
        for row in try copies(" need = 2", [weighedMax], database) { _ = try isNeeded(row) }
        var ((bytes, count), bound, files) = (try held(database), try bound(database, folder), [DocumentID]())
        var last: (used: Int64, row: Int64) = (.min, 0)
        while count > 0 {
            let rows = try copies(
                " need = 0 AND (used, rowid) > (?2, ?3) ORDER BY used, rowid", [batchCount, last.used, last.row],
                database)
            guard !rows.isEmpty else { break }
            for row in rows {
                last = (row["used"], row["rowid"])
                guard last.used == replaced || bytes > bound || count > countMax else { return files }
                let (cache, mayBeLast) = try place(of: row)
                guard !mayBeLast else { continue }
                count -= 1
                bytes -= min(bytes, UInt64(clamping: row["length"] as Int64))
                guard try !isNeeded(row), let file = DocumentID(bytes: row["file"] as Data) else { continue }
                try cache.forget(file)
                files.append(file)
            }
        }
        return files
    }

    private static func copies(
        _ condition: String, _ arguments: StatementArguments, _ database: Database
    ) throws -> [Row] {
        try Row.fetchAll(
            database.cachedStatement(
                sql: "SELECT rowid, account, service, container, root, file, length, used FROM content_copies "
                    + "WHERE\(condition) LIMIT ?1"), arguments: arguments)
    }
}

extension ScopeTransaction {
    /// Copies of the assets of a zone's or a database's container.
    var assets: ContentCache {
        ContentCache(database, RecordPlace.database(RecordPlace(scope.name).container).scope(of: scope.account))
    }
}

extension LocalCopy {
    fileprivate init?(_ row: Row) {
        guard let file = DocumentID(bytes: row["file"] as Data) else { return nil }
        self.init(
            file: file, length: UInt64(clamping: row["length"] as Int64), chunks: CutChunk.decode(row["chunks"]),
            used: Timestamp(milliseconds: UInt64(max(0, row["used"] as Int64))))
    }
}

extension LocalStore {
    /// Notes contents that are here now, and makes room for them.
    ///
    /// - Parameter body: Notes them. It returns the files that nobody needs any more.
    func keepCopies(in folder: ContentFolder, _ body: (Database) throws -> [DocumentID]) throws(CloudError) {
        let files = try write { database in try body(database) + ContentCache.trim(database, folder) }
        for file in files { folder.remove(file) }
    }
}

extension Session {
    /// How many bytes of contents may stay in this home that the server has too: of documents what was read or got
    /// whole, and what was put; of records' assets what was fetched, and what was saved. They are read from here then,
    /// also without a connection. What was used longest ago goes first. What waits to be sent, what a conflict or a
    /// rejected change names, and what is kept downloaded stays in any case and does not count.
    ///
    /// It holds for all processes of the home, and is remembered.
    ///
    /// - Parameter maxBytes: 0: none; nil: 1 GiB, or an eighth of what the disk has left where that is less.
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func setContentCache(maxBytes: UInt64?) throws(CloudError) {
        try local.prepare(ContentCache.migrations)
        try local.keepCopies(in: ContentFolder(home: local.home)) { database in
            try ContentCache.set(maxBytes, database)
            return []
        }
    }

    /// Bytes of contents in this home that the server has too and that may go, and how many may stay.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func contentCache() throws(CloudError) -> (bytes: UInt64, maxBytes: UInt64) {
        try local.prepare(ContentCache.migrations)
        let folder = try ContentFolder(home: local.home)
        return try local.read { (try ContentCache.held($0).bytes, try ContentCache.bound($0, folder)) }
    }

    /// Notes what came of reading a copy. Where that cannot be noted, it is found again.
    ///
    /// - Parameter cache: Those of its container.
    func note(
        _ outcome: ContentFolder.CopyOutcome, of copy: LocalCopy, _ content: some ContentAddress,
        in cache: (Database) throws -> ContentCache
    ) {
        let now = engine.stamp.now
        switch outcome {
        case .damaged:
            _ = try? local.write { try cache($0).forgetDamaged(copy.file) }
            engine.execute { $0.removeContents([copy.file]) }
        case .written where max(now, copy.used).since(min(now, copy.used)) >= ContentCache.useGrain:
            _ = try? local.write { try cache($0).noteUse(of: content, now: now) }
        case .written, .unreadable: break
        }
    }
}

extension DeviceEngine {
    /// How long after something came that may be too much: what comes in one go is looked at once.
    private static let trimDelay: Duration = .seconds(1)

    /// Has no more contents stay than may.
    func trimContentsSoon() {
        guard !stopped, trimming == nil else { return }
        trimming = loop.schedule(after: Self.trimDelay) { [weak self] in
            guard let self else { return }
            trimming = nil
            guard !stopped, canSweepContents, let folder = try? ContentFolder(home: local.home) else { return }
            do throws(CloudError) {
                try local.keepCopies(in: folder) { _ in [] }
                if try local.read({ try ContentCache.hasUnweighed($0) }) { trimContentsSoon() }
            } catch { logger.error("contents that nobody needs could not be removed", error) }
        }
    }
}
