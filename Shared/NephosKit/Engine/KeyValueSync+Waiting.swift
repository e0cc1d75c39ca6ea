internal import Bus
public import Core

extension KeyValueSync {
    /// Completes when a pull that begins now, or later, has been applied.
    ///
    /// - Parameter isImpatient: Whether to give up as soon as it is known that nobody listens at the server's address.
    public func whenCurrent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) { wait(for: nil, timeout: timeout, isImpatient, completion) }

    /// Completes when nothing waits to be sent.
    public func whenSent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) { wait(for: .sent, timeout: timeout, isImpatient, completion) }

    /// Completes when the first download has finished, or a person has to do something before it can.
    ///
    /// - Returns: Names the waiter, for ``endWaiter(_:_:)``.
    func whenDownloaded(timeout: Duration, _ completion: @escaping (Result<Void, CloudError>) -> Void) -> Int {
        wait(for: .downloaded, timeout: timeout, false, completion)
    }

    /// Ends one that waits, if it still does.
    func endWaiter(_ number: Int, _ result: Result<Void, CloudError>) { perform(sync.endWaiter(number, result)) }

    @discardableResult
    private func wait(
        for goal: ScopeWaiter.Goal?, timeout: Duration, _ isImpatient: Bool,
        _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) -> Int {
        let (number, actions) = sync.wait(
            for: goal, timeout: timeout, isImpatient: isImpatient, at: engine.loop.monotonicNow)
        completions[number] = completion
        perform(actions)
        return number
    }

    /// Nobody listens at the server's address.
    func waitsInVain(_ error: CloudError) { perform(sync.refused(error)) }

    func finish(_ number: Int, _ error: CloudError?) {
        completions.removeValue(forKey: number)?(error.map { .failure($0) } ?? .success(()))
    }

    /// Tells those whose goal is reached, or out of reach.
    func settleWaiters() {
        guard !sync.waiters.isEmpty, let standing = try? standing() else { return }
        perform(sync.settleWaiters(by: standing))
    }

    private func standing() throws(CloudError) -> ScopeStanding {
        let place = LocalStore.scope(of: app, session: engine.session)
        var standing = try engine.local.read { database in
            let store = StoreTransaction(database, place)
            return ScopeStanding(
                isSynced: try store.state().synced, waiting: try store.pendingCount(),
                blocked: try store.pending(limit: 1, where: "state = 'blocked'").first?.operation.error)
        }
        standing.problem = storeProblem
        return standing
    }
}
