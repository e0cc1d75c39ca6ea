internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The rows of links to contents.
enum LinkRows {
    struct Link: Sendable {
        var scope: ScopeName
        var id: DocumentID
        var app: AppID
        var expires: Timestamp
        /// Bytes that the row counts on the plan.
        var counted: UInt64
        /// A `LinkRecord`.
        var sealed: [UInt8]

        fileprivate var key: [SQLValue] { LinkRows.key(scope) + [.blob(id.bytes)] }
    }

    private static func key(_ scope: ScopeName) -> [SQLValue] {
        [.integer(Int64(scope.partition)), .text(scope.owner.rawValue), .text(scope.path.rawValue)]
    }

    private static func time(_ time: Timestamp) -> SQLValue { .integer(Int64(clamping: time.milliseconds)) }

    private static let columns = "owner, container, link, app, expires, counted, sealed"
    private static let container = "partition_number = ?1 AND owner = ?2 AND container = ?3"
    private static let insert = SQL(
        """
        INSERT INTO document_links (partition_number, owner, container, link, secret_hash, app, expires, counted, sealed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        """)
    private static let selectOne = SQL("SELECT \(columns) FROM document_links WHERE \(container) AND link = ?4")
    private static let selectSecret = SQL(
        "SELECT 1 FROM document_links WHERE \(container) AND link = ?4 AND secret_hash = ?5")
    private static let selectAnySecret = SQL("SELECT 1 FROM document_links WHERE secret_hash = ?1")
    private static let selectOpen = SQL("SELECT \(columns) FROM document_links WHERE secret_hash = ?1 AND expires > ?2")
    private static let selectIsOpen = SQL(
        "SELECT 1 FROM document_links WHERE \(container) AND link = ?4 AND expires > ?5")
    private static let selectAll = SQL("SELECT \(columns) FROM document_links WHERE \(container) AND expires > ?4")
    private static let countAll = SQL("SELECT COUNT(*) FROM document_links WHERE partition_number = ?1 AND owner = ?2")
    private static let selectEnded = SQL(
        """
        SELECT \(columns) FROM document_links
        WHERE expires <= ?1 AND (expires, partition_number, owner, container, link) > (?2, ?3, ?4, ?5, ?6)
        ORDER BY expires, partition_number, owner, container, link LIMIT ?7
        """)
    private static let selectOwner = SQL(
        """
        SELECT \(columns) FROM document_links
        WHERE partition_number = ?1 AND owner = ?2 AND expires > 0 AND (container, link) > (?3, ?4)
        ORDER BY container, link LIMIT ?5
        """)
    private static let selectNext = SQL(
        """
        SELECT \(columns) FROM document_links
        WHERE expires > 0 AND (partition_number, owner, container, link) > (?1, ?2, ?3, ?4)
        ORDER BY partition_number, owner, container, link LIMIT ?5
        """)
    private static let updateEnded = SQL("UPDATE document_links SET expires = 0 WHERE \(container) AND link = ?4")
    private static let delete = SQL("DELETE FROM document_links WHERE \(container) AND link = ?4")

    private static func link(_ row: any SQLRow) -> Link? {
        DocumentID(bytes: row.blob(2)).map {
            Link(
                scope: ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1))), id: $0, app: AppID(row.text(3)),
                expires: Timestamp(milliseconds: UInt64(clamping: row.integer(4))),
                counted: UInt64(clamping: row.integer(5)), sealed: row.blob(6))
        }
    }

    static func add(_ link: Link, secretHash: [UInt8], in transaction: any Transaction) throws {
        try transaction.execute(
            insert,
            link.key + [
                .blob(secretHash), .text(link.app.rawValue), time(link.expires),
                .integer(Int64(clamping: link.counted)),
                .blob(link.sealed),
            ])
    }

    static func remove(_ link: Link, in transaction: any Transaction) throws {
        try transaction.execute(delete, link.key)
    }

    /// Has it end now; it is removed later.
    static func end(_ link: Link, in transaction: any Transaction) throws {
        try transaction.execute(updateEnded, link.key)
    }

    static func find(_ id: DocumentID, of scope: ScopeName, in transaction: any ReadTransaction) throws -> Link? {
        try transaction.first(selectOne, key(scope) + [.blob(id.bytes)], link) ?? nil
    }

    static func isSecret(_ hash: [UInt8], of link: Link, in transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(selectSecret, link.key + [.blob(hash)]) { _ in true } ?? false
    }

    static func isTaken(_ hash: [UInt8], in transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(selectAnySecret, [.blob(hash)]) { _ in true } ?? false
    }

    /// The link with this secret that is good now. One that has expired is looked for as long as one that there never
    /// was.
    static func open(_ hash: [UInt8], at now: Timestamp, in transaction: any ReadTransaction) throws -> Link? {
        try transaction.first(selectOpen, [.blob(hash), time(now)], link) ?? nil
    }

    static func isOpen(_ link: Link, at now: Timestamp, in transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(selectIsOpen, link.key + [time(now)]) { _ in true } ?? false
    }

    /// Those of a container that are good now.
    static func all(of scope: ScopeName, at now: Timestamp, in transaction: any ReadTransaction) throws -> [Link] {
        try transaction.all(selectAll, key(scope) + [time(now)], link).compactMap { $0 }
    }

    /// How many an account has, those among them that are about to be removed.
    static func count(of owner: Owner, in transaction: any ReadTransaction) throws -> Int {
        try transaction.first(
            countAll, [.integer(Int64(ScopeName(owner, "").partition)), .text(owner.rawValue)]
        ) { Int($0.integer(0)) } ?? 0
    }

    /// Those that have ended, behind one of them. Nil: from the first on.
    static func ended(
        at now: Timestamp, after last: Link?, limit: Int, in transaction: any ReadTransaction
    ) throws -> [Link] {
        let start = last.map { [time($0.expires)] + $0.key } ?? [.integer(-1)] + beforeAll
        return try transaction.all(selectEnded, [time(now)] + start + [.integer(Int64(limit))], link)
            .compactMap { $0 }
    }

    /// An account's, behind one of them. Nil: from the first on.
    static func next(
        of owner: Owner, after last: Link?, limit: Int, in transaction: any ReadTransaction
    ) throws -> [Link] {
        let account: [SQLValue] = [.integer(Int64(ScopeName(owner, "").partition)), .text(owner.rawValue)]
        let start = last.map { Array($0.key.dropFirst(2)) } ?? [.text(""), .blob([])]
        return try transaction.all(selectOwner, account + start + [.integer(Int64(limit))], link).compactMap { $0 }
    }

    private static let beforeAll: [SQLValue] = [.integer(-1), .text(""), .text(""), .blob([])]

    /// Those behind one, of all accounts. Nil: from the first on.
    static func next(after last: Link?, limit: Int, in transaction: any ReadTransaction) throws -> [Link] {
        let start = last?.key ?? beforeAll
        return try transaction.all(selectNext, start + [.integer(Int64(limit))], link).compactMap { $0 }
    }
}
