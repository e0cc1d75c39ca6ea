internal import Foundation
internal import GRDB
public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// Records that were saved on two devices at once, and saves that the server has rejected, as
/// ``RecordDatabase/conflicts`` has them.
public struct RecordConflicts: ConflictList {
    let database: RecordDatabase

    /// Unresolved conflicts of all zones, also of deleted ones.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func list() async throws(CloudError) -> [RecordConflict] {
        try database.read { rows in try undecidedZones(rows).flatMap { try database.listed($0, rows).conflicts() } }
    }

    /// Of one zone only.
    ///
    /// - Throws: ``CloudError`` `.zoneNotFound`, `.notSignedIn`, `.storageFailure`.
    public func list(zone: String) async throws(CloudError) -> [RecordConflict] {
        try database.read { try database.listed(zone, $0).conflicts() }
    }

    /// Resolves a conflict.
    ///
    /// Your choice replaces the server's record as the conflict shows it. If that record has changed since, there is a
    /// new conflict.
    ///
    /// - Returns: The resulting record; nil: it is deleted.
    /// - Throws: ``CloudError`` `.unknownItem` when it is already resolved, or has changed (list them again);
    ///   `.invalidArguments`, `.limitExceeded`, as for a save; `.zoneNotFound` when the zone was deleted, unless you
    ///   keep `.server` (make the zone again first); `.notSignedIn`, `.storageFailure`.
    @discardableResult
    public func resolve(
        _ conflict: RecordConflict, keeping resolution: RecordResolution
    ) async throws(CloudError) -> Record? {
        let engine = database.session.engine
        let id = conflict.id
        let staged: StagedAssets? =
            if case .merged(let record) = resolution { try await database.stage([record], areAllNew: false) } else {
                nil
            }
        let result = try database.session.local.write { rows -> Record? in
            _ = try database.session(in: rows)
            // What the server has stays, also where that is nothing, and no zone any more.
            let records =
                if case .server = resolution { try database.listed(id.zone, rows) } else {
                    try database.records(of: id.zone, rows, isWriting: true)
                }
            guard try records.removeConflict(conflict) else {
                throw CloudError(
                    .unknownItem, "The conflict was resolved already, or has become another. Look again.",
                    details: ["record": id.name])
            }
            try staged?.keep(in: records.assets, now: engine.stamp.now)
            var draft = RecordDraft(
                records, policy: .ifServerRecordUnchanged, makeTag: { engine.makeDocumentID().wire })
            let server = conflict.server?.base
            var kept: Record?
            switch resolution {
            case .server: return try records.record(id)
            case .client:
                kept = conflict.client
                if kept == nil { try draft.delete(id, base: server) }
            case .merged(let record):
                guard record.id == id else {
                    throw CloudError(
                        .invalidArguments, "This is another record than the conflict's.",
                        details: ["argument": "record"])
                }
                kept = record
            }
            if let record = kept { kept = try draft.replace(server, with: record.content, of: id) }
            try draft.queue(WireZoneChanges()) { engine.stamp }
            return kept
        }
        staged?.end()
        database.push([id.zone])
        return result
    }

    /// Zones with unresolved conflicts or rejected changes, also deleted zones.
    ///
    /// - Returns: Their names, in order.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func undecidedZones() async throws(CloudError) -> [String] {
        try database.read { try undecidedZones($0) }
    }

    private func undecidedZones(_ rows: Database) throws -> [String] {
        let zones = try UndecidedChanges.scopes(of: .records, database.account, rows).map { RecordPlace($0) }.filter {
            $0.container == database.container && $0.isPublic == database.isPublic
        }.compactMap(\.zone)
        return Set(zones).sorted()
    }

    /// Changes that the server rejected for another reason than a conflict, and that were neither dismissed nor saved
    /// again: of all zones, also of deleted ones.
    ///
    /// - Throws: ``CloudError`` as ``list()`` does.
    public func rejected() async throws(CloudError) -> [RefusedRecord] {
        try database.read { rows in try undecidedZones(rows).flatMap { try database.listed($0, rows).refusals() } }
    }

    /// Of one zone only.
    ///
    /// - Throws: ``CloudError`` as ``list(zone:)`` does.
    public func rejected(zone: String) async throws(CloudError) -> [RefusedRecord] {
        try database.read { try database.listed(zone, $0).refusals() }
    }

    /// Removes the given rejected changes from the list. Changes rejected since then stay.
    ///
    /// - Parameter refused: From ``rejected()``, of any zones.
    /// - Returns: The changes that were still listed.
    /// - Throws: ``CloudError`` as ``list()`` does.
    @discardableResult
    public func dismissRejected(_ refused: [RefusedRecord]) async throws(CloudError) -> [RefusedRecord] {
        try database.session.local.write { rows in
            _ = try database.session(in: rows)
            return try refused.filter { try database.listed($0.id.zone, rows).dismiss($0) }
        }
    }

    /// Removes all rejected changes of these records from the list.
    ///
    /// - Parameter ids: Nil: all records of all zones.
    /// - Returns: The records with such changes, each once, in order.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    @discardableResult
    public func dismissRejected(of ids: [RecordID]? = nil) async throws(CloudError) -> [RecordID] {
        let refused = try await rejected().filter { ids?.contains($0.id) ?? true }
        return Set(try await dismissRejected(refused).map(\.id)).sorted()
    }
}

extension Record {
    /// As it is saved in the place of another.
    fileprivate var content: WireRecord {
        var content = base ?? WireRecord()
        let known = Dictionary(content.fields.map { ($0.name, $0) }) { $1 }
        content.type = type
        content.fields = wireFields.map { field in
            // As it came, where it is as it came.
            known[field.name].flatMap { RecordValue($0) == fields[field.name] ? $0 : nil } ?? field
        }
        content.parent = parent ?? ""
        return content
    }
}
