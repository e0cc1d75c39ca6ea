import Foundation
import NephosBus
import NephosCore

/// How a scope stands, as far as only the process knows that speaks with the server: what it leaves in the home's
/// database for the others.
struct LeaderStanding: Codable, Equatable {
    /// Operations of which it says why they wait; of the others it can be told from the database.
    static let describedMax = 50

    struct Pending: Codable, Equatable {
        var position: Int64
        var state: String
        var reason: String
        var blocker: String
        var nextAttempt: UInt64?
    }

    /// Names the sign-in of which this is so; a process that has another one does not believe it.
    var session: String?
    /// See ``StoredError``.
    var problem: Data?
    var agrees: Bool
    var isFollowing: Bool
    var followingProblem: Data?
    /// Capacity, what remains, and milliseconds for each.
    var budget: [Int64]?
    var pending: [Pending]
    /// How wrong the server has found this machine's clock.
    var clockOffset: Int64
    /// Fetches that have ended since the process began to lead.
    var fetches: Int
}

extension LeaderStanding {
    /// As long as the leader has not left any.
    static let unknown = LeaderStanding(agrees: false, isFollowing: false, pending: [], clockOffset: 0, fetches: 0)

    /// - Parameters:
    ///   - positions: Of the status's operations.
    ///   - session: Names the sign-in.
    init(_ status: StoreStatus, positions: [Int64], session: String?, clockOffset: Duration, fetches: Int) {
        self.session = session
        self.fetches = fetches
        problem = status.problem.map { StoredError.encode($0) }
        agrees = status.agrees
        isFollowing = status.isFollowing
        followingProblem = status.followingProblem.map(StoredError.encode)
        budget = status.budget.map { [Int64($0.capacity), Int64($0.remaining), $0.refill.milliseconds] }
        pending = zip(positions, status.pending).prefix(Self.describedMax).map { position, pending in
            Pending(
                position: position, state: pending.state.rawValue, reason: pending.reason,
                blocker: pending.blocker.rawValue, nextAttempt: pending.nextAttempt?.milliseconds)
        }
        self.clockOffset = clockOffset.milliseconds
    }

    /// Nil: it cannot be read.
    init?(encoded: Data) {
        guard let standing = try? JSONDecoder().decode(Self.self, from: encoded) else { return nil }
        self = standing
    }

    /// The same for what is the same.
    var encoded: Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return (try? encoder.encode(self)) ?? Data()
    }

    var error: CloudError? { problem.flatMap(StoredError.decode) }
    var followingError: CloudError? { followingProblem.flatMap(StoredError.decode) }

    var writeBudget: Budget? {
        guard let budget, budget.count == 3 else { return nil }
        return Budget(
            capacity: Int(budget[0]), remaining: Int(budget[1]), refill: .milliseconds(budget[2]))
    }

    /// Why the operation waits, by the process that would send it.
    func describe(_ operation: OutboxOperation, items: [ItemName]) -> StoreStatus.Pending {
        var described = StoreStatus.Pending(
            id: operation.id, position: operation.position, keys: items, state: .waiting,
            reason: "It is about to be sent.", blocker: .thisDevice,
            attempts: operation.attempts, nextAttempt: nil, since: operation.created, error: operation.error)
        guard let told = pending.first(where: { $0.position == operation.position }) else { return described }
        described.state = StoreStatus.Pending.State(rawValue: told.state) ?? .waiting
        described.reason = told.reason
        described.blocker = Blocker(rawValue: told.blocker) ?? .thisDevice
        described.nextAttempt = told.nextAttempt.map { Timestamp(milliseconds: $0) }
        return described
    }
}
