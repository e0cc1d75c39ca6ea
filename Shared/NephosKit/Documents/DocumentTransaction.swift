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
/// `document_touches` names, in order, the items that may be read otherwise than before; see ``touch(_:)``.
struct DocumentTransaction {
    static let migrations = [
        LocalMigration(name: "documents 1", sql: tables), LocalMigration(name: "documents 2", sql: nameKeys),
        LocalMigration(name: "documents 2: touches", sql: touches),
        // How often the service has said that it has what a request needs, and then had it not.
        LocalMigration(
            name: "documents: sendings",
            sql: "ALTER TABLE document_contents ADD COLUMN sendings INTEGER NOT NULL DEFAULT 0"),
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

    // What a name clashes by, as the container compares names; empty where an earlier release has written the row.
    private static let nameKeys = """
        ALTER TABLE documents ADD COLUMN name_key BLOB NOT NULL DEFAULT x'';
        CREATE INDEX documents_by_name_key ON documents (account, container, parent, name_key);
        ALTER TABLE document_views ADD COLUMN name_key BLOB NOT NULL DEFAULT x'';
        CREATE INDEX document_views_by_name_key ON document_views (account, container, parent, name_key);
        CREATE INDEX documents_by_trash ON documents (account, container, trash) WHERE trash IS NOT NULL;
        CREATE INDEX document_views_by_trash ON document_views (account, container, trash) WHERE trash IS NOT NULL;
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
    private let known = Known()
    var account: String { rows.account }
    var container: String { rows.scope.name }

    init(_ rows: ScopeTransaction) { self.rows = rows }

    /// What is looked up once.
    private final class Known {
        var rule: DocumentNameRule?
    }

    /// What a name clashes by in this container.
    func key(of name: Data) throws -> Data {
        let rule = try known.rule ?? readRule()
        known.rule = rule
        return Data(rule.key(of: [UInt8](name)))
    }

    private func readRule() throws -> DocumentNameRule {
        let info = try WireContainerInfo(serializedBytes: rows.state().info)
        return UInt8(exactly: info.nameRule).flatMap { DocumentNameRule(rawValue: $0) } ?? .folded
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
        // What cannot be read here has no place, and is in the digest all the same. Of what was removed it is known
        // where it was: somebody may have written to it meanwhile.
        let wire = (item.body ?? old?.body).flatMap { try? WireDocumentItem(serializedBytes: $0) }
        try cached(
            "INSERT OR REPLACE INTO documents (account, container, item, parent, name, trash, sequence, body, name_key) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ).execute(
            arguments: arguments(
                item.name.rawValue, wire?.parent ?? Data(), wire?.name ?? Data(), wire.flatMap(Self.batch),
                Int64(bitPattern: item.sequence), item.body, try key(of: wire?.name ?? Data())))
        try refresh(item.name)
    }

    /// Where an item is or was last, as the server told it; nil: nobody knows.
    func lastPlace(of id: DocumentID) throws -> (folder: DocumentID, name: Data)? {
        try Row.fetchOne(
            cached("SELECT parent, name FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(id.description)
        ).flatMap { row in DocumentID(bytes: row["parent"] as Data).map { ($0, row["name"]) } }
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
        for content in contents where content.inline == nil {
            try addContent(content.version, at: position, length: content.length, chunks: content.chunks)
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
            "INSERT OR REPLACE INTO document_views (account, container, item, parent, name, trash, body, name_key) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ).execute(
            arguments: arguments(
                name.rawValue, item?.parent ?? Data(), item?.name ?? Data(), item.flatMap(Self.batch),
                try item?.serializedData(), try key(of: item?.name ?? Data())))
    }

    // MARK: Reading

    /// Everything that is there, as it is read.
    ///
    /// - Parameter index: Which index of both tables is used; nil: their keys. SQLite, left to itself, reads a container
    ///   through.
    private static func visible(where condition: String, by index: String?) -> String {
        """
        SELECT item, parent, name, trash, body, name_key, 1 AS pending
            FROM document_views \(index.map { "INDEXED BY document_views_by_\($0)" } ?? "")
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND \(condition)
        UNION ALL
        SELECT item, parent, name, trash, body, name_key, 0
            FROM documents AS d \(index.map { "INDEXED BY documents_by_\($0)" } ?? "")
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND \(condition)
            AND NOT EXISTS (SELECT 1 FROM document_views v
                WHERE v.account = ?1 AND v.container = ?2 AND v.item = d.item)
        """
    }

    // Those that are asked a million times are made once.
    private static let one = visible(where: "item = ?3", by: nil)
    private static let page = visible(where: "parent = ?3 AND (name, item) > (?4, ?5)", by: "place") + pageEnd
    private static let pageOfName =
        visible(where: "parent = ?3 AND (name, item) > (?4, ?5) AND name = ?7", by: "place") + pageEnd
    private static let pageEnd = " ORDER BY name, item LIMIT ?6"

    /// - Returns: By name, and then by id.
    private func fetch(
        where condition: String, by index: String? = nil, _ values: (any DatabaseValueConvertible)?...
    ) throws -> [HeldDocument] {
        try Row.fetchAll(
            cached(Self.visible(where: condition, by: index)),
            arguments: StatementArguments([account, container] + values)
        ).compactMap(Self.held).sorted {
            $0.wire.name == $1.wire.name ? $0.id < $1.id : $0.wire.name.lexicographicallyPrecedes($1.wire.name)
        }
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
        try fetch(where: "parent = ?3 AND trash IS NULL", by: "place", folder.wire)
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
        try children(of: folder, named: name).first
    }

    /// What a name of the folder stands for: what has these bytes first, then what clashes with them. More than one is
    /// there as long as the server has not said what they are called.
    func children(of folder: DocumentID, named name: Data) throws -> [HeldDocument] {
        let found = try fetch(
            where: "parent = ?3 AND name_key IN (?4, x'') AND trash IS NULL", by: "name_key", folder.wire, key(of: name)
        )
        let other = try found.filter { try $0.wire.name != name && key(of: $0.wire.name) == key(of: name) }
        return found.filter { $0.wire.name == name } + other
    }

    /// What lies in the trash in its own right.
    ///
    /// - Parameter batch: Nil: of all.
    func trashed(batch: DocumentID? = nil) throws -> [HeldDocument] {
        guard let batch else { return try fetch(where: "trash IS NOT NULL", by: "trash") }
        return try fetch(where: "trash = ?3 AND trash IS NOT NULL", by: "trash", batch.wire)
    }

    /// Items of which something waits to be sent.
    func pending() throws -> [HeldDocument] {
        try Row.fetchAll(
            cached(
                "SELECT item, body, 1 AS pending FROM document_views "
                    + "WHERE account = ?1 AND container = ?2 AND body IS NOT NULL ORDER BY item"),
            arguments: arguments()
        ).compactMap(Self.held)
    }

    /// Everything with a body, in no order that means anything.
    func all() throws -> [HeldDocument] { try fetch(where: "1") }

    // MARK: What waits later

    /// Changes what later requests do with an item, whose earlier change has come to nothing or to something else.
    func revise(
        _ item: DocumentID, after position: Int64, _ body: (inout WireDocumentChange) throws -> Void
    ) throws {
        let later = try Int64.fetchAll(
            cached(
                "SELECT DISTINCT position FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND position > ?4 ORDER BY position"),
            arguments: arguments(item.description, position))
        for position in later {
            // What was sent is frozen, and what it was sent with.
            guard let operation = try rows.operations(limit: 1, where: "position = \(position)").first,
                operation.state == .unsent
            else { continue }
            var request = try WireApplyChanges(serializedBytes: operation.payload)
            for index in request.changes.indices where request.changes[index].item == item.wire {
                try body(&request.changes[index])
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
                        + "WHERE account = ?1 AND container = ?2 AND is_stored = 0"), arguments: arguments()
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

    // MARK: Contents that wait

    /// A content that its request needs and that is not stored there yet.
    struct WaitingContent {
        var version: DocumentID
        var position: Int64
        var chunks: [CutChunk]
    }

    func waitingContents(at position: Int64) throws -> [WaitingContent] {
        try contents(at: position, " AND is_stored = 0")
    }

    /// Those that a request brings and that are not in it.
    func contents(at position: Int64, _ condition: String = "") throws -> [WaitingContent] {
        try Row.fetchAll(
            cached(
                "SELECT version, position, chunks FROM document_contents WHERE account = ?1 AND container = ?2 "
                    + "AND position = ?3\(condition) ORDER BY version"),
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

    /// Whether another request brings the content, and has yet to be answered.
    func isSentElsewhere(_ version: Data, than position: Int64) throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT 1 FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 "
                    + "AND position <> ?4 AND position IN (SELECT position FROM outbox)"),
            arguments: arguments(version, position)) ?? false
    }

    /// A request that was never sent and has to wait for its contents.
    struct Unstored {
        var position: Int64
        /// Bytes of them.
        var length: UInt64
        var attempts: Int
        var nextAttempt: Timestamp
    }

    func unstored() throws -> [Unstored] {
        try Row.fetchAll(
            cached(
                "SELECT c.position, sum(c.length) AS bytes, o.attempts, o.next_attempt FROM document_contents c "
                    + "JOIN outbox o ON o.position = c.position AND o.state = 'unsent' "
                    + "WHERE c.account = ?1 AND c.container = ?2 AND c.is_stored = 0 GROUP BY c.position"),
            arguments: arguments()
        ).map { row in
            Unstored(
                position: row["position"], length: UInt64(clamping: row["bytes"] as Int64), attempts: row["attempts"],
                nextAttempt: Timestamp(milliseconds: UInt64(bitPattern: row["next_attempt"] as Int64)))
        }
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

    /// Whether the content is here, in the home.
    func holdsContent(_ version: Data) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3"),
            arguments: arguments(version)) ?? false
    }

    /// The version under which these bytes are in the home; nil: they are not. Another item may have brought them, of
    /// which this one is a copy.
    func heldVersion(of content: WireDocumentContent) throws -> DocumentID? {
        if try holdsContent(content.version) { return DocumentID(bytes: content.version) }
        return try Row.fetchAll(
            cached(
                "SELECT version, chunks FROM document_contents WHERE account = ?1 AND container = ?2 AND length = ?3"),
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

    /// Notes that a content is here, in the home.
    func addContent(_ version: DocumentID, at position: Int64, length: UInt64, chunks: [CutChunk]) throws {
        try cached(
            "INSERT OR REPLACE INTO document_contents (account, container, version, position, length, chunks) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        ).execute(
            arguments: arguments(version.wire, position, Int64(clamping: length), CutChunk.encode(chunks)))
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

    /// A place for what is refused of a request that goes on without it.
    func nextRefusal() throws -> Int64 {
        let least = try Int64.fetchOne(
            cached("SELECT min(position) FROM document_refusals WHERE account = ?1 AND container = ?2"),
            arguments: arguments())
        return min(0, least ?? 0) - 1
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

    /// Takes a refusal out, and its bytes with it unless they wait to be sent by something else.
    func removeRefusal(_ refusal: Refusal) throws {
        try cached(
            "DELETE FROM document_refusals WHERE account = ?1 AND container = ?2 AND position = ?3 AND path = ?4"
        ).execute(arguments: arguments(refusal.position, refusal.path))
        try touch(refusal.item)
        guard let version = refusal.version else { return }
        try cached(
            "DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 AND position = ?4"
        ).execute(arguments: arguments(version.wire, refusal.position))
    }
}
