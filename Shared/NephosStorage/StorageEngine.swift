private import Synchronization

/// One statement of SQL, prepared once per connection.
///
/// Declare it as a `static let`. The text stays in the subset that SQLite and
/// PostgreSQL share, with parameters numbered `?1`, `?2`, ...
public final class SQL: Sendable {
    public let text: String
    /// Where it is written.
    let file: StaticString
    /// Counts the statements of this process from 0, so that a connection finds its own prepared one at once.
    let number: Int

    private static let count = Atomic<Int>(0)

    public init(_ text: String, file: StaticString = #fileID) {
        self.text = text
        self.file = file
        number = Self.count.wrappingAdd(1, ordering: .relaxed).oldValue
    }
}

/// A value bound to a statement's parameter.
public enum SQLValue: Sendable, Hashable {
    case null
    case integer(Int64)
    case real(Double)
    case text(String)
    case blob([UInt8])
}

/// A row of a result, valid during the call that hands it out. Columns count from 0.
public protocol SQLRow {
    func isNull(_ column: Int) -> Bool
    func integer(_ column: Int) -> Int64
    func real(_ column: Int) -> Double
    func text(_ column: Int) -> String
    func blob(_ column: Int) -> [UInt8]
}

/// One state of the database, as long as it is read.
public protocol ReadTransaction: AnyObject {
    /// Runs a statement and hands out its rows; `row` returns false to stop early.
    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws
}

/// A transaction in progress: what a handler reads and writes. Reads see the
/// writes before them.
public protocol Transaction: ReadTransaction {
    /// Runs a statement without a result. Returns the number of rows changed.
    @discardableResult
    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int

    /// Writes what is true whether or not what it is written for comes about: it may stay when that fails, and others
    /// are not carried out anew for it.
    func lasting<Result>(_ write: () throws -> Result) rethrows -> Result
}

extension Transaction {
    public func lasting<Result>(_ write: () throws -> Result) rethrows -> Result { try write() }
}

extension ReadTransaction {
    /// The first row, mapped, or nil if there is none.
    public func first<Result>(
        _ statement: SQL, _ values: [SQLValue] = [], _ map: (any SQLRow) throws -> Result
    ) throws -> Result? {
        var result: Result?
        try query(statement, values) {
            result = try map($0)
            return false
        }
        return result
    }

    /// All rows, mapped.
    public func all<Result>(
        _ statement: SQL, _ values: [SQLValue] = [], _ map: (any SQLRow) throws -> Result
    ) throws -> [Result] {
        var results: [Result] = []
        try query(statement, values) {
            results.append(try map($0))
            return true
        }
        return results
    }
}

/// One step of a schema's history. Never changed once released.
public struct Migration: Sendable {
    /// Unique and never reused, such as `001-items`.
    public var name: String
    public var statements: [String]

    public init(name: String, statements: [String]) {
        self.name = name
        self.statements = statements
    }
}

/// A database that commits groups of requests durably.
///
/// Used on one loop only, and for one transaction at a time: nobody begins
/// another before the completion of the last one was called.
public protocol StorageEngine: AnyObject {
    /// Brings the schema up to date; does nothing when it is. Before the first group.
    ///
    /// - Throws: ``CloudError`` `.incompatibleVersion`: another version of Nephos made the database; `.storageFailure`.
    func migrate(_ migrations: [Migration]) throws

    /// Runs the work as one transaction, commits it and flushes it to disk, and
    /// then calls the completion with what came of it.
    ///
    /// Both are called on the loop, at once or in a later turn of it, and at
    /// most once; neither when the engine goes before. What succeeded survives a
    /// crash and a loss of power. Otherwise nothing was stored; the completion
    /// gets what the work has thrown, or ``CloudError`` `.storageFailure` (disk
    /// full, I/O error). Work that wrote nothing costs no flush.
    func run<Value>(
        _ work: @escaping (any Transaction) throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void)

    /// The same at once, while the caller waits: for what has to be known before the first group.
    ///
    /// - Throws: What the body throws, or ``CloudError`` `.storageFailure`.
    func write<Result>(_ body: (any Transaction) throws -> Result) throws -> Result

    /// Reads beside the loop.
    var snapshots: any Snapshots { get }

    /// Whether the disk is full, and only what makes room may be written.
    var isShortOfRoom: Bool { get }

    /// For whoever watches over it.
    var figures: StorageFigures { get }

    /// Moves committed pages from the log to the database, where the engine
    /// needs that. Called by the host when the loop is idle or the log is long.
    func checkpoint()

    /// Empties the log, so that the files hold nothing any more that was removed.
    ///
    /// Holds the loop up for as long as copying the log takes. Not while a group is under way.
    ///
    /// - Returns: False while someone else (a backup, a checkpoint) reads the database; try again.
    func cutLog() throws -> Bool

    /// Not while a group is under way.
    func close()
}

extension StorageEngine {
    public var isShortOfRoom: Bool { false }
    public var figures: StorageFigures { StorageFigures() }
}

/// Reads on connections of their own, which cannot write, so that no reader
/// makes the loop wait. On any thread.
public protocol Snapshots: Sendable {
    /// Runs the body over one state of the database, on the calling thread. It
    /// has all that was committed before the call.
    ///
    /// - Throws: what the body throws; ``CloudError`` `.storageFailure`; `.serviceBusy`
    ///   when it takes longer than ``snapshotDurationMax``: a page has to be smaller.
    func read<Result>(_ body: (any ReadTransaction) throws -> Result) throws -> Result
}

/// How long a snapshot may be read: the log cannot be cut meanwhile, and grows.
public let snapshotDurationMax: Duration = .seconds(2)
