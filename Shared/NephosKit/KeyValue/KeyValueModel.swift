internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// Key-value stores as a model: the last writer of a key wins, and what lost is the server's to keep.
final class KeyValueModel: ScopeModel {
    let app: AppID
    let service = ServiceName.keyValue
    unowned let engine: DeviceEngine

    init(app: AppID, engine: DeviceEngine) {
        self.app = app
        self.engine = engine
    }

    func scope(in session: SessionRecord) -> LocalScope? { session.scope(of: app)?.local }

    var absence: CloudError { CloudError(.missingEntitlement, "The app has no key-value store.") }

    /// A store has 1024 keys, some thousand deletions, and 1 MiB of values; what changes meanwhile comes again.
    func adjust(_ options: inout ScopeSync.Options) {
        options.pagesMax = 1 << 14
        options.readingBytesMax = 64 << 20
    }

    func place(in session: SessionRecord?) -> LocalScope { LocalStore.scope(of: app, session: session).local }

    // MARK: Bringing in

    func forEachDigest(
        in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void
    ) throws {
        for item in try StoreTransaction(rows).items() where item.value != nil {
            try body(item.key, item.digest(key: key))
        }
    }

    func digest(of change: WireChange, key: [UInt8]) -> SetDigest? {
        try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)).digest(key: key)
    }

    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64 { try StoreTransaction(rows).greatestSequence() }

    func merge(
        _ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState
    ) throws -> MergedChanges? {
        let store = StoreTransaction(rows)
        let local = try store.items()
        var theirs = PulledState(
            token: pulled.token, complete: pulled.isListing, epochStart: pulled.epochStart,
            comparing: pulled.isComparing, isOtherHistory: pulled.isOtherHistory)
        // All of a store fits into memory: its limits, and those of what is read, see to that.
        try pulled.changes.forEach { change in
            // What cannot be read here does not keep the rest away, and what is here under its name stays: it is not
            // gone, only newer than this release. The digest tells that something is missing, and `verify` what.
            guard var item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) else {
                guard var mine = local.first(where: { $0.key == ItemName(change.item) }) else { return }
                mine.sequence = min(mine.sequence, pulled.token.sequence)
                theirs.items.append(mine)
                return
            }
            item.sequence = min(item.sequence, pulled.token.sequence)
            theirs.items.append(item)
        }
        guard let plan = PullRules.plan(theirs, local: local, head: state.head, now: engine.now) else { return nil }
        let first = !state.synced
        let touched = Set(plan.puts.map(\.key)).union(plan.replaces ? local.map(\.key) : [])
        var before: [ItemName: KeyValueItem?] = [:]
        if !first { for key in touched { before[key] = .some(try store.visible(key)) } }

        if plan.replaces { try store.removeItems(&state) }
        try Facts(rows.database).withClock { clock in for item in plan.puts { clock.observe(item.timestamp) } }
        for item in plan.puts { try store.put(item, &state) }
        try offer(plan.offers, in: store)
        if !pulled.info.isEmpty {
            guard let usage = try? WireKeyValueUsage(serializedBytes: pulled.info) else {
                throw CloudError(.internalError, "What the server says of the store's limits cannot be read.")
            }
            state.limits = KeyValueLimits(usage)
        }
        var merged = MergedChanges()
        if first {
            let keys = try store.visibleItems().filter { $0.value.value != nil }
            merged.news = ChangeNotification(
                reason: .initialSyncChange, changedKeys: keys.keys.sorted(),
                items: keys.sorted { $0.key < $1.key }.map(\.value))
        } else {
            merged.news = try Self.news(before, deletedKeys: plan.replaces, in: store)
        }
        return merged
    }

    func merge(
        _ segment: FeedSegment, in rows: ScopeTransaction, _ state: inout ScopeState
    ) throws -> MergedChanges? {
        let store = StoreTransaction(rows)
        var items: [KeyValueItem] = []
        for change in segment.changes {
            guard var item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) else { return nil }
            item.sequence = min(item.sequence, segment.token.sequence)
            items.append(item)
        }
        var before: [ItemName: KeyValueItem?] = [:]
        for item in items { before[item.key] = .some(try store.visible(item.key)) }
        try Facts(rows.database).withClock { clock in for item in items { clock.observe(item.timestamp) } }
        for item in items {
            if let mine = try store.item(item.key) {
                if mine.sequence > item.sequence { continue }
                if mine.wins(over: item), !PullRules.isInferred(mine, from: item) { try offer([mine], in: store) }
            }
            try store.put(item, &state)
        }
        return MergedChanges(news: try Self.news(before, in: store))
    }

    /// Queues what the server has lost, as its writer wrote it and when.
    func offer(_ items: [KeyValueItem], in store: StoreTransaction) throws {
        for transaction in PullRules.transactions(items) {
            let writes = try transaction.filter { try !store.isWaiting($0) }
            guard !writes.isEmpty else { continue }
            try store.append(
                writes, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
    }

    // MARK: Telling

    /// Which of these keys look different to the app now.
    static func news(
        _ before: [ItemName: KeyValueItem?], in store: StoreTransaction
    ) throws -> ChangeNotification? {
        var items: [KeyValueItem] = []
        for key in before.keys.sorted() {
            let now = try store.visible(key)
            if now?.value != before[key]??.value, let now { items.append(now) }
        }
        guard !items.isEmpty else { return nil }
        let device = items[0].deviceID
        return ChangeNotification(
            reason: .serverChange, changedKeys: items.map(\.key), items: items,
            device: items.allSatisfy { $0.deviceID == device } ? device : nil)
    }

    /// The same; a key that is gone altogether counts as deleted.
    private static func news(
        _ before: [ItemName: KeyValueItem?], deletedKeys: Bool, in store: StoreTransaction
    ) throws -> ChangeNotification? {
        var notification = try news(before, in: store)
        guard deletedKeys else { return notification }
        var gone: [KeyValueItem] = []
        for key in before.keys.sorted() where before[key]??.value != nil {
            guard try store.visible(key) == nil, var item = before[key] ?? nil else { continue }
            item.value = nil
            gone.append(item)
        }
        guard !gone.isEmpty else { return notification }
        if notification == nil { notification = ChangeNotification(reason: .serverChange, changedKeys: []) }
        notification?.changedKeys += gone.map(\.key)
        notification?.items += gone
        notification?.device = nil
        return notification
    }

    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification] {
        let store = StoreTransaction(rows)
        var notifications: [ChangeNotification] = []
        if !news.isComplete {
            // It has slept through so many that some are gone: anything may have changed.
            let all = try store.visibleItems().values.sorted { $0.key < $1.key }
            notifications.append(
                ChangeNotification(
                    reason: .serverChange, changedKeys: all.map(\.key), items: all, token: try rows.state().head))
        }
        return notifications + (try news.entries.map { try notification($0.notification, $0.error, in: store) })
    }

    private func notification(
        _ wire: WireNotification, _ error: CloudError?, in store: StoreTransaction
    ) throws -> ChangeNotification {
        var notification = ChangeNotification(wire, error)
        notification.items = try wire.changes.compactMap { change -> KeyValueItem? in
            if !change.body.isEmpty { return try KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) }
            if let item = try store.visible(ItemName(change.item)) { return item }
            guard change.deleted else { return nil }
            return KeyValueItem(
                key: ItemName(change.item), value: nil, timestamp: .zero,
                deviceID: notification.device ?? DeviceID(""))
        }
        return notification
    }
}

extension ScopeState {
    /// What the store may hold.
    var limits: KeyValueLimits {
        get { StoredLimits.decode(info) }
        set { info = StoredLimits.encode(newValue) }
    }
}

extension KeyValueLimits {
    init(_ usage: WireKeyValueUsage) {
        self = .standard
        name = usage.profile
        totalBytesMax = Int(clamping: usage.totalBytesMax)
        valueBytesMax = Int(clamping: usage.valueBytesMax)
        keyCountMax = Int(usage.keyCountMax)
        keyBytesMax = Int(usage.keyBytesMax)
    }
}
