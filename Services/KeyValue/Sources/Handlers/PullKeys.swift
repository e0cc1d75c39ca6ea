internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
private import SwiftProtobuf
internal import Wire

extension KeyValueService {
    /// What changed after the token, or the whole store.
    ///
    /// - Throws: ``CloudError`` `.changeTokenExpired` (pull everything, keep
    ///   what was not sent), `.missingEntitlement`.
    func pullKeys(
        _ request: WirePullKeys, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> Frame {
        let store = try openStore(request.storeID, context, transaction)
        let head = try store.head()
        let newest = try transaction.position(ofPartition: store.partition).sequence
        let after = ChangeToken(request.after)
        let place = after.sequence > 0 ? after : ChangeToken(request.held)
        let standing = try transaction.judge(place, in: store.partition)
        // What the device holds was lost, and under the present epoch it would take that for deleted.
        if after.sequence == 0, case .lost(_, isNews: true) = standing { throw Self.oldCopy }
        let answer = try PullRule.answer(to: after, standing: standing, head: head, newest: newest)
        var reply = PullReply(store: store)
        if case .changes(let sequence) = answer, try !add(changesAfter: sequence, to: &reply) {
            reply = PullReply(store: store)
            try addEverything(to: &reply)
        } else if answer == .everything {
            try addEverything(to: &reply)
        }
        // A token of the partition can be ahead of the store's own head; a reader never goes back.
        return try reply.encoded(
            token: max(after, head.token), head: head,
            epochStart: PullRule.commonEnd(standing, of: place, head: head), usage: usage(head))
    }

    /// A new epoch begins as soon as the present group is done.
    static let oldCopy = CloudError(
        .serviceBusy, "The service's database is an old copy. Come back in a moment.", retryAfter: .milliseconds(10))

    /// - Returns: False when there are too many.
    private func add(changesAfter sequence: UInt64, to reply: inout PullReply) throws -> Bool {
        var count = 0
        try reply.store.transaction.items(reply.store.scope, after: sequence) { item in
            count += 1
            if count <= PullRule.changesMax { try add(item, to: &reply) }
            return count <= PullRule.changesMax
        }
        return count <= PullRule.changesMax
    }

    private func addEverything(to reply: inout PullReply) throws {
        reply.isComplete = true
        try reply.store.transaction.items(reply.store.scope, after: 0) { item in
            if !item.deleted { try add(item, to: &reply) }
            return true
        }
    }

    /// One that is damaged is named, and the others are served.
    private func add(_ item: FeedItem, to reply: inout PullReply) throws {
        let stored = StoredKey(item)
        guard try !reply.add(stored) else { return }
        runtime?.count("keys.damaged", by: 1)
        let scope = reply.store.scope
        guard noted.insert(stored, of: scope) else { return }
        callForHelp(item.name, in: scope)
        runtime?.report(
            "A stored value is damaged. It heals when a device that has it synchronises",
            details: [
                "account": scope.account.rawValue, "store": scope.name.rawValue, "sequence": "\(item.sequence)",
            ])
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

/// What a pull is answered with: a `PullKeysReply`, its values as they were stored.
private struct PullReply {
    let store: KeyStore
    /// Whether the items are the whole store.
    var isComplete = false
    private var items = FieldWriter()
    private var damaged = FieldWriter()

    init(store: KeyStore) { self.store = store }

    /// - Returns: False when its value is damaged.
    mutating func add(_ stored: StoredKey) throws -> Bool {
        do {
            let value = try store.value(of: stored)
            items.message(3) { $0.item(stored, value: value) }
            return true
        } catch is DamagedValue {
            damaged.message(8) { $0.item(stored, value: nil) }
            return false
        }
    }

    func encoded(token: ChangeToken, head: ScopeHead, epochStart: UInt64, usage: WireKeyValueUsage) throws -> Frame {
        var writer = FieldWriter(reserving: items.count + damaged.count + 256)
        writer.token(1, token)
        writer.flag(2, isComplete)
        writer.append(items)
        writer.data(4, head.digest.bytes)
        writer.data(5, try store.digestKey(head) ?? [])
        writer.number(6, epochStart)
        writer.data(7, try usage.serializedBytes() as [UInt8], isPresent: true)
        writer.append(damaged)
        return Frame(writer.bytes)
    }
}
