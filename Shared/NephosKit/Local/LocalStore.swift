private import Foundation
internal import GRDB
package import NephosCore
private import Synchronization

/// The database of one device home: everything that must survive this process.
///
/// Several processes may open the same home at once, so nothing in memory is
/// taken for the truth: each decision is made inside an immediate transaction,
/// from what it reads there. Safe to use from any thread.
package final class LocalStore: Sendable {
    private let database: any DatabaseWriter
    /// Nil: it lives in memory.
    private let path: String?
    /// Where what is staged goes that does not fit into memory.
    private let temporaryFolder: String?
    /// The folder that it is in; nil: none.
    var home: String? { path.map { URL(fileURLWithPath: $0).deletingLastPathComponent().path } }
    /// Why nothing can be written, since it was opened; nil: it can.
    private let unwritable: CloudError?
    /// Names the database among all that may be found under its path, now and later. Nil: it is a copy in memory, of
    /// which no other process hears.
    let identity: String?
    /// Called before it is read or written.
    private let fault: (@Sendable (String) throws -> Void)?
    /// The thread on which an app's transaction runs.
    private let transacting = Mutex<ObjectIdentifier?>(nil)
    /// Called after each transaction that this process has committed.
    private let onWrite = Mutex<(@Sendable () -> Void)?>(nil)
    /// Raised whenever what is here may have changed, by this process or another one.
    let changed = Bell()

    /// Opens or creates the database file. WAL and `synchronous=FULL`: what a
    /// call has accepted survives a crash. Where nothing can be written (the disk is full, or mounted read-only) what
    /// is there can still be read.
    ///
    /// - Parameters:
    ///   - temporaryFolder: See ``DeviceOptions/temporaryFolder``.
    ///   - fault: See ``DeviceOptions/fault``.
    /// - Throws: ``CloudError`` `.storageFailure`; free space or repair permissions, then open again.
    package init(
        path: String, temporaryFolder: String? = nil, fault: (@Sendable (String) throws -> Void)? = nil
    ) throws(CloudError) {
        self.path = path
        self.temporaryFolder = temporaryFolder ?? LocalDisk.temporaryFolder
        self.fault = fault
        do {
            try fault?("open")
            database = try Self.openPool(path)
            unwritable = nil
            identity = Self.identity(of: path)
        } catch {
            let error = LocalFailure.error(of: error, at: path)
            guard let readable = LocalFailure.isForWantOfRoom(error) ? Self.openForReading(path) : nil else {
                throw error
            }
            database = readable
            unwritable = error
            identity = nil
        }
    }

    private static func identity(of path: String) -> String? {
        var information = stat()
        return stat(path, &information) == 0 ? "\(information.st_dev)-\(information.st_ino)" : nil
    }

    private static func openPool(_ path: String) throws -> DatabasePool {
        // Before SQLite makes it, which gives its other files the same mode.
        let descriptor = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
        for file in [path, path + "-wal", path + "-shm"] { chmod(file, 0o600) }
        var configuration = Configuration()
        configuration.busyMode = .timeout(10)
        // Of a container of some ten thousand items the indexes fit.
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA cache_size = -16384")
            // Before anything is staged there: else the file would stay as large as it ever was, while this process runs.
            try database.execute(sql: "PRAGMA temp.auto_vacuum = FULL")
        }
        let pool = try DatabasePool(path: path, configuration: configuration)
        // GRDB sets NORMAL after it has switched to WAL; an accepted write must survive a power cut.
        try pool.writeWithoutTransaction { database in
            try database.execute(sql: "PRAGMA synchronous = FULL")
            guard try Int.fetchOne(database, sql: "PRAGMA synchronous") == 2 else {
                throw CloudError(.storageFailure, "The database does not flush its writes to disk.")
            }
        }
        try LocalSchema.migrate(pool)
        return pool
    }

    /// What is in the database where its files can neither be made nor changed, in memory, so that no other process is
    /// kept from it; nil: not even so.
    private static func openForReading(_ path: String) -> DatabaseQueue? {
        var information = stat()
        let hasLog = stat(path + "-wal", &information) == 0 && information.st_size > 0
        var configuration = Configuration()
        var place = path
        if hasLog {
            // The log's index is kept in memory then: no room is needed for it.
            configuration.prepareDatabase { try $0.execute(sql: "PRAGMA locking_mode = EXCLUSIVE") }
        } else {
            // Nobody else can change it either, and there is no log that would have to be read.
            guard let encoded = path.addingPercentEncoding(withAllowedCharacters: .urlPathAllowed) else { return nil }
            configuration.readonly = true
            place = "file:\(encoded)?immutable=1"
        }
        do {
            let copy = try DatabaseQueue()
            let queue = try DatabaseQueue(path: place, configuration: configuration)
            try queue.backup(to: copy)
            try queue.close()
            return try copy.read(LocalSchema.isCurrent) ? copy : nil
        } catch {
            return nil
        }
    }

    /// A database in memory, which lives as long as this object. For simulations.
    package convenience init(fault: (@Sendable (String) throws -> Void)? = nil) throws(CloudError) {
        try self.init(fault) { try DatabaseQueue() }
    }

    /// A database in memory, which lives as long as any object of this name, each as if in a process of its own.
    package convenience init(
        inMemory name: String, fault: (@Sendable (String) throws -> Void)? = nil
    ) throws(CloudError) {
        try self.init(fault, identity: name) { try DatabaseQueue(named: name) }
    }

    /// A copy of another home's database as it is now, in memory. For simulations.
    package convenience init(copyOf other: LocalStore) throws(CloudError) {
        try self.init(other.fault) {
            let copy = try DatabaseQueue()
            try other.database.backup(to: copy)
            return copy
        }
    }

    /// The same in memory under a name, for several processes. For simulations.
    package convenience init(inMemory name: String, copyOf other: LocalStore) throws(CloudError) {
        try self.init(other.fault, identity: name) {
            let copy = try DatabaseQueue(named: name)
            try other.database.backup(to: copy)
            return copy
        }
    }

    private init(
        _ fault: (@Sendable (String) throws -> Void)?, identity: String? = nil,
        opening open: () throws -> any DatabaseWriter
    ) throws(CloudError) {
        path = nil
        temporaryFolder = nil
        self.identity = identity
        self.fault = fault
        unwritable = nil
        do {
            database = try open()
            try LocalSchema.migrate(database)
        } catch {
            throw LocalFailure.error(of: error, at: nil)
        }
    }

    /// Makes the tables that a model has of its own, where they are not there yet.
    func prepare(_ migrations: [LocalMigration]) throws(CloudError) {
        guard !migrations.isEmpty else { return }
        var migrator = DatabaseMigrator()
        for migration in migrations {
            migrator.registerMigration(migration.name) { try $0.execute(sql: migration.sql) }
        }
        do { try migrator.migrate(database) } catch { throw LocalFailure.error(of: error, at: path) }
    }

    /// - Parameter staged: So many bytes more are staged until then, which takes room where temporary files are.
    /// - Throws: ``CloudError`` `.storageFailure`: the home's disk has no room for so many bytes more, or that one.
    func requireRoom(for bytes: Int, staging staged: Int) throws(CloudError) {
        guard let path else { return }
        try LocalDisk(at: path)?.requireRoom(forDatabase: bytes)
        guard let temporaryFolder else { return }
        do throws(CloudError) { try LocalDisk(at: temporaryFolder)?.requireRoom(forStage: staged) } catch {
            var error = error
            error.details["path"] = temporaryFolder
            throw error
        }
    }

    /// Reads one consistent state.
    func read<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        do {
            // Inside a transaction nobody may be kept waiting.
            if !isInsideTransaction { try fault?("read") }
            return try isInsideTransaction ? database.unsafeReentrantRead(body) : database.read(body)
        } catch { throw LocalFailure.error(of: error, at: path) }
    }

    /// The same on the connection that writes, which alone sees what this process has staged, and may stage more: nobody
    /// is kept from writing.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` inside an app's transaction.
    func readBesideStage<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        try requireOutsideTransaction()
        do {
            try fault?("read")
            return try database.writeWithoutTransaction { try Self.inTransaction(.deferred, of: $0, body) }
        } catch { throw LocalFailure.error(of: error, at: path) }
    }

    private static func inTransaction<Result>(
        _ kind: Database.TransactionKind, of database: Database, _ body: (Database) throws -> Result
    ) throws -> Result {
        var result: Result?
        try database.inTransaction(kind) {
            result = try body(database)
            return .commit
        }
        guard let result else { throw CloudError(.storageFailure, "The transaction had no result.") }
        return result
    }

    private func requireOutsideTransaction() throws(CloudError) {
        guard !isInsideTransaction else {
            throw CloudError(
                .constraintViolation,
                "A store was written, or another transaction begun, inside a transaction. Use what the transaction is given."
            )
        }
    }

    /// Whether this is called by an app from inside its own transaction. The database cannot begin another there, and
    /// would end the process.
    private var isInsideTransaction: Bool {
        guard let thread = transacting.withLock({ $0 }) else { return false }
        return thread == ObjectIdentifier(Thread.current)
    }

    /// Runs an app's part of a transaction.
    func insideTransaction<Result>(_ body: () throws -> Result) rethrows -> Result {
        let thread = ObjectIdentifier(Thread.current)
        transacting.withLock { $0 = thread }
        defer { transacting.withLock { $0 = nil } }
        return try body()
    }

    /// Before the server is told of what could not be kept here.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when it is known that nothing can be written.
    func requireWritable() throws(CloudError) {
        if let unwritable { throw unwritable }
    }

    /// Runs the body in one transaction, alone among all processes of this home.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` inside an app's transaction.
    func write<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        let written = try transact(body)
        onWrite.withLock { $0 }?()
        changed.ring()
        return written
    }

    /// Writes rows that the processes of a home leave for each other. This process is not notified of them.
    func note(_ body: (Database) throws -> Void) throws(CloudError) { try transact(body) }

    private func transact<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        try requireOutsideTransaction()
        try requireWritable()
        do {
            try fault?("save")
            return try database.writeWithoutTransaction { try Self.inTransaction(.immediate, of: $0, body) }
        } catch {
            throw LocalFailure.error(of: error, at: path)
        }
    }

    /// - Parameter body: Called after each transaction that this process has committed, on the thread that did.
    func whenWritten(_ body: (@Sendable () -> Void)?) { onWrite.withLock { $0 = body } }

    /// A number that changes when another process has written. For polling.
    func foreignVersion() throws(CloudError) -> Int {
        do {
            return try database.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA data_version") ?? 0 }
        } catch {
            throw LocalFailure.error(of: error, at: path)
        }
    }

    /// Flushes the write-ahead log into the database.
    func checkpoint() {
        guard !isInsideTransaction else { return }
        // A checkpoint that another process holds up is made later; the log itself is on disk already.
        database.writeWithoutTransaction { _ = try? $0.checkpoint(.passive) }
    }
}

enum LocalSchema {
    /// Of the tables as this version of Nephos makes them. Others are not brought over.
    private static let version = 3

    /// - Throws: ``CloudError`` `.incompatibleVersion`: another version of Nephos made the home.
    static func migrate(_ database: any DatabaseWriter) throws {
        // Without a transaction, which would wait for others that write.
        let (version, isNew) = try database.writeWithoutTransaction { database in
            (try Int.fetchOne(database, sql: "PRAGMA user_version"), try !database.tableExists("grdb_migrations"))
        }
        if version != Self.version {
            guard isNew else {
                throw CloudError(
                    .incompatibleVersion,
                    "Another version of Nephos made this home. Use that version, or sign in with another home.",
                    details: ["schema_version": "\(version ?? 0)", "expected": "\(Self.version)"])
            }
            // Also an equal number is a write, for which each command would wait until others have written.
            try database.write { try $0.execute(sql: "PRAGMA user_version = \(Self.version)") }
        }
        try migrator.migrate(database)
    }

    /// Whether nothing has to be changed before it can be read.
    static func isCurrent(_ database: Database) throws -> Bool {
        try migrator.hasCompletedMigrations(database)
            && Int.fetchOne(database, sql: "PRAGMA user_version") == Self.version
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("home") { try $0.execute(sql: tables + UndecidedChanges.table) }
        return migrator
    }

    // `account` is '' for what was written while signed out. Positions are never given out twice. By `edits` what was read of
    // an operation's content is known to be so still.
    private static let tables = """
        CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE scopes (
            account TEXT NOT NULL, service TEXT NOT NULL, scope TEXT NOT NULL,
            epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, token_check BLOB NOT NULL,
            digest BLOB NOT NULL, digest_key BLOB NOT NULL,
            synced INTEGER NOT NULL, info BLOB NOT NULL,
            epochs BLOB NOT NULL DEFAULT x'', fetched INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (account, service, scope)
        ) WITHOUT ROWID;
        CREATE TABLE items (
            account TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB, timestamp INTEGER NOT NULL, device TEXT NOT NULL, sequence INTEGER NOT NULL,
            PRIMARY KEY (account, store, key)
        ) WITHOUT ROWID;
        CREATE TABLE outbox (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, service TEXT NOT NULL DEFAULT 'keyvalue', scope TEXT NOT NULL,
            operation BLOB NOT NULL, state TEXT NOT NULL, writer INTEGER NOT NULL, created INTEGER NOT NULL,
            attempts INTEGER NOT NULL DEFAULT 0, next_attempt INTEGER NOT NULL DEFAULT 0, error BLOB, head BLOB,
            payload BLOB, edits INTEGER NOT NULL DEFAULT 0
        );
        CREATE INDEX outbox_by_scope ON outbox (account, service, scope, position);
        CREATE TABLE pending_writes (
            position INTEGER NOT NULL, account TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB, timestamp INTEGER NOT NULL, device TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (position, key)
        ) WITHOUT ROWID;
        CREATE INDEX pending_writes_by_key ON pending_writes (account, store, key, position);
        CREATE TABLE news (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, service TEXT NOT NULL DEFAULT 'keyvalue', scope TEXT NOT NULL,
            notification BLOB NOT NULL, error BLOB
        );
        CREATE TABLE wanted (
            process TEXT NOT NULL, reader INTEGER NOT NULL, waiter INTEGER NOT NULL, scope TEXT NOT NULL, session TEXT,
            goal TEXT NOT NULL, milliseconds INTEGER NOT NULL, is_impatient INTEGER NOT NULL, answer BLOB,
            PRIMARY KEY (process, reader, waiter)
        ) WITHOUT ROWID;
        CREATE TABLE standings (
            scope TEXT PRIMARY KEY, is_known INTEGER NOT NULL, session TEXT, problem BLOB, agrees INTEGER NOT NULL,
            is_following INTEGER NOT NULL, following_problem BLOB, budget TEXT, pending TEXT NOT NULL,
            clock_offset INTEGER NOT NULL, fetches INTEGER NOT NULL, storage TEXT
        ) WITHOUT ROWID;
        """
}
