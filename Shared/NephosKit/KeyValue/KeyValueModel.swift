internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosSync
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
        let isFirst = !state.synced
        var merging = KeyMerging(store, pulled.history)
        try pulled.changes.forEach { change in
            let mine = try store.item(ItemName(change.item))
            // What cannot be read here does not keep the rest away, and what is here under its name stays: it is not
            // gone, only newer than this release. The digest tells that something is missing, and `verify` what.
            guard let theirs = Self.item(change, upTo: pulled.token) else {
                guard var mine, !pulled.history.isOwn else { return }
                mine.sequence = min(mine.sequence, pulled.token.sequence)
                return try store.put(mine, &state)
            }
            try merging.merge(theirs, over: mine, &state)
        }
        if pulled.isListing {
            try pulled.changes.forEachUnlisted(of: StoreTransaction.table) { key, isQuarantined in
                guard let mine = try store.item(key) else { return }
                try merging.mergeAbsence(of: mine, isQuarantined: isQuarantined, &state)
            }
            for item in Self.remembered(merging.ended, pulled.history, now: engine.now) { try store.put(item, &state) }
        }
        try merging.observeClock()
        try offer(merging.offers, in: store)
        if !pulled.info.isEmpty {
            guard let usage = try? WireKeyValueUsage(serializedBytes: pulled.info) else {
                throw CloudError(.internalError, "What the server says of the store's limits cannot be read.")
            }
            state.limits = KeyValueLimits(usage)
        }
        guard isFirst else {
            return MergedChanges(news: try Self.news(merging.before, deletedKeys: pulled.isListing, in: store))
        }
        let items = try store.visibleItems().values.filter { $0.value != nil }.sorted { $0.key < $1.key }
        return MergedChanges(
            news: ChangeNotification(reason: .initialSyncChange, changedKeys: items.map(\.key), items: items))
    }

    func merge(
        _ segment: FeedSegment, in rows: ScopeTransaction, _ state: inout ScopeState
    ) throws -> MergedChanges? {
        let store = StoreTransaction(rows)
        let items = segment.changes.compactMap { Self.item($0, upTo: segment.token) }
        guard items.count == segment.changes.count else { return nil }
        var merging = KeyMerging(store, HistoryRelation(continuedTo: segment.token))
        for item in items { try merging.merge(item, over: store.item(item.key), &state) }
        try merging.observeClock()
        try offer(merging.offers, in: store)
        return MergedChanges(news: try Self.news(merging.before, in: store))
    }

    /// Nil: it cannot be read here.
    private static func item(_ change: WireChange, upTo token: ChangeToken) -> KeyValueItem? {
        guard var item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)),
            item.key == ItemName(change.item)
        else { return nil }
        item.sequence = min(item.sequence, token.sequence)
        return item
    }

    // MARK: Remembering deletions

    /// How long a deletion is remembered beyond the listing that it is not in, and how many of them.
    static let tombstoneRetention: Duration = .seconds(90 * 24 * 3600)
    static let tombstonesMax = 4096
    /// The sequence of a deletion that is remembered from an earlier history: nothing in the present one is older. 0 is
    /// of a deletion that was inferred.
    static let before: UInt64 = 1

    /// The newest deletions: a key that comes back from a restored database, or from a device that missed its deletion, is
    /// deleted again by whoever remembers.
    ///
    /// - Parameter ended: What a listing lacks. Of a value only the absence was seen: its deletion is newer than it, and has
    ///   sequence 0, since no server has it.
    static func remembered(_ ended: [KeyValueItem], _ history: HistoryRelation, now: Timestamp) -> [KeyValueItem] {
        let oldest = HybridTimestamp(now.advanced(by: .zero - tombstoneRetention))
        let deletions = ended.compactMap { item -> KeyValueItem? in
            var deletion = item
            guard item.value != nil else { return item.timestamp > oldest ? item : nil }
            (deletion.value, deletion.timestamp, deletion.sequence) = (nil, item.timestamp.next, 0)
            return deletion
        }
        return deletions.sorted { $0.timestamp > $1.timestamp }.prefix(tombstonesMax).map { item in
            var item = item
            // Before everything in the history that is followed from now on.
            if !history.isOwn { item.sequence = min(item.sequence, before, history.end) }
            return item
        }
    }

    /// Queues what the server has lost, as its writer wrote it and when.
    func offer(_ items: [KeyValueItem], in store: StoreTransaction) throws {
        for transaction in Self.transactions(items) {
            let writes = try transaction.filter { try !store.isWaiting($0) }
            guard !writes.isEmpty else { continue }
            try store.append(
                writes, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
    }

    /// The offers, put together as they were written: what was one transaction is offered as one.
    static func transactions(_ offers: [KeyValueItem]) -> [[KeyValueItem]] {
        Dictionary(grouping: offers, by: \.sequence).sorted { $0.key < $1.key }.map { $0.value }
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

/// Brings keys in, one by one.
struct KeyMerging {
    let store: StoreTransaction
    let history: HistoryRelation
    /// What the app saw of those that have changed.
    private(set) var before: [ItemName: KeyValueItem?] = [:]
    private(set) var offers: [KeyValueItem] = []
    /// What a listing lacks, and was deleted.
    private(set) var ended: [KeyValueItem] = []
    private var newest = HybridTimestamp.zero

    init(_ store: StoreTransaction, _ history: HistoryRelation) { (self.store, self.history) = (store, history) }

    mutating func merge(_ theirs: KeyValueItem, over mine: KeyValueItem?, _ state: inout ScopeState) throws {
        newest = max(newest, theirs.timestamp)
        let decision = Self.decide(theirs, over: mine, history)
        if decision == .keep || mine == theirs { return }
        if case .takeAndOffer = decision, let mine { offers.append(mine) }
        try note(theirs.key)
        try store.put(theirs, &state)
    }

    static func decide(
        _ theirs: KeyValueItem, over mine: KeyValueItem?, _ history: HistoryRelation
    ) -> ReconcileRule.Decision {
        history.decide(
            mine?.held(beside: theirs) ?? .absent, at: mine?.sequence ?? 0, isLive: theirs.value != nil,
            at: theirs.sequence, mine?.later(theirs) ?? .theirs)
    }

    mutating func mergeAbsence(of mine: KeyValueItem, isQuarantined: Bool, _ state: inout ScopeState) throws {
        let decision = history.decideUnlisted(mine.held(), at: mine.sequence, isQuarantined: isQuarantined)
        if decision == .keep { return }
        if decision == .offer { offers.append(mine) } else { ended.append(mine) }
        newest = max(newest, mine.timestamp.next)
        try note(mine.key)
        try store.remove(mine, &state)
    }

    private mutating func note(_ key: ItemName) throws {
        if before.index(forKey: key) == nil { before[key] = .some(try store.visible(key)) }
    }

    func observeClock() throws { try Facts(store.database).withClock { $0.observe(newest) } }
}

extension KeyValueItem {
    /// What a device has of the key, for ``ReconcileRule``. In one history a write that is there again was never deleted:
    /// the listing that lacked it was wrong. Only a restored database brings it back.
    func held(beside theirs: KeyValueItem? = nil) -> ReconcileRule.Mine {
        guard value == nil else { return .live }
        guard sequence == 0, let theirs, theirs.value != nil, deviceID == theirs.deviceID,
            timestamp == theirs.timestamp.next
        else { return .deleted }
        return .inferred
    }

    /// The last writer wins, by its stamp.
    func later(_ theirs: KeyValueItem) -> ReconcileRule.Later {
        wins(over: theirs) ? .mine : theirs.wins(over: self) ? .theirs : value == theirs.value ? .same : .unknown
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
