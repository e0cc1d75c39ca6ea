internal import Bus
internal import Core
internal import Storage
internal import Wire

// What every service tells of itself.
extension ServiceHost {
    func health() -> WireCheckHealthReply {
        var reply = WireCheckHealthReply()
        reply.service = service.name.rawValue
        reply.version = serviceKitVersion
        reply.uptimeMilliseconds = UInt64(clamping: (loop.monotonicNow - started).milliseconds)
        reply.counters = counters
        reply.deviceBudget = WireBudget(publishedBudgets.device)
        reply.accountBudget = WireBudget(publishedBudgets.account)
        reply.usesNewestMasterKey = hasRewrapped
        reply.epoch = epoch
        reply.oldCopyFoundAt = oldCopyFound?.milliseconds ?? 0
        for (number, count) in failures {
            reply.counters["failures.\(CloudError.Code(number: number)?.description ?? "\(number)")"] = count
        }
        for follower in followers { reply.followerLag[follower.service.rawValue] = follower.lag }
        return reply
    }

    func usage(of account: AccountID, in transaction: any HandlerTransaction) throws -> WireListUsageReply {
        var reply = WireListUsageReply()
        let uncounted = try service.uncountedUsage(of: account, in: transaction)
        reply.countsOnPlan = uncounted == nil
        let usage = try uncounted ?? storage.usage(of: StorageOwner(account), in: transaction)
        reply.items = usage.map {
            var item = WireListUsageReply.Item()
            item.appID = $0.app.rawValue
            item.deviceID = $0.device.rawValue
            item.usedBytes = $0.bytes
            return item
        }
        return reply
    }
}

extension WireBudget {
    fileprivate init(_ limit: BudgetConfiguration.Limit) {
        self.init()
        capacity = UInt32(clamping: limit.capacity)
        remaining = capacity
        refillMicroseconds = limit.capacity == 0 ? 0 : UInt64(limit.refill.nanoseconds / 1000)
    }
}
