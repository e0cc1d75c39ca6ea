internal import GRDB
public import NephosCore

extension RecordDatabase {
    /// The scope of the zones, and those of each of them.
    public var syncedScopes: SyncedScopes {
        SyncedScopes(scope) { [self] database, purpose in
            try zoneNames(for: purpose, database).map { place(of: $0, database) }.map {
                ScopeID(app: app, service: .records, name: $0.name)
            }
        }
    }

    /// Names of the zones that are meant where none is named, in order.
    private func zoneNames(for purpose: SyncedScopes.Purpose, _ database: Database) throws -> [String] {
        _ = try session(in: database)
        if isPublic { return [RecordZone.defaultName] }
        let waiting = try waitingZones(database)
        if purpose == .sending { return waiting.sorted() }
        let zones = try zones(database)
        // One that waits to be made is not on the server, so nothing of it can be fetched.
        let made = try zones.all().map(\.name).filter { try zones.id(of: $0) != nil }
        return Set(purpose == .fetching ? made : made + waiting).sorted()
    }

    /// Zones of which something waits to be sent, also such as are not there any more.
    private func waitingZones(_ database: Database) throws -> [String] {
        try String.fetchAll(
            database, sql: "SELECT DISTINCT scope FROM outbox WHERE service = 'records' AND account = ?1",
            arguments: [account.rawValue]
        ).map { RecordPlace($0) }.filter { $0.container == container && !$0.isPublic }.compactMap(\.zone)
    }

    private func place(of zone: String, _ database: Database) -> RecordPlace {
        isPublic ? publicPlace(keepsCopy: (try? keepsCopy(database)) ?? false) : .zone(container, zone)
    }

    // MARK: Waiting

    /// Waits until this device has downloaded the database's zones and this one's records for the first time.
    ///
    /// - Throws: ``CloudError`` as ``SyncedStore/ready(timeout:)`` does; `.zoneNotFound`.
    public func ready(zone: String, timeout: Duration = .seconds(30)) async throws(CloudError) {
        try await SyncedScopes(scope).wait(for: .downloaded, timeout: timeout)
        try await require(zone)
        try await SyncedScopes(scope(of: zone)).wait(for: .downloaded, timeout: timeout)
    }

    /// Waits until the server has every pending change of the zone and of the list of zones.
    ///
    /// - Parameters:
    ///   - zone: The zone's name.
    ///   - timeout: Maximum wait for the list, and then for the records.
    ///   - isImpatient: As of ``Scope/waitUntilSent(timeout:isImpatient:)``.
    /// - Throws: ``CloudError`` as ``Scope/waitUntilSent(timeout:isImpatient:)`` does. Rejected changes are no longer
    ///   pending: see ``RecordConflicts/list(zone:)`` and ``RecordConflicts/rejected(zone:)``.
    public func waitUntilSent(
        zone: String, timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await scope.waitUntilSent(timeout: timeout, isImpatient: isImpatient)
        try await scope(of: zone).waitUntilSent(timeout: timeout, isImpatient: isImpatient)
    }

    /// Waits until this device has the server's present list of zones, and records of this zone.
    ///
    /// - Throws: ``CloudError`` as ``Scope/waitUntilCurrent(timeout:isImpatient:)`` does; `.zoneNotFound` when the
    ///   server has no such zone.
    public func waitUntilCurrent(
        zone: String, timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await scope.waitUntilCurrent(timeout: timeout, isImpatient: isImpatient)
        try await require(zone)
        try await scope(of: zone).waitUntilCurrent(timeout: timeout, isImpatient: isImpatient)
    }

    private func require(_ zone: String) async throws(CloudError) {
        guard try await zones.list().contains(where: { $0.name == zone }) else { throw RecordNames.noZone(zone) }
    }

    /// Asks for the server's changes, and sends pending changes now. Returns at once.
    public func synchronize() { syncedScopes.synchronize() }

    /// Does so for the list of zones and this zone's records.
    public func synchronize(zone: String) {
        scope.synchronize()
        scope(of: zone).synchronize()
    }

    // MARK: Status

    /// The progress of the whole database, its list of zones and the records of each, and why changes are pending.
    /// Needs no network.
    ///
    /// Pending and rejected changes are named as by ``RecordID/description``; ``StoreStatus/head`` and
    /// ``StoreStatus/digest`` are those of the list of zones.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func status() async throws(CloudError) -> StoreStatus {
        try await syncedScopes.status { name, scope in
            guard let zone = RecordPlace(scope.name).zone else { return name }
            return ItemName(RecordID(name.rawValue, zone: zone).description)
        }
    }

    /// The zone's progress, and why changes are pending. Needs no network.
    ///
    /// - Throws: ``CloudError`` as ``status()`` does.
    public func status(zone: String) async throws(CloudError) -> StoreStatus {
        try await scope(of: zone).status()
    }

    // MARK: Changes

    /// Changes of records in all zones from outside, from now on, one zone at a time. This device's own saves are
    /// included only if they were rejected.
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public var changes: some AsyncSequence<RecordChanges, Never> & Sendable {
        followAll()
        let (app, container, isPublic) = (app, container, isPublic)
        return session.subscribe { event in
            guard let id = event.scope, id.app == app, id.service == .records else { return false }
            let place = RecordPlace(id.name)
            return place.container == container && place.isPublic == isPublic
        }.compactMap { [self] event in
            guard case .change(let id, let change) = event else { return nil }
            guard let zone = RecordPlace(id.name).zone else {
                // Zones that have come are followed too.
                followAll()
                return nil
            }
            guard change.reason == .accountChange || (try? read { _ in }) != nil else { return nil }
            return changes(change, zone: zone)
        }
    }

    /// Changes of records in a zone from outside, from now on. This device's own saves are included only if they were
    /// rejected.
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public func changes(zone: String) -> some AsyncSequence<RecordChanges, Never> & Sendable {
        follow(zone)
        return scope(of: zone).events.compactMap { [self] event in
            guard case .change(let change) = event else { return nil }
            return changes(change, zone: zone)
        }
    }

    private func followAll() {
        for zone in (try? read { try zoneNames(for: .fetching, $0) }) ?? [] { follow(zone) }
    }

    /// Zones that were created or deleted from outside, from now on.
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public func zoneChanges() -> some AsyncSequence<RecordZoneChanges, Never> & Sendable {
        scope.events.compactMap { [self] event in
            guard case .change(let change) = event else { return nil }
            return zoneChanges(change)
        }
    }

    private func changes(_ change: ChangeNotification, zone: String) -> RecordChanges {
        var changes = RecordChanges(reason: change.reason, zone: zone)
        changes.error = change.error
        let ids = change.changedKeys.map { RecordID($0.rawValue, zone: zone) }
        changes.isAll = ids.isEmpty
        // Of a refusal the record is as it was before.
        guard change.reason != .quotaViolationChange else {
            changes.changed = ids
            return changes
        }
        let found = try? read { database in
            let records = try listed(zone, database)
            let there = try Set(ids.filter { try records.visible($0.name).record != nil })
            let types = try ids.filter { !there.contains($0) }.compactMap { id in
                try records.items.endedType(of: id.name).map { (id, $0) }
            }
            return (there: there, types: Dictionary(types) { $1 })
        }
        changes.changed = ids.filter { found?.there.contains($0) ?? true }
        changes.deleted = ids.filter { found?.there.contains($0) == false }
        changes.deletedTypes = found?.types ?? [:]
        return changes
    }

    private func zoneChanges(_ change: ChangeNotification) -> RecordZoneChanges {
        var changes = RecordZoneChanges(reason: change.reason)
        let names = change.changedKeys.map(\.rawValue)
        changes.isAll = names.isEmpty
        let there = try? read { database in
            let zones = try zones(database)
            return try Set(names.filter { try zones.zone($0) != nil })
        }
        changes.changed = names.filter { there?.contains($0) ?? true }
        changes.deleted = names.filter { there?.contains($0) == false }
        return changes
    }
}

// MARK: Assets on their way

extension RecordDatabase {
    /// How long one look takes that waits for what is sent.
    private static let look: Duration = .milliseconds(500)

    /// How far what waits has been sent: while one of these changes, it moves.
    private struct SendingMark: Equatable {
        var done: Int
        var percent: Int
        var waiting: Int
        /// Rises with each look at which a limited rate keeps it waiting, which is no standstill.
        var pacings: Int
    }

    /// Waits until nothing of the zone waits to be sent, nor of the database's list of zones, for as long as it moves.
    ///
    /// - Parameters:
    ///   - patience: How long nothing may move.
    ///   - onProgress: Gets the bytes that are sent of the assets that are on their way, and all.
    /// - Throws: ``CloudError`` as ``Scope/waitUntilSent(timeout:isImpatient:)`` does.
    package func waitUntilSentWhileItMoves(
        zone: String, within patience: Duration,
        onProgress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) async throws(CloudError) {
        try await scope.waitUntilSent(timeout: patience, isImpatient: true)
        let scope = scope(of: zone)
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: SendingMark, failure: CloudError)? in
            do throws(CloudError) {
                try await scope.waitUntilSent(timeout: min(patience, Self.look), isImpatient: true)
                return nil
            } catch {
                guard error.code == .deadlineExceeded else { throw error }
                let progress = try await uploadProgress(zone: zone)
                if progress.isPaced { pacings += 1 }
                onProgress(progress.done, progress.total)
                // Another process of the home may be the one that sends.
                let (percent, waiting) = try read { database in
                    let rows = try listed(zone, database)
                    return (try rows.sentPercent(), try rows.rows.operationCount())
                }
                return (
                    SendingMark(done: progress.done, percent: percent, waiting: waiting, pacings: pacings), error
                )
            }
        }
    }

    /// How far the assets are that this process sends of a zone: bytes that are sent of those on their way, and all; and
    /// whether the next wait because of a limited rate.
    package func uploadProgress(
        zone: String
    ) async throws(CloudError) -> (done: Int, total: Int, isPaced: Bool, waiting: CloudError?) {
        let progress: UploadProgress = try await scope(of: zone).perform { driver, completion in
            completion(.success((driver.model as? RecordZoneModel)?.uploads.progress ?? UploadProgress()))
        }
        return (progress.bytesDone, progress.bytesTotal, progress.isPaced, progress.waiting)
    }
}
