import Foundation
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// Saves and deletions of one zone that are queued together.
struct RecordDraft {
    private let records: RecordTransaction
    private let policy: RecordSavePolicy
    /// Fields that a record does not have go.
    private let replaces: Bool
    /// Assets that come as bytes are stored and saved also where the record has them: the server may have lost them.
    private let healsAssets: Bool
    private let makeTag: () -> Data
    private var changes: [RecordTransaction.Pending] = []
    /// Numbers of what was refused, and is done again by this: saved as somebody has changed it, or over which this is.
    private var savedAgain: Set<Int64> = []

    init(
        _ records: RecordTransaction, policy: RecordSavePolicy, replaces: Bool = false, healsAssets: Bool = false,
        makeTag: @escaping () -> Data
    ) {
        self.records = records
        self.policy = policy
        self.replaces = replaces
        self.healsAssets = healsAssets
        self.makeTag = makeTag
    }

    /// - Returns: The record as it is from now on.
    mutating func save(_ record: Record) throws -> Record {
        let current = try records.visible(record.id.name).record
        if let current, current.type != record.type { throw Self.otherType }
        if let current, record.isNew, policy == .ifServerRecordUnchanged {
            // Two apps that begin with the same record have the same one.
            guard record.hasContent(of: current) else { throw Self.isThere(record.id) }
            return try records.record(record.id) ?? record
        }
        // It is saved so already.
        let heals = healsAssets && !record.broughtFields.isEmpty
        if !replaces, !record.isChanged, !heals, current?.version == record.changeTag { return record }
        var save = WireSaveRecord()
        save.version = makeTag()
        save.base = record.changeTag ?? Data()
        save.type = record.type
        save.policy = policy.wire
        save.replace = replaces
        save.fields = fields(of: record)
        if let current { try SaveRule.checkSealing(save.fields, over: current) }
        if record.parent != record.base?.parentName { save.parent = record.parent ?? "" }
        if let refused = record.refused { savedAgain.insert(refused) }
        return try add(save, of: record.id, from: record.base)
    }

    /// The content of a record that is saved in the place of another.
    ///
    /// - Parameter server: What it takes the place of; nil: there is none.
    mutating func replace(_ server: WireRecord?, with content: WireRecord, of id: RecordID) throws -> Record {
        var save = WireSaveRecord()
        save.version = makeTag()
        save.base = server?.version ?? Data()
        save.type = content.type
        save.fields = content.fields
        save.replace = true
        save.parent = content.parent
        return try add(save, of: id, from: server)
    }

    private mutating func add(_ save: WireSaveRecord, of id: RecordID, from ancestor: WireRecord?) throws -> Record {
        var change = WireRecordChange()
        change.record = id.name
        change.save = save
        try ChangeRule.check(change)
        let pending = RecordTransaction.Pending(position: 0, change: change, ancestor: ancestor)
        let result = RecordTransaction.Pending.made(save, from: ancestor)
        _ = try ChangeRule.encoded(result)
        try append(pending)
        return RecordTransaction.Visible(record: result, isPending: true).made(id, result, nil)
    }

    /// - Parameter seen: The record as somebody has seen it; nil: as it is here.
    mutating func delete(_ id: RecordID, as seen: Record? = nil) throws {
        let (current, waiting) = (try records.visible(id.name).record, try records.pending(of: id.name))
        // It is gone already, or about to go. Of a database that is not kept here only the server knows.
        if current == nil, try !waiting.isEmpty || records.hasCopy && records.rows.state().synced {
            // It may have been refused as it was seen.
            return try records.endRefusal(of: id.name, as: seen?.changeTag ?? Data())
        }
        var change = WireRecordChange()
        change.record = id.name
        change.delete = WireDeleteRecord()
        if policy == .ifServerRecordUnchanged { change.delete.base = seen?.changeTag ?? current?.version ?? Data() }
        try append(RecordTransaction.Pending(position: 0, change: change, ancestor: seen?.base ?? current))
    }

    /// - Parameter base: What is deleted, as it was seen; nil: there is nothing.
    mutating func delete(_ id: RecordID, base: WireRecord?) throws {
        guard let base else { return }
        var change = WireRecordChange()
        change.record = id.name
        change.delete.base = base.version
        changes.append(RecordTransaction.Pending(position: 0, change: change, ancestor: base))
    }

    /// With what was refused of what it is made over, if that was.
    private mutating func append(_ change: RecordTransaction.Pending) throws {
        let (whole, refused) = try records.takingInRefused(change)
        if let refused { savedAgain.insert(refused) }
        changes.append(whole)
    }

    private static func isThere(_ id: RecordID) -> CloudError {
        CloudError(
            .serverRecordChanged,
            "A record of this name is there already. Read it and change that, or save with another policy.",
            details: ["record": id.name, "zone": id.zone])
    }

    private static let otherType = CloudError(
        .invalidArguments, "The record has another type, and keeps it.", details: ["argument": "type"])

    /// What goes to the server of a record's fields.
    private func fields(of record: Record) -> [WireRecordField] {
        let changed = Set(record.changedFields).union(healsAssets ? record.broughtFields : []).sorted()
        let named =
            switch (replaces, policy) {
            case (true, _): record.fields.keys.sorted()
            case (false, .allKeys): Set(record.fields.keys).union(changed).sorted()
            default: changed
            }
        let known = Dictionary((record.base?.fields ?? []).map { ($0.name, $0) }) { $1 }
        return named.map { name in
            guard let value = record.fields[name] else {
                var gone = WireRecordField()
                gone.name = name
                return gone
            }
            // As it came, where it is as it came.
            return changed.contains(name) ? value.wire(named: name) : known[name] ?? value.wire(named: name)
        }
    }

    func byteCount() throws -> Int { try changes.reduce(0) { try $0 + $1.change.serializedData().count } }

    // MARK: Queueing

    /// Operations of one zone that may wait.
    static let pendingMax = 100_000

    /// - Parameter request: What goes with the changes.
    func queue(
        _ request: WireZoneChanges, stamp: () -> (id: OperationID, now: Timestamp, writer: Int64)
    ) throws {
        guard !changes.isEmpty else { return }
        for change in changes { try records.endRefusals(by: change) { savedAgain.contains($0) } }
        try requireRoom()
        if try coalesce(request) { return }
        guard try records.rows.operationCount() < Self.pendingMax else {
            throw CloudError(
                .serviceBusy, "Too many changes wait to be sent. Connect, and try again.",
                details: ["pending_max": "\(Self.pendingMax)"])
        }
        let (id, now, writer) = stamp()
        let position = try records.rows.append(try request.serializedData(), id: id, writer: writer, now: now)
        for (place, change) in changes.enumerated() {
            var change = change
            (change.position, change.place) = (position, place)
            try records.put(change)
        }
        try records.awaitAssets(at: position, areAllNew: healsAssets)
    }

    /// What the assets need of a request.
    private func requireRoom() throws {
        guard changes.reduce(0, { $0 + $1.change.assets.count }) <= RecordLimits.assetsOfRequestMax else {
            throw CloudError(
                .limitExceeded, "These are too many assets at once. Divide them.",
                details: ["maximum": "\(RecordLimits.assetsOfRequestMax)"])
        }
    }

    /// A save over one that was never sent takes its place, if that is all that would be sent with it. One that names other
    /// records stays behind what was saved and deleted of them meanwhile.
    private func coalesce(_ request: WireZoneChanges) throws -> Bool {
        guard changes.count == 1, request.conditions.isEmpty, case .save(var save) = changes[0].change.kind,
            let last = try records.pending(of: changes[0].change.record).last,
            case .save(let former) = last.change.kind, former.version == save.base, former.policy == save.policy,
            !former.replace, !save.replace, try records.pending(at: last.position).count == 1,
            let operation = try records.rows.operation(at: last.position),
            // What has been on its way once may be there, whatever became of it since.
            operation.state == .unsent, operation.attempts == 0, operation.payload == (try request.serializedData()),
            try !save.namesOthers || records.rows.newestPosition() == last.position
        else { return false }
        save.take(in: former)
        save.base = former.base
        var change = last
        change.change.save = save
        // Somebody may be storing what the earlier one has.
        guard try records.upload(at: last.position) == nil || change.change.assets.isSubset(of: last.change.assets)
        else {
            return false
        }
        // Of what an earlier one had there may be too much together: then each goes by itself.
        guard change.change.assets.count <= RecordLimits.assetsMax else { return false }
        try records.put(change)
        try records.settleNeeds(of: change.change.record)
        try records.awaitAssets(at: change.position, areAllNew: healsAssets)
        return true
    }
}

extension Record {
    /// Made by an app, and not read or listed as refused.
    fileprivate var isNew: Bool { base == nil && refused == nil }

    fileprivate func hasContent(of wire: WireRecord) -> Bool {
        type == wire.type && fields == Self.fields(of: wire) && parent == wire.parentName
    }
}

extension WireSaveRecord {
    /// Whether it sets a parent or a reference.
    fileprivate var namesOthers: Bool {
        !parent.isEmpty
            || fields.contains { field in
                switch field.value {
                case .reference, .references: true
                default: false
                }
            }
    }
}

extension RecordSavePolicy {
    var wire: WireSavePolicy {
        switch self {
        case .ifServerRecordUnchanged: .ifServerRecordUnchanged
        case .changedKeys: .changedKeys
        case .allKeys: .allKeys
        }
    }
}
