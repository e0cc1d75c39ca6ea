public import Core
private import Foundation
internal import GRDB

/// The database of one device home: everything that must survive this process.
///
/// Several processes may open the same home at once, so nothing in memory is
/// taken for the truth: each decision is made inside an immediate transaction,
/// from what it reads there. Safe to use from any thread.
public final class LocalStore: Sendable {
    private let database: any DatabaseWriter

    /// Opens or creates the database file. WAL and `synchronous=FULL`: what a
    /// call has accepted survives a crash.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; free space or repair permissions, then open again.
    public convenience init(path: String) throws(CloudError) {
        try self.init {
            var configuration = Configuration()
            configuration.busyMode = .timeout(10)
            let pool = try DatabasePool(path: path, configuration: configuration)
            // GRDB sets NORMAL after it has switched to WAL; an accepted write must survive a power cut.
            try pool.writeWithoutTransaction { database in
                try database.execute(sql: "PRAGMA synchronous = FULL")
                guard try Int.fetchOne(database, sql: "PRAGMA synchronous") == 2 else {
                    throw CloudError(.storageFailure, "The database does not flush its writes to disk.")
                }
            }
            return pool
        }
    }

    /// A database in memory, which lives as long as this object. For simulations.
    public convenience init() throws(CloudError) {
        try self.init { try DatabaseQueue() }
    }

    /// A database in memory, which lives as long as any object of this name, each as if in a process of its own.
    public convenience init(inMemory name: String) throws(CloudError) {
        try self.init { try DatabaseQueue(named: name) }
    }

    /// A copy of another home's database as it is now, in memory. For simulations.
    public convenience init(copyOf other: LocalStore) throws(CloudError) {
        try self.init {
            let copy = try DatabaseQueue()
            try other.database.backup(to: copy)
            return copy
        }
    }

    private init(opening open: () throws -> any DatabaseWriter) throws(CloudError) {
        do {
            database = try open()
            try LocalSchema.migrate(database)
        } catch {
            throw Self.storageFailure(error)
        }
    }

    /// Reads one consistent state.
    func read<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        do { return try database.read(body) } catch { throw Self.storageFailure(error) }
    }

    /// Runs the body in one transaction, alone among all processes of this home.
    func write<Result>(_ body: (Database) throws -> Result) throws(CloudError) -> Result {
        do {
            return try database.writeWithoutTransaction { database in
                var result: Result?
                try database.inTransaction(.immediate) {
                    result = try body(database)
                    return .commit
                }
                guard let result else { throw CloudError(.storageFailure, "The transaction had no result.") }
                return result
            }
        } catch {
            throw Self.storageFailure(error)
        }
    }

    /// A number that changes when another process has written. For polling.
    func foreignVersion() throws(CloudError) -> Int {
        do {
            return try database.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA data_version") ?? 0 }
        } catch {
            throw Self.storageFailure(error)
        }
    }

    /// Flushes the write-ahead log into the database.
    func checkpoint() {
        // A checkpoint that another process holds up is made later; the log itself is on disk already.
        database.writeWithoutTransaction { _ = try? $0.checkpoint(.passive) }
    }

    private static func storageFailure(_ error: any Error) -> CloudError {
        if let error = error as? CloudError { return error }
        guard let error = error as? DatabaseError else { return CloudError(wrapping: error) }
        return CloudError(
            .storageFailure, "The device's database could not be used. Nothing was changed.",
            details: ["sqlite": "\(error.extendedResultCode.rawValue)"])
    }
}

enum LocalSchema {
    static func migrate(_ database: any DatabaseWriter) throws {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1: session and key-value") { database in
            try database.execute(sql: Self.first)
        }
        try migrator.migrate(database)
    }

    // `account` is '' for what was written while signed out.
    private static let first = """
        CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE stores (
            account TEXT NOT NULL, store TEXT NOT NULL,
            epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, token_check BLOB NOT NULL,
            digest BLOB NOT NULL, digest_key BLOB NOT NULL,
            synced INTEGER NOT NULL, limits BLOB NOT NULL,
            PRIMARY KEY (account, store)
        ) WITHOUT ROWID;
        CREATE TABLE items (
            account TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB, timestamp INTEGER NOT NULL, device TEXT NOT NULL, sequence INTEGER NOT NULL,
            PRIMARY KEY (account, store, key)
        ) WITHOUT ROWID;
        CREATE TABLE pending (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, store TEXT NOT NULL,
            operation BLOB NOT NULL, state TEXT NOT NULL, writer INTEGER NOT NULL, created INTEGER NOT NULL,
            attempts INTEGER NOT NULL DEFAULT 0, next_attempt INTEGER NOT NULL DEFAULT 0, error BLOB, head BLOB
        );
        CREATE INDEX pending_by_store ON pending (account, store, position);
        CREATE TABLE pending_writes (
            position INTEGER NOT NULL, account TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB, timestamp INTEGER NOT NULL, device TEXT NOT NULL,
            PRIMARY KEY (position, key)
        ) WITHOUT ROWID;
        CREATE INDEX pending_writes_by_key ON pending_writes (account, store, key, position);
        CREATE TABLE news (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            account TEXT NOT NULL, store TEXT NOT NULL, notification BLOB NOT NULL, error BLOB
        );
        CREATE TABLE refused (
            account TEXT NOT NULL, store TEXT NOT NULL, key TEXT NOT NULL,
            refused_at INTEGER NOT NULL, error BLOB NOT NULL,
            PRIMARY KEY (account, store, key)
        ) WITHOUT ROWID;
        """
}
