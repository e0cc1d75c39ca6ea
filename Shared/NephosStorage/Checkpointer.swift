internal import Dispatch
internal import GRDBSQLite
internal import Logging
internal import Synchronization

/// Moves committed pages from the log to the database on a thread of its own,
/// over a connection of its own, so that the loop's commits do not wait for it.
///
/// Its `PASSIVE` rounds hold nobody up, but never quite catch up with a busy
/// writer, and cannot take its lock from it either. So they leave the last
/// pages to the writer, which copies them between two groups; then the log
/// starts over from its beginning. Overwriting it costs less per flush than
/// extending it, so it is cut only when it has grown too long.
final class Checkpointer: Sendable {
    /// Pages (of 4 KiB) in the log at which a checkpoint is asked for: 16 MiB.
    private static let requestPages: Int32 = 4096
    /// A log longer than this many pages is cut: 64 MiB.
    static let truncatePages: Int32 = 16384
    /// So few pages are left to the writer: 1 MiB.
    private static let remainderPages: Int32 = 256
    private static let roundsMax = 4
    /// How long the writer waits for a lock that a checkpoint or a backup holds.
    static let busyMilliseconds: Int32 = 10_000

    enum Cut {
        case done
        /// Somebody reads it.
        case refused
    }

    private enum State { case idle, running, remainder }

    private let path: String
    private let logger: Logger
    private let queue = DispatchQueue(label: "storage.checkpoint", qos: .utility)
    private let state = Mutex(State.idle)

    init(path: String, logger: Logger) {
        self.path = path
        self.logger = logger
    }

    /// Starts a checkpoint unless one is under way.
    func request() {
        let isNew = state.withLock { state in
            guard state == .idle else { return false }
            state = .running
            return true
        }
        guard isNew else { return }
        queue.async { [self] in
            let code = copyMost()
            state.withLock { $0 = code == SQLITE_OK ? .remainder : .idle }
            report(code)
        }
    }

    /// Called by the writer after each commit, with the pages its log has now.
    ///
    /// - Returns: What became of a log that was too long; nil: it was not to be cut.
    func committed(_ logPages: Int32, on connection: OpaquePointer) -> Cut? {
        guard logPages >= Self.requestPages else { return nil }
        let isRemainder = state.withLock { $0 == .remainder }
        guard isRemainder else {
            request()
            return nil
        }
        // A backup that is reading is not waited for; the next round tries again.
        let mode = logPages > Self.truncatePages ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE
        sqlite3_busy_timeout(connection, 0)
        let code = sqlite3_wal_checkpoint_v2(connection, nil, mode, nil, nil)
        sqlite3_busy_timeout(connection, Self.busyMilliseconds)
        state.withLock { $0 = .idle }
        report(code)
        guard mode == SQLITE_CHECKPOINT_TRUNCATE else { return nil }
        return code == SQLITE_OK ? .done : .refused
    }

    /// Nothing is lost when a checkpoint fails: the log keeps the pages, and a later commit asks again.
    private func report(_ code: Int32) {
        guard code != SQLITE_OK, code != SQLITE_BUSY else { return }
        logger.warning("Checkpoint failed", metadata: ["sqlite_code": "\(code)"])
    }

    /// Waits for the checkpoint under way.
    func wait() { queue.sync {} }

    /// Opens a connection that flushes the log before it copies from it, and the
    /// database after: whatever SQLite's own default is, which is a matter of
    /// how it was built.
    static func open(_ path: String, _ connection: inout OpaquePointer?) -> Int32 {
        let code = sqlite3_open_v2(path, &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nil)
        guard code == SQLITE_OK else { return code }
        return sqlite3_exec(connection, "PRAGMA synchronous = FULL", nil, nil, nil)
    }

    private func copyMost() -> Int32 {
        var opened: OpaquePointer?
        defer { sqlite3_close_v2(opened) }
        let code = Self.open(path, &opened)
        guard code == SQLITE_OK, let connection = opened else { return code }

        var logPages: Int32 = 0
        var copiedPages: Int32 = 0
        for _ in 0..<Self.roundsMax {
            let code = sqlite3_wal_checkpoint_v2(
                connection, nil, SQLITE_CHECKPOINT_PASSIVE, &logPages, &copiedPages)
            guard code == SQLITE_OK else { return code }
            if logPages - copiedPages <= Self.remainderPages { break }
        }
        return SQLITE_OK
    }
}
