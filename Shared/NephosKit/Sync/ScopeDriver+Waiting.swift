import NephosBus
import NephosCore

extension ScopeDriver {
    /// Operations that wait, of those that a status lists; there may be more.
    static let listedMax = 1000

    /// Completes when the scope has got there, or it is known why not.
    ///
    /// - Parameters:
    ///   - goal: Nil: a pull that begins now, or later, has been applied.
    ///   - isImpatient: Whether to give up as soon as it is known that nobody listens at the server's address.
    ///   - isFixed: Whether to give up at the time also while something comes.
    /// - Returns: Names the waiter, for ``endWaiter(_:_:)``.
    @discardableResult
    func wait(
        for goal: ScopeWaiter.Goal?, timeout: Duration, isImpatient: Bool = false, isFixed: Bool = false,
        _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) -> Int {
        let (number, actions) = sync.wait(
            for: goal, timeout: timeout, isImpatient: isImpatient, isFixed: isFixed, at: engine.loop.monotonicNow)
        completions[number] = completion
        perform(actions)
        engine.home.wantsChanged()
        return number
    }

    /// Ends one that waits, if it still does.
    func endWaiter(_ number: Int, _ result: Result<Void, CloudError>) { perform(sync.endWaiter(number, result)) }

    /// What the process that keeps the scope in step is asked for: that it does, and to wait too for what this process
    /// cannot see.
    func wants(of process: String, session: String?) -> [Want] {
        func want(_ waiter: Int, _ goal: Want.Goal) -> Want {
            Want(process: process, reader: reader, waiter: waiter, scope: key, session: session, goal: goal)
        }
        guard isDelegated else { return [want(0, .open)] }
        return [want(0, .open)]
            + sync.waiters.map { number, waiter in
                var want = want(number, Want.Goal(waiter.goal))
                want.milliseconds = max(.zero, waiter.deadline - engine.loop.monotonicNow).milliseconds
                want.isImpatient = waiter.isImpatient
                return want
            }
    }

    func finish(_ number: Int, _ error: CloudError?) {
        engine.home.wantsChanged()
        completions.removeValue(forKey: number)?(error.map { .failure($0) } ?? .success(()))
    }

    /// Tells those whose goal is reached, or out of reach.
    func settleWaiters() {
        guard !sync.waiters.isEmpty, let standing = try? standing() else { return }
        perform(sync.settleWaiters(by: standing))
    }

    private func standing() throws(CloudError) -> ScopeStanding {
        let place = model.place(in: engine.session)
        // It is looked for among all that waits.
        let asksForBlocked = !isDelegated && sync.waiters.values.contains { $0.isImpatient && $0.goal == .sent }
        var standing = try engine.local.read { database in
            let rows = ScopeTransaction(database, place)
            return ScopeStanding(
                isSynced: try rows.state().synced,
                waiting: try rows.operationCount() - model.heldByChoice(in: rows),
                blocked: asksForBlocked ? try rows.firstBlocked()?.error : nil)
        }
        standing.isGone = isGone
        // What the other process knew may have been cured: it tries anew for whoever begins to wait, and says so.
        standing.problem = isDelegated ? sessionProblem : problem
        return standing
    }

    /// The scope was deleted on the server.
    var isGone: Bool { scope == nil && engine.session.map { $0.signedIn && model.address(in: $0) == .gone } ?? false }

    /// Why the session keeps the scope from being current.
    private var sessionProblem: CloudError? {
        guard let session = engine.session, session.signedIn else {
            return CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        return session.ending
    }

    /// Why the scope as a whole is not current: the session's reason, else its own.
    private var problem: CloudError? { sessionProblem ?? (isDelegated ? told.error : sync.problem) }

    /// What was said of the sign-in that is this process's too.
    private var told: LeaderStanding {
        engine.home.client.standing(of: key) ?? LeaderStanding(scope: key)
    }

    /// Where the scope stands, and why anything in it waits.
    func status() throws(CloudError) -> StoreStatus { try status(limit: Self.listedMax) }

    /// The same, for the home's other processes.
    func standingForOthers(fetches: Int) throws(CloudError) -> LeaderStanding {
        // What was refused they read themselves.
        let status = try status(limit: LeaderStanding.describedMax, withRefused: false)
        return LeaderStanding(key, status, fetches: fetches, engine)
    }

    /// - Parameters:
    ///   - limit: Of the operations that wait.
    ///   - withRefused: Whether what was refused is told: there may be very much of it.
    private func status(limit: Int, withRefused: Bool = true) throws(CloudError) -> StoreStatus {
        let place = model.place(in: engine.session)
        let (state, pending, preparations, refused, leftBehind, loss) = try engine.local.read { database in
            let rows = ScopeTransaction(database, place)
            let operations = try rows.operations(limit: limit)
            let pending = try operations.map { ($0, try model.items(of: $0, in: rows)) }
            return (
                try rows.state(), pending, try model.preparations(among: operations, in: rows),
                withRefused ? try model.refusals(in: rows) : [], try model.leftBehind(in: rows),
                try self.contentLoss(in: rows)
            )
        }
        let (isDelegated, problem, isGone) = (isDelegated, problem, isGone)
        let told = told
        let described = pending.map { operation, items in
            isDelegated
                ? told.describe(operation, items: items)
                : sync.describe(
                    operation, items: items, preparation: preparations[operation.position], problem: problem,
                    isSynced: state.synced, isServerHeard: isServerHeard, at: moment)
        }
        return StoreStatus(
            initialSyncFinished: state.synced || isGone, head: state.head, digest: state.digest, pending: described,
            refused: refused, problem: problem,
            agrees: isGone || (isDelegated ? told.agrees : sync.comparison == .agreed),
            budget: isDelegated ? told.budget : sync.outbox.pacing.budget,
            isFollowing: isGone || (isDelegated ? told.isFollowing : engine.router.isFollowing(self)),
            followingProblem: isDelegated ? told.followingError : engine.router.problem(of: self),
            leftBehind: leftBehind,
            damagedChunkCount: loss.lostChunks, isContentMissing: loss.isAllMissing,
            fetched: state.fetched.milliseconds > 0 ? state.fetched : nil)
    }
}
