import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// Contents that are in the home until the server has them.
extension DocumentTransaction {
    func waitingContents(at position: Int64) throws -> [WaitingContent] {
        try contents(at: position, " AND is_stored = 0")
    }

    /// Those that a request brings and that are not in it.
    func contents(at position: Int64, _ condition: String = "") throws -> [WaitingContent] {
        try Row.fetchAll(
            cached(
                "SELECT version, length, chunks, source, root, depth FROM document_contents "
                    + "WHERE account = ?1 AND container = ?2 AND position = ?3\(condition) ORDER BY version"),
            arguments: arguments(position)
        ).compactMap(waiting)
    }

    private func waiting(_ row: Row) -> WaitingContent? {
        DocumentID(bytes: row["version"] as Data).map { version in
            let root = (row["root"] as Data?).flatMap { ChunkID(bytes: [UInt8]($0)) }
            return WaitingContent(
                version: version, length: UInt64(clamping: row["length"] as Int64),
                chunks: CutChunk.decode(row["chunks"]),
                source: (row["source"] as String?).flatMap { container in
                    root.map {
                        ContentSource(container: container, root: $0, depth: UInt32(clamping: row["depth"] as Int64))
                    }
                }, container: container)
        }
    }

    /// These bytes as they wait to be taken from another container; nil: they do not.
    func borrowed(_ content: WireDocumentContent) throws -> WaitingContent? {
        try Row.fetchOne(
            cached(
                "SELECT version, length, chunks, source, root, depth FROM document_contents "
                    + "WHERE account = ?1 AND container = ?2 AND root = ?3 AND length = ?4 AND source IS NOT NULL "
                    + "AND position IN (SELECT position FROM outbox) LIMIT 1"),
            arguments: arguments(content.root, Int64(clamping: content.length))
        ).flatMap(waiting)
    }

    /// Where the content is read meanwhile that waits to be taken from another container; else here.
    func holder(of content: WireDocumentContent) throws -> DocumentTransaction {
        guard !content.isInline, let source = try borrowed(content)?.source else { return self }
        return other(source.container)
    }

    /// Another container of the account.
    func other(_ container: String) -> DocumentTransaction {
        DocumentTransaction(
            ScopeTransaction(
                rows.database, LocalScope(account: rows.scope.account, service: .documents, path: container)))
    }

    /// What the content of this version consists of, which is here.
    func chunks(of version: DocumentID) throws -> [CutChunk] {
        try Data.fetchOne(
            cached("SELECT chunks FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3"),
            arguments: arguments(version.wire)
        ).map(CutChunk.decode) ?? []
    }

    /// What a content consists of is known by now.
    func setChunks(_ chunks: [CutChunk], of version: DocumentID) throws {
        try cached("UPDATE document_contents SET chunks = ?4 WHERE account = ?1 AND container = ?2 AND version = ?3")
            .execute(arguments: arguments(version.wire, CutChunk.encode(chunks)))
    }

    /// Whether another request brings the content, and has yet to be answered.
    func isSentElsewhere(_ version: Data, than position: Int64) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 "
                    + "AND position <> ?4 AND position IN (SELECT position FROM outbox)"),
            arguments: arguments(version, position)) ?? false
    }

    /// Requests that were never sent and have to wait for their contents, the oldest first. Of a request's contents one is
    /// looked at.
    func unstored() throws -> [UnstoredRequest] {
        try Row.fetchAll(
            cached(
                "SELECT o.position, o.attempts, o.next_attempt FROM outbox o "
                    + "WHERE o.account = ?1 AND o.service = 'documents' AND o.scope = ?2 AND o.state = 'unsent' "
                    + "AND EXISTS (SELECT 1 FROM document_contents c WHERE c.position = o.position AND c.is_stored = 0 "
                    + "AND c.account = ?1 AND c.container = ?2) ORDER BY o.position"),
            arguments: arguments()
        ).map { row in
            UnstoredRequest(
                position: row["position"], attempts: row["attempts"],
                nextAttempt: Timestamp(milliseconds: UInt64(bitPattern: row["next_attempt"] as Int64)))
        }
    }

    /// Bytes of the contents that a request has to wait for and that are here.
    func unstoredBytes(at position: Int64) throws -> UInt64 {
        UInt64(
            clamping: try Int64.fetchOne(
                cached(
                    "SELECT sum(length) FROM document_contents WHERE position = ?3 AND account = ?1 AND container = ?2 "
                        + "AND is_stored = 0 AND source IS NULL"),
                arguments: arguments(position)) ?? 0)
    }

    /// Bytes of all contents in the home that pending requests have to send.
    func unsentBytes() throws -> UInt64 {
        UInt64(
            clamping: try Int64.fetchOne(
                cached(
                    "SELECT sum(length) FROM document_contents WHERE account = ?1 AND container = ?2 AND is_stored = 0 "
                        + "AND source IS NULL AND position IN (SELECT position FROM outbox)"),
                arguments: arguments()) ?? 0)
    }

    /// Counts that what a request needs is sent once more.
    ///
    /// - Returns: How often by now.
    func countSending(at position: Int64) throws -> Int {
        try cached(
            "UPDATE document_contents SET sendings = sendings + 1 "
                + "WHERE account = ?1 AND container = ?2 AND position = ?3"
        ).execute(arguments: arguments(position))
        return try Int.fetchOne(
            cached(
                "SELECT max(sendings) FROM document_contents WHERE account = ?1 AND container = ?2 AND position = ?3"),
            arguments: arguments(position)) ?? 0
    }

    /// A content is not in the home any more.
    func forgetContent(_ version: DocumentID) throws {
        try cached("DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3")
            .execute(arguments: arguments(version.wire))
    }

    /// A content is not taken from another container any more.
    func forgetBorrowed(_ version: DocumentID) throws {
        try cached(
            "DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 "
                + "AND source IS NOT NULL"
        ).execute(arguments: arguments(version.wire))
    }

    /// Whether the content is here, in the home.
    func holdsContent(_ version: Data) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 "
                    + "AND source IS NULL"), arguments: arguments(version)) ?? false
    }

    /// The version under which these bytes are in the home; nil: they are not. Another item may have brought them, of
    /// which this one is a copy.
    func heldVersion(of content: WireDocumentContent) throws -> DocumentID? {
        if try holdsContent(content.version) { return DocumentID(bytes: content.version) }
        return try Row.fetchAll(
            cached(
                "SELECT version, chunks FROM document_contents WHERE account = ?1 AND container = ?2 AND length = ?3 "
                    + "AND source IS NULL"),
            arguments: arguments(Int64(clamping: content.length))
        ).first { row in try Data(CutChunk.root(of: CutChunk.decode(row["chunks"])).bytes) == content.root }
            .flatMap { DocumentID(bytes: $0["version"] as Data) }
    }

    func isUploading(_ version: Data) throws -> Bool { try progress(of: version)?.isStored == false }

    /// The contents that a request needs are stored; or are not any more.
    func markStored(at position: Int64, isStored: Bool = true) throws {
        try cached(
            "UPDATE document_contents SET is_stored = ?4, percent = iif(?4, 100, 0) "
                + "WHERE account = ?1 AND container = ?2 AND position = ?3"
        ).execute(arguments: arguments(position, isStored))
        try touchItems(at: position)
    }

    /// Notes that a content is here, in the home; or where else it is taken from.
    func addContent(
        _ version: DocumentID, at position: Int64, length: UInt64, chunks: [CutChunk], source: ContentSource? = nil
    ) throws {
        try cached(
            "INSERT OR REPLACE INTO document_contents (account, container, version, position, length, chunks, source, "
                + "root, depth) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ).execute(
            arguments: arguments(
                version.wire, position, Int64(clamping: length), CutChunk.encode(chunks), source?.container,
                source.map { Data($0.root.bytes) }, Int64(source?.depth ?? 0)))
    }

    /// So much of the contents that a request needs is stored.
    func setPercent(_ percent: Int, at position: Int64) throws {
        try cached(
            "UPDATE document_contents SET percent = ?4 "
                + "WHERE account = ?1 AND container = ?2 AND position = ?3 AND is_stored = 0"
        ).execute(arguments: arguments(position, percent))
        try touchItems(at: position)
    }

    /// How far a content is that waits here; nil: it does not.
    func progress(of version: Data) throws -> (isStored: Bool, percent: Int)? {
        try Row.fetchOne(
            cached(
                "SELECT is_stored, percent FROM document_contents WHERE account = ?1 AND container = ?2 "
                    + "AND version = ?3 AND source IS NULL"),
            arguments: arguments(version)
        ).map { ($0["is_stored"], $0["percent"]) }
    }

    /// Gives contents that are still here to another request.
    func moveContent(_ version: Data, to position: Int64) throws {
        try cached(
            "UPDATE document_contents SET position = ?4, is_stored = 0, percent = 0 "
                + "WHERE account = ?1 AND container = ?2 AND version = ?3"
        ).execute(arguments: arguments(version, position))
    }

    /// Nobody needs what the request brought any more.
    func forgetContents(at position: Int64) throws {
        try cached("DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND position = ?3")
            .execute(arguments: arguments(position))
    }

    /// Of all contents that wait, the percents that were sent of each.
    func sentPercent() throws -> Int {
        try Int.fetchOne(
            cached(
                "SELECT coalesce(sum(CASE WHEN is_stored THEN 100 ELSE percent END), 0) FROM document_contents "
                    + "WHERE account = ?1 AND container = ?2"), arguments: arguments()) ?? 0
    }
}
