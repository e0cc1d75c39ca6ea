internal import NephosBus
package import NephosCore
internal import NephosStorage
internal import NephosWire

// What every service tells of itself.
extension ServiceHost {
    /// Items in one list of what is used.
    private static let usageItemsMax = 4096

    func health() -> WireCheckHealthReply {
        var reply = WireCheckHealthReply()
        reply.service = service.name.rawValue
        reply.version = serviceKitVersion
        reply.uptimeMilliseconds = UInt64(clamping: (loop.monotonicNow - started).milliseconds)
        reply.counters = counters.values
        reply.deviceBudget = WireBudget(gate.publishedBudgets.device)
        reply.accountBudget = WireBudget(gate.publishedBudgets.account)
        reply.budgetBytesPerCall = UInt32(RequestCost.bytesPerCall)
        reply.budgetRowsPerCall = UInt32(RequestCost.rowsPerCall)
        reply.usesNewestMasterKey = maintenance.hasRewrapped
        reply.newestMasterKey = ownerKeys.newest
        reply.announcedKeys = KeyRotation.announced(in: roster)
        reply.epoch = history.epoch
        reply.oldCopyFoundAt = history.oldCopyFound?.milliseconds ?? 0
        reply.shortOfRoom = engine.isShortOfRoom
        reply.counters["purge.clock_offset_seconds"] = UInt64(clamping: purgeClock.offset.milliseconds / 1000)
        for (number, count) in counters.failures {
            reply.counters["failures.\(CloudError.Code(number: number)?.description ?? "\(number)")"] = count
        }
        for follower in followers { reply.followerLag[follower.service.rawValue] = follower.lag }
        return reply
    }

    /// How far it has followed whom, by partitions.
    package var cursors: [ServiceName: [Int: ChangeToken]] {
        Dictionary(followers.map { ($0.service, $0.cursors) }) { $1 }
    }

    func usage(of account: AccountID, in transaction: any HandlerTransaction) throws -> WireListUsageReply {
        var reply = WireListUsageReply()
        let uncounted = try service.uncountedUsage(of: account, in: transaction)
        reply.countsOnPlan = uncounted == nil
        let usage = try uncounted ?? storage.usage(of: Owner(account), in: transaction)
        // The largest, in the order in which they came.
        let smallest = usage.count <= Self.usageItemsMax ? 0 : usage.map(\.bytes).sorted(by: >)[Self.usageItemsMax - 1]
        reply.more = usage.count > Self.usageItemsMax
        reply.items = usage.filter { $0.bytes >= smallest }.prefix(Self.usageItemsMax).map {
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
