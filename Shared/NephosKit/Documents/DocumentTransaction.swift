import Foundation
import GRDB
import NephosCore
import NephosPredicates
import NephosWire
import SwiftProtobuf

/// One container inside a local transaction. Everything that SQL knows of documents is here.
///
/// `documents` has the items as the server told them, to the byte; `document_changes` what waits to be sent, by item;
/// `document_views` what that makes of the items, for reading: an item that has a view is as the view says.
/// `document_doubts` has items of which nobody knows what became of them; each has a view.
/// `document_touches` names, in order, the items that may be read otherwise than before; see ``touch(_:)``.
struct DocumentTransaction {
    static let migrations =
        [
            LocalMigration(
                name: "documents",
                sql: [tables, downloads, pauses, moves, doubts, mergers, localFiles].joined())
        ] + ContentCache.migrations

    // A removed item is kept without a body: a late answer must not bring it back. `name_key` is what a name clashes by, as
    // the container compares names; `kind` what an item is, or was before it was removed. `sendings` counts how often the
    // service has said that it has what a request needs, and then had it not.
    private static let tables = """
        CREATE TABLE documents (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            parent BLOB NOT NULL, name BLOB NOT NULL, trash BLOB, sequence INTEGER NOT NULL, body BLOB,
            name_key BLOB NOT NULL, kind INTEGER NOT NULL,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX documents_by_place ON documents (account, container, parent, name);
        CREATE INDEX documents_by_sequence ON documents (account, container, sequence);
        CREATE INDEX documents_by_name_key ON documents (account, container, parent, name_key);
        CREATE INDEX documents_by_trash ON documents (account, container, trash) WHERE trash IS NOT NULL;
        CREATE INDEX documents_coming ON documents (account, container) WHERE kind = 5 AND body IS NOT NULL;
        CREATE TABLE document_views (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            parent BLOB NOT NULL, name BLOB NOT NULL, trash BLOB, body BLOB, name_key BLOB NOT NULL,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_views_by_place ON document_views (account, container, parent, name);
        CREATE INDEX document_views_by_name_key ON document_views (account, container, parent, name_key);
        CREATE INDEX document_views_by_trash ON document_views (account, container, trash) WHERE trash IS NOT NULL;
        CREATE TABLE document_changes (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            position INTEGER NOT NULL, ordinal INTEGER NOT NULL, change BLOB NOT NULL,
            PRIMARY KEY (account, container, item, position, ordinal)
        ) WITHOUT ROWID;
        CREATE INDEX document_changes_by_position ON document_changes (position);
        CREATE TABLE document_contents (
            account TEXT NOT NULL, container TEXT NOT NULL, version BLOB NOT NULL, position INTEGER NOT NULL,
            is_stored INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL, chunks BLOB NOT NULL,
            percent INTEGER NOT NULL DEFAULT 0, sendings INTEGER NOT NULL DEFAULT 0,
            source TEXT, root BLOB, depth INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (account, container, version)
        ) WITHOUT ROWID;
        CREATE INDEX document_contents_by_position ON document_contents (position);
        CREATE INDEX document_contents_by_version ON document_contents (version);
        CREATE TABLE document_touches (
            revision INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL
        );

        """

    let rows: ScopeTransaction
    let known = Known()
    var account: String { rows.account }
    var container: String { rows.scope.name }

    init(_ rows: ScopeTransaction) { self.rows = rows }

    /// What is looked up once.
    final class Known {
        /// When this is read, by the server's clock as far as that is known; nil: it does not matter.
        var now: Timestamp?
        var rule: DocumentNameRule?
        var loss: ContentLoss?
        /// Whether what is here may be the last copy of something that the server has lost.
        var isLastCopy: Bool?
        var hasDoubts: Bool?
        /// This one.
        var device: DeviceID?
        /// See ``DocumentTransaction/wishes()``.
        var wishes: Wishes?
        /// Of the content that was asked for last to come.
        var lastPosition: Int64?
        /// Items that were noted as touched, the last some of them: what reads the notes sees all that this transaction
        /// does.
        var touched: Set<ItemName> = []
        /// See ``DocumentTransaction/pauses()``.
        var pauses: [DocumentID: Pause]?
    }

    /// What the server has said last of contents that it cannot read any more.
    func loss() throws -> ContentLoss {
        if let loss = known.loss { return loss }
        let loss = try ContentLoss(in: rows)
        known.loss = loss
        return loss
    }

    /// What a name clashes by in this container.
    func key(of name: Data) throws -> Data {
        Data(try rule().key(of: [UInt8](name)))
    }

    func rule() throws -> DocumentNameRule {
        if let rule = known.rule { return rule }
        let info = try WireContainerInfo(serializedBytes: rows.state().info)
        let rule = UInt8(exactly: info.nameRule).flatMap { DocumentNameRule(rawValue: $0) } ?? .bytes
        known.rule = rule
        return rule
    }

    func cached(_ sql: String) throws -> Statement { try rows.cached(sql) }

    /// The arguments that every statement begins with.
    func arguments(_ others: (any DatabaseValueConvertible)?...) -> StatementArguments {
        StatementArguments([account, container] + others)
    }

    // MARK: As the server told it

    /// A row of ``documents``.
    struct Synced {
        var name: ItemName
        var sequence: UInt64
        /// Nil: it was removed.
        var body: Data?

        func digest(key: [UInt8]) -> SetDigest? { body.map { Self.digest(of: name, body: $0, key: key) } }

        static func digest(of name: ItemName, body: Data, key: [UInt8]) -> SetDigest {
            SetDigest(ofItem: name, body: body, key: key)
        }
    }

    func synced(_ name: ItemName) throws -> Synced? {
        try Row.fetchOne(
            cached("SELECT item, sequence, body FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(name.rawValue)
        ).map(Self.synced)
    }

    static let table = ItemTable(table: "documents", scope: "container", name: "item")

    /// All of them, removed ones included, in the order of their names, one by one.
    func allSynced() throws -> some Cursor<Synced> {
        // A statement of its own: what is read meanwhile must not begin it anew.
        let statement = try rows.database.makeStatement(
            sql: "SELECT item, sequence, body FROM documents WHERE account = ?1 AND container = ?2 ORDER BY item")
        return try Row.fetchCursor(statement, arguments: arguments()).map(Self.synced)
    }

    static func synced(_ row: Row) -> Synced {
        Synced(
            name: ItemName(row[0] as String), sequence: UInt64(bitPattern: row[1] as Int64), body: row[2])
    }

    func greatestSequence() throws -> UInt64 {
        // They are kept bit for bit, so that those of 2^63 and more are negative.
        let greatest = try Int64.fetchOne(
            cached(
                "SELECT coalesce((SELECT max(sequence) FROM documents WHERE account = ?1 AND container = ?2 "
                    + "AND sequence < 0), "
                    + "(SELECT max(sequence) FROM documents WHERE account = ?1 AND container = ?2))"),
            arguments: arguments())
        return UInt64(bitPattern: greatest ?? 0)
    }

    /// Stores the item as the server told it, and keeps the digest in step.
    ///
    /// - Parameter old: What is there now.
    func put(_ item: Synced, replacing old: Synced?, _ state: inout ScopeState) throws {
        try store(item, replacing: old, &state)
        try removeDoubt(of: item.name)
        try refresh(item.name)
    }

    /// The same, but for what is read of it.
    func store(_ item: Synced, replacing old: Synced?, _ state: inout ScopeState) throws {
        if let digest = old?.digest(key: state.digestKey) { state.digest.remove(digest) }
        if let digest = item.digest(key: state.digestKey) { state.digest.add(digest) }
        // What cannot be read here has no place, and is in the digest all the same. Of what was removed it is known
        // where it was: somebody may have written to it meanwhile.
        let wire = (item.body ?? old?.body).flatMap { try? WireDocumentItem(serializedBytes: $0) }
        try cached(
            "INSERT OR REPLACE INTO documents (account, container, item, parent, name, trash, sequence, body, name_key, "
                + "kind) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        ).execute(
            arguments: arguments(
                item.name.rawValue, wire?.parent ?? Data(), wire?.name ?? Data(), wire.flatMap(Self.batch),
                Int64(bitPattern: item.sequence), item.body, try key(of: wire?.name ?? Data()),
                wire?.kind.rawValue ?? 0))
        if item.body == nil { try removePause(of: item.name) }
        if let former = old?.item { try weighCopies(of: item.name, former, now: item.body == nil ? nil : wire) }
    }

    /// Where an item is or was last, as the server told it; nil: nobody knows.
    func lastPlace(of id: DocumentID) throws -> (folder: DocumentID, name: Data)? {
        try Row.fetchOne(
            cached("SELECT parent, name FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(id.description)
        ).flatMap { row in DocumentID(bytes: row["parent"] as Data).map { ($0, row["name"]) } }
    }

    /// What an item is or was last, as the server told it; nil: nobody knows.
    func lastKind(of id: DocumentID) throws -> WireItemKind? {
        try Int.fetchOne(
            cached("SELECT kind FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(id.description)
        ).flatMap { $0 == 0 ? nil : WireItemKind(rawValue: $0) }
    }

    static func batch(_ item: WireDocumentItem) -> Data? { item.hasTrash ? item.trash.batch : nil }

    /// Forgets the item as the server told it.
    func forget(_ item: Synced, _ state: inout ScopeState) throws {
        if let digest = item.digest(key: state.digestKey) { state.digest.remove(digest) }
        try cached("DELETE FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.name.rawValue))
        if let former = item.item { try weighCopies(of: item.name, former, now: nil) }
        try removePause(of: item.name)
        try refresh(item.name)
    }

    // MARK: What waits

    /// Queues a request, and lays it over what is read.
    ///
    /// - Parameters:
    ///   - contents: Of those that it brings and that are not in it, where they wait.
    @discardableResult
    func append(
        _ request: WireApplyChanges, contents: [StagedContent] = [], id: OperationID, writer: Int64, now: Timestamp
    ) throws -> Int64 {
        let payload: Data = try request.serializedData()
        let position = try rows.append(payload, id: id, writer: writer, now: now)
        for content in contents where content.inline == nil {
            try addContent(
                content.version, at: position, length: content.length, chunks: content.chunks,
                source: content.borrowedFrom)
        }
        try setChanges(request.changes, at: position)
        return position
    }

    /// Lays a request's changes over what is read, in place of what it had before.
    func setChanges(_ changes: [WireDocumentChange], at position: Int64) throws {
        try removeChanges(at: position)
        var items: Set<ItemName> = []
        for (ordinal, change) in changes.enumerated() {
            guard let item = DocumentID(bytes: change.item)?.name else { continue }
            try cached(
                "INSERT INTO document_changes (account, container, item, position, ordinal, change) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ).execute(arguments: arguments(item.rawValue, position, ordinal, try change.serializedData()))
            items.insert(item)
        }
        for item in items { try refresh(item) }
    }

    /// Takes a request's changes out of what is read.
    func removeChanges(at position: Int64) throws {
        for item in try takeChanges(at: position) { try refresh(item) }
    }

    /// The same for one who makes anew what is read of these items.
    ///
    /// - Returns: Those that it had changes of.
    func takeChanges(at position: Int64) throws -> Set<ItemName> {
        let items = try String.fetchAll(
            cached("SELECT DISTINCT item FROM document_changes WHERE position = ?1"), arguments: [position])
        guard !items.isEmpty else { return [] }
        try cached("DELETE FROM document_changes WHERE position = ?1").execute(arguments: [position])
        return Set(items.map { ItemName($0) })
    }

    /// What waits of the item, in order.
    func changes(of name: ItemName) throws -> [WireDocumentChange] {
        try Data.fetchAll(
            cached(
                "SELECT change FROM document_changes WHERE account = ?1 AND container = ?2 AND item = ?3 "
                    + "ORDER BY position, ordinal"),
            arguments: arguments(name.rawValue)
        ).map { try WireDocumentChange(serializedBytes: $0) }
    }

    /// What is read of the item, made anew.
    func refresh(_ name: ItemName) throws {
        try touch(name)
        let changes = try changes(of: name)
        let doubt = try doubt(of: name)
        guard !changes.isEmpty || doubt != nil else {
            return try cached("DELETE FROM document_views WHERE account = ?1 AND container = ?2 AND item = ?3")
                .execute(arguments: arguments(name.rawValue))
        }
        var item = try (doubt?.item ?? synced(name))?.item
        for change in changes { item = DocumentChanges.apply(change, to: item) }
        try cached(
            "INSERT OR REPLACE INTO document_views (account, container, item, parent, name, trash, body, name_key) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ).execute(
            arguments: arguments(
                name.rawValue, item?.parent ?? Data(), item?.name ?? Data(), item.flatMap(Self.batch),
                try item?.serializedData(), try key(of: item?.name ?? Data())))
    }

    /// Changes what later requests do with an item, whose earlier change has come to nothing or to something else.
    ///
    /// - Parameter body: Returns whether there is anything left to do.
    func revise(
        _ item: DocumentID, after position: Int64, _ body: (inout WireDocumentChange) throws -> Bool
    ) throws {
        let later = try Int64.fetchAll(
            cached(
                "SELECT DISTINCT position FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND position > ?4 ORDER BY position"),
            arguments: arguments(item.description, position))
        for position in later {
            // What was sent is frozen, and what it was sent with.
            guard let operation = try rows.operation(at: position), operation.state == .unsent else { continue }
            var request = try WireApplyChanges(serializedBytes: operation.payload)
            request.changes = try request.changes.compactMap { change in
                var change = change
                return try change.item != item.wire || body(&change) ? change : nil
            }
            guard !request.changes.isEmpty else {
                try removeChanges(at: position)
                try rows.removeOperation(at: position)
                continue
            }
            _ = try rows.setPayload(request.serializedData(), at: position)
            try setChanges(request.changes, at: position)
        }
    }

    /// The items of which changes wait, in the order of the first of those, with the bytes of contents that are not
    /// stored yet.
    func pendingItems() throws -> [(id: DocumentID, position: Int64, bytes: UInt64)] {
        let unstored = Dictionary(
            try Row.fetchAll(
                cached(
                    "SELECT version, length FROM document_contents "
                        + "WHERE account = ?1 AND container = ?2 AND is_stored = 0 AND source IS NULL"),
                arguments: arguments()
            ).map { ($0["version"] as Data, UInt64(clamping: $0["length"] as Int64)) }
        ) { first, _ in first }
        var found: [(id: DocumentID, position: Int64, bytes: UInt64)] = []
        var places: [String: Int] = [:]
        let rows = try Row.fetchCursor(
            cached(
                "SELECT item, position, change FROM document_changes WHERE account = ?1 AND container = ?2 "
                    + "ORDER BY position, ordinal"), arguments: arguments())
        while let row = try rows.next() {
            let item: String = row["item"]
            guard let id = DocumentID(item) else { continue }
            if places[item] == nil {
                places[item] = found.count
                found.append((id, row["position"], 0))
            }
            let version = try WireDocumentChange(serializedBytes: row["change"] as Data).content?.version
            if let place = places[item], let bytes = version.flatMap({ unstored[$0] }) { found[place].bytes += bytes }
        }
        return found
    }
}
