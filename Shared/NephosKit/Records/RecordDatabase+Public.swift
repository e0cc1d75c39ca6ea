internal import Foundation
internal import GRDB
public import NephosCore
internal import NephosWire

/// What is of a public database alone.
extension RecordDatabase {
    /// Keeps a copy of all records that everyone may read, and keeps it in sync: reads then work offline, and
    /// ``changes`` delivers changes. Until it is downloaded, reads ask the server.
    ///
    /// Throws while changes are pending.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` (changes are pending: wait until they are sent),
    ///   `.invalidArguments` (a private database, which always has a copy), `.notSignedIn`, `.serviceUnavailable` (the
    ///   database's owner is not known yet: try again), `.storageFailure`.
    public func keepCopy() async throws(CloudError) {
        guard isPublic else { throw Self.alwaysHere }
        try session.local.prepare(RecordItems.migrations)
        try session.local.write { database in
            let (copy, outbox) = try (publicRows(true, database), publicRows(false, database))
            guard try !keepsCopy(database) else { return }
            // It is of the place in which it was saved: the copy would not show it.
            guard try outbox.operationCount() == 0 else {
                throw CloudError(
                    .constraintViolation, "Something waits to be sent. Wait until it is sent, or is refused.")
            }
            try copy.save(try copy.state())
            // What a person has to decide is listed with it.
            try outbox.undecided.moveAll(to: copy.scope)
            let zone = RecordZone.defaultName
            try RecordTransaction(copy, zone: zone).moveNeeds(from: RecordTransaction(outbox, zone: zone))
        }
        follow(scope(of: RecordZone.defaultName).id)
    }

    /// Removes the copy. Throws while changes are pending.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: changes are pending, in conflict or rejected; else as
    ///   ``keepCopy()`` does.
    public func dropCopy() async throws(CloudError) {
        guard isPublic else { throw Self.alwaysHere }
        let id = ScopeID(app: app, service: .records, name: RecordPlace.publicZone(container).name)
        try session.local.write { database in
            let rows = try publicRows(true, database)
            let records = RecordTransaction(rows, zone: RecordZone.defaultName)
            guard try rows.operationCount() == 0, try records.conflicts().isEmpty, try records.refusals().isEmpty else {
                throw CloudError(
                    .constraintViolation,
                    "Something waits to be sent, or to be decided. Wait until it is sent, or resolve and dismiss it.")
            }
            try records.items.forgetAll()
        }
        forgetOpened(id.name)
        session.engine.execute { $0.close(id) }
    }

    /// Whether a copy is kept here.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func keepsCopy() async throws(CloudError) -> Bool {
        guard isPublic else { return true }
        return try read { try keepsCopy($0) }
    }

    private static let alwaysHere = CloudError(
        .invalidArguments, "A private database is always here. Of a public one a copy can be kept.",
        details: ["argument": "database"])
    static let noZones = CloudError(
        .invalidArguments, "A public database has the default zone alone. Make zones in a private one.",
        details: ["argument": "database"])

    func publicPlace(keepsCopy: Bool) -> RecordPlace { keepsCopy ? .publicZone(container) : .publicOutbox(container) }

    func keepsCopy(_ database: Database) throws -> Bool {
        try publicRows(true, database).hasState()
    }

    /// Whether what is here is read: of a public database where there is a copy.
    func isRead(_ source: RecordSource) throws(CloudError) -> Bool {
        guard source == .local, isPublic else { return source != .server }
        return try read { try keepsCopy($0) && publicRows(true, $0).state().synced }
    }

    private func publicRows(_ keepsCopy: Bool, _ database: Database) throws -> ScopeTransaction {
        guard let owner = try session(in: database).publicOwner(of: container) else {
            throw CloudError(
                .serviceUnavailable, "The server has not told yet whose the public database is. Connect, and try again."
            )
        }
        return ScopeTransaction(database, publicPlace(keepsCopy: keepsCopy).scope(of: account, owner: owner))
    }

    func publicRecords(of zone: String, _ database: Database, isWriting: Bool) throws -> RecordTransaction {
        guard zone == RecordZone.defaultName else { throw RecordNames.noZone(zone) }
        let keepsCopy = try keepsCopy(database)
        follow(ScopeID(app: app, service: .records, name: publicPlace(keepsCopy: keepsCopy).name))
        let rows = try publicRows(keepsCopy, database)
        guard try isWriting || keepsCopy && rows.state().synced else {
            throw CloudError(
                .storeOutOfStep,
                keepsCopy
                    ? "The copy of the public database is not here yet. Wait, or ask the server."
                    : "No copy of the public database is kept here. Keep one, or ask the server.",
                details: ["container": container])
        }
        return RecordTransaction(rows, zone: zone, hasCopy: keepsCopy)
    }

    /// What is listed of it, whether a copy is kept or not.
    func listed(_ zone: String, _ database: Database) throws -> RecordTransaction {
        try RecordNames.check(zone: zone)
        guard isPublic else { return try zones(database).records(of: zone) }
        return RecordTransaction(try publicRows(keepsCopy(database), database), zone: zone)
    }
}
