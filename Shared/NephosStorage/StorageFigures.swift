public import NephosCore

/// What an engine has done for durability, and where it lies.
public struct StorageFigures: Sendable {
    /// Nanoseconds that each commit took which had something to flush: writing the log, and the flush.
    public var flushes = Buckets.nanoseconds
    /// The database's file; nil: there is none.
    public var path: String?

    public init() {}

    /// The log beside the database.
    public var logPath: String? { path.map { $0 + "-wal" } }
}
