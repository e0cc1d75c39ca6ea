import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// One container inside a local transaction. Everything that SQL knows of documents is here.
///
/// `documents` has the items as the server told them, to the byte; `document_changes` what waits to be sent, by item;
/// `document_views` what that makes of the items, for reading: an item that has a view is as the view says.
/// `document_touches` names, in order, the items that may be read otherwise than before; see ``touch(_:)``.
struct DocumentTransaction {
    static let migrations = [
        LocalMigration(name: "documents 1", sql: tables), LocalMigration(name: "documents 2: touches", sql: touches),
    ]

    // A removed item is kept without a body: a late answer must not bring it back.
    private static let tables = """
        CREATE TABLE documents (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            parent BLOB NOT NULL, name BLOB NOT NULL, trash BLOB, sequence INTEGER NOT NULL, body BLOB,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX documents_by_place ON documents (account, container, parent, name);
        CREATE INDEX documents_by_sequence ON documents (account, container, sequence);
        CREATE TABLE document_views (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            parent BLOB NOT NULL, name BLOB NOT NULL, trash BLOB, body BLOB,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_views_by_place ON document_views (account, container, parent, name);
        CREATE TABLE document_changes (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            position INTEGER NOT NULL, ordinal INTEGER NOT NULL, change BLOB NOT NULL,
            PRIMARY KEY (account, container, item, position, ordinal)
        ) WITHOUT ROWID;
        CREATE INDEX document_changes_by_position ON document_changes (position);
        CREATE TABLE document_contents (
            account TEXT NOT NULL, container TEXT NOT NULL, version BLOB NOT NULL, position INTEGER NOT NULL,
            is_stored INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL, chunks BLOB NOT NULL,
            PRIMARY KEY (account, container, version)
        ) WITHOUT ROWID;
        CREATE INDEX document_contents_by_position ON document_contents (position);
        CREATE TABLE document_refusals (
            account TEXT NOT NULL, container TEXT NOT NULL, position INTEGER NOT NULL, ordinal INTEGER NOT NULL,
            path TEXT NOT NULL, version BLOB, refused_at INTEGER NOT NULL, error BLOB NOT NULL,
            PRIMARY KEY (account, container, position, ordinal)
        ) WITHOUT ROWID;
        """

    private static let touches = """
        CREATE TABLE document_touches (
            revision INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL
        );
        ALTER TABLE document_contents ADD COLUMN percent INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE document_refusals ADD COLUMN item TEXT NOT NULL DEFAULT '';
        CREATE INDEX document_refusals_by_item ON document_refusals (account, container, item);
        """

    let rows: ScopeTransaction
    var account: String { rows.account }
    var container: String { rows.scope.name }

    init(_ rows: ScopeTransaction) { self.rows = rows }

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
            SetDigest(ofItem: key + [UInt8](name.utf8) + [0] + [UInt8](body))
        }
    }

    func synced(_ name: ItemName) throws -> Synced? {
        try Row.fetchOne(
            cached("SELECT item, sequence, body FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(name.rawValue)
        ).map(Self.synced)
    }

    /// All of them, removed ones included.
    func allSynced() throws -> [Synced] {
        try Row.fetchAll(
            cached("SELECT item, sequence, body FROM documents WHERE account = ?1 AND container = ?2 ORDER BY item"),
            arguments: arguments()
        ).map(Self.synced)
    }

    private static func synced(_ row: Row) -> Synced {
        Synced(
            name: ItemName(row["item"] as String), sequence: UInt64(bitPattern: row["sequence"] as Int64),
            body: row["body"])
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
        if let digest = old?.digest(key: state.digestKey) { state.digest.remove(digest) }
        if let digest = item.digest(key: state.digestKey) { state.digest.add(digest) }
        // What cannot be read here has no place, and is in the digest all the same.
        let wire = item.body.flatMap { try? WireDocumentItem(serializedBytes: $0) }
        try cached(
            "INSERT OR REPLACE INTO documents (account, container, item, parent, name, trash, sequence, body) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ).execute(
            arguments: arguments(
                item.name.rawValue, wire?.parent ?? Data(), wire?.name ?? Data(), wire.flatMap(Self.batch),
                Int64(bitPattern: item.sequence), item.body))
        try refresh(item.name)
    }

    private static func batch(_ item: WireDocumentItem) -> Data? { item.hasTrash ? item.trash.batch : nil }

    /// Forgets the item as the server told it.
    func forget(_ item: Synced, _ state: inout ScopeState) throws {
        if let digest = item.digest(key: state.digestKey) { state.digest.remove(digest) }
        try cached("DELETE FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.name.rawValue))
        try refresh(item.name)
    }

    // MARK: What waits

    /// Queues a request, and lays it over what is read.
    ///
    /// - Parameter contents: Of those that it brings and that are not in it, where they wait.
    @discardableResult
    func append(
        _ request: WireApplyChanges, contents: [StagedContent] = [], id: OperationID, writer: Int64, now: Timestamp
    ) throws -> Int64 {
        let position = try rows.append(try request.serializedData(), id: id, writer: writer, now: now)
        var items: [ItemName] = []
        for (ordinal, change) in request.changes.enumerated() {
            guard let item = DocumentID(bytes: change.item)?.name else { continue }
            try cached(
                "INSERT INTO document_changes (account, container, item, position, ordinal, change) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ).execute(arguments: arguments(item.rawValue, position, ordinal, try change.serializedData()))
            items.append(item)
        }
        for content in contents where content.inline == nil {
            try cached(
                "INSERT OR REPLACE INTO document_contents (account, container, version, position, length, chunks) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ).execute(
                arguments: arguments(
                    content.version.wire, position, Int64(clamping: content.length), CutChunk.encode(content.chunks)))
        }
        for item in Set(items) { try refresh(item) }
        return position
    }

    func isWaiting(_ name: ItemName) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_changes WHERE account = ?1 AND container = ?2 AND item = ?3 LIMIT 1"),
            arguments: arguments(name.rawValue)) ?? false
    }

    /// Takes a request's changes out of what is read.
    func removeChanges(at position: Int64) throws {
        let items = try String.fetchAll(
            cached("SELECT DISTINCT item FROM document_changes WHERE position = ?1"), arguments: [position])
        try cached("DELETE FROM document_changes WHERE position = ?1").execute(arguments: [position])
        for item in items { try refresh(ItemName(item)) }
    }

    /// What is read of the item, made anew.
    private func refresh(_ name: ItemName) throws {
        try touch(name)
        let changes = try Data.fetchAll(
            cached(
                "SELECT change FROM document_changes WHERE account = ?1 AND container = ?2 AND item = ?3 "
                    + "ORDER BY position, ordinal"),
            arguments: arguments(name.rawValue))
        guard !changes.isEmpty else {
            return try cached("DELETE FROM document_views WHERE account = ?1 AND container = ?2 AND item = ?3")
                .execute(arguments: arguments(name.rawValue))
        }
        var item = try synced(name)?.body.flatMap { try? WireDocumentItem(serializedBytes: $0) }
        for change in changes {
            item = DocumentChanges.apply(try WireDocumentChange(serializedBytes: change), to: item)
        }
        try cached(
            "INSERT OR REPLACE INTO document_views (account, container, item, parent, name, trash, body) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(
            arguments: arguments(
                name.rawValue, item?.parent ?? Data(), item?.name ?? Data(), item.flatMap(Self.batch),
                try item?.serializedData()))
    }

    // MARK: Reading

    /// Everything that is there, as it is read.
    private static let visible = """
        SELECT item, parent, name, trash, body, 1 AS pending FROM document_views
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND /**/
        UNION ALL
        SELECT item, parent, name, trash, body, 0 FROM documents d
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND /**/
            AND NOT EXISTS (SELECT 1 FROM document_views v
                WHERE v.account = ?1 AND v.container = ?2 AND v.item = d.item)
        """

    // Those that are asked a million times are made once.
    private static let one = visible.replacing("/**/", with: "item = ?3")
    private static let page = visible.replacing("/**/", with: "parent = ?3 AND (name, item) > (?4, ?5)") + pageEnd
    private static let pageOfName =
        visible.replacing("/**/", with: "parent = ?3 AND (name, item) > (?4, ?5) AND name = ?7") + pageEnd
    private static let pageEnd = " ORDER BY name, item LIMIT ?6"

    private func fetch(
        where condition: String, order: String = "", _ values: (any DatabaseValueConvertible)?...
    ) throws -> [HeldDocument] {
        try Row.fetchAll(
            cached(Self.visible.replacing("/**/", with: condition) + order),
            arguments: StatementArguments([account, container] + values)
        ).compactMap(Self.held)
    }

    /// Nil: it cannot be read here.
    private static func held(_ row: Row) -> HeldDocument? {
        guard let id = DocumentID(row["item"] as String),
            let wire = try? WireDocumentItem(serializedBytes: row["body"] as Data)
        else { return nil }
        return HeldDocument(id: id, wire: wire, isPending: row["pending"])
    }

    func document(_ id: DocumentID) throws -> HeldDocument? {
        try Row.fetchOne(cached(Self.one), arguments: arguments(id.description)).flatMap(Self.held)
    }

    /// What lies in the folder and not in the trash, by name.
    func children(of folder: DocumentID) throws -> [HeldDocument] {
        try fetch(where: "parent = ?3 AND trash IS NULL", order: " ORDER BY name, item", folder.wire)
    }

    /// What lies in the folder, in the trash or not, after a place in it, in an order of its own.
    ///
    /// - Parameter name: Only what is called so; nil: everything.
    /// - Returns: With the place of the last of them; nil: nothing follows.
    func everything(
        in folder: DocumentID, named name: Data?, after place: (name: Data, item: String), limit: Int
    ) throws -> (items: [HeldDocument], last: (name: Data, item: String)?) {
        var values = arguments(folder.wire, place.name, place.item, limit)
        if let name { values += [name] }
        let rows = try Row.fetchCursor(cached(name == nil ? Self.page : Self.pageOfName), arguments: values)
        var items: [HeldDocument] = []
        var count = 0
        var last = place
        while let row = try rows.next() {
            count += 1
            last = (row["name"], row["item"])
            if let item = Self.held(row) { items.append(item) }
        }
        return (items, count < limit ? nil : last)
    }

    func child(of folder: DocumentID, named name: Data) throws -> HeldDocument? {
        try fetch(where: "parent = ?3 AND name = ?4 AND trash IS NULL", order: " ORDER BY item", folder.wire, name)
            .first
    }

    /// What lies in the trash in its own right.
    ///
    /// - Parameter batch: Nil: of all.
    func trashed(batch: DocumentID? = nil) throws -> [HeldDocument] {
        guard let batch else { return try fetch(where: "trash IS NOT NULL", order: " ORDER BY name, item") }
        return try fetch(where: "trash = ?3", order: " ORDER BY name, item", batch.wire)
    }

    /// Everything with a body, in no order that means anything.
    func all() throws -> [HeldDocument] { try fetch(where: "1") }

    // MARK: Contents that wait

    /// A content that its request needs and that is not stored there yet.
    struct WaitingContent {
        var version: DocumentID
        var position: Int64
        var chunks: [CutChunk]
    }

    func waitingContents(at position: Int64) throws -> [WaitingContent] {
        try Row.fetchAll(
            cached(
                "SELECT version, position, chunks FROM document_contents WHERE account = ?1 AND container = ?2 "
                    + "AND position = ?3 AND is_stored = 0 ORDER BY version"),
            arguments: arguments(position)
        ).compactMap { row in
            DocumentID(bytes: row["version"] as Data).map {
                WaitingContent(version: $0, position: row["position"], chunks: CutChunk.decode(row["chunks"]))
            }
        }
    }

    /// The requests that have to wait for their contents.
    func unstoredPositions() throws -> Set<Int64> {
        Set(
            try Int64.fetchAll(
                cached(
                    "SELECT DISTINCT position FROM document_contents WHERE account = ?1 AND container = ?2 "
                        + "AND is_stored = 0 AND position IN (SELECT position FROM outbox)"), arguments: arguments()))
    }

    /// Whether the content is here, in the home.
    func holdsContent(_ version: Data) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3"),
            arguments: arguments(version)) ?? false
    }

    func isUploading(_ version: Data) throws -> Bool { try progress(of: version)?.isStored == false }

    /// The contents that a request needs are stored.
    func markStored(at position: Int64) throws {
        try cached(
            "UPDATE document_contents SET is_stored = 1, percent = 100 "
                + "WHERE account = ?1 AND container = ?2 AND position = ?3"
        ).execute(arguments: arguments(position))
        try touchItems(at: position)
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
                    + "AND version = ?3"),
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

    /// Contents of a home that wait or were refused, of whichever account and container.
    static func neededContents(_ database: Database) throws -> Set<DocumentID> {
        Set(
            try Data.fetchAll(database, sql: "SELECT version FROM document_contents")
                .compactMap { DocumentID(bytes: $0) })
    }

    /// Contents of an account that were refused, and are nowhere but here.
    static func refusedContents(of account: AccountID, _ database: Database) throws -> Int {
        // Nobody may have opened a container in this home yet.
        guard try database.tableExists("document_refusals") else { return 0 }
        return try Int.fetchOne(
            database, sql: "SELECT COUNT(*) FROM document_refusals WHERE account = ? AND version IS NOT NULL",
            arguments: [account.rawValue]) ?? 0
    }

    // MARK: What was refused

    func recordRefusal(
        _ changes: [(item: ItemName, path: String, version: Data?)], of position: Int64, _ error: CloudError,
        now: Timestamp
    ) throws {
        for (ordinal, change) in changes.enumerated() {
            try cached(
                "INSERT OR REPLACE INTO document_refusals (account, container, position, ordinal, path, version, "
                    + "refused_at, error, item) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
            ).execute(
                arguments: arguments(
                    position, ordinal, change.path, change.version, Int64(bitPattern: now.milliseconds),
                    StoredError.encode(error), change.item.rawValue))
            try touch(change.item)
        }
    }

    struct Refusal {
        var position: Int64
        /// Empty: it was refused by a release that did not keep it.
        var item: ItemName
        var path: String
        /// Of the content that is still here.
        var version: DocumentID?
        var at: Timestamp
        var error: CloudError
    }

    func refusals() throws -> [Refusal] {
        try Row.fetchAll(
            cached(
                "SELECT position, item, path, version, refused_at, error FROM document_refusals "
                    + "WHERE account = ?1 AND container = ?2 ORDER BY position, ordinal"),
            arguments: arguments()
        ).compactMap { row in
            StoredError.decode(row["error"]).map {
                Refusal(
                    position: row["position"], item: ItemName(row["item"] as String), path: row["path"],
                    version: (row["version"] as Data?).flatMap { DocumentID(bytes: $0) },
                    at: Timestamp(milliseconds: UInt64(bitPattern: row["refused_at"] as Int64)), error: $0)
            }
        }
    }

    /// Whether a change of the item was refused, and nobody has dismissed that.
    func isRefused(_ id: DocumentID) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_refusals WHERE account = ?1 AND container = ?2 AND item = ?3 LIMIT 1"),
            arguments: arguments(id.description)) ?? false
    }

    func removeRefusal(_ refusal: Refusal) throws {
        try cached(
            "DELETE FROM document_refusals WHERE account = ?1 AND container = ?2 AND position = ?3 AND path = ?4"
        ).execute(arguments: arguments(refusal.position, refusal.path))
        try touch(refusal.item)
        guard let version = refusal.version else { return }
        try cached("DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3")
            .execute(arguments: arguments(version.wire))
    }
}
