import NephosCore

/// What this device's own disk does not let it do.
///
/// Nobody but this device can know when it may be tried again, so each failure plans what follows it, and what has
/// failed is noted until that very step succeeds.
extension ScopeSync {
    /// What is done on disk apart from bringing in what was pulled, whose failures are the pull's.
    enum LocalStep: Hashable {
        /// Reading how the copy stands beside the server's.
        case compare
        /// Reading what waits to be sent.
        case collect
        /// Marking as sent.
        case freeze
        /// Taking in an answer, or a refusal.
        case settle
        /// Reading what the app is told.
        case tell
        /// Letting what waits for a person be tried again.
        case unblock
    }

    /// A step could not be done here.
    ///
    /// - Parameter operation: Whose answer could not be kept. On disk it is still due, so it is put off in memory.
    mutating func localFailed(
        _ step: LocalStep, _ error: CloudError, of operation: OutboxOperation? = nil, at now: Moment
    ) -> [Action] {
        var retry = Retry(attempts: max(localFailures[step]?.attempts ?? 0, (operation?.attempts ?? 0) - 1))
        let pause = retry.failed(error, using: &generator)
        localFailures[step] = retry
        localProblem = error
        if let operation { outbox.times.hold(operation.position, for: pause, at: now) }
        var actions = note(error)
        guard isOpen else { return actions }
        if [.collect, .freeze, .settle].contains(step) { actions.append(.wait(.push, pause)) }
        if !pull.isRunning, !pull.isPlanned { actions += plan(after: pause) }
        return actions
    }

    /// These could be done, or need not be any more.
    mutating func localSucceeded(_ steps: LocalStep...) -> [Action] {
        guard !localFailures.isEmpty else { return [] }
        for step in steps { localFailures[step] = nil }
        guard localFailures.isEmpty else { return [] }
        defer { localProblem = nil }
        return problem == localProblem ? note(nil) : []
    }

    /// What is still in the way when the server is not.
    var localReason: CloudError? { localFailures.isEmpty ? nil : localProblem }

    /// What waited for a person may be sent.
    ///
    /// - Parameter count: Operations of which that is so.
    mutating func unblocked(_ count: Int) -> [Action] {
        wasTurnedDown = false
        return localSucceeded(.unblock) + [.wait(.unblock, Self.unblockPause)] + (count > 0 ? push() + [.changed] : [])
    }

    /// What only a person can cure may be cured without a word to this device: it asks again, so seldom.
    static let unblockPause: Duration = .seconds(1800)
}
