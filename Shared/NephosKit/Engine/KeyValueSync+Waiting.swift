internal import Bus
public import Core
internal import Wire

/// Somebody who waits for a store to get somewhere.
struct StoreWaiter {
    enum Goal: Hashable {
        /// The pull of this number, or a later one, has been applied.
        case pulled(Int)
        case sent
    }

    var goal: Goal
    /// When it gives up, by the loop's clock.
    var deadline: Duration
    var timer: any LoopTimer
    var completion: (Result<Void, CloudError>) -> Void
}

extension KeyValueSync {
    /// Completes when a pull that begins now, or later, has been applied.
    public func whenCurrent(timeout: Duration, _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        // One that is on its way may have missed the latest.
        let goal = StoreWaiter.Goal.pulled(pulls + 1)
        wait(for: goal, timeout: timeout, completion)
        pull()
    }

    /// Completes when nothing waits to be sent.
    public func whenSent(timeout: Duration, _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        wait(for: .sent, timeout: timeout, completion)
        pump()
        settleWaiters()
    }

    private func wait(
        for goal: StoreWaiter.Goal, timeout: Duration, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        waiterCount += 1
        let number = waiterCount
        let timer = engine.loop.schedule(after: timeout) { [weak self] in
            guard let self, let waiter = self.waiters.removeValue(forKey: number) else { return }
            waiter.completion(.failure(self.tooLate()))
        }
        waiters[number] = StoreWaiter(
            goal: goal, deadline: engine.loop.monotonicNow + timeout, timer: timer, completion: completion)
    }

    private func tooLate() -> CloudError {
        var error = CloudError(.deadlineExceeded, "The store did not get there in time.")
        guard let status = try? status() else { return error }
        if let reason = status.problem { error.details["reason"] = reason.message }
        if let first = status.pending.first {
            error.details["pending"] = "\(status.pending.count)"
            error.details["blocker"] = first.blocker.rawValue
            error.details["reason"] = error.details["reason"] ?? first.reason
        }
        return error
    }

    /// The server has asked to be left alone for so long: whoever would wait in vain need not wait.
    func endWaiters(pausedFor pause: Duration, pulling: Bool) {
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) {
            guard (waiter.goal != .sent) == pulling, waiter.deadline - engine.loop.monotonicNow < pause,
                waiters.removeValue(forKey: number) != nil
            else { continue }
            waiter.timer.cancel()
            waiter.completion(.failure(tooLate()))
        }
    }

    /// Tells those whose goal is reached.
    func settleWaiters() {
        guard !waiters.isEmpty else { return }
        var empty: Bool?
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) {
            switch waiter.goal {
            case .pulled(let goal): guard pullsApplied >= goal else { continue }
            case .sent:
                if empty == nil { empty = hasNothingToSend() }
                guard empty == true else { continue }
            }
            guard waiters.removeValue(forKey: number) != nil else { continue }
            waiter.timer.cancel()
            waiter.completion(.success(()))
        }
    }

    private func hasNothingToSend() -> Bool {
        let place = LocalStore.scope(of: app, session: engine.session)
        let count = try? engine.local.read { try StoreTransaction($0, place).pendingCount() }
        return count == 0
    }
}
