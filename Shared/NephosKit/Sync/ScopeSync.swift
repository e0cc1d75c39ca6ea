import NephosBus
import NephosCore
import NephosWire

/// Decides how this device's copy of one scope (a store, a zone, a container) comes in step with the server's.
///
/// A value without I/O and without a clock. Its owner tells it what has happened, performs the actions that it gets
/// back, one after the other, and tells it what came of each. What is on disk it asks for each time, since other
/// processes of the home write there too.
struct ScopeSync {
    /// What its owner does next.
    enum Action: Equatable {
        /// Say where this device's copy is: ``found(_:)`` or ``pullFailed(_:)``.
        case find
        /// Say how the copy stands beside what was heard of the server: ``stands(_:beside:)``.
        case compare(ServerHead)
        /// Ask the server for this page: ``page(_:)`` or ``pullFailed(_:)``.
        case read(WireReadChanges)
        /// Keep these apart from the copy; the first of a reading replace what an earlier one has left: ``staged()`` or
        /// ``pullFailed(_:)``.
        ///
        /// `bytes`: of all that the reading has brought.
        case stage([WireChange], isFirst: Bool, bytes: Int)
        /// What was kept so is of no use any more.
        case unstage
        /// All pages have come. Bring them in: ``applied(_:)`` or ``applyFailed(_:)``.
        case apply(PulledPages)
        /// Bring in a stretch of the feed, if it continues the copy: ``received(_:as:)`` or ``applyFailed(_:)``.
        case receive(FeedSegment)
        /// Tell the app what has been brought in.
        case tellNews
        /// Say when this time has passed: ``due(_:)``. It takes the place of what the timer waited for before.
        case wait(Timer, Duration)
        case stopWaiting(Timer)
        /// Say what waits to be sent, so many at most: ``collected(_:at:isServerHeard:)``. Before the first pull has
        /// finished nothing does: only then can the app know what it overwrites.
        case collect(limit: Int)
        /// Mark these as sent, and give those their ids that have none: ``frozen(_:)``.
        case freeze([OutboxOperation], isAttempt: Bool)
        /// Send this: ``answered(_:at:)``.
        case send(OutboxOperation)
        /// The service has accepted this, with this reply. Take that in: ``settled(_:as:at:)``.
        case accept(OutboxOperation, Frame)
        /// Keep the operation as it is now, unless it waits no more under the id that it was sent with.
        case update(OutboxOperation, sentAs: OperationID)
        /// Let everything that waits for a person be tried again: ``unblocked(_:)``.
        case unblock
        /// It will never be accepted. Take it out, keep its content, and tell the app.
        case refuse(OutboxOperation, CloudError)
        /// Where the scope stands has changed.
        case changed
        /// A pull has ended, and no other follows.
        case fetched
        /// Somebody may have got what they wait for: ``settleWaiters(by:)``.
        case look
        /// Tell who waits under this number that the scope got there, or why not.
        case finish(Int, CloudError?)
        /// Tell who waits under this number that it took too long, and what is in the way.
        case giveUp(Int)
        /// The server has asked to be left alone for so long:
        /// ``endWaiters(pausedFor:because:pulling:at:)``.
        case endWaiters(pausedFor: Duration, CloudError, pulling: Bool)
    }

    enum Timer: Hashable {
        /// The next pull.
        case pull
        /// What may just have been overtaken.
        case gap
        /// The next full comparison.
        case comparison
        /// What waits to be sent, and was not due.
        case push
        /// This turn of the loop is over.
        case turn
        /// What waits for a person.
        case unblock
        /// Somebody's patience.
        case waiter(Int)

        /// Those that end with a session.
        static let ofSession: [Timer] = [.pull, .gap, .comparison, .push, .turn, .unblock]
    }

    struct Options {
        /// How long to wait for what may just have been overtaken before fetching it.
        var gapGrace: Duration = .milliseconds(50)
        /// Items of one page; 0: as many as the service gives.
        var pageItemsMax: UInt32 = 0
        /// Of one reading, for a scope that is small whatever it has: a server that never ends is left. Of any other the
        /// home's disk is the bound.
        var pagesMax = Int.max
        var readingBytesMax = Int.max
        /// Operations in flight.
        var pushesInFlightMax = 32
        /// Marks what this process writes, among all that share the home.
        var writer: Int64 = 0
    }

    let options: Options
    /// By its name within the account; empty: it is not known yet.
    private(set) var scope = ""
    private(set) var owner: Owner?
    var generator: SplitMix64

    /// The device may ask the server: an account is signed in, and the server has not rejected the device.
    var isOpen = false
    /// Why the scope as a whole is not current.
    var problem: CloudError?
    /// The last pull failed for a reason that also blocks pushes until a person removes it.
    var wasTurnedDown = false

    var pull = PullState()
    var comparison = Comparison.unknown
    /// Segments of the feed that came before the one that they continue.
    var ahead = AheadSegments()
    var gap = Gap.none
    /// This device's head when the server last showed a head behind it.
    var overtaken = ChangeToken.zero

    var outbox: Outbox
    /// A push is planned for the end of this turn of the loop.
    var awaitsTurn = false
    /// No push until the next pull: the server was restored, or has writes that this device has not read.
    var awaitsPull = false
    /// How often in a row an operation had to wait for a pull, by its position.
    var pullsFirst: [Int64: Int] = [:]

    /// Waiting callers by number. They outlive a session.
    var waiters: [Int: ScopeWaiter] = [:]
    var waiterCount = 0

    /// Steps that this device's disk did not allow, and the last reason.
    var localFailures: [LocalStep: Retry] = [:]
    var localProblem: CloudError?

    init(options: Options = Options(), generator: SplitMix64) {
        self.options = options
        self.generator = generator
        outbox = Outbox(writer: options.writer, inFlightMax: options.pushesInFlightMax)
    }

    // MARK: Life

    /// Somebody is signed in who has the scope.
    ///
    /// - Parameter owner: Whose it is, if not the account's.
    mutating func begin(_ scope: String, of owner: Owner? = nil) -> [Action] {
        self.scope = scope
        self.owner = owner
        isOpen = true
        return beginPull()
    }

    /// The server will have no more of this device until somebody signs in again.
    mutating func turnedAway() { isOpen = false }

    /// Another session begins, or none: what is under way is not heard of any more.
    mutating func end() -> [Action] {
        let unstaged = unstage()
        var next = ScopeSync(options: options, generator: generator)
        (next.pull.begun, next.pull.applied) = (pull.begun, pull.applied)
        (next.waiters, next.waiterCount) = (waiters, waiterCount)
        self = next
        return Timer.ofSession.map { .stopWaiting($0) } + unstaged
    }

    /// The connection is there: nothing needs to wait longer.
    mutating func connected() -> [Action] { (pull.isPlanned ? beginPull() : []) + push() + [.changed] }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    mutating func hasten() -> [Action] {
        pull.retry.succeeded()
        outbox.times.release()
        return beginPull() + push()
    }

    /// Why the scope as a whole is not current; nil: it is, as far as is known.
    mutating func note(_ error: CloudError?) -> [Action] {
        guard problem != error else { return [] }
        problem = error
        return [.changed]
    }

    /// Nobody listens at the server's address.
    mutating func refused(_ error: CloudError) -> [Action] {
        let noted = problem.map(Self.needsSomebody) == true ? [] : note(error)
        // Whoever noted it has to hear when it is over, also where only a write was on its way.
        return noted + pullUnlessPlanned() + endImpatient(error)
    }

    /// A timer has run out.
    mutating func due(_ timer: Timer) -> [Action] {
        switch timer {
        case .pull:
            pull.isPlanned = false
            return beginPull()
        case .gap: return gapDue()
        case .comparison: return comparisonDue()
        case .push: return push()
        case .unblock: return isOpen ? [.unblock] : []
        case .turn:
            awaitsTurn = false
            return pushNow()
        case .waiter(let number): return waiterDue(number)
        }
    }

    // MARK: Rules

    /// Whether the server has not said anything.
    static func isSilence(_ error: CloudError) -> Bool {
        [.networkUnavailable, .networkFailure, .serverResponseLost].contains(error.code)
    }

    /// Whether a person has to do something first: sign in, unlock the account, allow the app, make room on the disk.
    static func needsSomebody(_ problem: CloudError) -> Bool {
        problem.code.retry == .never || problem.code == .accountTemporarilyUnavailable || LocalFailure.lasts(problem)
    }
}

/// The server's head of a scope, by a heartbeat or a subscription.
struct ServerHead: Equatable {
    var token: ChangeToken
    /// The bytes of its ``SetDigest/mark``; empty: not told.
    var digest: [UInt8] = []
    /// It was asked for just now.
    var isAnswer = false
}

/// How this device's copy stands beside a ``ServerHead``.
struct Standing: Equatable {
    var head: ChangeToken
    /// The first pull has finished.
    var isSynced: Bool
    /// At one and the same head it has another digest.
    var differs = false
}

/// What a reading has ended with. The pages before the last are staged.
struct PulledPages: Equatable {
    var last: WireReadChangesReply
    var isStaged: Bool
    /// What it continues.
    var after: ChangeToken
    /// Everything was asked for.
    var isListing: Bool
    /// The digests differed: nothing that is here is taken for known there.
    var isComparing: Bool
    /// How far this device knew the server to have come when it began to read: a server never goes back within an
    /// epoch, and so one of the two, this or the pages' token, is not so.
    var known = ChangeToken.zero

    var areBehind: Bool {
        let token = ChangeToken(last.token)
        return token.epoch == known.epoch && token.sequence < known.sequence
    }
}

/// What became of pages that were brought in.
struct AppliedPages: Equatable {
    /// Where the copy is now.
    var head = ChangeToken.zero
    /// Nil: could not be compared.
    var digestAgrees: Bool?
    /// They do not go with what is here.
    var needsEverything = false
}
