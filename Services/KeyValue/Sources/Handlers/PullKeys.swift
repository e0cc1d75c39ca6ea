internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
private import SwiftProtobuf
internal import Wire

extension KeyValueService {
    /// What changed after the token, or the whole store: read from a snapshot, unless it is little.
    ///
    /// - Throws: ``CloudError`` `.changeTokenExpired` (pull everything, keep
    ///   what was not sent), `.missingEntitlement`.
    func beginPullKeys(
        _ request: WirePullKeys, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<KeyPull> {
        let store = try openStore(request.storeID, context, transaction)
        let after = ChangeToken(request.after)
        let place = after.sequence > 0 ? after : ChangeToken(request.held)
        let standing = try transaction.judge(place, in: store.partition)
        // What the device holds was lost, and under the present epoch it would take that for deleted.
        if after.sequence == 0, case .lost(_, isNews: true) = standing { throw Self.oldCopy }
        let pull = KeyPull(
            opener: try store.opener(), after: after, place: place, standing: standing,
            digestKey: try store.digestKey(store.head()) ?? [], limits: configuration.limits)
        guard let reply = try pull.smallReply(from: transaction) else { return .read(pull) }
        return .done(try finishPullKeys(reply))
    }

    /// A new epoch begins as soon as the present group is done.
    static let oldCopy = CloudError(
        .serviceBusy, "The service's database is an old copy. Come back in a moment.", retryAfter: .milliseconds(10))

    func finishPullKeys(_ reply: KeyPull.Reply) throws -> Frame {
        for damaged in reply.damaged { note(damaged, of: reply.scope) }
        if reply.isOutOfStep { correctDigests(of: reply.scope) }
        return try reply.encoded()
    }

    /// The others are served.
    private func note(_ damaged: StoredKey, of scope: ScopeName) {
        runtime?.count("keys.damaged", by: 1)
        guard noted.insert(damaged, of: scope) else { return }
        callForHelp(damaged.key, in: scope)
        runtime?.report(
            "A stored value is damaged. It heals when a device that has it synchronises",
            details: [
                "account": scope.account.rawValue, "store": scope.name.rawValue, "sequence": "\(damaged.sequence)",
            ])
    }

    /// Puts right the digests that are not of what the store holds, once in the service's life: they were damaged, and
    /// every device would be out of step with them for ever.
    private func correctDigests(of scope: ScopeName) {
        runtime?.count("digests.damaged", by: 1)
        guard corrected.count < NotedDamage.countMax, corrected.insert(scope).inserted else { return }
        runtime?.report(
            "A store's digest is not that of its values. It is put right",
            details: ["account": scope.account.rawValue, "store": scope.name.rawValue])
        runtime?.submit { [weak self] transaction in
            guard let self, let keys else { return }
            let store = KeyStore(scope: scope, transaction: transaction, keys: keys, digestKeys: digestKeys)
            let opener = try store.opener()
            let digestKey = try store.digestKey(store.head()) ?? []
            var wrong: [FeedItem] = []
            var last: FeedItem?
            try transaction.items(scope, after: 0) { item in
                last = item
                guard !item.deleted, let digest = try? opener.digest(of: StoredKey(item), digestKey),
                    digest != item.digest
                else { return true }
                wrong.append(item)
                wrong[wrong.count - 1].digest = digest
                return true
            }
            // Of a head alone nobody would hear.
            if wrong.isEmpty, let last { wrong = [last] }
            guard !wrong.isEmpty else { return _ = try transaction.correctHead(scope) }
            var change = try transaction.put(scope, wrong)
            change.digest = try transaction.correctHead(scope)
            transaction.publish(KeyValueEvents.moved(wrong.map(\.name), by: change))
        }
    }

    /// Moves a damaged item to the head, so that all devices pull it, and whoever has it offers it.
    private func callForHelp(_ name: ItemName, in scope: ScopeName) {
        runtime?.submit { transaction in
            guard let item = try transaction.item(scope, name) else { return }
            let change = try transaction.put(scope, [item])
            transaction.publish(KeyValueEvents.moved([name], by: change))
        }
    }
}

/// A pull of one store: what it rests on, so that it can be carried out on any thread.
struct KeyPull: Sendable {
    /// How much a pull may read.
    struct Bounds: Sendable {
        var items: Int
        /// Of values.
        var bytes: Int

        /// What is read on the loop; a pull of more is carried out beside it.
        static let onLoop = Bounds(items: 32, bytes: 32 << 10)
        /// Of changes, in one reply.
        static let changes = Bounds(items: PullRule.changesMax, bytes: .max)
        /// A store has limits of its own.
        static let none = Bounds(items: .max, bytes: .max)
    }

    let opener: StoreOpener
    let after: ChangeToken
    /// How far the reader knows this history, and what its token says of that.
    let place: ChangeToken
    let standing: TokenStanding
    let digestKey: [UInt8]
    let limits: KeyValueLimits

    /// Carries it out if that is little.
    ///
    /// - Returns: Nil when there is more to read.
    func smallReply(from feed: any FeedReader) throws -> Reply? {
        let head = try feed.head(opener.scope)
        switch try answer(feed, head) {
        case .changes(let sequence): return try items(of: feed, head, after: sequence, within: .onLoop)
        case .everything:
            guard head.liveCount <= Bounds.onLoop.items, head.liveBytes <= Bounds.onLoop.bytes else { return nil }
            return try items(of: feed, head, after: nil, within: .onLoop)
        }
    }

    /// Carries it out.
    func reply(from feed: any FeedReader) throws -> Reply {
        let head = try feed.head(opener.scope)
        if case .changes(let sequence) = try answer(feed, head),
            let changes = try items(of: feed, head, after: sequence, within: .changes)
        {
            return changes
        }
        guard let everything = try items(of: feed, head, after: nil, within: .none) else {
            throw CloudError(.internalError, "A read without bounds met one.")
        }
        return everything
    }

    private func answer(_ feed: any FeedReader, _ head: ScopeHead) throws -> PullRule.Answer {
        let newest = try feed.position(ofPartition: opener.scope.partition).sequence
        return try PullRule.answer(to: after, standing: standing, head: head, newest: newest)
    }

    /// - Parameter sequence: Nil: everything that lives.
    /// - Returns: Nil when there is more than the bounds allow.
    private func items(
        of feed: any FeedReader, _ head: ScopeHead, after sequence: UInt64?, within bounds: Bounds
    ) throws -> Reply? {
        var reply = Reply(self, head, isComplete: sequence == nil)
        var (count, bytes) = (0, 0)
        var isWithin = true
        try feed.items(opener.scope, after: sequence ?? 0) { item in
            count += 1
            bytes += item.size
            isWithin = count <= bounds.items && bytes <= bounds.bytes
            if isWithin, sequence != nil || !item.deleted { try reply.add(item) }
            return isWithin
        }
        guard isWithin else { return nil }
        reply.close()
        return reply
    }

    /// What the pull is answered with: a `PullKeysReply`, its values as they were stored.
    struct Reply: Sendable {
        /// Whose values cannot be read: they are named, and the others served.
        private(set) var damaged: [StoredKey] = []
        /// The store's digest is not that of what it holds.
        private(set) var isOutOfStep = false
        var scope: ScopeName { pull.opener.scope }
        private let pull: KeyPull
        private let head: ScopeHead
        private let isComplete: Bool
        private var items = FieldWriter()
        private var digest = SetDigest.empty

        fileprivate init(_ pull: KeyPull, _ head: ScopeHead, isComplete: Bool) {
            self.pull = pull
            self.head = head
            self.isComplete = isComplete
        }

        fileprivate mutating func add(_ item: FeedItem) throws {
            let stored = StoredKey(item)
            if !item.deleted { digest.add(item.digest) }
            do {
                let value = try pull.opener.value(of: stored)
                items.message(3) { $0.item(stored, value: value) }
                if isComplete, let value, pull.opener.digest(of: stored, value, pull.digestKey) != item.digest {
                    isOutOfStep = true
                }
            } catch is DamagedValue {
                damaged.append(stored)
            }
        }

        /// Everything is added.
        fileprivate mutating func close() {
            if isComplete, digest != head.digest { isOutOfStep = true }
        }

        func encoded() throws -> Frame {
            var writer = FieldWriter(reserving: items.count + 256)
            // A token of the partition can be ahead of the store's own head; a reader never goes back.
            writer.token(1, max(pull.after, head.token))
            writer.flag(2, isComplete)
            writer.append(items)
            writer.data(4, head.digest.bytes)
            writer.data(5, pull.digestKey)
            writer.number(6, PullRule.commonEnd(pull.standing, of: pull.place, head: head))
            writer.data(7, try usage.serializedBytes() as [UInt8], isPresent: true)
            for stored in damaged { writer.message(8) { $0.item(stored, value: nil) } }
            return Frame(writer.bytes)
        }

        private var usage: WireKeyValueUsage {
            let limits = pull.limits
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
}
