internal import CNephosSQLiteShim
internal import GRDB
internal import GRDBSQLite
public import Logging
internal import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// What an engine does that finds nothing where there was a database.
public enum LostDatabase: Sendable {
    /// It begins a new one, and says so in the log: others have what was in it, and bring it back.
    case beginAnew
    /// It does not open: nobody else has what was in it.
    case refuse
}

/// A ``StorageEngine`` over one SQLite file: write-ahead log, flushed at each commit.
///
/// The file is owned by one engine at a time. It is checked when it is opened,
/// which takes about a second for each gigabyte.
public final class SQLiteEngine: StorageEngine {
    private let database: DatabaseQueue
    private let connection: OpaquePointer
    private let transaction: SQLiteTransaction
    private let checkpointer: Checkpointer?
    private let log = LogLength()
    public private(set) var figures = StorageFigures()
    /// Nil: in memory.
    private let reserve: DiskReserve?
    private var lock: WriterLock?
    private var isClosed = false
    public let snapshots: any Snapshots
    private let files: SQLiteSnapshots?

    /// Opens the database, and creates it (readable by its owner only) if it is not there.
    ///
    /// - Parameter ifLost: What happens where there was a database, and its file is gone or empty.
    /// - Throws: ``CloudError`` `.storageFailure`: the directory is missing or
    ///   not ours, another process has the database open, or the file is
    ///   damaged or lost (restore the last backup). The message says which.
    public convenience init(
        path: String, ifLost: LostDatabase = .beginAnew, logger: Logger = Logger(label: "storage")
    ) throws {
        let lock = try WriterLock(database: path)
        try Self.lookForLoss(path, ifLost, logger)
        try lock.createDatabase(at: path)
        do {
            var configuration = Self.configuration
            configuration.journalMode = .wal
            let database = try DatabaseQueue(path: path, configuration: configuration)
            try database.writeWithoutTransaction(Self.check)
            let checkpointer = Checkpointer(path: path, logger: logger)
            try self.init(
                database, lock: lock, checkpointer: checkpointer, reserve: DiskReserve(database: path),
                files: SQLiteSnapshots(path: path))
            figures.path = path
        } catch {
            var failure = SQLiteFailure.error(error)
            if var error = failure as? CloudError {
                error.details["file"] = path
                failure = error
            }
            throw failure
        }
    }

    /// SQLite takes an empty file for a new database, and removes the log that lies beside it.
    private static func lookForLoss(_ path: String, _ ifLost: LostDatabase, _ logger: Logger) throws {
        // Both are made after the database, and the reserve stays when the service stops.
        let traces = [DiskReserve.file(of: path), path + "-wal"]
        guard byteCount(path) == 0, let trace = traces.first(where: { byteCount($0) > 0 }) else { return }
        switch ifLost {
        case .beginAnew:
            logger.warning(
                "The database is lost: its file is gone or empty, and a new one begins. Devices offer what they hold",
                metadata: ["file": "\(path)", "beside": "\(trace)"])
        case .refuse:
            throw CloudError(
                .storageFailure,
                "The database is lost: its file is gone or empty. Restore the last backup; nobody else has what was in it. To begin with nothing, remove the folder that it is in.",
                details: ["file": path, "beside": trace])
        }
    }

    /// Of a file; 0: there is none.
    private static func byteCount(_ path: String) -> Int {
        var information = stat()
        return stat(path, &information) == 0 ? Int(information.st_size) : 0
    }

    /// A database that ends with the engine. For tests.
    public static func inMemory() throws -> SQLiteEngine {
        try SQLiteEngine(DatabaseQueue(configuration: configuration), lock: nil, checkpointer: nil, reserve: nil)
    }

    /// A copy of the database as it is now, in memory. For tests of what comes back from a copy.
    public func copyInMemory() throws -> SQLiteEngine {
        let copy = try DatabaseQueue(configuration: Self.configuration)
        try database.backup(to: copy)
        return try SQLiteEngine(copy, lock: nil, checkpointer: nil, reserve: nil)
    }

    /// Once, before the first database of this process; later it does nothing, and no harm.
    private static let hasNoMemoryAccounts = nephos_sqlite_disable_memory_accounts() == SQLITE_OK

    private static var configuration: Configuration {
        _ = hasNoMemoryAccounts
        var configuration = Configuration()
        // Nothing of ours holds the writer up; an operator's tool might, for a moment.
        configuration.busyMode = .timeout(Double(Checkpointer.busyMilliseconds) / 1000)
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA cache_size = -65536")  // KiB
            // What a statement would write to a temporary file, page by page, stays in memory.
            try database.execute(sql: "PRAGMA temp_store = MEMORY")
            // What is deleted is overwritten: a destroyed key must not lie in a free page.
            try database.execute(sql: "PRAGMA secure_delete = ON")
        }
        return configuration
    }

    private init(
        _ database: DatabaseQueue, lock: WriterLock?, checkpointer: Checkpointer?, reserve: DiskReserve?,
        files: SQLiteSnapshots? = nil
    ) throws {
        self.files = files
        self.reserve = reserve
        self.database = database
        self.lock = lock
        self.checkpointer = checkpointer
        connection = try database.writeWithoutTransaction { database in
            // After GRDB's own set-up, which makes it NORMAL: a commit would not be flushed.
            try database.execute(sql: "PRAGMA synchronous = FULL")
            let synchronous = try Int.fetchOne(database, sql: "PRAGMA synchronous")
            guard synchronous == 2, let connection = database.sqliteConnection else {
                throw CloudError(
                    .storageFailure,
                    "SQLite does not flush its commits. Use a build of SQLite that knows synchronous = FULL."
                )
            }
            return connection
        }
        // They report to GRDB's observers, of which we have none, and expect GRDB's own statements around each commit.
        sqlite3_commit_hook(connection, nil, nil)
        sqlite3_rollback_hook(connection, nil, nil)
        transaction = SQLiteTransaction(on: connection)
        snapshots = files ?? MemorySnapshots(transaction)
        if checkpointer != nil {
            sqlite3_wal_autocheckpoint(connection, 0)
            // The context is this engine's own; `close` removes the hook before it goes.
            let context = Unmanaged.passUnretained(log).toOpaque()
            let hook: @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32
            hook = { context, _, _, pages in
                if let context { Unmanaged<LogLength>.fromOpaque(context).takeUnretainedValue().note(pages) }
                return SQLITE_OK
            }
            sqlite3_wal_hook(connection, hook, context)
        }
    }

    deinit { close() }

    private static func check(_ database: Database) throws {
        let findings = try String.fetchAll(database, sql: "PRAGMA quick_check(1)")
        guard findings == ["ok"] else { throw SQLiteFailure.error(SQLITE_CORRUPT) }
    }

    /// Of the tables as this version of Nephos makes them. Others are not brought over.
    private static let schemaVersion = 3

    public func migrate(_ migrations: [Migration]) throws {
        // Neither a transaction, which would wait for others, nor GRDB's reading, which expires all prepared statements.
        let (version, isNew) = try database.writeWithoutTransaction { database in
            (try Int.fetchOne(database, sql: "PRAGMA user_version"), try !database.tableExists("grdb_migrations"))
        }
        if version != Self.schemaVersion {
            guard isNew else {
                throw CloudError(
                    .incompatibleVersion,
                    "Another version of Nephos made this database. Use that version, or restore a backup.",
                    details: ["schema_version": "\(version ?? 0)", "expected": "\(Self.schemaVersion)"])
            }
            try database.write { try $0.execute(sql: "PRAGMA user_version = \(Self.schemaVersion)") }
        }
        var migrator = DatabaseMigrator()
        for migration in migrations {
            migrator.registerMigration(migration.name) { database in
                for statement in migration.statements {
                    SQLRecord.note(statement, of: "migration/" + migration.name)
                    try database.execute(sql: statement)
                }
            }
        }
        do { try migrator.migrate(database) } catch let error as CloudError { throw error } catch {
            throw SQLiteFailure.error(error)
        }
    }

    /// Inline: the completion was called when this returns.
    public func run<Value>(
        _ work: @escaping (any Transaction) throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        let result: Result<Value, any Error>
        do { result = .success(try write(work)) } catch { result = .failure(error) }
        completion(result)
    }

    public func write<Result>(_ body: (any Transaction) throws -> Result) throws -> Result {
        guard !isClosed else { throw CloudError(.storageFailure, "The database is closed.") }
        if let reserve, reserve.isGivenUp { lookForRoom(reserve) }
        try transaction.begin()
        do {
            let result = try body(transaction)
            try commit()
            shortenLog()
            return result
        } catch {
            let lacksRoom = transaction.lacksRoom
            transaction.rollBack()
            if lacksRoom { reserve?.giveUp() }
            throw error
        }
    }

    private func commit() throws {
        let (before, start) = (log.commits, ContinuousClock.now)
        try transaction.commit()
        // What only reads has nothing to flush.
        if log.commits != before { figures.flushes.note(start.duration(to: .now).nanoseconds) }
    }

    private func shortenLog() {
        switch checkpointer?.committed(log.pages, on: connection) {
        case .done: noteCut()
        case .refused: files?.hold()
        case nil: break
        }
    }

    /// SQLite tells how long the log is only when something is written to it again.
    private func noteCut() {
        log.pages = 0
        files?.release()
    }

    public var isShortOfRoom: Bool { reserve?.isGivenUp == true }

    /// Makes the reserve again once there is room for it, and keeps the log short until then.
    private func lookForRoom(_ reserve: DiskReserve) {
        let free = pragma("freelist_count") * pragma("page_size")
        let mayReturn = reserve.mayReturn(logBytes: Int(log.pages) * 4096, freeInDatabase: free)
        guard mayReturn || log.pages >= DiskReserve.logPagesMax else { return }
        // While somebody reads the log it stays; the next write looks again.
        guard (try? cutLog()) == true else { return }
        if mayReturn { reserve.makeAgain(freeInDatabase: free) }
    }

    private func pragma(_ name: String) -> Int {
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        guard sqlite3_prepare_v2(connection, "PRAGMA " + name, -1, &statement, nil) == SQLITE_OK,
            sqlite3_step(statement) == SQLITE_ROW
        else { return 0 }
        return Int(sqlite3_column_int64(statement, 0))
    }

    /// Starts a checkpoint on a thread of its own, unless one is under way.
    /// The engine asks for one by itself after each 16 MiB of log.
    public func checkpoint() {
        guard !isClosed else { return }
        checkpointer?.request()
    }

    public func cutLog() throws -> Bool {
        guard !isClosed else { throw CloudError(.storageFailure, "The database is closed.") }
        guard checkpointer != nil else { return true }
        sqlite3_busy_timeout(connection, 0)
        let code = sqlite3_wal_checkpoint_v2(connection, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil)
        sqlite3_busy_timeout(connection, Checkpointer.busyMilliseconds)
        if code == SQLITE_BUSY {
            files?.hold()
            return false
        }
        guard code == SQLITE_OK else {
            files?.release()
            throw SQLiteFailure.error(code)
        }
        noteCut()
        return true
    }

    /// How often statements had to be prepared anew, which takes ten times as long as most of them run. SQLite does it
    /// for a condition `column = ?` each time it is bound, where a partial index is of one value of that column.
    public var repreparations: Int { transaction.repreparations }

    public func close() {
        guard !isClosed else { return }
        isClosed = true
        sqlite3_wal_hook(connection, nil, nil)
        checkpointer?.wait()
        files?.close()
        transaction.finalize()
        // It fails only for statements that are still open, and there is none.
        try? database.close()
        lock = nil
    }
}

/// How many pages the log had after the last commit, as SQLite reports it.
private final class LogLength {
    var pages: Int32 = 0
    /// Commits that wrote something.
    private(set) var commits = 0

    func note(_ pages: Int32) {
        self.pages = pages
        commits &+= 1
    }
}
