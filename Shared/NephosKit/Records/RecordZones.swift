internal import Foundation
internal import GRDB
public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// The zones of a database, as ``RecordDatabase/zones`` has them. A public database has the default zone alone.
public struct RecordZones: Sendable {
    let database: RecordDatabase

    /// All zones, the default zone first, then by name; with zones whose creation is pending, and without zones whose
    /// deletion is pending.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the database was downloaded; `.notSignedIn`, `.storageFailure`.
    public func list() async throws(CloudError) -> [RecordZone] {
        if database.isPublic { return [RecordZone(name: RecordZone.defaultName, id: RecordZone.defaultName)] }
        return try database.read { try downloaded(database.zones($0)).all() }
    }

    /// The zone of this name; nil: it is missing.
    ///
    /// - Throws: ``CloudError`` as ``list()`` does.
    public func zone(_ name: String) async throws(CloudError) -> RecordZone? {
        if database.isPublic { return try await list().first { $0.name == name } }
        return try database.read { try downloaded(database.zones($0)).zone(name) }
    }

    private func downloaded(_ zones: ZoneTransaction) throws -> ZoneTransaction {
        guard try zones.rows.state().synced else {
            throw RecordDatabase.zonesNotDownloaded(database.container)
        }
        return zones
    }

    /// Makes a zone; an existing one is no error. It can be used at once, also while offline.
    ///
    /// If another device makes a zone of that name meanwhile, both become one zone, with the records of both.
    ///
    /// - Parameter name: 1 to 255 printable ASCII characters, the first not an underscore.
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:)`` does.
    public func make(_ name: String) async throws(CloudError) { try await modify(saving: [name]) }

    /// Deletes a zone with all its records and pending changes; a missing zone is no error.
    ///
    /// It deletes the zone that this device has now, or, before the first download, the zone found by it. Another zone
    /// made under that name before the deletion is sent stays.
    ///
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:)`` does.
    public func delete(_ name: String) async throws(CloudError) { try await modify(deleting: [name]) }

    /// Makes and deletes zones, all or none.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` (a name that no zone can have, the default zone, a zone twice),
    ///   `.limitExceeded` (more than 400 at once), `.notSignedIn`, `.storageFailure`. A database has 1000 zones at
    ///   most: the server rejects more, and they are listed.
    public func modify(saving: [String] = [], deleting: [String] = []) async throws(CloudError) {
        if database.isPublic { throw RecordDatabase.noZones }
        let names = saving + deleting
        for name in names {
            guard RecordLimits.isName(name) else {
                throw CloudError(
                    .invalidArguments,
                    "A zone is called by 1 to 255 printable ASCII characters, the first no underscore. The default zone stays.",
                    details: ["argument": "zone"])
            }
        }
        guard Set(names).count == names.count else {
            throw CloudError(
                .invalidArguments, "A zone is there twice. Name it once.", details: ["argument": "zones"])
        }
        guard names.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "These are too many zones at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        let engine = database.session.engine
        let place = ContentPlace.records(database.container, app: database.app)
        let ended: [Data] = try database.session.local.write { rows in
            _ = try database.session(in: rows)
            let zones = try database.zones(rows)
            var request = WireModifyZones()
            request.save = try saving.filter { try zones.zone($0) == nil }.map {
                WireNewZone($0, RecordPlace.zoneID(engine.makeDocumentID()))
            }
            request.delete = try deleting.compactMap { try zones.deletion(of: $0) }
            guard !request.save.isEmpty || !request.delete.isEmpty else { return [] }
            for name in request.save.map(\.name) + request.delete.map(\.name) {
                try RecordTransaction(zones.rows, zone: "").dismissRefusals(of: name)
            }
            // What was in it goes at once, and so does what was to come into it.
            let ended = try request.delete.flatMap { try zones.records(of: $0.name).dropAll() }
            let (id, now, writer) = engine.stamp
            try zones.rows.append(request.serializedData(), id: id, writer: writer, now: now)
            return ended
        }
        let container = database.container
        database.scope.execute { driver in
            driver.engine.reconsiderZones(of: container)
            for transfer in ended { driver.engine.closeUpload(transfer, at: place) }
            driver.engine.trimContentsSoon()
            driver.push()
        }
    }
}

extension RecordDatabase {
    static func zonesNotDownloaded(_ container: String) -> CloudError {
        CloudError(
            .storeOutOfStep, "This device has not downloaded the database yet, so nobody here knows its zones.",
            details: ["container": container])
    }
}

extension RecordTransaction {
    /// Forgets everything of the zone.
    ///
    /// - Returns: Uploads that are of no use any more.
    fileprivate func dropAll() throws -> [Data] {
        var ended: [Data] = []
        for operation in try rows.operations() {
            try ended.append(begunUpload(of: operation))
            try removePending(at: operation.position)
            try rows.removeOperation(at: operation.position)
        }
        // What kept its assets in the home goes with it.
        try rows.undecided.removeAll()
        try assets.releaseAll(of: rows.scope.name)
        try items.forgetAll()
        return ended
    }
}
