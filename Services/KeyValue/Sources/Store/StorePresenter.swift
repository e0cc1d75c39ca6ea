public import NephosCore
public import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A store as devices read it: its values opened, and how full it is.
struct StorePresenter: ScopePresenter {
    let opener: StoreOpener
    let digestKey: [UInt8]
    let limits: KeyValueLimits

    /// A `KeyValueItem`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        let stored = StoredKey(item)
        do {
            let value = try opener.value(of: stored)
            body.item(stored, value: value)
            return PresentedItem(digest: value.map { opener.digest(of: stored, $0, digestKey) })
        } catch is DamagedValue {
            body.item(stored, value: nil)
            return PresentedItem(isDamaged: true)
        }
    }

    /// A `KeyValueUsage`.
    func info(_ head: ScopeHead) throws -> [UInt8] {
        var usage = WireKeyValueUsage()
        usage.profile = limits.name
        usage.totalBytes = UInt64(clamping: head.liveBytes)
        usage.totalBytesMax = UInt64(clamping: limits.totalBytesMax)
        usage.valueBytesMax = UInt64(clamping: limits.valueBytesMax)
        usage.keyCount = UInt32(clamping: head.liveCount)
        usage.keyCountMax = UInt32(clamping: limits.keyCountMax)
        usage.keyBytesMax = UInt32(clamping: limits.keyBytesMax)
        return try usage.serializedBytes()
    }
}

extension KeyValueService {
    public func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        try mending(transaction) {
            let store = try openStore(scope, caller, transaction)
            return StorePresenter(
                opener: try store.opener(), digestKey: try store.digestKey(store.head()) ?? [],
                limits: configuration.limits)
        }
    }

    /// The others are served.
    public func found(_ damage: ScopeDamage, in scope: ScopeName) {
        for item in damage.items { note(StoredKey(item), of: scope) }
        if damage.isOutOfStep { correctDigests(of: scope) }
    }

    private func note(_ damaged: StoredKey, of scope: ScopeName) {
        runtime?.count("keys.damaged", by: 1)
        guard noted.insert(damaged, of: scope) else { return }
        callForHelp(damaged.key, in: scope)
        runtime?.report(
            "A stored value is damaged. It heals when a device that has it synchronises",
            details: [
                "account": scope.owner.rawValue, "store": scope.path.rawValue, "sequence": "\(damaged.sequence)",
            ])
    }

    /// Puts right the digests that are not of what the store holds, once in the service's life: they were damaged, and
    /// every device would be out of step with them for ever.
    private func correctDigests(of scope: ScopeName) {
        runtime?.count("digests.damaged", by: 1)
        guard corrected.count < NotedDamage.storesMax, corrected.insert(scope).inserted else { return }
        runtime?.report(
            "A store's digest is not that of its values. It is put right",
            details: ["account": scope.owner.rawValue, "store": scope.path.rawValue])
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
