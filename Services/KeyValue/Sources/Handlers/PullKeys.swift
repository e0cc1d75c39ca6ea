internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

private import struct Foundation.Data

extension KeyValueService {
    /// What changed after the token, or the whole store.
    ///
    /// - Throws: ``CloudError`` `.changeTokenExpired` (pull everything, keep
    ///   what was not sent), `.missingEntitlement`.
    func pullKeys(
        _ request: WirePullKeys, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WirePullKeysReply {
        let store = try openStore(request.storeID, context, transaction)
        let head = try store.head()
        let newest = try transaction.position(ofPartition: store.partition).sequence
        var reply = WirePullKeysReply()
        let after = ChangeToken(request.after)
        let place = after.sequence > 0 ? after : ChangeToken(request.held)
        let standing = try transaction.judge(place, in: store.partition)
        // What the device holds was lost, and under the present epoch it would take that for deleted.
        if after.sequence == 0, case .lost(_, isNews: true) = standing { throw Self.oldCopy }
        switch try PullRule.answer(to: after, standing: standing, head: head, newest: newest) {
        case .changes(let sequence):
            var count = 0
            try transaction.items(store.scope, after: sequence) { item in
                count += 1
                if count <= PullRule.changesMax { try add(item, of: store, to: &reply) }
                return count <= PullRule.changesMax
            }
            if count > PullRule.changesMax { try readEverything(store, into: &reply) }
        case .everything:
            try readEverything(store, into: &reply)
        }
        reply.token = WireChangeToken(head.token)
        // A token of the partition can be ahead of the store's own head; a reader never goes back.
        if after > head.token { reply.token = request.after }
        reply.digest = Data(head.digest.bytes)
        reply.digestKey = Data(try store.digestKey(head) ?? [])
        reply.epochStart = PullRule.commonEnd(standing, of: place, head: head)
        reply.usage = usage(head)
        return reply
    }

    /// A new epoch begins as soon as the present group is done.
    static let oldCopy = CloudError(
        .serviceBusy, "The service's database is an old copy. Come back in a moment.", retryAfter: .milliseconds(10))

    private func readEverything(_ store: KeyStore, into reply: inout WirePullKeysReply) throws {
        reply.complete = true
        reply.items = []
        reply.damaged = []
        try store.transaction.items(store.scope, after: 0) { item in
            if !item.deleted { try add(item, of: store, to: &reply) }
            return true
        }
    }

    /// One that is damaged is named, and the others are served.
    private func add(_ item: FeedItem, of store: KeyStore, to reply: inout WirePullKeysReply) throws {
        let stored = StoredKey(item)
        do { reply.items.append(try store.item(stored, withValue: true)) } catch is DamagedValue {
            reply.damaged.append(try store.item(stored, withValue: false))
            runtime?.count("keys.damaged", by: 1)
            if noted.insert(stored, of: store.scope) {
                callForHelp(item.name, in: store.scope)
                runtime?.report(
                    "A stored value is damaged. It heals when a device that has it synchronises",
                    details: [
                        "account": store.scope.account.rawValue, "store": store.scope.name.rawValue,
                        "sequence": "\(item.sequence)",
                    ])
            }
        }
    }

    /// Moves a damaged item to the head, so that all devices pull it, and whoever has it offers it.
    private func callForHelp(_ name: ItemName, in scope: ScopeName) {
        runtime?.submit { transaction in
            guard let item = try transaction.item(scope, name) else { return }
            let change = try transaction.put(scope, [item])
            transaction.publish(KeyValueEvents.moved(name, by: change))
        }
    }

    private func usage(_ head: ScopeHead) -> WireKeyValueUsage {
        let limits = configuration.limits
        var usage = WireKeyValueUsage()
        usage.profile = limits.name
        usage.totalBytes = UInt64(clamping: head.liveBytes)
        usage.totalBytesMax = UInt64(clamping: limits.totalBytesMax)
        usage.valueBytesMax = UInt64(clamping: limits.valueBytesMax)
        usage.keyCount = UInt32(clamping: head.liveCount)
        usage.keyCountMax = UInt32(clamping: limits.keyCountMax)
        usage.keyBytesMax = UInt32(clamping: limits.keyBytesMax)
        return usage
    }
}
