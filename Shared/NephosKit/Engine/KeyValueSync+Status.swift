internal import Bus
public import Core
internal import Wire

extension KeyValueSync {
    /// Pending writes that a status lists; there may be more.
    static let listedMax = 1000

    /// Where the store stands, and why anything in it waits.
    public func status() throws(CloudError) -> StoreStatus {
        let session = engine.session
        let place = LocalStore.scope(of: app, session: session)
        let (state, pending, refused) = try engine.local.read { database in
            let store = StoreTransaction(database, place)
            return (try store.state(), try store.pending(limit: Self.listedMax), try store.refusals())
        }
        let now = engine.now
        return StoreStatus(
            initialSyncFinished: state.synced, head: state.head, digest: state.digest,
            pending: pending.map { describe($0, synced: state.synced, now: now) }, refused: refused,
            problem: storeProblem, agrees: sync.agrees, budget: pacing.budget,
            isFollowing: engine.follower.isFollowing(app))
    }

    private var storeProblem: CloudError? {
        guard let session = engine.session, session.signedIn else {
            return CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        if let ending = session.ending { return ending }
        return problem
    }

    private static let unanswered = "It was sent, and no answer has come. It is sent again."

    /// Whether what is handed over now is sent, as far as that can be known.
    var isServerHeard: Bool { engine.hasHeard(.keyValue) && problem.map(ScopeSync.isSilence) != true }

    private func describe(_ operation: PendingOperation, synced: Bool, now: Timestamp) -> StoreStatus.Pending {
        var pending = StoreStatus.Pending(
            id: operation.id, keys: operation.writes.map(\.key), state: .waiting,
            reason: "It is about to be sent.", blocker: .thisDevice, attempts: operation.attempts, nextAttempt: nil,
            since: operation.created, error: operation.error)
        let problem = storeProblem
        if let problem, ScopeSync.needsSomebody(problem) {
            pending.state = .blocked
            pending.reason = problem.message
            pending.blocker = PushRules.blocker(of: problem)
        } else if !synced {
            pending.reason = problem?.message ?? "It waits until the first download has finished."
            pending.blocker = problem.map(PushRules.blocker) ?? .network
        } else if operation.state == .blocked {
            pending.state = .blocked
            pending.reason = operation.error?.message ?? "The server does not accept it."
            pending.blocker = operation.error.map(PushRules.blocker) ?? .policy
        } else if let problem, problem.code != .storeOutOfStep {
            // What is known of the store is newer than what became of the last attempt.
            pending.reason = problem.message
            pending.blocker = PushRules.blocker(of: problem)
            let wait = wait(for: operation)
            if wait > .zero { pending.nextAttempt = now.advanced(by: wait) }
        } else if inFlight.contains(operation.position) {
            pending.state = .inFlight
            pending.reason = isServerHeard ? "It was sent; the answer has not arrived." : "It is being sent."
            pending.blocker = .network
        } else if let error = operation.error, wait(for: operation) > .zero {
            pending.reason = error.code == .serverResponseLost ? Self.unanswered : error.message
            pending.blocker = PushRules.blocker(of: error)
            pending.nextAttempt = now.advanced(by: wait(for: operation))
        } else if deferred {
            pending.state = .deferred
            pending.reason = "It is held back so that the write budget lasts."
            pending.blocker = .server
            pending.nextAttempt = now.advanced(by: pacing.wait(now: engine.loop.monotonicNow))
        } else if operation.attempts > 0 {
            pending.reason = Self.unanswered
            pending.blocker = .network
        } else if inFlight.count >= engine.options.pushesInFlightMax {
            pending.reason = "It waits for those before it."
            pending.blocker = .network
        }
        return pending
    }
}
