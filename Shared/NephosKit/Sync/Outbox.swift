import Foundation
import NephosBus
import NephosCore

/// A time, by the clock that people read and by the one that only goes on.
struct Moment {
    var time: Timestamp
    var monotonic: Duration
}

/// What waits to be sent. Its content is its model's own affair.
struct OutboxOperation: Equatable {
    enum State: String {
        /// Never sent: may still be coalesced with what is written later.
        case unsent
        /// Sent at least once under its id, which is frozen with its content.
        case sent
        /// Refused for a reason that only a person can remove.
        case blocked
    }

    var position: Int64
    var id: OperationID
    /// The scope's head when it was first sent under this id; goes with it, since a repeat is the same to the byte.
    var head: ChangeToken
    var state: State
    /// Names the process that wrote it.
    var writer: Int64
    var created: Timestamp
    /// How often it was sent, as far as that is known: a process may end before it knows.
    var attempts: Int
    /// Not before this; 0: at once.
    var nextAttempt: Timestamp
    var error: CloudError?
    /// Its content; empty where that is in its model's own table, or was not read.
    var payload = Data()
    /// Rises with each other content that it gets.
    var edits: Int64 = 0
    /// It must neither overtake another nor be overtaken.
    var goesAlone = false
    /// It only makes room, and is about nothing that those before it are about.
    var makesRoom = false
    /// While it is on its way: nothing can have been sent under its id before.
    var isFirst = false
    /// While it is on its way: ``attempts`` has it.
    var isCounted = false

    /// ``attempts``, as what is done about a failure reads and counts them.
    var retry: Retry {
        get { Retry(attempts: attempts) }
        set { attempts = newValue.attempts }
    }

    /// The server had no room for it, or could not store it for another reason that only the server's disk can cure.
    var waitsForRoom: Bool { error.map { $0.code == .storageFailure && !LocalFailure.isHere($0) } ?? false }
}

/// Which of the operations that wait go out, and when.
///
/// A value without I/O. The operations themselves are on disk, where the home's other processes see them too.
struct Outbox {
    /// How old another process's operation must be before this one sends it too: its writer is about to. (Sending
    /// twice is harmless; the id is the same.)
    private static let foreignPatience: Duration = .seconds(1)

    /// Marks what this process has written, among all that share the home.
    let writer: Int64
    /// No other process sends anything of the scope.
    var isSole = false
    let inFlightMax: Int
    var pacing = PushPacing()
    private(set) var inFlight: Set<Int64> = []
    /// Something is held back so that the budget lasts.
    private(set) var isDeferring = false
    var times = AttemptTimes()

    init(writer: Int64, inFlightMax: Int) {
        self.writer = writer
        self.inFlightMax = inFlightMax
    }

    var isFull: Bool { inFlight.count >= inFlightMax }

    /// Chooses among what waits, the oldest first.
    ///
    /// - Returns: What goes out now, and when to look again.
    mutating func choose(
        from waiting: [OutboxOperation], at now: Moment
    ) -> (chosen: [OutboxOperation], pause: Duration?) {
        isDeferring = false
        times.keep(Set(waiting.map(\.position)))
        var chosen: [OutboxOperation] = []
        var pause: Duration?
        func look(after wait: Duration) { pause = min(pause ?? wait, wait) }
        // Something waits for room on the server's disk: only what makes some goes past it.
        var isPastFull = false
        for operation in waiting where !inFlight.contains(operation.position) {
            guard inFlight.count + chosen.count < inFlightMax else { break }
            if operation.goesAlone, !inFlight.isEmpty || !chosen.isEmpty { break }
            if isPastFull, !operation.makesRoom { continue }
            let untilDue = wait(for: operation, at: now)
            if untilDue > .zero {
                look(after: untilDue)
                guard operation.waitsForRoom, !operation.makesRoom else { break }
                isPastFull = true
                continue
            }
            let age = now.time.since(operation.created)
            if !isSole, operation.writer != writer, age >= .zero, age < Self.foreignPatience {
                look(after: Self.foreignPatience - age)
                if operation.goesAlone { break }
                continue
            }
            let wait = pacing.wait(now: now.monotonic)
            if wait > .zero {
                isDeferring = true
                look(after: wait)
                break
            }
            pacing.pushed(now: now.monotonic)
            chosen.append(operation)
        }
        return (chosen, pause)
    }

    /// How long it is until the operation's next attempt.
    mutating func wait(for operation: OutboxOperation, at now: Moment) -> Duration {
        times.wait(for: operation.position, until: operation.nextAttempt, at: now)
    }

    mutating func sent(_ operation: OutboxOperation) { inFlight.insert(operation.position) }
    mutating func answered(_ operation: OutboxOperation) { inFlight.remove(operation.position) }
}

/// When operations are due that wait for their next attempt.
///
/// On disk is a wall-clock time, for a person to read and for the next process. Within this one it is noted once as a
/// time of the loop's clock, and is never further away than the longest pause: so no correction of the wall clock holds
/// anything up.
struct AttemptTimes {
    /// By position: as it is on disk, and by the loop's clock.
    private var times: [Int64: (wallClock: Timestamp, due: Duration)] = [:]
    /// What is not tried before this time of the loop's clock, though on disk it is due.
    private var held: [Int64: Duration] = [:]

    /// How long it is until the operation's next attempt.
    ///
    /// - Parameter nextAttempt: As it is on disk.
    mutating func wait(for position: Int64, until nextAttempt: Timestamp, at now: Moment) -> Duration {
        let held = max(.zero, (held[position] ?? .zero) - now.monotonic)
        guard nextAttempt.milliseconds > 0 else { return held }
        if let noted = times[position], noted.wallClock == nextAttempt { return max(held, noted.due - now.monotonic) }
        let wait = min(max(.zero, nextAttempt.since(now.time)), Retry.Pauses.scope.longest)
        times[position] = (nextAttempt, now.monotonic + wait)
        return max(held, wait)
    }

    /// Sets when it is tried again.
    mutating func putOff(_ operation: inout OutboxOperation, by pause: Duration, at now: Moment) {
        operation.nextAttempt = now.time.advanced(by: pause)
        times[operation.position] = (operation.nextAttempt, now.monotonic + pause)
    }

    /// It is not tried before this pause is over, whatever is on disk: its answer could not be kept.
    mutating func hold(_ position: Int64, for pause: Duration, at now: Moment) {
        held[position] = now.monotonic + pause
    }

    /// What is held may go, as far as its time on disk has come.
    mutating func release() { held = [:] }

    /// Forgets all others.
    mutating func keep(_ positions: Set<Int64>) {
        times = times.filter { positions.contains($0.key) }
        held = held.filter { positions.contains($0.key) }
    }
}
