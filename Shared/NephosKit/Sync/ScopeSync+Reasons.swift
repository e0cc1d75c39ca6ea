import NephosCore

/// What has to be done before an operation can be sent.
enum Preparation: String, CaseIterable {
    case sending = "Its content is being sent."
    case unsent = "Its content waits to be sent."
    case waiting = "Its content waits for that of others."
    case behind = "It waits for the content of another."
    case paused = "The sync of the item is paused. Resume it."
    case behindPaused = "It waits for an item whose sync is paused. Resume that."
    case conflicts = "As many conflicts as there is room for wait to be resolved. Resolve some."
    case refusals = "As much was refused as there is room for. Save some of it again, or discard it."

    /// The operation, or one before it, waits for an upload.
    var isForContent: Bool { [.sending, .unsent, .waiting, .behind].contains(self) }
}

extension ScopeSync {
    private static let unanswered = "It was sent, and no answer has come. It is sent again."

    /// Why an operation waits, as a person reads it.
    ///
    /// - Parameters:
    ///   - preparation: Nil: it may be sent.
    ///   - problem: Why the scope as a whole is not current: the session's reason, else its own.
    ///   - isSynced: The first pull has finished.
    mutating func describe(
        _ operation: OutboxOperation, items: [ItemName], preparation: Preparation? = nil, problem: CloudError?,
        isSynced: Bool, isServerHeard: Bool, at now: Moment
    ) -> StoreStatus.Pending {
        var pending = StoreStatus.Pending(
            id: operation.id, position: operation.position, keys: items, state: .waiting,
            reason: "It is about to be sent.", blocker: .thisDevice,
            attempts: operation.attempts, nextAttempt: nil, since: operation.created, error: operation.error)
        let wait = outbox.wait(for: operation, at: now)
        if let problem, Self.needsSomebody(problem) {
            pending.state = .blocked
            pending.reason = problem.message
            pending.blocker = PushRules.blocker(of: problem)
        } else if !isSynced {
            pending.reason = problem?.message ?? "It waits until the first download has finished."
            pending.blocker = problem.map(PushRules.blocker) ?? .network
        } else if operation.state == .blocked {
            pending.state = .blocked
            pending.reason = operation.error?.message ?? "The server does not accept it."
            pending.blocker = operation.error.map(PushRules.blocker) ?? .policy
        } else if let problem, problem.code != .storeOutOfStep {
            // What is known of the scope is newer than what became of the last attempt.
            pending.reason = problem.message
            pending.blocker = PushRules.blocker(of: problem)
            if wait > .zero { pending.nextAttempt = now.time.advanced(by: wait) }
        } else if let preparation {
            pending.state = preparation == .sending && operation.error == nil ? .inFlight : .waiting
            pending.reason = operation.error?.message ?? preparation.rawValue
            let isHere = preparation.isByChoice || preparation.isUndecided
            pending.blocker = isHere ? .thisDevice : operation.error.map(PushRules.blocker) ?? .network
            if isHere { pending.reason = preparation.rawValue }
            if operation.nextAttempt > now.time { pending.nextAttempt = operation.nextAttempt }
        } else if outbox.inFlight.contains(operation.position) {
            pending.state = .inFlight
            pending.reason =
                isAttempt(isServerHeard) ? "It was sent; the answer has not arrived." : "It is being sent."
            pending.blocker = .network
        } else if let error = operation.error, wait > .zero {
            pending.reason = error.code == .serverResponseLost ? Self.unanswered : error.message
            pending.blocker = PushRules.blocker(of: error)
            pending.nextAttempt = now.time.advanced(by: wait)
        } else if outbox.isDeferring {
            pending.state = .deferred
            pending.reason = "It is held back so that the write budget lasts."
            pending.blocker = .server
            pending.nextAttempt = now.time.advanced(by: outbox.pacing.wait(now: now.monotonic))
        } else if operation.attempts > 0 {
            pending.reason = Self.unanswered
            pending.blocker = .network
        } else if outbox.isFull {
            pending.reason = "It waits for those before it."
            pending.blocker = .network
        }
        return pending
    }
}
