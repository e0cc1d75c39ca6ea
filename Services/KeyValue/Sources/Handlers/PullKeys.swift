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
        let newest = try transaction.position(ofPartition: store.scope.partition).sequence
        var reply = WirePullKeysReply()
        switch try PullRule.answer(to: ChangeToken(request.after), head: head, newest: newest) {
        case .changes(let sequence):
            var isTooLong = false
            try transaction.items(store.scope, after: sequence) { item in
                isTooLong = reply.items.count == PullRule.changesMax
                if !isTooLong { reply.items.append(try store.item(StoredKey(item), withValue: true)) }
                return !isTooLong
            }
            if isTooLong { try readEverything(store, into: &reply) }
        case .everything:
            try readEverything(store, into: &reply)
        }
        reply.token = WireChangeToken(head.token)
        // A token of the partition can be ahead of the store's own head; a reader never goes back.
        reply.token.sequence = max(head.token.sequence, request.after.sequence)
        reply.digest = Data(head.digest.bytes)
        reply.digestKey = Data(try store.digestKey(head) ?? [])
        reply.epochStart = head.epochStart
        reply.usage = usage(head)
        return reply
    }

    private func readEverything(_ store: KeyStore, into reply: inout WirePullKeysReply) throws {
        reply.complete = true
        reply.items = []
        try store.transaction.items(store.scope, after: 0) { item in
            if !item.deleted { reply.items.append(try store.item(StoredKey(item), withValue: true)) }
            return true
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
