public import NephosCore

/// Waiting, and what changes.
extension RecordDatabase {
    /// Waits until nothing of the zone waits to be sent, nor of the database's zones.
    ///
    /// - Parameters:
    ///   - zone: Its name.
    ///   - timeout: How long to wait at most, for the zones and then for the records.
    ///   - isImpatient: As of ``Scope/waitUntilSent(timeout:isImpatient:)``.
    /// - Throws: ``CloudError`` as ``Scope/waitUntilSent(timeout:isImpatient:)`` does. What was refused is no longer
    ///   waiting: see ``conflicts(in:)`` and ``refused(in:)``.
    public func waitUntilSent(
        in zone: String = RecordZone.defaultName, timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await scope.waitUntilSent(timeout: timeout, isImpatient: isImpatient)
        try await scope(of: zone).waitUntilSent(timeout: timeout, isImpatient: isImpatient)
    }

    /// Waits until this device has what the server has now of the database's zones and of this one's records.
    ///
    /// - Throws: ``CloudError`` as ``Scope/waitUntilCurrent(timeout:isImpatient:)`` does; `.zoneNotFound` when the
    ///   server has no such zone.
    public func waitUntilCurrent(
        in zone: String = RecordZone.defaultName, timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await scope.waitUntilCurrent(timeout: timeout, isImpatient: isImpatient)
        guard try await zones().contains(where: { $0.name == zone }) else { throw RecordNames.noZone(zone) }
        try await scope(of: zone).waitUntilCurrent(timeout: timeout, isImpatient: isImpatient)
    }

    /// Asks for the server's changes, and sends now what waits for its next attempt. Returns at once.
    public func synchronize(_ zone: String = RecordZone.defaultName) {
        scope.synchronize()
        scope(of: zone).synchronize()
    }

    /// Where the zone stands, and why anything in it waits. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func status(of zone: String = RecordZone.defaultName) async throws(CloudError) -> StoreStatus {
        try await scope(of: zone).status()
    }

    /// What changes in a zone from outside, from now on. This device's own saves are not among it, but for what was
    /// refused of them.
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public func changes(
        in zone: String = RecordZone.defaultName
    ) -> some AsyncSequence<RecordChanges, Never> & Sendable {
        follow(zone)
        return scope(of: zone).events.compactMap { [self] event in
            guard case .change(let change) = event else { return nil }
            return changes(change, in: zone)
        }
    }

    /// What changes of the database's zones from outside, from now on.
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public func zoneChanges() -> some AsyncSequence<RecordZoneChanges, Never> & Sendable {
        scope.events.compactMap { [self] event in
            guard case .change(let change) = event else { return nil }
            return zoneChanges(change)
        }
    }

    private func changes(_ change: ChangeNotification, in zone: String) -> RecordChanges {
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

    /// Waits until nothing of the zone waits to be sent, nor of the database's zones, for as long as it moves.
    ///
    /// - Parameters:
    ///   - patience: How long nothing may move.
    ///   - onProgress: Gets the bytes that are sent of the assets that are on their way, and all.
    /// - Throws: ``CloudError`` as ``Scope/waitUntilSent(timeout:isImpatient:)`` does.
    package func waitUntilSentWhileItMoves(
        in zone: String = RecordZone.defaultName, within patience: Duration,
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
                let progress = try await uploadProgress(in: zone)
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
        in zone: String = RecordZone.defaultName
    ) async throws(CloudError) -> (done: Int, total: Int, isPaced: Bool, waiting: CloudError?) {
        let progress: UploadProgress = try await scope(of: zone).perform { driver, completion in
            completion(.success((driver.model as? RecordZoneModel)?.uploads.progress ?? UploadProgress()))
        }
        return (progress.bytesDone, progress.bytesTotal, progress.isPaced, progress.waiting)
    }
}
