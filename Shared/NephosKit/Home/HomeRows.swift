import Foundation
import GRDB
import NephosBus
import NephosCore

/// Something that a process of a home wants of its leader, until it takes it back or ends: a row.
struct Want: Codable, FetchableRecord, PersistableRecord {
    static let databaseTableName = "wanted"
    static let databaseColumnEncodingStrategy = DatabaseColumnEncodingStrategy.convertToSnakeCase
    static let databaseColumnDecodingStrategy = DatabaseColumnDecodingStrategy.convertFromSnakeCase

    struct ID: Hashable {
        var process: String
        /// Of the driver that wants it.
        var reader: Int
        /// Who waits, by the driver's number. 0: the scope is to be kept in step.
        var waiter: Int
    }

    enum Goal: String, Codable {
        /// The scope is kept in step, and its standing written down.
        case open
        /// A pull that begins now, or later, has been applied.
        case current
        case downloaded
        case sent
    }

    var process: String
    var reader: Int
    var waiter: Int
    var scope: ScopeID
    /// Names the sign-in under which it is wanted; a leader that has another one waits until it knows.
    var session: String?
    var goal: Goal
    var milliseconds: Int64 = 0
    var isImpatient = false
    /// What came of waiting, see ``StoredError``; empty: it got there.
    var answer: Data?

    var id: ID { ID(process: process, reader: reader, waiter: waiter) }

    /// All that have no answer yet.
    static func open(_ database: Database) throws -> [Want] {
        try fetchAll(database, sql: "SELECT * FROM wanted WHERE answer IS NULL ORDER BY process, reader, waiter")
    }

    static func all(of process: String, _ database: Database) throws -> [Want] {
        try fetchAll(database, sql: "SELECT * FROM wanted WHERE process = ?", arguments: [process])
    }

    static func answered(to process: String, session: String?, _ database: Database) throws -> [Want] {
        try fetchAll(
            database,
            sql: "SELECT * FROM wanted WHERE process = ? AND session IS ? AND answer IS NOT NULL "
                + "ORDER BY reader, waiter",
            arguments: [process, session])
    }

    /// Answers what is wanted, unless it is another sign-in by now under which it is.
    ///
    /// - Parameter error: Nil: it got there.
    static func answer(_ id: ID, _ error: CloudError?, session: String?, _ database: Database) throws {
        try database.execute(
            sql: "UPDATE wanted SET answer = ? WHERE process = ? AND reader = ? AND waiter = ? AND session IS ?",
            arguments: [error.map(StoredError.encode) ?? Data(), id.process, id.reader, id.waiter, session])
    }

    var result: Result<Void, CloudError> {
        guard let answer, !answer.isEmpty else { return .success(()) }
        return .failure(
            StoredError.decode(answer) ?? CloudError(.internalError, "Another process of this home failed."))
    }
}

/// How a scope stands, as far as only the process knows that speaks with the server: a row that it leaves for the
/// others.
struct LeaderStanding: Codable, Equatable, FetchableRecord, PersistableRecord {
    static let databaseTableName = "standings"
    static let databaseColumnEncodingStrategy = DatabaseColumnEncodingStrategy.convertToSnakeCase
    static let databaseColumnDecodingStrategy = DatabaseColumnDecodingStrategy.convertFromSnakeCase
    /// Operations of which it says why they wait; of the others it can be told from the database.
    static let describedMax = 50

    struct Pending: Codable, Equatable {
        var position: Int64
        var state: StoreStatus.Pending.State
        var reason: String
        var blocker: Blocker
        /// In milliseconds.
        var nextAttempt: UInt64?
    }

    var scope: ScopeID
    /// False: the leader cannot keep such a scope in step.
    var isKnown = true
    /// Names the sign-in of which this is so; a process that has another one does not believe it.
    var session: String?
    /// See ``StoredError``.
    var problem: Data?
    var agrees = false
    var isFollowing = false
    var followingProblem: Data?
    var budget: Budget?
    var pending: [Pending] = []
    /// How wrong the server has found this machine's clock.
    var clockOffset: Int64 = 0
    /// Rises with each fetch that ends, from a random number on.
    var fetches = 0
    /// What the apps are to be told of the account's plan.
    var storage: StorageNotice?
}

extension LeaderStanding {
    /// - Parameter engine: Of the leader.
    init(_ scope: ScopeID, _ status: StoreStatus, fetches: Int, _ engine: DeviceEngine) {
        self.scope = scope
        session = engine.session?.secrets
        problem = status.problem.map(StoredError.encode)
        agrees = status.agrees
        isFollowing = status.isFollowing
        followingProblem = status.followingProblem.map(StoredError.encode)
        budget = status.budget
        pending = status.pending.map {
            Pending(
                position: $0.position, state: $0.state, reason: $0.reason, blocker: $0.blocker,
                nextAttempt: $0.nextAttempt?.milliseconds)
        }
        clockOffset = engine.serverTime.offset.milliseconds
        self.fetches = fetches
        storage = engine.home.storageNotice
    }

    var error: CloudError? { problem.flatMap(StoredError.decode) }
    var followingError: CloudError? { followingProblem.flatMap(StoredError.decode) }

    /// Why the operation waits, by the process that would send it.
    func describe(_ operation: OutboxOperation, items: [ItemName]) -> StoreStatus.Pending {
        var described = StoreStatus.Pending(
            id: operation.id, position: operation.position, keys: items, state: .waiting,
            reason: "It is about to be sent.", blocker: .thisDevice,
            attempts: operation.attempts, nextAttempt: nil, since: operation.created, error: operation.error)
        guard let told = pending.first(where: { $0.position == operation.position }) else { return described }
        (described.state, described.reason) = (told.state, told.reason)
        described.blocker = told.blocker
        described.nextAttempt = told.nextAttempt.map { Timestamp(milliseconds: $0) }
        return described
    }
}
