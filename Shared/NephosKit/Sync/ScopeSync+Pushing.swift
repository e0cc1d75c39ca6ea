import NephosBus
import NephosCore

/// What came of sending an operation.
struct PushAnswer {
    var operation: OutboxOperation
    /// The service's reply, which only the scope's own rules can read.
    var result: Result<Frame, CloudError>
    /// There was a token, so that the connection was what may have been in the way.
    var wasHandedOver: Bool
    var budget: Budget?
}

/// What became of an operation that the service has accepted.
enum SettledPush: Equatable {
    /// It is in the copy, and out of the outbox; the segment is what it made of the feed.
    case stored(FeedSegment, FeedSegment.Position)
    /// What to do with it is only known after a pull. It stays, and is sent again then, under its id.
    case pullFirst
    /// Another process has dealt with it, or a restore has.
    case elsewhere
    /// The reply is not to this request.
    case unusable
}

extension ScopeSync {
    // MARK: Sending

    /// Sends what waits, in order, as far as it may go; once per turn of the loop, so that a burst of writes is one
    /// transaction.
    mutating func push() -> [Action] {
        guard isOpen, !awaitsTurn else { return [] }
        awaitsTurn = true
        return [.wait(.turn, .zero)]
    }

    mutating func pushNow() -> [Action] {
        guard isOpen, !awaitsPull else { return [] }
        return [.stopWaiting(.push), .collect(limit: outbox.inFlight.count + outbox.inFlightMax)]
    }

    /// What waits on disk, the oldest first.
    ///
    /// - Parameter isServerHeard: Whether the service was heard on this connection.
    mutating func collected(
        _ waiting: [OutboxOperation], at now: Moment, isServerHeard: Bool
    ) -> [Action] {
        // What waits no more, another process has dealt with.
        let succeeded = waiting.isEmpty ? localSucceeded(.collect, .freeze, .settle) : localSucceeded(.collect)
        if !pullsFirst.isEmpty {
            let positions = Set(waiting.map(\.position))
            pullsFirst = pullsFirst.filter { positions.contains($0.key) }
        }
        let (chosen, pause) = outbox.choose(from: waiting, at: now)
        let wait: [Action] = succeeded + (pause.map { [.wait(.push, max($0, .milliseconds(1)))] } ?? [])
        guard !chosen.isEmpty else { return wait }
        return wait + [.freeze(chosen, isAttempt: isAttempt(isServerHeard))]
    }

    /// Whether what is handed over now is sent, as far as that can be known.
    func isAttempt(_ isServerHeard: Bool) -> Bool { isServerHeard && problem.map(Self.isSilence) != true }

    /// From here on their ids and contents belong together. What is gone is not among them.
    mutating func frozen(_ operations: [OutboxOperation]) -> [Action] {
        for operation in operations { outbox.sent(operation) }
        return localSucceeded(.freeze) + operations.map { .send($0) } + [.changed]
    }

    // MARK: Answers

    mutating func answered(_ answer: PushAnswer, at now: Moment) -> [Action] {
        var operation = answer.operation
        outbox.answered(operation)
        var wasSent = answer.wasHandedOver
        if case .failure(let error) = answer.result {
            wasSent = wasSent && error.code != .networkUnavailable && error.code != .networkFailure
        }
        if wasSent != operation.isCounted { operation.attempts += wasSent ? 1 : -1 }
        var actions = noteConnection(answer.result, wasSent: wasSent)
        if let budget = answer.budget { outbox.pacing.observe(budget, now: now.monotonic) }
        switch answer.result {
        case .success(let reply): actions.append(.accept(operation, reply))
        case .failure(let error): actions += pushFailed(operation, error, at: now)
        }
        return actions + push() + [.changed]
    }

    /// What an operation's end says of the connection.
    private mutating func noteConnection(_ result: Result<Frame, CloudError>, wasSent: Bool) -> [Action] {
        if case .failure(let error) = result, Self.isSilence(error) {
            guard !wasSent, problem == nil else { return [] }
            // Whoever noted it has to hear when it is over.
            return note(error) + pullUnlessPlanned()
        }
        guard wasSent, let problem, Self.isSilence(problem) else { return [] }
        return note(localReason)
    }

    /// What became of an operation that was accepted.
    mutating func settled(_ operation: OutboxOperation, as settled: SettledPush, at now: Moment) -> [Action] {
        if settled != .pullFirst { pullsFirst[operation.position] = nil }
        switch settled {
        case .elsewhere, .stored(_, .seen): return [.tellNews]
        case .stored(let segment, .next): return [.tellNews] + absorbAhead(at: segment.token)
        case .stored(_, .foreign): return [.tellNews] + beginPull()
        case .stored(let segment, .ahead): return [.tellNews] + keep(segment)
        case .pullFirst:
            pullsFirst[operation.position, default: 0] += 1
            // The first pull may have begun before the answer. One that began after it brings all that can be meant.
            guard pullsFirst[operation.position, default: 0] <= 2 else {
                return [.tellNews] + pushFailed(operation, Self.misfit, at: now) + beginPull()
            }
            awaitsPull = true
            return [.tellNews] + beginPull()
        case .unusable: return pushFailed(operation, Self.misfit, at: now)
        }
    }

    private static let misfit = CloudError(.internalError, "The server's answer does not fit the request.")

    private mutating func pushFailed(_ failed: OutboxOperation, _ error: CloudError, at now: Moment) -> [Action] {
        let pause = Retry(attempts: max(failed.attempts, pull.retry.attempts)).pause(after: error, using: &generator)
        let outcome = PushRules.outcome(
            of: error, isOutdated: ServerTime.isOutdated(failed.id, now: now.time))
        var operation = failed
        operation.error = error
        var actions: [Action] = []
        switch outcome {
        case .repeatLater: outbox.times.putOff(&operation, by: pause, at: now)
        case .thaw:
            operation.state = .unsent
            operation.id = OperationID(at: now.time, using: &generator)
            outbox.times.putOff(&operation, by: pause, at: now)
        case .renew:
            operation.state = .unsent
            operation.id = OperationID(at: now.time, using: &generator)
            operation.nextAttempt = Timestamp(milliseconds: 0)
        case .block:
            operation.state = .blocked
            // That an account is unlocked nobody tells: what is read next does.
            if error.code == .accountTemporarilyUnavailable {
                wasTurnedDown = true
                if !pull.isRunning, !pull.isPlanned { actions += plan(after: pause) }
            }
        case .refuse: return [.refuse(operation, error), .tellNews]
        }
        if let asked = error.retryAfter { actions.append(.endWaiters(pausedFor: asked, error, pulling: false)) }
        return [.update(operation, sentAs: failed.id)] + actions
    }
}
