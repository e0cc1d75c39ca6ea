internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Plans, and who has which. When one becomes smaller, the services give back
// what they do not use; what is stored stays, and nothing is added until there
// is room again.
extension IdentityService {
    /// - Parameter id: Empty: the standard plan.
    /// - Throws: ``CloudError`` `.unknownItem`.
    func requirePlan(_ id: String, _ transaction: any HandlerTransaction) throws -> Plan {
        guard let plan = try PlanStore(transaction: transaction).plan(id.isEmpty ? .standard : PlanID(id)) else {
            throw CloudError(.unknownItem, "There is no such plan. See: nephos plan list")
        }
        return plan
    }

    func savePlan(
        _ request: WireSavePlan, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireSavePlanReply {
        guard NameRule.accepts(request.plan.planID) else {
            throw CloudError(
                .invalidArguments, "A plan's name has 1 to 128 letters, digits, dots, hyphens and underscores.",
                details: ["argument": "plan_id"])
        }
        let plan = Plan(id: PlanID(request.plan.planID), size: request.plan.sizeBytes)
        guard request.plan.hasSizeBytes, plan.size <= UInt64(Int64.max) else {
            throw CloudError(
                .invalidArguments, "A plan has a size, in bytes; 0 for one that stores nothing.",
                details: ["argument": "size_bytes"])
        }
        let store = PlanStore(transaction: transaction)
        let former = try store.plan(plan.id)
        guard try former != nil || store.count() < PlanStore.plansMax else {
            throw CloudError(
                .limitExceeded, "The deployment has as many plans as it may. Change one of them.",
                details: ["plans_max": "\(PlanStore.plansMax)"])
        }
        try store.save(plan)
        if former != nil, former != plan {
            try store.noteChange(of: plan.id)
            transaction.afterCommit { [weak self] in self?.tellOwners(after: .zero) }
        }
        return WireSavePlanReply()
    }

    func listPlans(
        _ request: WireListPlans, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListPlansReply {
        var reply = WireListPlansReply()
        reply.plans = try PlanStore(transaction: transaction).list().map { plan, accounts, apps in
            var wire = WirePlan(plan)
            wire.accountCount = UInt32(clamping: accounts)
            wire.appCount = UInt32(clamping: apps)
            return wire
        }
        return reply
    }

    func setPlan(
        _ request: WireSetPlan, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireSetPlanReply {
        guard request.accountName.isEmpty != request.appID.isEmpty else {
            throw CloudError(.invalidArguments, "Name an account or an app.", details: ["argument": "account_name"])
        }
        let plan = try requirePlan(request.planID, transaction)
        let owner: Owner
        if request.appID.isEmpty {
            var account = try requireAccount(named: request.accountName, transaction)
            guard account.plan != plan.id else { return WireSetPlanReply() }
            account.plan = plan.id
            try AccountStore(transaction: transaction).save(account)
            owner = Owner(account.id)
        } else {
            var app = try requireApp(request.appID, transaction)
            guard app.plan != plan.id else { return WireSetPlanReply() }
            app.plan = plan.id
            try AppStore(transaction: transaction).save(app)
            owner = Owner(app.id)
        }
        try planChanged(for: [owner], to: plan, operation: context.id, at: context.now, transaction)
        return WireSetPlanReply()
    }

    /// Owners who hear of a plan's new size in one group: requests do not wait for all of them.
    static let ownersPerStep = 100
    private static let stepPause: Duration = .milliseconds(10)
    private static let retryPause: Duration = .seconds(1)

    /// Goes on with those who have not heard yet of their plan's new size, if there is anybody.
    func tellOwners(after pause: Duration) {
        guard let runtime = try? requireRunning().runtime else { return }
        planTimer?.cancel()
        planTimer = runtime.loop.schedule(after: pause) { [weak self] in
            guard let self else { return }
            // Unless the step goes well, and says otherwise.
            tellOwners(after: Self.retryPause)
            runtime.submit { [weak self] transaction in
                guard let self else { return }
                let step = try PlanStore(transaction: transaction).takeOwnersToTell(limit: Self.ownersPerStep)
                guard let step else { return endTelling() }
                let now = runtime.loop.wallClock.now
                try planChanged(for: step.owners, to: step.plan, operation: nil, at: now, transaction)
                transaction.afterCommit { [weak self] in self?.tellOwners(after: Self.stepPause) }
            }
        }
    }

    func endTelling() {
        planTimer?.cancel()
        planTimer = nil
    }

    private func planChanged(
        for owners: [Owner], to plan: Plan, operation: OperationID?, at now: Timestamp,
        _ transaction: any HandlerTransaction
    ) throws {
        let allotments = AllotmentStore(transaction: transaction)
        var recalls: [DirectoryEvents.State] = []
        for owner in owners {
            if let account = owner.account {
                try AuditJournal(transaction: transaction).record(
                    .planChanged, of: account, by: .administrator, at: now,
                    details: ["plan": plan.id.rawValue, "size_bytes": "\(plan.size)"])
            }
            let book = try allotments.allotments(of: owner)
            guard !book.isEmpty else { continue }
            if let account = owner.account {
                try AccountEvents.publishStorage(
                    of: account, used: book.reduce(0) { LedgerRule.add($0, $1.used) }, plan: plan.size,
                    in: transaction)
            }
            // Also when it grew: whoever was refused asks again then.
            if let count = try allotments.countRecall(of: owner, at: now, pause: .zero) {
                recalls.append(.recall(owner: owner.rawValue, count: count))
            }
        }
        try DirectoryEvents.publish(recalls, operation: operation, in: transaction)
    }
}
