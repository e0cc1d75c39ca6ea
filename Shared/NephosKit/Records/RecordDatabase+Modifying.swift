internal import GRDB
public import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

public import struct Foundation.Data

extension RecordDatabase {
    /// Saves a record.
    ///
    /// It is on this device's disk when this returns, and is sent when it can be. A record that is as it was read is
    /// saved already: it comes back as it is, nothing is sent, and other devices are not told. The same goes for a new
    /// record with the content of the one that is here under its name.
    ///
    /// - Parameters:
    ///   - policy: What becomes of it where others have saved the record since.
    ///   - replacing: Fields that it does not have go, also those that this device does not know or has not fetched.
    /// - Returns: The record with its new change tag. Save it again from there, or what it was saved from is taken for
    ///   the last that was known.
    /// - Throws: ``CloudError`` `.serverRecordChanged`: the record is new (made with ``Record/init(_:type:fields:parent:)``),
    ///   and this device has one of that name with other content, sent or not. Read that and change it, or save with
    ///   another policy. Else as ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    @discardableResult
    public func save(
        _ record: Record, policy: RecordSavePolicy = .ifServerRecordUnchanged, replacing: Bool = false
    ) async throws(CloudError) -> Record {
        try await modify(saving: [record], deleting: [], policy: policy, replacing: replacing)[0]
    }

    /// Deletes a record; nothing where there is none.
    ///
    /// - Parameter policy: With `.ifServerRecordUnchanged` what others have saved since, and this device has not seen,
    ///   becomes a conflict; with another it is deleted whatever it has become, as CloudKit does. So it is of a public
    ///   database of which no copy is kept, where a name says nothing of what was seen: pass the record as it was read
    ///   (``delete(_:policy:)``).
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    public func delete(
        _ id: RecordID, policy: RecordSavePolicy = .ifServerRecordUnchanged
    ) async throws(CloudError) {
        try await modify(saving: [], deleting: [id], policy: policy)
    }

    /// Deletes a record as it was read: with `.ifServerRecordUnchanged` it is a conflict where others have saved it since.
    ///
    /// - Throws: ``CloudError`` as ``modify(saving:deleting:policy:atomically:conditions:replacing:clientToken:seen:)`` does.
    public func delete(
        _ record: Record, policy: RecordSavePolicy = .ifServerRecordUnchanged
    ) async throws(CloudError) {
        try await modify(saving: [], deleting: [record.id], policy: policy, seen: [record])
    }

    /// Saves and deletes records: on this device all or none.
    ///
    /// On the server each zone is one transaction, whatever becomes of the others: where one of its changes is refused,
    /// none is made, unless `atomically` is false. What was refused is listed then.
    ///
    /// - Parameters:
    ///   - records: Each once. At most 400 changes in a call, of 2 MiB together; a record has 1 MiB at most. Assets do not
    ///     count to that: their bytes are copied into this device's home first.
    ///   - policy: What becomes of a record that others have saved since.
    ///   - atomically: Of each zone, on the server.
    ///   - conditions: What is taken for granted of other records of a zone that is changed: at most 100.
    ///   - replacing: Fields that the records do not have go, also those that this device does not know or has not fetched.
    ///   - seen: Of what is deleted, as it was read: others' saves since then are conflicts; without, those since what is
    ///     here.
    ///   - clientToken: What the server tells this device again (``clientChangeToken(zone:timeout:)``), of each zone, once
    ///     the changes are made, all of them: 1 to 1024 bytes; nil: what it was told before stays.
    /// - Returns: The records, in their order, with their new change tags.
    /// - Throws: ``CloudError`` `.limitExceeded` (too much at once: divide it), `.invalidArguments` (a name that none
    ///   can have, a record twice, another type than the record has, a field that is to be encrypted and is there
    ///   unencrypted, or is of a public database), `.serverRecordChanged` (a new record over another of its name that
    ///   this device has, as ``save(_:policy:replacing:)`` says), `.zoneNotFound`, `.serviceBusy` (100,000 changes
    ///   of the zone wait to be sent: connect), `.notSignedIn`, `.storageFailure`; of an asset's file `.unknownItem`,
    ///   `.permissionFailure`, and `.constraintViolation` when it is not what it was. Nothing was saved then.
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

    /// What this device has left with its last changes of the zone that the server has made: by it an app that was cut off
    /// sees which of its changes were.
    ///
    /// - Returns: Nil: nothing, or so long ago that 100 other devices have left something since.
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
