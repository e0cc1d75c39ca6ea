internal import GRDB
internal import NephosBus
package import NephosCore
internal import NephosWire

/// One app's key-value store on the device's loop: what the app may do with it. It keeps in step with the server by its
/// ``ScopeDriver``.
package final class KeyValueSync {
    package let app: AppID
    unowned let engine: DeviceEngine
    private let model: KeyValueModel
    let driver: ScopeDriver

    init(app: AppID, engine: DeviceEngine) {
        self.app = app
        self.engine = engine
        model = KeyValueModel(app: app, engine: engine)
        driver = ScopeDriver(model, engine)
    }

    /// Nil: signed out, or the server has not told the app's store id yet.
    var scope: StoreScope? {
        driver.scope.map { StoreScope(account: $0.account, store: StoreID($0.name)) }
    }

    // MARK: The app's writes

    /// Accepts writes, all or none, and sends them when they can be.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` and `.invalidArguments`: nothing is stored.
    package func write(_ writes: [LocalWrite]) throws(CloudError) {
        do throws(CloudError) {
            try engine.local.accept(
                writes, app: app, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        } catch {
            refusedHere(writes, error)
            throw error
        }
        pump()
    }

    /// Tells of a write that this device refused by itself, as of one that the server refused.
    func refusedHere(_ writes: [LocalWrite], _ error: CloudError) {
        guard error.code == .quotaExceeded else { return }
        driver.emit(
            ChangeNotification(reason: .quotaViolationChange, changedKeys: writes.map(\.key), error: error))
    }

    package func set(_ value: PropertyValue?, forKey key: ItemName) throws(CloudError) {
        try write([LocalWrite(key: key, value: value)])
    }

    package func read(_ key: ItemName) throws(CloudError) -> ReadResult { try engine.local.read(key, app: app) }

    package func dictionary() throws(CloudError) -> [ItemName: PropertyValue] { try engine.local.dictionary(app: app) }

    /// Offers what was written while signed out to the account that is signed in now, and what was left behind in a
    /// store that the app had before.
    ///
    /// - Returns: The newest that each key is offered; nil: its deletion.
    package func offerSignedOutContent() throws(CloudError) -> [ItemName: PropertyValue?] {
        let own = try engine.local.adoptSignedOutContent(
            app: app, writer: engine.writer, now: engine.now, makeID: engine.makeOperationID)
        let leftBehind = try engine.local.write { database in
            try model.adoptLeftBehind(
                in: ScopeTransaction(database, LocalStore.scope(of: app, session: Facts(database).session).local))
        }
        pump()
        return Dictionary((own + leftBehind).map { ($0.key, $0) }) { $1.wins(over: $0) ? $1 : $0 }.mapValues(\.value)
    }

    package func adoptSignedOutContent() throws(CloudError) -> [ItemName] {
        try offerSignedOutContent().keys.sorted()
    }

    // MARK: Where it stands

    /// Where the store stands, and why anything in it waits.
    package func status() throws(CloudError) -> StoreStatus { try driver.status() }

    /// Completes when a pull that begins now, or later, has been applied.
    ///
    /// - Parameter isImpatient: Whether to give up as soon as it is known that nobody listens at the server's address.
    package func whenCurrent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) { driver.wait(for: nil, timeout: timeout, isImpatient: isImpatient, completion) }

    /// Completes when nothing waits to be sent.
    package func whenSent(
        timeout: Duration, isImpatient: Bool = false, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) { driver.wait(for: .sent, timeout: timeout, isImpatient: isImpatient, completion) }

    /// What was overwritten or lost a conflict; nil: of all keys.
    func history(
        of key: String?, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[KeyHistoryEntry], CloudError>) -> Void
    ) { model.history(of: key, limit: limit, timeout: timeout, completion) }

    /// Has conflicts listed no more; nil: of all keys.
    func resolveConflicts(
        of key: String?, recordedUntil time: Timestamp, timeout: Duration?,
        _ completion: @escaping (Result<Int, CloudError>) -> Void
    ) { model.resolveConflicts(of: key, recordedUntil: time, timeout: timeout, completion) }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    func synchronize() { driver.synchronize() }
    func pull() { driver.pull() }
    func pump() { driver.push() }
    func changed() { driver.perform([.changed]) }
    func connected() { driver.perform(driver.sync.connected()) }
    func foreignWrite() { driver.foreignWrite() }
}
