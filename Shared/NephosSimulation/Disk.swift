import NephosCore
import NephosStorage

/// A database that outlives the service that uses it, and fails when a test wants it to.
final class Disk: StorageEngine {
    let engine: SQLiteEngine
    var failsCommits = false
    private let service: ServiceName
    private let faults: FaultPlan
    /// Holds the service up.
    private let stall: (Duration) -> Void
    /// Ends the service, for it to be started again by itself.
    private let kill: () -> Void
    /// Whether the service runs: while it starts, nothing goes wrong.
    var isInUse = false
    /// How a service that was started completes its groups; nil: at once.
    var late: LateTurns?

    init(
        _ engine: SQLiteEngine, of service: ServiceName, faults: FaultPlan, stall: @escaping (Duration) -> Void,
        kill: @escaping () -> Void
    ) {
        self.engine = engine
        self.service = service
        self.faults = faults
        self.stall = stall
        self.kill = kill
    }

    func migrate(_ migrations: [Migration]) throws { try engine.migrate(migrations) }
    var isShortOfRoom: Bool { engine.isShortOfRoom }
    var snapshots: any Snapshots { FaultySnapshots(inner: engine.snapshots, read: { [self] in try reachRead() }) }

    func run<Value>(
        _ work: @escaping (any Transaction) throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        let result = { [self] in try commit(work) }
        guard let late else { return completion(Result { try result() }) }
        late.run(result, then: completion)
    }

    /// Whether a group was begun that is not completed.
    var isUnderWay: Bool { late?.isUnderWay == true }

    func write<Result>(_ body: (any Transaction) throws -> Result) throws -> Result {
        precondition(!isUnderWay, "Storage was used while a group is under way.")
        return try commit(body)
    }

    private func commit<Result>(_ body: (any Transaction) throws -> Result) throws -> Result {
        guard isInUse, faults.isArmed else {
            return try engine.write { transaction in
                let result = try body(transaction)
                if failsCommits { throw Self.full }
                return result
            }
        }
        var isHalfDone = false
        let result = try engine.write { transaction in
            let watched = WatchedTransaction(transaction) { try self.reachRead() }
            let result = try body(watched)
            if failsCommits { throw Self.full }
            guard watched.hasWritten else { return result }
            switch faults.reach("\(service).commit") {
            case .proceed: break
            case .fail: throw Self.full
            case .slow(let delay): stall(delay)
            case .halfDone: isHalfDone = true
            }
            return result
        }
        if isHalfDone { kill() }
        return result
    }

    private func reachRead() throws {
        guard isInUse else { return }
        switch faults.reach("\(service).read") {
        case .proceed, .halfDone: break
        case .fail: throw CloudError(.storageFailure, "The database could not be read.")
        case .slow(let delay): stall(delay)
        }
    }

    private static var full: CloudError {
        CloudError(.storageFailure, "The disk is full. Nothing was stored.")
    }

    func checkpoint() {}

    func cutLog() throws -> Bool {
        precondition(!isUnderWay, "The log was cut while a group is under way.")
        return try engine.cutLog()
    }

    /// The service is gone; what it stored is not.
    func close() { precondition(!isUnderWay, "Storage was closed while a group is under way.") }
}

/// A transaction that knows whether it has written, and fails where it reads for the first time if it is to.
private final class WatchedTransaction: Transaction {
    private let inner: any Transaction
    private let read: () throws -> Void
    private var hasRead = false
    private(set) var hasWritten = false

    init(_ inner: any Transaction, read: @escaping () throws -> Void) {
        self.inner = inner
        self.read = read
    }

    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        hasWritten = true
        return try inner.execute(statement, values)
    }

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        if !hasRead {
            hasRead = true
            try read()
        }
        try inner.query(statement, values, row)
    }
}

// Unchecked: a simulation reads on its one thread.
private struct FaultySnapshots: Snapshots, @unchecked Sendable {
    let inner: any Snapshots
    let read: () throws -> Void

    func read<Result>(_ body: (any ReadTransaction) throws -> Result) throws -> Result {
        try read()
        return try inner.read(body)
    }
}
