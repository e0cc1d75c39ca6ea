internal import GRDB
public import NephosCore
package import NephosWire

/// A key-value store that is the same on all of an account's devices, shaped
/// like `NSUbiquitousKeyValueStore`.
///
/// Reads are local and never wait. A write is on this device's disk when the call returns, also while offline, and is
/// sent when there is a connection.
public final class KeyValueStore: KeyValueWriting, SyncedStore {
    /// The app whose store it is.
    public let app: AppID
    let session: Session
    /// The store's scope: status, proof, conflicts, events.
    public var scope: Scope { Scope(id: ScopeID(app: app, service: .keyValue), session: session) }

    init(app: AppID, session: Session) {
        self.app = app
        self.session = session
    }

    // MARK: Reading

    // Strings that Swift calls equal are one key to an app: see ``LocalWrite/init(text:value:)``.

    /// The state of a key on this device: a value, absent, or not downloaded yet.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: this device's database cannot be read; the message says what to do.
    public func read(_ key: String) throws(CloudError) -> ReadResult { try session.local.read(text: key, app: app) }

    /// The same for exactly this name.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func read(_ name: ItemName) throws(CloudError) -> ReadResult { try session.local.read(name, app: app) }

    /// All names and values, as this device sees them.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func values() throws(CloudError) -> [ItemName: PropertyValue] { try session.local.dictionary(app: app) }

    /// The same, with the writes that set them.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    package func items() throws(CloudError) -> [ItemName: KeyValueItem] { try session.local.items(app: app) }

    /// The value; nil: there is none, or it cannot be read. `read(_:)` returns which of the two.
    public func object(forKey key: String) -> PropertyValue? { (try? read(key))?.value }

    /// All keys and values, as this device sees them. Empty if they cannot be read.
    public var dictionaryRepresentation: [String: PropertyValue] { (try? dictionary()) ?? [:] }

    /// All keys and values, as this device sees them. Of names that Swift's strings take for one the newest
    /// stands for all; ``values()`` has them all.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func dictionary() throws(CloudError) -> [String: PropertyValue] {
        try session.local.texts(app: app)
    }

    // MARK: Writing

    /// Stores a value; nil deletes the key.
    ///
    /// An equal value is a write like any other: it is sent, and is the newest from then on. Other devices are not
    /// notified, since nothing changes for them.
    ///
    /// The value is on this device's disk when this returns, and is sent when there is a connection. It counts toward
    /// the store's limits (``KeyValueLimits``: 1 MiB in all and a value, 1024 keys, names of 64 bytes, unless the
    /// server sets other limits).
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` (details name the limit and by how much it is passed; the previous
    ///   value stays: store less, or delete something), `.invalidArguments` (a key that is empty, a value that nests
    ///   more than 24 levels deep, a date too far from now), `.serviceBusy` (100,000 changes are pending: connect),
    ///   `.storageFailure` (this device's disk: the message says what to do).
    public func set(_ value: PropertyValue?, forKey key: String) throws(CloudError) {
        try write([LocalWrite(text: key, value: value)])
    }

    /// Deletes a key. A full store does not prevent it.
    ///
    /// - Throws: ``CloudError`` as ``set(_:forKey:)-(PropertyValue?,_)`` does.
    public func removeObject(forKey key: String) throws(CloudError) {
        try write([LocalWrite(text: key, value: nil)])
    }

    /// Writes several keys, all or none: what a transaction does that reads nothing.
    ///
    /// - Throws: ``CloudError`` as ``set(_:forKey:)-(PropertyValue?,_)`` does: nothing is stored.
    package func write(_ writes: [LocalWrite]) throws(CloudError) {
        let (id, now, writer) = session.engine.stamp
        let app = app
        do throws(CloudError) {
            try session.local.accept(writes, app: app, id: id, writer: writer, now: now)
        } catch {
            session.engine.execute { $0.keyValue(app).refusedHere(writes, error) }
            throw error
        }
        session.engine.execute { $0.keyValue(app).pump() }
    }

    /// The same, and in one transaction with it what else is to be kept.
    ///
    /// - Parameter note: Gets all values as they are then.
    func write<Result>(
        _ writes: [LocalWrite], noting note: (Database, [ItemName: PropertyValue]) throws -> Result
    ) throws(CloudError) -> Result {
        let (id, now, writer) = session.engine.stamp
        let app = app
        let result: Result
        do throws(CloudError) {
            try LocalStore.check(writes)
            result = try session.local.write { database in
                try session.local.accept(writes, app: app, id: id, writer: writer, now: now, database)
                let values = try session.local.store(of: app, database).visibleItems().compactMapValues(\.value)
                return try note(database, values)
            }
        } catch {
            session.engine.execute { $0.keyValue(app).refusedHere(writes, error) }
            throw error
        }
        if !writes.isEmpty { session.engine.execute { $0.keyValue(app).pump() } }
        return result
    }

    /// Sends values written while signed out to the account that is signed in now, and changes left behind in a store
    /// that the app had before (``StoreStatus/leftBehind``). Values written while signed out stay in
    /// ``signedOutKeys()`` until the server has accepted them.
    ///
    /// - Returns: The keys offered.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    @discardableResult
    public func adoptSignedOutContent() async throws(CloudError) -> [ItemName] {
        try await offerSignedOutContent().keys.sorted()
    }

    /// The same.
    ///
    /// - Returns: What each key is offered; nil: its deletion. Where the account has something newer, that stays.
    package func offerSignedOutContent() async throws(CloudError) -> [ItemName: PropertyValue?] {
        let app = app
        return try await session.engine.perform { engine, completion in
            completion(Result { () throws(CloudError) in try engine.keyValue(app).offerSignedOutContent() })
        }
    }

    /// Keys written while no account was signed in, which ``adoptSignedOutContent()`` sends.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func signedOutKeys() throws(CloudError) -> [ItemName] { try session.local.signedOutKeys(app: app) }

    /// Removes rejected writes from the list. The keys keep their values.
    ///
    /// - Parameter keys: Nil: all of them.
    /// - Returns: The keys whose rejected write was dismissed.
    /// - Throws: ``CloudError`` `.storageFailure`.
    @discardableResult
    public func dismissRefused(_ keys: [ItemName]? = nil) throws(CloudError) -> [ItemName] {
        let dismissed = try session.local.dismissRefused(keys, app: app)
        scope.execute { $0.perform([.changed]) }
        return dismissed
    }

    // MARK: Waiting

    /// Flushes everything to this device's disk, asks for the server's changes, and sends pending changes now. Returns
    /// at once, and does not wait for the network.
    ///
    /// - Returns: Whether the app may use the store: an account is signed in, and the disk works.
    @discardableResult
    public func synchronize() -> Bool {
        session.local.checkpoint()
        scope.synchronize()
        return (try? session.account) != nil
    }

    /// The store's progress, and why changes are pending. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func status() async throws(CloudError) -> StoreStatus {
        try await scope.status()
    }

    /// The store's scope.
    public var syncedScopes: SyncedScopes { SyncedScopes(scope) }

    /// Values that another device replaced without having seen them.
    public var conflicts: KeyValueConflicts { KeyValueConflicts(scope: scope) }

    // MARK: Changes

    /// Changes from outside, from now on. This device's own writes are not included.
    ///
    /// A listener that is 8 MiB behind gets the changed keys without their values; a listener that is 16 MiB or 10,000
    /// events behind gets only the newest.
    public var changes: some AsyncSequence<ChangeNotification, Never> & Sendable {
        events.compactMap { if case .change(let notification) = $0 { notification } else { nil } }
    }

    /// Changes from outside, and the end of each fetch, in order.
    public var events: some AsyncSequence<StoreEvent, Never> & Sendable {
        scope.events
    }
}

/// Values of a key-value store that another device replaced without having seen them.
public struct KeyValueConflicts: ConflictList {
    let scope: Scope

    /// All of them, newest first. Asks the server.
    ///
    /// - Throws: ``CloudError`` as ``Scope/conflicts(of:withHistory:limit:timeout:)`` does.
    public func list() async throws(CloudError) -> [ScopeConflict] { try await scope.conflicts(limit: .max) }

    /// Marks conflicts as resolved, on all devices. The keys keep their values; the losing values stay in
    /// ``KeyValueStore/history(forKey:limit:timeout:)`` for 30 days.
    ///
    /// - Parameters:
    ///   - key: The key, and every key that Swift's strings treat as equal to it. Nil: all keys.
    ///   - time: Conflicts that the server recorded later (``KeyHistoryEntry/recorded``) stay. Nil: all are resolved.
    ///   - timeout: How long one call may take; nil: as long as any of this session.
    /// - Returns: How many there were.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.networkUnavailable` and the like (try again), or the service's own.
    @discardableResult
    public func resolve(
        forKey key: String? = nil, recordedUntil time: Timestamp? = nil, timeout: Duration? = nil
    ) async throws(CloudError) -> Int {
        let (app, time) = (scope.id.app, time ?? Timestamp(milliseconds: UInt64(Int64.max)))
        return try await scope.session.engine.perform { engine, completion in
            engine.keyValue(app).resolveConflicts(of: key, recordedUntil: time, timeout: timeout, completion)
        }
    }
}

/// An event of a store.
public enum StoreEvent: Sendable {
    /// Something changed from outside.
    case change(ChangeNotification)
    /// A fetch has ended. Its changes came before: this device has the server's state of the fetch's beginning.
    case didFetchChanges(StoreStatus)
}
