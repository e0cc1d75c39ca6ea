internal import GRDB
public import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import Synchronization

/// Typed records in zones, the same on all of an account's devices, shaped like `CKDatabase`.
///
/// Reads are local, once a zone was downloaded. A save is on this device's disk when the call returns, also while
/// offline; it is visible here at once, and sent when there is a connection. Changes that the server rejects are kept
/// and listed: ``conflicts``.
///
/// A handle belongs to one account: once another is signed in, each call throws `.notSignedIn`. A zone's records are
/// followed from the first call that names the zone, or that concerns all zones.
///
/// A call without a zone concerns all zones of the database, also those that this device has not read yet. A query
/// searches one zone, as in CloudKit.
public final class RecordDatabase: SyncedStore {
    /// The container's name.
    public let container: String
    /// The app that uses it.
    public let app: AppID
    /// Whether it is the container's public database, which has only the default zone.
    public let isPublic: Bool
    let session: Session
    let account: AccountID
    private let opened = Mutex<Set<String>>([])
    /// The scope of the list of zones. For a public database without a copy, the scope of pending changes.
    public var scope: Scope {
        let place = isPublic ? RecordPlace.publicOutbox(container) : .database(container)
        return Scope(id: ScopeID(app: app, service: .records, name: place.name), session: session, account: account)
    }
    var kind: WireRecordDatabaseKind { isPublic ? .public : .private }

    init(container: String, app: AppID, account: AccountID, session: Session, isPublic: Bool = false) {
        self.isPublic = isPublic
        self.container = container
        self.app = app
        self.account = account
        self.session = session
    }

    /// The scope of a zone's records.
    public func scope(of zone: String) -> Scope {
        let place =
            isPublic ? publicPlace(keepsCopy: (try? read { try keepsCopy($0) }) ?? false) : .zone(container, zone)
        return Scope(id: ScopeID(app: app, service: .records, name: place.name), session: session, account: account)
    }

    /// Follows the zone's records from now on.
    func follow(_ zone: String) {
        let id = scope(of: zone).id
        follow(id)
    }

    func follow(_ id: ScopeID) {
        guard opened.withLock({ $0.insert(id.name).inserted }) else { return }
        // What keeps it from being opened, the next call says.
        session.engine.execute { _ = try? $0.scope(id) }
    }

    func forgetOpened(_ name: String) { opened.withLock { _ = $0.remove(name) } }

    // MARK: Groups

    /// Zones: list, make, delete.
    public var zones: RecordZones { RecordZones(database: self) }
    /// Bytes of records' assets: read, download.
    public var assets: DatabaseAssets { DatabaseAssets(database: self) }
    /// The server's indexes: list, modify, explain.
    public var indexes: RecordIndexes { RecordIndexes(database: self) }
    /// Conflicts, and what was rejected: list, resolve, dismiss.
    public var conflicts: RecordConflicts { RecordConflicts(database: self) }

    // MARK: Reading

    /// The record of this name; nil: it is missing.
    ///
    /// - Parameters:
    ///   - id: The record's identifier.
    ///   - source: Where the record is read.
    ///   - desiredFields: The fields to read; nil: all.
    ///   - timeout: How long to wait for the server; nil: as long as for any call.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the zone was downloaded (wait, or ask the server);
    ///   `.zoneNotFound`, `.invalidArguments` (a malformed name), `.notSignedIn`, `.storageFailure`; from the server
    ///   also `.networkUnavailable` and the like.
    public func record(
        _ id: RecordID, from source: RecordSource = .local, desiredFields: Set<String>? = nil, timeout: Duration? = nil
    ) async throws(CloudError) -> Record? {
        try await records([id], from: source, desiredFields: desiredFields, timeout: timeout)[id]
    }

    /// The records that exist, by id.
    ///
    /// - Throws: ``CloudError`` as ``record(_:from:desiredFields:timeout:)`` does.
    public func records(
        _ ids: [RecordID], from source: RecordSource = .local, desiredFields: Set<String>? = nil,
        timeout: Duration? = nil
    ) async throws(CloudError) -> [RecordID: Record] {
        for id in ids { try RecordNames.check(id) }
        guard try isRead(source) else { return try await fetch(ids, desiredFields, timeout) }
        return try read { database in
            var found: [RecordID: Record] = [:]
            for id in ids where found[id] == nil {
                found[id] = try records(of: id.zone, database).record(id, desired: desiredFields)
            }
            return found
        }
    }

    /// Those of the records that the server has, as far as this device has heard: without what waits here.
    ///
    /// - Throws: ``CloudError`` as ``record(_:from:desiredFields:)`` does.
    package func heardRecords(_ ids: [RecordID]) async throws(CloudError) -> [RecordID: Record] {
        for id in ids { try RecordNames.check(id) }
        return try read { database in
            var found: [RecordID: Record] = [:]
            for id in ids where found[id] == nil {
                let item = try records(of: id.zone, database).items.item(ItemName(id.name))
                found[id] = item?.record.map { Record(id, $0) }
            }
            return found
        }
    }

    /// Number of records of a zone on this device, with pending changes.
    ///
    /// - Throws: ``CloudError`` as ``record(_:from:desiredFields:timeout:)`` does.
    public func recordCount(zone: String) async throws(CloudError) -> Int {
        try read { try records(of: zone, $0).visibleCount() }
    }

    /// Number of records of all zones on this device, with pending changes.
    ///
    /// - Throws: ``CloudError`` as ``RecordZones/list()`` and ``record(_:from:desiredFields:timeout:)`` do.
    public func recordCount() async throws(CloudError) -> Int {
        let zones = try await zones.list()
        return try read { database in
            try zones.reduce(0) { try $0 + records(of: $1.name, database).visibleCount() }
        }
    }

    // MARK: The transactions

    func read<Value>(_ body: (Database) throws -> Value) throws(CloudError) -> Value {
        try session.local.read { database in
            _ = try session(in: database)
            return try body(database)
        }
    }

    /// - Throws: ``CloudError`` `.notSignedIn`.
    func session(in database: Database) throws -> SessionRecord {
        guard let signedIn = try Facts(database).session, signedIn.signedIn else {
            throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        if let error = signedIn.refusal(of: account) { throw error }
        return signedIn
    }

    /// The database's zones, downloaded or not.
    func zones(_ database: Database) throws -> ZoneTransaction {
        if isPublic { throw Self.noZones }
        return ZoneTransaction(ScopeTransaction(database, RecordPlace.database(container).scope(of: account)))
    }

    /// A zone's records.
    ///
    /// - Parameter isWriting: Then it need not be downloaded: what is saved waits.
    /// - Throws: ``CloudError`` `.zoneNotFound`, `.storeOutOfStep`.
    func records(of zone: String, _ database: Database, isWriting: Bool = false) throws -> RecordTransaction {
        try RecordNames.check(zone: zone)
        if isPublic { return try publicRecords(of: zone, database, isWriting: isWriting) }
        follow(zone)
        let zones = try zones(database)
        if zone != RecordZone.defaultName, try zones.rows.state().synced, try zones.zone(zone) == nil {
            throw RecordNames.noZone(zone)
        }
        let records = RecordTransaction(
            ScopeTransaction(database, RecordPlace.zone(container, zone).scope(of: account)), zone: zone)
        if !isWriting, try !records.isKnown(isMade: zones.isMade(zone)) {
            throw Self.notDownloaded(zone)
        }
        return records
    }

    static func notDownloaded(_ zone: String) -> CloudError {
        CloudError(
            .storeOutOfStep, "This device has not downloaded the zone yet, so nobody here knows what is in it.",
            details: ["zone": zone])
    }
}

/// What records and zones are called.
enum RecordNames {
    static func check(_ id: RecordID) throws(CloudError) {
        guard RecordLimits.isName(id.name) else {
            throw CloudError(
                .invalidArguments,
                "A record is called by 1 to 255 printable ASCII characters, the first no underscore.",
                details: ["argument": "record"])
        }
        try check(zone: id.zone)
    }

    static func check(zone: String) throws(CloudError) {
        guard zone == RecordZone.defaultName || RecordLimits.isName(zone) else {
            throw CloudError(
                .invalidArguments,
                "A zone is called by 1 to 255 printable ASCII characters, the first no underscore.",
                details: ["argument": "zone"])
        }
    }

    static func noZone(_ name: String) -> CloudError {
        CloudError(
            .zoneNotFound, "The database has no such zone. Make it first, or fetch the database's changes.",
            details: ["zone": name])
    }
}
