internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// A service tells what it stores for an owner, and asks for room.
extension IdentityService {
    /// Others are asked for unused room no more often than this.
    private static let recallPause: Duration = .milliseconds(500)

    func settleAllotment(
        _ request: WireSettleAllotment, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireSettleAllotmentReply {
        let service = try requireService(context)
        let owner = Owner(request.ownerID)
        let store = AllotmentStore(transaction: transaction)
        let book = try store.allotments(of: owner)
        guard let plan = try plan(of: owner, transaction)?.size else {
            throw CloudError(.unknownItem, "There is no such account or app.", details: ["owner": owner.rawValue])
        }
        let decision = LedgerRule.settle(
            LedgerRule.Request(
                revision: request.revision, allotted: request.allottedBytes, wanted: request.wantedBytes,
                used: request.usedBytes), of: service, plan: plan, book: book)

        var reply = WireSettleAllotmentReply()
        reply.planBytes = plan
        switch decision {
        case .outdated(let known):
            reply.revision = known.revision
            reply.allottedBytes = known.allotted
        case .settled(let allotment, let isShort):
            reply.revision = allotment.revision
            reply.allottedBytes = allotment.allotted
            reply.recalling = isShort
            try store.save(allotment, of: owner)
            if isShort { try recall(owner, at: context.now, transaction) }
            if let account = owner.account {
                let used = book.filter { $0.service != service }.reduce(allotment.used) { LedgerRule.add($0, $1.used) }
                try AccountEvents.publishStorage(of: account, used: used, plan: plan, in: transaction)
            }
        }
        return reply
    }

    /// Asks the services to give back what they hold for the owner and do not use.
    private func recall(_ owner: Owner, at now: Timestamp, _ transaction: any HandlerTransaction) throws {
        let store = AllotmentStore(transaction: transaction)
        guard let count = try store.countRecall(of: owner, at: now, pause: Self.recallPause) else { return }
        try DirectoryEvents.publish([.recall(owner: owner.rawValue, count: count)], operation: nil, in: transaction)
    }

    /// The owner's plan; nil: there is no such owner.
    func plan(of owner: Owner, _ transaction: any HandlerTransaction) throws -> Plan? {
        let id: PlanID?
        if let account = owner.account {
            id = try AccountStore(transaction: transaction).account(account)?.plan
        } else {
            id = try owner.app.flatMap { try AppStore(transaction: transaction).record($0)?.plan }
        }
        return try id.flatMap { try PlanStore(transaction: transaction).plan($0) }
    }

    func readStorage(
        _ request: WireReadStorage, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReadStorageReply {
        let owner: Owner
        if request.appID.isEmpty {
            owner = Owner(
                try requireSubject(request.accountName, admitsAppPasswords: true, context, transaction).account.id)
        } else {
            guard context.caller == nil else {
                throw CloudError(.permissionFailure, "Only the operator may ask for an app's public databases.")
            }
            owner = Owner(try requireApp(request.appID, transaction).id)
        }
        var reply = WireReadStorageReply()
        if let plan = try plan(of: owner, transaction) { reply.plan = WirePlan(plan) }
        let book = try AllotmentStore(transaction: transaction).allotments(of: owner)
        reply.level = LedgerRule.level(
            used: book.reduce(0) { LedgerRule.add($0, $1.used) }, plan: reply.plan.sizeBytes)
        reply.services = book.map {
            var wire = WireReadStorageReply.Service()
            wire.service = $0.service.rawValue
            wire.usedBytes = $0.used
            wire.allottedBytes = $0.allotted
            return wire
        }
        return reply
    }
}

extension WirePlan {
    init(_ plan: Plan) {
        self.init()
        planID = plan.id.rawValue
        sizeBytes = plan.size
    }
}
