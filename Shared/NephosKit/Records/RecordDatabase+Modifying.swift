internal import GRDB
public import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

public import struct Foundation.Data

extension RecordDatabase {
    /// Saves a record.
    ///
    /// The record is on this device's disk when this returns, and is sent when there is a connection. Saving an
    /// unchanged record returns it as it is: nothing is sent, and no other device is notified. The same holds for a new
    /// record that equals the existing record of its name.
    ///
    /// - Parameters:
    ///   - record: A new record, or one that was read and changed.
    ///   - policy: The result if others have saved the record since it was read.
    ///   - replacing: Whether to remove fields that the record does not have, also those that this device does not know
    ///     or has not fetched.
    /// - Returns: The record with its new change tag. Base the next save on it; otherwise the next save counts as based
    ///   on the older version.
    /// - Throws: ``CloudError`` `.serverRecordChanged`: the record is new (made with
    ///   ``Record/init(_:type:fields:parent:)``), and this device has another record of that name with other content,
    ///   sent or pending. Read and change that one, or save with another policy. Else as
    ///   ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    @discardableResult
    public func save(
        _ record: Record, policy: RecordSavePolicy = .ifServerRecordUnchanged, replacing: Bool = false
    ) async throws(CloudError) -> Record {
        try await modify(saving: [record], deleting: [], policy: policy, replacing: replacing)[0]
    }

    /// Deletes a record; a missing one is no error.
    ///
    /// - Parameters:
    ///   - id: The record's identifier.
    ///   - policy: With `.ifServerRecordUnchanged` the deletion is a conflict if others have saved the record
    ///     and this device has not seen that; with another policy the record is deleted in any state, as in CloudKit. In
    ///     a public database without a copy, deletion by name deletes the record in any state too: pass the record as it
    ///     was read.
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    public func delete(
        _ id: RecordID, policy: RecordSavePolicy = .ifServerRecordUnchanged
    ) async throws(CloudError) {
        try await modify(saving: [], deleting: [id], policy: policy)
    }

    /// Deletes a record as it was read: with `.ifServerRecordUnchanged` it is a conflict if others have saved it since.
    ///
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    public func delete(
        _ record: Record, policy: RecordSavePolicy = .ifServerRecordUnchanged
    ) async throws(CloudError) {
        try await modify(saving: [], deleting: [record.id], policy: policy, seen: [record])
    }

    /// Saves and deletes records, on this device all or none.
    ///
    /// On the server each zone is one transaction, independent of other zones: if one of its changes is rejected, none
    /// is made, unless `atomically` is false. Rejected changes are then listed.
    ///
    /// - Parameters:
    ///   - records: Each record once. At most 400 changes in a call, with 2 MiB together; a record has 1 MiB at most.
    ///     Assets do not count: their bytes are copied into this device's home first.
    ///   - deleting: The records to delete.
    ///   - policy: The result if others have saved a record since it was read.
    ///   - atomically: Whether each zone changes as a whole on the server.
    ///   - conditions: Conditions on other records of a changed zone, at most 100.
    ///   - replacing: Whether to remove fields that the records do not have, also those that this device does not know
    ///     or has not fetched.
    ///   - clientToken: Bytes that ``clientChangeToken(zone:timeout:)`` returns for each zone, once all changes are
    ///     made: 1 to 1024 bytes; nil: the former ones stay.
    ///   - seen: Deleted records as they were read: saves by others since then are conflicts. Without it, saves since
    ///     this device's copy are.
    /// - Returns: The records, in their order, with their new change tags.
    /// - Throws: ``CloudError`` `.limitExceeded` (too much at once: divide it), `.invalidArguments` (a malformed name,
    ///   a record twice, another type than the record has, an encrypted value for a field that exists unencrypted or
    ///   for a public database), `.serverRecordChanged` (a new record over another of its name that this device has, as
    ///   ``save(_:policy:replacing:)`` says), `.zoneNotFound`, `.serviceBusy` (100,000 changes of the zone are pending:
    ///   connect), `.notSignedIn`, `.storageFailure`; for an asset's file `.unknownItem`, `.permissionFailure`, and
    ///   `.constraintViolation` when the file has changed. Nothing was saved then.
    @discardableResult
    public func modify(
        saving records: [Record], deleting: [RecordID], policy: RecordSavePolicy = .ifServerRecordUnchanged,
        atomically: Bool = true, conditions: [RecordCondition] = [], replacing: Bool = false,
        clientToken: Data? = nil, seen: [Record] = []
    ) async throws(CloudError) -> [Record] {
        try check(records, deleting, conditions)
        let seen = Dictionary(seen.map { ($0.id, $0) }) { $1 }
        try Self.check(clientToken)
        let engine = session.engine
        let mayHaveLost = try mayHaveLostAssets()
        let staged = try await stage(records, areAllNew: mayHaveLost)
        let saved = try session.local.write { database -> [Record] in
            guard try !session(in: database).isPublic else {
                throw CloudError(.permissionFailure, "Without an account nothing is saved. Sign in.")
            }
            try staged?.keep(in: copies(database), now: engine.stamp.now)
            var saved: [RecordID: Record] = [:]
            var bytes = 0
            for zone in Set(records.map(\.id.zone) + deleting.map(\.zone)).sorted() {
                var request = WireZoneChanges()
                request.notAtomic = !atomically
                request.clientToken = clientToken ?? Data()
                request.conditions = conditions.filter { $0.id.zone == zone }.map(\.wire)
                let rows = try self.records(of: zone, database, isWriting: true)
                var draft = RecordDraft(
                    rows, policy: policy, replaces: replacing, healsAssets: staged != nil && mayHaveLost,
                    makeTag: { engine.makeDocumentID().wire })
                for record in records where record.id.zone == zone { saved[record.id] = try draft.save(record) }
                for id in deleting where id.zone == zone { try draft.delete(id, as: seen[id]) }
                bytes += try draft.byteCount()
                guard bytes <= RecordLimits.requestBytesMax - Self.requestRoom else { throw Self.tooLarge }
                try draft.queue(request) { engine.stamp }
            }
            return records.map { saved[$0.id] ?? $0 }
        }
        staged?.end()
        push(Set(records.map(\.id.zone) + deleting.map(\.zone)))
        return saved
    }

    /// The `clientToken` of this device's last changes that the server has made in the zone: after an interruption the
    /// app knows which of its changes the server has.
    ///
    /// - Returns: Nil: this device has set no token, or 100 other devices have set one since.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the database was downloaded, `.zoneNotFound`,
    ///   `.networkUnavailable` and the like, `.notSignedIn`.
    public func clientChangeToken(
        zone: String, timeout: Duration? = nil
    ) async throws(CloudError) -> Data? {
        var request = WireReadChanges()
        request.scope = try "\(container)/\(id(of: zone))"
        if isPublic, let owner = try read({ try session(in: $0).publicOwner(of: container) }) {
            request.owner = owner.rawValue
        }
        // What has changed comes another way: its first item is enough.
        request.itemsMax = 1
        let reply = try await session.call(
            .records, request, as: WireReadChangesReply.self, app: app, timeout: timeout, account: account)
        guard let info = try? WireZoneInfo(serializedBytes: reply.info) else { throw Self.misfit }
        return info.clientToken.isEmpty ? nil : info.clientToken
    }

    private static func check(_ token: Data?) throws(CloudError) {
        guard let token else { return }
        guard (1...RecordLimits.clientTokenBytesMax).contains(token.count) else {
            throw CloudError(
                token.isEmpty ? .invalidArguments : .limitExceeded, "What a device leaves has 1 to 1024 bytes.",
                details: ["argument": "clientToken", "bytes_max": "\(RecordLimits.clientTokenBytesMax)"])
        }
    }

    func push(_ zones: Set<String>) { for zone in zones.sorted() { scope(of: zone).execute { $0.push() } } }

    /// What a request has besides its changes.
    private static let requestRoom = 64 << 10

    private static let tooLarge = CloudError(
        .limitExceeded, "These are too many bytes at once. Divide them.",
        details: ["bytes_max": "\(RecordLimits.requestBytesMax - requestRoom)"])

    private func check(
        _ records: [Record], _ deleting: [RecordID], _ conditions: [RecordCondition]
    ) throws(CloudError) {
        guard records.count + deleting.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "These are too many changes at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        guard conditions.count <= RecordLimits.conditionsMax else {
            throw CloudError(
                .limitExceeded, "These are too many conditions. Divide them.",
                details: ["maximum": "\(RecordLimits.conditionsMax)"])
        }
        let ids = records.map(\.id) + deleting
        guard Set(ids).count == ids.count else {
            throw CloudError(
                .invalidArguments, "A record is there twice. Change it once.", details: ["argument": "records"])
        }
        guard !isPublic || !records.contains(where: \.isEncrypted) else {
            throw CloudError(
                .invalidArguments, "A public database has no encrypted fields. Save the record in a private one.",
                details: ["argument": "records"])
        }
        for id in ids + conditions.map(\.id) { try RecordNames.check(id) }
        let zones = Set(ids.map(\.zone))
        guard conditions.allSatisfy({ zones.contains($0.id.zone) && !ids.contains($0.id) }) else {
            throw CloudError(
                .invalidArguments,
                "A condition is on a record that is not changed, of a zone of which another is.",
                details: ["argument": "conditions"])
        }
    }
}

extension Record {
    fileprivate var isEncrypted: Bool {
        fields.values.contains { if case .encrypted = $0 { true } else { false } }
    }
}

extension RecordCondition {
    fileprivate var wire: WireRecordCondition {
        var wire = WireRecordCondition()
        wire.record = id.name
        wire.version = changeTag ?? Data()
        return wire
    }
}
