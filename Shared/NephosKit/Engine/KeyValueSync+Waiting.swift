internal import Bus
public import Core
internal import Wire

/// Somebody who waits for a store to get somewhere.
struct StoreWaiter {
    enum Goal: Hashable {
        /// The pull of this number, or a later one, has been applied.
        case pulled(Int)
        /// The first download has finished, whenever.
        case downloaded
        case sent
    }

    var goal: Goal
    /// When it gives up, by the loop's clock.
    var deadline: Duration
    var timer: any LoopTimer
    /// Whether it gives up as soon as it is known to wait in vain for now.
    var isImpatient: Bool
    var completion: (Result<Void, CloudError>) -> Void
}

extension KeyValueSync {
    /// Completes when a pull that begins now, or later, has been applied.
    ///
    /// - Parameter isImpatient: Whether to give up as soon as it is known that nobody listens at the server's address.
    public func whenCurrent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        // One that is on its way may have missed the latest.
        let goal = StoreWaiter.Goal.pulled(sync.pulls + 1)
        wait(for: goal, timeout: timeout, isImpatient, completion)
        pull()
        settleWaiters()
    }

    /// Completes when nothing waits to be sent.
    public func whenSent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        wait(for: .sent, timeout: timeout, isImpatient, completion)
        pump()
        settleWaiters()
    }

    /// Completes when the first download has finished, or a person has to do something before it can.
    ///
    /// - Returns: Names the waiter, for ``endWaiter(_:_:)``.
    func whenDownloaded(timeout: Duration, _ completion: @escaping (Result<Void, CloudError>) -> Void) -> Int {
        let number = wait(for: .downloaded, timeout: timeout, false, completion)
        settleWaiters()
        return number
    }

    /// Ends one that waits, if it still does.
    func endWaiter(_ number: Int, _ result: Result<Void, CloudError>) {
        if let waiter = waiters[number] { end(number, waiter, result) }
    }

    @discardableResult
    private func wait(
        for goal: StoreWaiter.Goal, timeout: Duration, _ isImpatient: Bool,
        _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) -> Int {
        waiterCount += 1
        let number = waiterCount
        let timer = engine.loop.schedule(after: timeout) { [weak self] in
            guard let self, let waiter = self.waiters.removeValue(forKey: number) else { return }
            waiter.completion(.failure(self.tooLate()))
        }
        waiters[number] = StoreWaiter(
            goal: goal, deadline: engine.loop.monotonicNow + timeout, timer: timer, isImpatient: isImpatient,
            completion: completion)
        return number
    }

    private func tooLate() -> CloudError {
        var error = CloudError(.deadlineExceeded, "The store did not get there in time.")
        guard let status = try? status() else { return error }
        if let problem = status.problem, ScopeSync.needsSomebody(problem) { return problem }
        if let reason = status.problem { error.details["reason"] = reason.message }
        if let first = status.pending.first {
            error.details["pending"] = "\(status.pending.count)"
            error.details["blocker"] = first.blocker.rawValue
            error.details["reason"] = error.details["reason"] ?? first.reason
        }
        return error
    }

    /// Nobody listens at the server's address: those who asked to know do.
    func waitsInVain(_ error: CloudError) {
        perform(sync.refused(error))
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) where waiter.isImpatient {
            end(number, waiter, .failure(error))
        }
    }

    private func end(_ number: Int, _ waiter: StoreWaiter, _ result: Result<Void, CloudError>) {
        guard waiters.removeValue(forKey: number) != nil else { return }
        waiter.timer.cancel()
        waiter.completion(result)
    }

    /// The server has asked to be left alone for so long: whoever would wait in vain need not wait.
    func endWaiters(pausedFor pause: Duration, pulling: Bool, because error: CloudError) {
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) {
            guard (waiter.goal != .sent) == pulling, waiter.deadline - engine.loop.monotonicNow < pause,
                waiters.removeValue(forKey: number) != nil
            else { continue }
            waiter.timer.cancel()
            waiter.completion(.failure(ScopeSync.needsSomebody(error) ? error : tooLate()))
        }
    }

    /// Tells those whose goal is reached.
    func settleWaiters() {
        guard !waiters.isEmpty else { return }
        // First, since what is here already stays here, whoever is in the way of more.
        endDownloadedWaiters()
        endHopelessWaiters()
        var empty: Bool?
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) {
            switch waiter.goal {
            case .pulled(let goal): guard sync.pullsApplied >= goal else { continue }
            case .downloaded: continue
            case .sent:
                if empty == nil { empty = hasNothingToSend() }
                guard empty == true else { continue }
            }
            end(number, waiter, .success(()))
        }
    }

    private func endDownloadedWaiters() {
        let waiting = waiters.filter { $0.value.goal == .downloaded }
        guard let scope, !waiting.isEmpty else { return }
        guard (try? engine.local.read { try StoreTransaction($0, scope).state().synced }) == true else { return }
        for (number, waiter) in waiting.sorted(by: { $0.key < $1.key }) { end(number, waiter, .success(())) }
    }

    /// Ends those whose goal is out of reach until somebody does something.
    private func endHopelessWaiters() {
        let impatient = waiters.filter { $0.value.isImpatient || $0.value.goal == .downloaded }
        guard !impatient.isEmpty, let status = try? status() else { return }
        let blocked = status.pending.first { $0.state == .blocked }?.error
        for (number, waiter) in impatient.sorted(by: { $0.key < $1.key }) {
            if let problem = status.problem, ScopeSync.needsSomebody(problem) {
                end(number, waiter, .failure(problem))
            } else if waiter.goal == .sent, let blocked {
                end(number, waiter, .failure(blocked))
            }
        }
    }

    private func hasNothingToSend() -> Bool {
        let place = LocalStore.scope(of: app, session: engine.session)
        let count = try? engine.local.read { try StoreTransaction($0, place).pendingCount() }
        return count == 0
    }
}
