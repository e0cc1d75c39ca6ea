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
            return PresentedItem(isUnreadable: true)
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
}
