import NephosCore

/// Somebody who waits for a scope to get somewhere.
struct ScopeWaiter {
    enum Goal: Hashable {
        /// The pull of this number, or a later one, has been applied.
        case pulled(Int)
        /// The first download has finished, whenever.
        case downloaded
        /// Nothing waits to be sent.
        case sent
    }

    var goal: Goal
    /// How long nothing may come; all that it may take, where that is fixed.
    var timeout: Duration
    /// When it gives up, by the loop's clock.
    var deadline: Duration
    /// Whether it gives up as soon as it is known to wait in vain for now.
    var isImpatient: Bool
    /// Whether it gives up at its time also while something comes.
    var isFixed = false
}

/// Where a scope stands on disk, as those who wait for it see it.
struct ScopeStanding {
    /// The first pull has finished.
    var isSynced: Bool
    /// Operations that wait to be sent.
    var waiting: Int
    /// There is nothing to be in step with.
    var isGone = false
    /// Why the first of them that waits for a person does so.
    var blocked: CloudError?
    /// Why the scope as a whole is not current: the session's reason, else its own.
    var problem: CloudError?
}

extension ScopeSync {
    /// Adds one who waits.
    ///
    /// - Parameter goal: Nil: a pull that begins now, or later; one that is on its way may have missed the latest.
    /// - Returns: Names it, for ``endWaiter(_:_:)``.
    mutating func wait(
        for goal: ScopeWaiter.Goal?, timeout: Duration, isImpatient: Bool, isFixed: Bool = false,
        at monotonic: Duration
    ) -> (number: Int, actions: [Action]) {
        waiterCount += 1
        waiters[waiterCount] = ScopeWaiter(
            goal: goal ?? .pulled(pull.begun + 1), timeout: timeout, deadline: monotonic + timeout,
            isImpatient: isImpatient, isFixed: isFixed)
        var actions: [Action] = [.wait(.waiter(waiterCount), timeout)]
        switch goal {
        case nil: actions += beginPull()
        case .sent: actions += push()
        default: break
        }
        return (waiterCount, actions + [.look])
    }

    /// A page has come, and there are more: whoever waits for all of them waits on, unless their time is fixed.
    mutating func prolongWaiters(at monotonic: Duration) -> [Action] {
        waiters.sorted { $0.key < $1.key }.compactMap { number, waiter in
            guard waiter.goal != .sent, !waiter.isFixed else { return nil }
            waiters[number]?.deadline = monotonic + waiter.timeout
            return .wait(.waiter(number), waiter.timeout)
        }
    }

    /// Ends one who waits, if it still does.
    mutating func endWaiter(_ number: Int, _ result: Result<Void, CloudError>) -> [Action] {
        guard waiters.removeValue(forKey: number) != nil else { return [] }
        switch result {
        case .success: return [.stopWaiting(.waiter(number)), .finish(number, nil)]
        case .failure(let error): return [.stopWaiting(.waiter(number)), .finish(number, error)]
        }
    }

    /// Its time is over.
    mutating func waiterDue(_ number: Int) -> [Action] {
        waiters.removeValue(forKey: number) == nil ? [] : [.giveUp(number)]
    }

    /// Tells those whose goal is reached, and those for whom it is out of reach until somebody does something.
    mutating func settleWaiters(by standing: ScopeStanding) -> [Action] {
        var actions: [Action] = []
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key }) {
            guard let result = result(of: waiter, by: standing) else { continue }
            actions += endWaiter(number, result)
        }
        return actions
    }

    private func result(of waiter: ScopeWaiter, by standing: ScopeStanding) -> Result<Void, CloudError>? {
        // What is here already stays here, whoever is in the way of more.
        if waiter.goal == .downloaded, standing.isSynced { return .success(()) }
        if waiter.isImpatient || waiter.goal == .downloaded {
            if let problem = standing.problem, Self.needsSomebody(problem) { return .failure(problem) }
            if waiter.goal == .sent, standing.isSynced, let blocked = standing.blocked { return .failure(blocked) }
        }
        if standing.isGone, standing.waiting == 0 { return .success(()) }
        switch waiter.goal {
        case .pulled(let goal): return pull.applied >= goal ? .success(()) : nil
        case .downloaded: return nil
        case .sent: return standing.waiting == 0 ? .success(()) : nil
        }
    }

    /// Nobody listens at the server's address: those who asked to know do.
    mutating func endImpatient(_ error: CloudError) -> [Action] {
        waiters.filter(\.value.isImpatient).keys.sorted().flatMap { endWaiter($0, .failure(error)) }
    }

    /// The server has asked to be left alone for so long: whoever would wait in vain need not wait.
    mutating func endWaiters(
        pausedFor pause: Duration, because error: CloudError, pulling: Bool, at monotonic: Duration
    ) -> [Action] {
        var actions: [Action] = []
        for (number, waiter) in waiters.sorted(by: { $0.key < $1.key })
        where (waiter.goal != .sent) == pulling && waiter.deadline - monotonic < pause {
            if Self.needsSomebody(error) {
                actions += endWaiter(number, .failure(error))
            } else {
                waiters[number] = nil
                actions += [.stopWaiting(.waiter(number)), .giveUp(number)]
            }
        }
        return actions
    }

    /// What there is to say of a server that says nothing.
    static let silence = "The server has not answered in time."

    /// Why a scope did not get there in time.
    static func tooLate(_ status: StoreStatus?) -> CloudError {
        var error = CloudError(.deadlineExceeded, "The store did not get there in time.")
        guard let status else { return error }
        if let problem = status.problem, needsSomebody(problem) { return problem }
        var reason = status.problem?.message
        // What somebody keeps here is nobody's answer.
        if let first = status.pending.first(where: { !$0.isByChoice }) {
            error.details["pending"] = "\(status.pending.count)"
            error.details["blocker"] = first.blocker.rawValue
            // What is only on its way has been for too long by now. A content may take its time.
            let isOnItsWay =
                first.error == nil && (first.state == .waiting || first.state == .inFlight)
                && Preparation(rawValue: first.reason) == nil
            if !isOnItsWay { reason = reason ?? first.reason }
        }
        error.details["reason"] = reason ?? Self.silence
        return error
    }
}
