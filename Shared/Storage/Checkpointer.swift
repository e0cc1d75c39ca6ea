internal import Dispatch
internal import GRDBSQLite
internal import Logging
internal import Synchronization

/// Moves committed pages from the log to the database on a thread of its own,
/// over a connection of its own, so that the loop's commits do not wait for it.
///
/// Rounds of `PASSIVE` hold nobody up, but never catch up with a busy writer.
/// When little is left, `RESTART` holds the writer for that little, and the log
/// starts over from its beginning: overwriting a file costs less per flush than
/// extending it. Only a log that has grown too long is cut.
final class Checkpointer: Sendable {
    /// Pages (of 4 KiB) in the log at which a checkpoint is asked for: 16 MiB.
    static let requestPages: Int32 = 4096
    /// A log longer than this many pages is cut: 64 MiB.
    static let truncatePages: Int32 = 16384
    /// So few pages are copied while the writer waits: 1 MiB.
    private static let remainderPages: Int32 = 256
    private static let roundsMax = 4

    private let path: String
    private let logger: Logger
    private let queue = DispatchQueue(label: "storage.checkpoint", qos: .utility)
    private let isRequested = Mutex(false)

    init(path: String, logger: Logger) {
        self.path = path
        self.logger = logger
    }

    /// Starts a checkpoint unless one is under way.
    func request() {
        let isNew = isRequested.withLock { requested in
            defer { requested = true }
            return !requested
        }
        guard isNew else { return }
        queue.async { [self] in
            let code = run()
            isRequested.withLock { $0 = false }
            // Nothing is lost: the log keeps the pages, and the next commit asks again.
            if code != SQLITE_OK, code != SQLITE_BUSY {
                logger.warning("Checkpoint failed", metadata: ["sqlite_code": "\(code)"])
            }
        }
    }

    /// Waits for the checkpoint under way.
    func wait() { queue.sync {} }

    private func run() -> Int32 {
        var opened: OpaquePointer?
        defer { sqlite3_close_v2(opened) }
        let code = sqlite3_open_v2(path, &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nil)
        guard code == SQLITE_OK, let connection = opened else { return code }
        sqlite3_busy_timeout(connection, 1000)
        let set = sqlite3_exec(connection, "PRAGMA synchronous = FULL", nil, nil, nil)
        guard set == SQLITE_OK else { return set }

        var logPages: Int32 = 0
        var copiedPages: Int32 = 0
        for _ in 0..<Self.roundsMax {
            let code = sqlite3_wal_checkpoint_v2(
                connection, nil, SQLITE_CHECKPOINT_PASSIVE, &logPages, &copiedPages)
            guard code == SQLITE_OK else { return code }
            if logPages - copiedPages <= Self.remainderPages { break }
        }
        let mode = logPages > Self.truncatePages ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART
        return sqlite3_wal_checkpoint_v2(connection, nil, mode, nil, nil)
    }
}
