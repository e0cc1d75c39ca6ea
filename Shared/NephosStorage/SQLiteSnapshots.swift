internal import GRDB
internal import GRDBSQLite
internal import NephosCore
private import Synchronization

private import func Foundation.usleep

/// How long a read may last.
final class ReadDeadline {
    var end: ContinuousClock.Instant?
    var hasPassed: Bool { end.map { $0 < .now } ?? false }

    static let passed = CloudError(
        .serviceBusy, "The read took too long. Ask for less, or later.", retryAfter: .seconds(1))
}

/// Snapshots of one SQLite file, each on a connection that is opened read-only.
final class SQLiteSnapshots: Snapshots {
    /// A connection that cannot write.
    // Unchecked: it is used by one thread at a time, the one that has taken it out of `free`.
    private final class Reader: @unchecked Sendable {
        let database: DatabaseQueue
        let connection: OpaquePointer
        let transaction: SQLiteTransaction
        let deadline = ReadDeadline()

        init(path: String) throws {
            var configuration = Configuration()
            configuration.readonly = true
            configuration.busyMode = .timeout(Double(Checkpointer.busyMilliseconds) / 1000)
            configuration.prepareDatabase { try $0.execute(sql: "PRAGMA cache_size = -4096") }  // KiB
            database = try DatabaseQueue(path: path, configuration: configuration)
            guard let connection = database.inDatabase({ $0.sqliteConnection }) else {
                throw CloudError(.storageFailure, "The database could not be opened for reading.")
            }
            self.connection = connection
            transaction = SQLiteTransaction(on: connection, isReadOnly: true, until: deadline)
            // The context is this reader's own, and goes after its connection.
            let context = Unmanaged.passUnretained(deadline).toOpaque()
            sqlite3_progress_handler(
                connection, 1000,
                { context in
                    guard let context else { return 0 }
                    return Unmanaged<ReadDeadline>.fromOpaque(context).takeUnretainedValue().hasPassed ? 1 : 0
                }, context)
        }

        deinit {
            transaction.finalize()
            try? database.close()
        }
    }

    private let path: String
    /// Nil: closed.
    private let free = Mutex<[Reader]?>([])
    private struct Hold {
        /// Until then no snapshot begins.
        var end: ContinuousClock.Instant
        /// Before then there is no other hold.
        var next: ContinuousClock.Instant
    }

    private static let pauseBetweenHolds: Duration = .seconds(60)
    private let current = Mutex<Hold?>(nil)

    init(path: String) { self.path = path }

    /// Lets no snapshot begin for as long as one may last: the log begins anew, or is cut, only while nobody reads it,
    /// and of many readers there would always be one.
    ///
    /// Whoever reads it still when that is over is none of ours (a backup, an operator's tool), and for those nobody
    /// waits: so a hold is not made longer, and the next one is a while later.
    func hold() {
        let now = ContinuousClock.now
        current.withLock { hold in
            if let hold, now < hold.next { return }
            hold = Hold(end: now + snapshotDurationMax, next: now + snapshotDurationMax + Self.pauseBetweenHolds)
        }
    }

    /// The log was cut.
    func release() { current.withLock { $0 = nil } }

    /// A condition with a deadline would wait by the wall clock, which may be set; and this is rare, and short.
    private func waitForTurn() {
        while let end = current.withLock({ $0?.end }), end > .now { usleep(2000) }
    }

    func read<Result>(_ body: (any ReadTransaction) throws -> Result) throws -> Result {
        waitForTurn()
        let reader = try take()
        defer { giveBack(reader) }
        reader.deadline.end = .now + snapshotDurationMax
        defer { reader.deadline.end = nil }
        do {
            try reader.transaction.begin()
            defer { reader.transaction.rollBack() }
            return try body(reader.transaction)
        } catch {
            guard reader.deadline.hasPassed else { throw error }
            throw ReadDeadline.passed
        }
    }

    private func take() throws -> Reader {
        let known = try free.withLock { readers -> Reader? in
            guard readers != nil else { throw CloudError(.storageFailure, "The database is closed.") }
            return readers?.popLast()
        }
        do { return try known ?? Reader(path: path) } catch { throw SQLiteFailure.error(error) }
    }

    private func giveBack(_ reader: Reader) { free.withLock { $0?.append(reader) } }

    /// What is being read is read to its end.
    func close() { free.withLock { $0 = nil } }
}

/// Snapshots of a database in memory, which has one connection.
// Unchecked: a database in memory belongs to a simulation, which has one thread.
final class MemorySnapshots: Snapshots, @unchecked Sendable {
    private let transaction: SQLiteTransaction

    init(_ transaction: SQLiteTransaction) { self.transaction = transaction }

    func read<Result>(_ body: (any ReadTransaction) throws -> Result) throws -> Result {
        try transaction.begin()
        defer { transaction.rollBack() }
        return try body(transaction)
    }
}
