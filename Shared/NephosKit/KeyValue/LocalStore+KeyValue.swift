import Foundation
import GRDB
public import NephosCore
internal import NephosPropertyLists
import NephosWire

/// What a device knows of a key.
public enum ReadResult: Hashable, Sendable {
    case value(PropertyValue)
    /// The store has no such key, as far as this device has heard.
    case absent
    /// The first download has not finished, so nobody here knows.
    case notDownloadedYet

    /// The value, or nil.
    public var value: PropertyValue? { if case .value(let value) = self { value } else { nil } }
}

/// A write that the server refused. The previous value stayed.
public struct RefusedWrite: Sendable {
    /// What it would have changed.
    public var key: ItemName
    /// When the server refused it, by this device's clock.
    public var at: Timestamp
    /// Why, with what to do.
    public var error: CloudError
    /// What it would have set, to be set again once there is room; nil: it was a deletion, or is too old. The newest
    /// of a store are kept, up to 4 MiB.
    public var value: PropertyValue? { bytes.flatMap { try? PropertyValue(canonicalBytes: [UInt8]($0)) } }
    /// How a person writes it again, once what was in the way is gone, as it is typed into a shell; nil: its value is
    /// not kept. Of records: of all that was refused in the zone.
    public var recovery: String?
    /// The file in this device's home that has a rejected document's content, until the change is dismissed or sent again;
    /// nil: none.
    public var keptFile: String?
    /// What `nephos kv set --former` calls the value.
    package static let former = "refused"
    /// Read as a value only for whoever asks: a status is made often.
    var bytes: Data?
}

/// A key's new value; nil deletes it.
package struct LocalWrite: Sendable {
    /// What is written.
    package var key: ItemName
    /// Nil deletes.
    package var value: PropertyValue?

    /// Whether the key is any that Swift's strings take for equal.
    var isText = false

    /// Writes exactly this name.
    package init(key: ItemName, value: PropertyValue?) {
        self.key = key
        self.value = value
    }

    /// Writes the key that Swift's strings take for equal to this text, as an app means it.
    ///
    /// If the store has one, its name stays as it is; of several, which only
    /// writers in other languages make, the newest stands for all, and deleting
    /// deletes them all. A new name is stored in its composed form (NFC).
    package init(text: String, value: PropertyValue?) {
        key = ItemName(text)
        self.value = value
        isText = true
    }
}

extension LocalStore {
    /// Operations that may wait for the server in one store.
    static let pendingMax = 100_000

    /// The store of an app for whoever is signed in now.
    func store(of app: AppID, _ database: Database) throws -> StoreTransaction {
        StoreTransaction(database, try Self.scope(of: app, session: Facts(database).session))
    }

    static func scope(of app: AppID, session: SessionRecord?) -> StoreScope {
        let signedOut = StoreScope.signedOut(app: app)
        guard let session, session.signedIn else { return signedOut }
        // Until the server has told this app's store id, writes wait under its own name.
        return session.scope(of: app) ?? StoreScope(account: session.accountID, store: signedOut.store)
    }

    func read(_ key: ItemName, app: AppID) throws(CloudError) -> ReadResult {
        try read { try store(of: app, $0).result(of: key) }
    }

    /// As ``read(_:app:)``, of the newest of the names that Swift's strings take for equal to this text.
    func read(text: String, app: AppID) throws(CloudError) -> ReadResult {
        try read { try store(of: app, $0).result(ofText: text) }
    }

    /// The names under which this text may be known to the server.
    func spellings(of text: String, app: AppID) throws(CloudError) -> [ItemName] {
        try read { try store(of: app, $0).spellings(of: text) }
    }

    /// The store by Swift's own strings; of names that those take for equal the newest stands for all.
    func texts(app: AppID) throws(CloudError) -> [String: PropertyValue] { try read { try store(of: app, $0).texts() } }

    func dictionary(app: AppID) throws(CloudError) -> [ItemName: PropertyValue] {
        try items(app: app).compactMapValues(\.value)
    }

    func items(app: AppID) throws(CloudError) -> [ItemName: KeyValueItem] {
        try read { try store(of: app, $0).visibleItems() }
    }

    /// Accepts writes, all or none: durable when this returns, and sent when
    /// they can be. A single key's write replaces one of the same key that has
    /// never been sent.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` (nothing is stored), `.invalidArguments`,
    ///   `.serviceBusy` when too many operations wait, `.storageFailure`.
    func accept(
        _ writes: [LocalWrite], app: AppID, id: OperationID, writer: Int64, now: Timestamp
    ) throws(CloudError) {
        guard !writes.isEmpty else { return }
        try Self.check(writes)
        try write { try accept(writes, app: app, id: id, writer: writer, now: now, $0) }
    }

    /// Checks what does not depend on the store.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, which names the key.
    static func check(_ writes: [LocalWrite]) throws(CloudError) {
        for write in writes { try naming(write.key) { () throws(CloudError) in try write.key.check() } }
        for write in writes where (write.value?.depth ?? 0) > PropertyValue.depthMax {
            throw CloudError(
                .invalidArguments, "The value nests arrays and dictionaries too deeply.",
                details: ["depth_max": "\(PropertyValue.depthMax)", "key": write.key.rawValue])
        }
        for write in writes where write.value?.hasStorableDates == false {
            throw CloudError(
                .invalidArguments, "A date is too far from now to be kept, or none. Nothing was stored.",
                details: ["key": write.key.rawValue])
        }
    }

    /// As ``accept(_:app:id:writer:now:)``, inside a transaction that was begun; ``check(_:)`` came before.
    func accept(
        _ writes: [LocalWrite], app: AppID, id: OperationID, writer: Int64, now: Timestamp, _ database: Database
    ) throws {
        guard !writes.isEmpty else { return }
        let facts = Facts(database)
        let session = try facts.session
        let store = StoreTransaction(database, Self.scope(of: app, session: session))
        let writes = try store.named(writes)
        var state = try store.state()
        try Self.check(writes, in: store, limits: state.limits)
        let signedIn = store.scope.account != nil
        let replaced = signedIn && writes.count == 1 ? try store.coalescible(writes[0].key) : nil
        // What waits of these keys was written before this, whatever the clock said then.
        let earlier = signedIn ? try store.greatestPending(writes.map(\.key), except: replaced) : .zero
        let timestamp = try facts.withClock { $0.tick(now: now, after: earlier) }
        let items = writes.map {
            KeyValueItem(
                key: $0.key, value: $0.value, timestamp: timestamp,
                deviceID: signedIn ? session?.deviceID ?? DeviceID("") : DeviceID(""))
        }
        for item in items { try store.clearRefusal(item.key) }
        guard signedIn else {
            for item in items { try store.put(item, &state) }
            try store.save(state)
            return
        }
        if let replaced {
            try store.put(items[0], at: replaced)
            return
        }
        guard try store.rows.operationCount() < Self.pendingMax else {
            throw CloudError(
                .serviceBusy, "Too many changes wait to be sent. Connect, and try again.",
                details: ["pending_max": "\(Self.pendingMax)"])
        }
        try store.append(items, id: id, writer: writer, now: now)
    }

    /// Of many keys that are written at once, says which one is meant.
    private static func naming(_ key: ItemName, _ check: () throws(CloudError) -> Void) throws(CloudError) {
        do throws(CloudError) { try check() } catch {
            var error = error
            error.details["key"] = key.rawValue
            throw error
        }
    }

    private static func check(_ writes: [LocalWrite], in store: StoreTransaction, limits: KeyValueLimits) throws {
        var bytes = 0
        var added: [ItemName] = []
        for write in writes {
            let size = write.value?.canonicalBytes.count ?? 0
            // A key that is too long can only be deleted.
            guard write.value != nil else { continue }
            try naming(write.key) { () throws(CloudError) in
                try limits.check(keyBytes: write.key.utf8.count, valueBytes: size)
            }
            added.append(write.key)
            bytes += size
        }
        // Deletes are never refused.
        guard !added.isEmpty else { return }
        let before = try store.usage(without: [ItemName]())
        let others = try store.usage(without: writes.map(\.key))
        try limits.check(
            keyCount: others.keys + added.count, totalBytes: others.bytes + bytes, previousKeyCount: before.keys,
            previousTotalBytes: before.bytes)
    }

    /// Keys written while nobody was signed in.
    func signedOutKeys(app: AppID) throws(CloudError) -> [ItemName] {
        try read { database in
            try StoreTransaction(database, .signedOut(app: app)).items().filter { $0.value != nil }.map(\.key)
        }
    }

    /// Dismisses refused writes of the store of whoever is signed in now.
    func dismissRefused(_ keys: [ItemName]?, app: AppID) throws(CloudError) -> [ItemName] {
        try write { try store(of: app, $0).dismissRefusals(keys) }
    }

    /// Offers what was written while signed out to the account that is signed
    /// in now, with its original times. It stays until the server has taken it
    /// (``StoreTransaction/forgetAdopted(_:)``): so nothing is lost by a limit, nor with an account that is left
    /// before.
    ///
    /// - Returns: What is offered, also what was before and still waits.
    func adoptSignedOutContent(
        app: AppID, writer: Int64, now: Timestamp, makeID: () -> OperationID
    ) throws(CloudError) -> [KeyValueItem] {
        try write { database in
            guard let session = try Facts(database).session, session.signedIn else {
                throw CloudError(.notSignedIn, "Sign in first.")
            }
            let from = StoreTransaction(database, .signedOut(app: app))
            let to = StoreTransaction(database, Self.scope(of: app, session: session))
            var offered: [KeyValueItem] = []
            for var item in try from.items() where item.value != nil {
                offered.append(item)
                item.deviceID = session.deviceID
                item.sequence = 0
                guard try !to.isWaiting(item) else { continue }
                try to.clearRefusal(item.key, upTo: item.timestamp)
                try to.append([item], id: makeID(), writer: writer, now: now)
            }
            return offered
        }
    }
}

extension RefusedWrite {
    /// Who kept it from being stored, by the same rules as of what waits. What was dropped here was dropped here.
    package var blocker: Blocker { error.code == .operationCancelled ? .thisDevice : PushRules.blocker(of: error) }
}
