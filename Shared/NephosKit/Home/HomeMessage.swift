import Foundation
import NephosBus
import NephosCore

/// What the processes of one home say to each other. What they write, the others read from the home's database; this
/// is what is not in it.
///
/// One packet each, as JSON. All of them are the same user's, who may read the database too; what cannot be decoded,
/// of a newer release for example, is passed over.
enum HomeMessage: Codable, Equatable {
    /// Raised when what is said means something else: processes that do not understand each other do not rely on each
    /// other.
    static let version = 1

    // Both ways
    /// The home's database has changed.
    case written

    // From a guest
    ///
    /// - Parameter home: Which database it has open: the folder may have been replaced since the holder opened it.
    case hello(version: Int, home: String)
    /// Answered by ``pong``.
    case ping
    /// The scope is open here. Answered by ``standing(_:_:)`` or ``unknown(_:)``, and told of its changes from then on.
    case open(ScopeID)
    /// Somebody waits for the scope to get somewhere. Answered by ``waited(_:session:error:)`` with the same
    /// number.
    case wait(Int, ScopeID, WaitGoal, milliseconds: Int64, isImpatient: Bool)
    case endWait(Int)
    case hasten(ScopeID)
    case pull(ScopeID)

    // From the holder
    /// Answers ``hello(version:home:)``, with the holder's own.
    case welcome(version: Int, home: String)
    case pong
    case standing(ScopeID, HeldStanding)
    /// The holder cannot keep such a scope in step.
    case unknown(ScopeID)
    /// A fetch has ended.
    case fetched(ScopeID)
    case waited(Int, session: String?, error: Data?)
    case storage(StorageState)

    struct StorageState: Codable, Equatable {
        var planBytes: UInt64
        var usedBytes: UInt64
        var level: Int
    }

    enum WaitGoal: String, Codable {
        /// A pull that begins now, or later, has been applied.
        case current
        case downloaded
        case sent
    }

    var packet: Data { (try? JSONEncoder().encode(self)) ?? Data() }

    /// Nil: it cannot be read.
    init?(packet: Data) {
        guard let message = try? JSONDecoder().decode(Self.self, from: packet) else { return nil }
        self = message
    }
}

/// How a scope stands, as far as it is not in the home's database: what the process knows that keeps it in step.
struct HeldStanding: Codable, Equatable {
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
}

extension HeldStanding {
    /// As long as the other process has not said anything.
    static let unknown = HeldStanding(agrees: false, isFollowing: false, pending: [], clockOffset: 0)

    /// - Parameters:
    ///   - positions: Of the status's operations.
    ///   - session: Names the sign-in.
    init(_ status: StoreStatus, positions: [Int64], session: String?, clockOffset: Duration) {
        self.session = session
        problem = status.problem.map { StoredError.encode($0.brief) }
        agrees = status.agrees
        isFollowing = status.isFollowing
        followingProblem = status.followingProblem.map(StoredError.encode)
        budget = status.budget.map { [Int64($0.capacity), Int64($0.remaining), $0.refill.milliseconds] }
        pending = zip(positions, status.pending).prefix(Self.describedMax).map { position, pending in
            Pending(
                position: position, state: pending.state.rawValue, reason: pending.reason.brief(300),
                blocker: pending.blocker.rawValue, nextAttempt: pending.nextAttempt?.milliseconds)
        }
        self.clockOffset = clockOffset.milliseconds
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

// A packet has room for so much, whatever the server says.
extension CloudError {
    /// The same, with no more than a person needs.
    var brief: CloudError {
        var brief = self
        brief.message = message.brief(1000)
        brief.details = Dictionary(
            details.sorted { $0.key < $1.key }.prefix(20).map { ($0.brief(100), $1.brief(500)) },
            uniquingKeysWith: { first, _ in first })
        return brief
    }
}

extension String {
    /// At most so many bytes of it.
    fileprivate func brief(_ bytesMax: Int) -> String {
        utf8.count <= bytesMax ? self : String(decoding: utf8.prefix(bytesMax), as: UTF8.self)
    }
}
