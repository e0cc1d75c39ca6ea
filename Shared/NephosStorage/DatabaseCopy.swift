internal import GRDBSQLite
public import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Copies of a service's database, made beside a service that runs, and looked at without one.
///
/// A copy is the database as it was at one moment, page by page. Its maker reads only, from a snapshot that it holds
/// while the pages go from the page cache to the target's, which is not flushed meanwhile: the writer does not wait for
/// it, and the log cannot be cut for so long (about a second for a gigabyte on a disk of today).
public enum DatabaseCopy {
    /// Copies the database. The copy is not flushed: that is for the caller, when the snapshot is let go.
    ///
    /// - Parameters:
    ///   - source: Without links: none is followed, which its owner could have had root follow.
    ///   - target: Made, readable by its owner only; it must not be there.
    ///   - check: Called now and then; what it throws ends the copying, and the target is removed.
    /// - Returns: How long the snapshot was held.
    /// - Throws: ``CloudError`` `.storageFailure`, with the file that is at fault.
    public static func make(
        of source: String, at target: String, checking check: () throws -> Void = {}
    ) throws -> Duration {
        let made = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard made >= 0 else { throw failure(SQLITE_CANTOPEN, target) }
        close(made)
        do { return try copy(source, to: target, check) } catch {
            unlink(target)
            throw error
        }
    }

    /// Pages that are copied between two looks at whether to go on: 16 MiB.
    private static let pagesOfStep: Int32 = 4096

    private static func copy(_ source: String, to target: String, _ check: () throws -> Void) throws -> Duration {
        let from = try Connection(source, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW)
        let to = try Connection(target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW)
        try to.execute("PRAGMA journal_mode = OFF")
        try to.execute("PRAGMA synchronous = OFF")
        // What is read is of one moment: from here to the end of the transaction. Else each step would begin a snapshot
        // of its own, and the copying would begin anew whenever somebody has written in between.
        try from.execute("BEGIN")
        defer { try? from.execute("ROLLBACK") }
        _ = try from.integers("SELECT count(*) FROM sqlite_schema")
        let begun = ContinuousClock.now
        guard let copying = sqlite3_backup_init(to.handle, "main", from.handle, "main") else {
            throw failure(sqlite3_errcode(to.handle), target)
        }
        var code = SQLITE_OK
        do {
            while code == SQLITE_OK {
                try check()
                code = sqlite3_backup_step(copying, pagesOfStep)
            }
        } catch {
            sqlite3_backup_finish(copying)
            throw error
        }
        let end = sqlite3_backup_finish(copying)
        guard code == SQLITE_DONE, end == SQLITE_OK else {
            throw failure(code == SQLITE_DONE ? end : code, code & 0xff == SQLITE_FULL ? target : source)
        }
        return begun.duration(to: .now)
    }

    /// Looks whether a copy is whole.
    ///
    /// - Parameter isThorough: Whether indexes are compared with their tables too, which takes some times as long.
    /// - Throws: ``CloudError`` `.storageFailure`: it is damaged, or cannot be read.
    public static func requireSound(_ path: String, isThorough: Bool = false) throws {
        let connection = try Connection(immutable: path)
        let findings = try connection.texts("PRAGMA \(isThorough ? "integrity_check" : "quick_check")(1)")
        guard findings == ["ok"] else { throw failure(SQLITE_CORRUPT, path) }
    }

    /// Rows of whole numbers of a copy that nobody writes to.
    public static func integers(_ query: String, of path: String) throws -> [[Int64]] {
        try Connection(immutable: path).integers(query)
    }

    /// The same of a database whose service may be running, as it is at this moment.
    public static func integers(_ query: String, ofLive path: String) throws -> [[Int64]] {
        try Connection(path, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW).integers(query)
    }

    /// The first column of a query's rows, of a copy that nobody writes to.
    public static func blobs(_ query: String, of path: String) throws -> [[UInt8]] {
        try Connection(immutable: path).blobs(query)
    }

    /// Notes in a copy that it is being brought back: at its service's next start another epoch begins, in the
    /// transaction that forgets the note.
    ///
    /// When it returns, the note survives a loss of power.
    public static func noteRestored(_ path: String, at now: Timestamp) throws {
        let connection = try Connection(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW)
        try connection.execute("PRAGMA synchronous = FULL")
        try connection.execute("INSERT INTO feed_restored (restored_at) VALUES (\(Int64(clamping: now.milliseconds)))")
        // In the file itself, so that there is no log to be lost.
        try connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    static func failure(_ code: Int32, _ path: String) -> CloudError {
        var error = SQLiteFailure.error(code)
        error.details["file"] = path
        return error
    }
}

/// A connection without GRDB's set-up, which would write.
private final class Connection {
    let handle: OpaquePointer
    private let path: String

    init(_ path: String, _ flags: Int32) throws {
        self.path = path
        var opened: OpaquePointer?
        let code = sqlite3_open_v2(path, &opened, flags | SQLITE_OPEN_NOMUTEX, nil)
        guard code == SQLITE_OK, let opened else {
            sqlite3_close_v2(opened)
            throw DatabaseCopy.failure(code, path)
        }
        handle = opened
        sqlite3_busy_timeout(handle, Checkpointer.busyMilliseconds)
    }

    /// Of a file that nobody writes to: nothing is made beside it.
    convenience init(immutable path: String) throws {
        let plain = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-_.~".utf8)
        let escaped = path.utf8.map { byte in
            if plain.contains(byte) { return String(UnicodeScalar(byte)) }
            let digits = String(byte, radix: 16)
            return "%" + (digits.count < 2 ? "0" : "") + digits
        }.joined()
        try self.init("file:" + escaped + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI)
    }

    deinit { sqlite3_close_v2(handle) }

    func execute(_ statement: String) throws {
        let code = sqlite3_exec(handle, statement, nil, nil, nil)
        guard code == SQLITE_OK else { throw DatabaseCopy.failure(code, path) }
    }

    func integers(_ query: String) throws -> [[Int64]] {
        try rows(query) { statement in
            (0..<sqlite3_column_count(statement)).map { sqlite3_column_int64(statement, $0) }
        }
    }

    func texts(_ query: String) throws -> [String] {
        try rows(query) { sqlite3_column_text($0, 0).map { String(cString: $0) } ?? "" }
    }

    func blobs(_ query: String) throws -> [[UInt8]] {
        try rows(query) { statement in
            let count = Int(sqlite3_column_bytes(statement, 0))
            return sqlite3_column_blob(statement, 0).map { [UInt8](UnsafeRawBufferPointer(start: $0, count: count)) }
                ?? []
        }
    }

    private func rows<Row>(_ query: String, _ row: (OpaquePointer?) -> Row) throws -> [Row] {
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        var code = sqlite3_prepare_v2(handle, query, -1, &statement, nil)
        guard code == SQLITE_OK else { throw DatabaseCopy.failure(code, path) }
        var rows: [Row] = []
        code = sqlite3_step(statement)
        while code == SQLITE_ROW {
            rows.append(row(statement))
            code = sqlite3_step(statement)
        }
        guard code == SQLITE_DONE else { throw DatabaseCopy.failure(code, path) }
        return rows
    }
}
