import Foundation
import GRDB
import NephosCore
import NephosWire

/// Decides which contents of a home stay that the server has too, and which go: the only place that does.
///
/// Rows name files in the home's folder of contents. A file gets its row in one transaction, under a claim that keeps
/// sweeps away until then; a row goes before its file. So a process may end at any point: a file without a row is
/// swept, and a row without its file, or with another than it was, is dropped by whoever reads it. What is unsent is in
/// other rows (``WaitingContent``), which nothing here touches.
struct ContentCache {
    /// What may stay, where nobody has said otherwise.
    static let defaultBytesMax: UInt64 = 512 << 20
    /// How exactly it is known when something was used: nobody writes at each reading.
    static let useGrain: Duration = .seconds(60)
    /// Rows that are looked at in one go.
    private static let batchCount = 100
    /// Of how many it is found out anew in one transaction whether they are wanted.
    private static let weighedMax = 500
    private static let fact = "content_cache"

    let database: Database
    let folder: ContentFolder

    /// What somebody has set; nil: nobody has.
    static func setting(_ database: Database) throws -> UInt64? {
        try Facts(database).value(fact, as: UInt64.self)
    }

    static func set(_ bytes: UInt64?, _ database: Database) throws { try Facts(database).set(fact, bytes) }

    /// Bytes that are here and may go.
    func bytes() throws -> UInt64 {
        UInt64(
            clamping: try Int64.fetchOne(
                database.cachedStatement(sql: "SELECT coalesce(sum(length), 0) FROM document_copies WHERE is_kept = 0"))
                ?? 0)
    }

    /// Bytes that may stay.
    func bound() throws -> UInt64 {
        try folder.bound(of: Self.setting(database), byDefault: Self.defaultBytesMax, held: bytes())
    }

    /// Removes rows until no more stays than may: what was used longest ago first, and nothing that somebody wants to
    /// have here.
    ///
    /// - Returns: The files that nobody needs any more, once this transaction is over.
    func trim() throws -> [DocumentID] {
        var places: [LocalScope: DocumentTransaction] = [:]
        try weigh(&places)
        var (bytes, files) = (try bytes(), [DocumentID]())
        guard bytes > 0 else { return [] }
        let bound = try bound()
        while bytes > bound {
            let rows = try rows(" WHERE is_kept = 0 ORDER BY used, rowid", limit: Self.batchCount)
            guard !rows.isEmpty else { return files }
            for row in rows where bytes > bound {
                bytes -= min(bytes, UInt64(clamping: row["length"] as Int64))
                let documents = documents(of: row, &places)
                if try documents.isWanted(copyOf: row["root"], for: DocumentID(row["item"] as String)) {
                    try set(isKept: true, row)
                } else if let file = DocumentID(bytes: row["file"] as Data) {
                    try documents.forgetCopy(in: file)
                    files.append(file)
                }
            }
        }
        return files
    }

    /// Whether there are some of which it is yet to be found out whether they are wanted still.
    func hasUnweighed() throws -> Bool { try !rows(" WHERE is_kept = 2", limit: 1).isEmpty }

    /// Finds that out of so many of them: they do not count until then.
    private func weigh(_ places: inout [LocalScope: DocumentTransaction]) throws {
        for row in try rows(" WHERE is_kept = 2", limit: Self.weighedMax) {
            let documents = documents(of: row, &places)
            try set(isKept: documents.isWanted(copyOf: row["root"], for: DocumentID(row["item"] as String)), row)
        }
    }

    private func rows(_ condition: String, limit: Int) throws -> [Row] {
        try Row.fetchAll(
            database.cachedStatement(
                sql: "SELECT rowid, account, container, root, item, file, length FROM document_copies"
                    + "\(condition) LIMIT ?1"),
            arguments: [limit])
    }

    /// What is looked up of a container is looked up once.
    private func documents(of row: Row, _ places: inout [LocalScope: DocumentTransaction]) -> DocumentTransaction {
        let place = LocalScope(
            account: AccountID(row["account"] as String), service: .documents, path: row["container"])
        if let known = places[place] { return known }
        let documents = DocumentTransaction(ScopeTransaction(database, place))
        places[place] = documents
        return documents
    }

    private func set(isKept: Bool, _ row: Row) throws {
        try database.cachedStatement(sql: "UPDATE document_copies SET is_kept = ?2 WHERE rowid = ?1")
            .execute(arguments: [row["rowid"] as Int64, isKept])
    }
}

extension LocalStore {
    /// Notes contents that are here now, and makes room for them.
    ///
    /// - Parameter body: Notes them. It returns the files that nobody needs any more.
    func keepCopies(in folder: ContentFolder, _ body: (Database) throws -> [DocumentID]) throws(CloudError) {
        let files = try write { database in
            try body(database) + ContentCache(database: database, folder: folder).trim()
        }
        for file in files { folder.remove(file) }
    }
}

extension Session {
    /// How many bytes of contents may stay in this home that the server has too: what was read or got whole, and what
    /// was put. They are read from here then, also without a connection. What was used longest ago goes first. What
    /// waits to be sent, and what is kept downloaded, stays in any case and does not count.
    ///
    /// It holds for all processes of the home, and is remembered.
    ///
    /// - Parameter maxBytes: 0: none; nil: 512 MiB, or an eighth of what the disk has left where that is less.
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func setContentCache(maxBytes: UInt64?) throws(CloudError) {
        try local.prepare(DocumentTransaction.migrations)
        let folder = try ContentFolder(home: local.home)
        try local.keepCopies(in: folder) { database in
            try ContentCache.set(maxBytes, database)
            return []
        }
    }

    /// Bytes of contents in this home that the server has too and that may go, and how many may stay.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func contentCache() throws(CloudError) -> (bytes: UInt64, maxBytes: UInt64) {
        try local.prepare(DocumentTransaction.migrations)
        let folder = try ContentFolder(home: local.home)
        return try local.read { database in
            let cache = ContentCache(database: database, folder: folder)
            return (try cache.bytes(), try cache.bound())
        }
    }
}
