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

    func address(in session: SessionRecord) -> ScopeAddress {
        session.scope(of: app).map { .known($0.local) }
            ?? .toldByToken(CloudError(.missingEntitlement, "The app has no key-value store."))
    }

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
        let (store, history, isFirst) = (StoreTransaction(rows), pulled.history, !state.synced)
        // What the app saw of the keys that change, what the server has lost, and what a listing lacks that was deleted.
        var before: [ItemName: KeyValueItem?] = [:]
        var (offers, ended): ([KeyValueItem], [KeyValueItem]) = ([], [])
        var newest = HybridTimestamp.zero
        try pulled.changes.forEach { change in
            let mine = try store.item(ItemName(change.item))
            // What cannot be read here does not keep the rest away, and what is here under its name stays: it is not
            // gone, only newer than this release. The digest tells that something is missing, and `verify` what.
            guard var theirs = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)),
                theirs.key == ItemName(change.item)
            else {
                guard var mine, !history.isOwn else { return }
                mine.sequence = min(mine.sequence, history.end)
                return try store.put(mine, &state)
            }
            theirs.sequence = min(theirs.sequence, history.end)
            newest = max(newest, theirs.timestamp)
            let decision = Self.decide(theirs, over: mine, history)
            if decision == .keep || mine == theirs { return }
            if case .takeAndOffer = decision, let mine { offers.append(mine) }
            if before.index(forKey: theirs.key) == nil { before[theirs.key] = .some(try store.visible(theirs.key)) }
            try store.put(theirs, &state)
        }
        if pulled.isListing {
            try pulled.changes.forEachUnlisted(of: StoreTransaction.table) { key, isQuarantined in
                guard let mine = try store.item(key) else { return }
                let decision = history.decideUnlisted(mine.held(), at: mine.sequence, isQuarantined: isQuarantined)
                if decision == .keep { return }
                if decision == .offer { offers.append(mine) } else { ended.append(mine) }
                before[key] = .some(try store.visible(key))
                try store.remove(mine, &state)
            }
            for item in Self.remembered(ended, history, now: engine.now) {
                newest = max(newest, item.timestamp)
                try store.put(item, &state)
            }
        }
        try Facts(rows.database).withClock { $0.observe(newest) }
        try offer(offers, in: store)
        if let info = pulled.info, !info.isEmpty {
            guard let usage = try? WireKeyValueUsage(serializedBytes: info) else {
                throw CloudError(.internalError, "What the server says of the store's limits cannot be read.")
            }
            state.limits = KeyValueLimits(usage)
        }
        guard isFirst else { return MergedChanges(news: try Self.news(before, in: store)) }
        let items = try store.visibleItems().values.filter { $0.value != nil }.sorted { $0.key < $1.key }
        return MergedChanges(
            news: ChangeNotification(reason: .initialSyncChange, changedKeys: items.map(\.key), items: items))
    }

    static func decide(
        _ theirs: KeyValueItem, over mine: KeyValueItem?, _ history: HistoryRelation
    ) -> ReconcileRule.Decision {
        history.decide(
            mine?.held(beside: theirs) ?? .absent, at: mine?.sequence ?? 0, isLive: theirs.value != nil,
            at: theirs.sequence, mine?.later(theirs) ?? .theirs)
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

    /// Which of these keys look different to the app now; one that is gone altogether counts as deleted.
    static func news(
        _ before: [ItemName: KeyValueItem?], in store: StoreTransaction
    ) throws -> ChangeNotification? {
        var items: [KeyValueItem] = []
        var devices: Set<DeviceID?> = []
        for key in before.keys.sorted() {
            let (former, now) = (before[key] ?? nil, try store.visible(key))
            guard now?.value != former?.value, var item = now ?? former else { continue }
            if now == nil { item.value = nil }
            items.append(item)
            devices.insert(now?.deviceID)
        }
        guard !items.isEmpty else { return nil }
        return ChangeNotification(
            reason: .serverChange, changedKeys: items.map(\.key), items: items,
            device: devices.count == 1 ? devices.first ?? nil : nil)
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
