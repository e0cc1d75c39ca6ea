internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// The changes of one zone, decided before anything is written: what the records would be then.
///
/// Where a change fails, the batch is decided anew without it (of a zone that does not change as a whole), so that none
/// of the others rests on what did not happen.
///
/// What it throws itself is of the whole request, such as ``RequestRoom``'s error.
final class ZoneBatch {
    let zone: RecordScope
    /// What the caller may do.
    let access: RecordAccess
    let room: RequestRoom
    /// What the assets of its records rest on.
    let contents: BroughtContents
    let stamp: WireRecordStamp
    /// By the service's clock.
    let now: Timestamp
    /// What has a time of before lay in the copy that the service came back from, if it did.
    private let epochBegan: Int64
    /// Records as they are stored.
    private var stored: [ItemName: StoredState] = [:]
    /// Records as they would be; nil: deleted.
    var records: [ItemName: PlannedRecord?] = [:]
    /// Those that would be written, in their order.
    private(set) var changed: [ItemName] = []
    /// What is kept and told of those that would be deleted.
    var endings: [ItemName: WireRecord] = [:]
    /// Those that would be as they were before a restore.
    var offered: Set<ItemName> = []
    /// Records that are already as was asked, and by which change: they are not to go with others.
    var unchanged: [ItemName: Int] = [:]
    /// What saves by force would overwrite.
    var overwritten: [ItemName] = []
    /// Records that would go with others, and the change that makes them go.
    var cascaded: [(name: ItemName, cause: Int)] = []
    /// References that would be made or removed.
    var referencesChanged = 0
    /// Assets that records would have from now on, would have no more, or that would be kept of what is overwritten.
    var assetsChanged = 0
    /// What becomes of the rows of indexes.
    var indexChanges: [IndexChange] = []
    /// Circles that the caller is in, by which records are found; nil: all may be looked at.
    private let circles: [ReadingCircle]?
    /// Of those that were named, which are there and not for the caller.
    private var hidden: [ItemName: Bool] = [:]
    /// How many records refer to a target now, so that they go with it.
    var sourceCounts: [ItemName: Int] = [:]

    struct StoredState {
        var state: SaveRule.State
        var counted: Int
        var targets: Set<ItemName>
        var showing: ItemShowing
        var assets: Set<StoredAsset>
        /// It was in quarantine, and its assets are kept still.
        var isReturning = false
    }

    /// A record as it would be stored.
    struct PlannedRecord {
        var record: WireRecord
        var body: [UInt8]
        var targets: Set<ItemName>
        var assets: Set<StoredAsset>

        func counted(_ name: ItemName) -> Int {
            record.countedBytes(name, encoded: body.count, targets: targets.count, assets: assets.count)
        }
    }

    init(
        _ zone: RecordScope, _ access: RecordAccess, stamp: WireRecordStamp, at now: Timestamp, room: RequestRoom,
        _ contents: BroughtContents
    ) throws {
        self.zone = zone
        self.contents = contents
        self.access = access
        circles = try access.circles(in: zone)
        self.now = now
        self.room = room
        epochBegan = try zone.transaction.epochBegan(ofPartition: zone.scope.partition)
        // What is done from now on was done in this epoch, also where the clock was set back.
        var stamp = stamp
        stamp.time = max(stamp.time, epochBegan)
        self.stamp = stamp
    }

    // MARK: Deciding

    /// - Parameter leavingOut: Changes that have failed.
    /// - Returns: Those that fail now, with why. None: the batch can be written.
    func decide(_ changes: [WireRecordChange], leavingOut failed: Set<Int>) throws -> [Int: CloudError] {
        records = [:]
        changed = []
        endings = [:]
        offered = []
        unchanged = [:]
        overwritten = []
        cascaded = []
        referencesChanged = 0
        assetsChanged = 0
        var failures: [Int: CloudError] = [:]
        var deletions: [(name: ItemName, cause: Int)] = []
        for (index, change) in changes.enumerated() where !failed.contains(index) {
            let name = ItemName(change.record)
            let state = try isHidden(name) ? nil : stored(name).state
            do {
                switch try state.map({ try apply(change, to: name, $0) }) ?? applyUnseen(change, to: name) {
                case .deleted: deletions.append((name, index))
                case .unchanged: unchanged[name] = index
                case .saved: break
                }
            } catch let error as CloudError { failures[index] = error }
        }
        guard failures.isEmpty else { return failures }
        let places = Dictionary(
            changes.enumerated().map { (ItemName($1.record), $0) }, uniquingKeysWith: { first, _ in first })
        try cascade(deletions, &failures)
        try checkReferences(places, &failures)
        try checkAssets(places, &failures)
        return failures
    }

    func stored(_ name: ItemName) throws -> StoredState {
        if let known = stored[name] { return known }
        var found = try zone.record(name, within: room)
        found.state.epochBegan = epochBegan
        var record = StoredState(
            state: found.state, counted: found.counted, targets: found.state.record?.cascadingTargets ?? [],
            showing: found.showing, assets: found.state.record?.storedAssets ?? [])
        if !found.state.isThere, try zone.transaction.isQuarantined(name, of: zone.scope) {
            record.isReturning = true
            record.assets = Set(try AssetRows(rows: zone.rows).assets(of: name).keys)
        }
        stored[name] = record
        return record
    }

    /// Whether there is a record of the name that the caller may not know of.
    func isHidden(_ name: ItemName) throws -> Bool {
        guard let circles else { return false }
        if let known = hidden[name] { return known }
        let isHidden = try zone.isHidden(name, from: circles)
        hidden[name] = isHidden
        return isHidden
    }

    /// The record as it would be, and as far as a change may name it.
    func named(_ name: ItemName) throws -> WireRecord? {
        guard records[name] == nil, try isHidden(name) else { return try record(name) }
        return nil
    }

    /// The record as it would be.
    func record(_ name: ItemName) throws -> WireRecord? {
        if let known = records[name] { return known?.record }
        return try stored(name).state.record
    }

    func isDeleted(_ name: ItemName) -> Bool {
        guard let known = records[name] else { return false }
        return known == nil
    }

    private enum Effect { case saved, unchanged, deleted }

    private func apply(
        _ change: WireRecordChange, to name: ItemName, _ state: SaveRule.State
    ) throws -> Effect {
        switch change.kind {
        case .save(let save):
            let isReturning = try stored(name).isReturning
            if let former = try former(save, name, isReturning: isReturning) {
                // In a public database who may not change a record brings no former one back either: of one that was
                // deleted long ago nobody may know any more. What was in quarantine its creator brings back.
                guard access.mayWrite(former) || isReturning && access.hasMade(former),
                    try OfferRule.decide(former, over: state) == .write
                else { return .unchanged }
                set(try planned(former, name), name)
                // What was in quarantine is of the history that it was saved in.
                if former.modified.time < epochBegan { offered.insert(name) }
                return .saved
            }
            // Who saves it anew need not know that there was one. In a public database that may be somebody else's.
            let isNew = save.base.isEmpty && save.policy == .ifServerRecordUnchanged
            if isReturning, isNew || zone.scope.owner.isApp { throw Self.isInQuarantine }
            switch try decide(save, over: state) {
            case .same: return .unchanged
            case .write(let record, let overwrites):
                set(try planned(record, name), name)
                if overwrites { overwritten.append(name) }
                return .saved
            }
        case .delete(let deletion):
            var stamp = SaveRule.later(stamp, than: state, isDeletion: true)
            let isFormer = try isFormer(deletion, name)
            if isFormer {
                stamp = deletion.deleted
                guard
                    mayWrite(state),
                    try OfferRule.decideDeletion(
                        of: [UInt8](deletion.version), by: stamp, over: state) == .write
                else { return .unchanged }
            } else {
                // What the caller may not read is not there.
                guard !state.isThere || isVisible(state) else { return .unchanged }
                guard !state.isThere || mayWrite(state) else { throw Self.notYours }
                // Whoever has it would bring it back.
                if !state.isThere, try stored(name).isReturning { throw Self.isInQuarantine }
                try SaveRule.decideDeletion(of: state, base: deletion.base)
            }
            guard state.isThere else { return .unchanged }
            try end(name, state, stamp)
            if isFormer { offered.insert(name) }
            return .deleted
        case nil: throw Self.saysNothing
        }
    }

    /// What a change does to a record that the caller may not know of: as if it were not there; only that its name is taken
    /// cannot be hidden.
    private func applyUnseen(_ change: WireRecordChange, to name: ItemName) throws -> Effect {
        switch change.kind {
        case .save(let save):
            // What a restore has lost does not come back over another's.
            if try former(save, name, isReturning: false) != nil { return .unchanged }
            _ = try decide(save, over: SaveRule.State())
            throw Self.isTaken
        case .delete: return .unchanged
        case nil: throw Self.saysNothing
        }
    }

    private static let isInQuarantine = CloudError(
        .constraintViolation,
        "The server cannot read the record that has this name. A device that has it may bring it back. Use another name, or save it by force, which gives the former one up.",
        details: ["reason": "quarantined"])
    private static let saysNothing = CloudError(
        .invalidArguments, "A change says what becomes of the record.")

    /// What a save makes of a record, if the caller may do that.
    ///
    /// - Throws: ``CloudError`` `.permissionFailure`, `.invalidArguments`, and as ``SaveRule`` does.
    private func decide(_ save: WireSaveRecord, over state: SaveRule.State) throws(CloudError) -> SaveRule.Outcome {
        guard !zone.scope.owner.isApp || !save.fields.contains(where: \.isSealed) else { throw Self.notSealed }
        guard access.isRestricted else { return try SaveRule.decide(save, over: state, stamp: stamp) }
        guard isVisible(state) else {
            // As if it were not there; only that its name is taken cannot be hidden.
            _ = try SaveRule.decide(save, over: SaveRule.State(), stamp: stamp)
            throw Self.isTaken
        }
        guard state.isThere else {
            let outcome = try SaveRule.decide(save, over: state, stamp: stamp)
            guard access.mayCreate(save.type) else { throw Self.mayNotCreate }
            return outcome
        }
        guard !mayWrite(state) else { return try SaveRule.decide(save, over: state, stamp: stamp) }
        // A repeat of the save that has made it is answered as the first was.
        guard let stored = state.record, stored.version == save.version || state.former.contains([UInt8](save.version))
        else { throw Self.notYours }
        return .same(stored)
    }

    private static let notSealed = CloudError(
        .invalidArguments, "A public database has no encrypted fields. Save the record in a private one.")
    private static let isTaken = CloudError(
        .permissionFailure, "The record's name is taken by one that the caller may not see. Choose another.")
    private static let mayNotCreate = CloudError(
        .permissionFailure,
        "The roles of the type do not let the caller save new records of it. See: nephos records roles list")
    private static let notYours = CloudError(
        .permissionFailure,
        "The roles of the type do not let the caller change the record: another account has made it.")

    /// Whether the caller may know that there is one.
    private func isVisible(_ state: SaveRule.State) -> Bool { state.record.map(access.mayRead) ?? true }

    private func mayWrite(_ state: SaveRule.State) -> Bool {
        state.record.map(access.mayWrite) ?? true
    }

    /// - Throws: ``CloudError`` `.limitExceeded`: the record would be too large.
    func planned(_ record: WireRecord, _ name: ItemName) throws -> PlannedRecord {
        var record = record
        record.seal = try OwnWords(record, named: name, in: zone.scope).seal(in: zone.transaction)
        let body = try ChangeRule.encoded(record)
        return PlannedRecord(record: record, body: body, targets: record.cascadingTargets, assets: record.storedAssets)
    }

    func end(_ name: ItemName, _ state: SaveRule.State, _ stamp: WireRecordStamp) throws {
        set(nil, name)
        var ending = WireRecord()
        ending.type = state.record?.type ?? ""
        ending.version = state.record?.version ?? Data()
        ending.modified = stamp
        ending.seal = try OwnWords(
            deletionOf: ending.version, type: ending.type, by: stamp, of: name, in: zone.scope
        ).seal(in: zone.transaction)
        endings[name] = ending
    }

    private func set(_ record: PlannedRecord?, _ name: ItemName) {
        records.updateValue(record, forKey: name)
        changed.append(name)
    }

    /// - Returns: Which of the conditions does not hold; nil: all do.
    func unmet(_ conditions: [WireRecordCondition], _ changes: [WireRecordChange]) throws -> CloudError? {
        let named = Set(changes.map { ItemName($0.record) })
        for (index, condition) in conditions.enumerated() where !named.contains(ItemName(condition.record)) {
            // Nothing is called otherwise, and nobody has to look.
            let isName = RecordLimits.isName(condition.record)
            let isThere = try isName && !isHidden(ItemName(condition.record))
            var state = isThere ? try stored(ItemName(condition.record)).state : SaveRule.State()
            if !isVisible(state) { state = SaveRule.State() }
            guard state.record?.version ?? Data() != condition.version else { continue }
            return CloudError(
                .constraintViolation, "A record is not as the device took it to be. Look again.",
                details: ["condition": "\(index)"])
        }
        return nil
    }

    // MARK: What comes of it

    var isEmpty: Bool { changed.isEmpty }
    var hasDeletions: Bool { !endings.isEmpty }

    /// How a record is now, as far as the caller may know.
    func result(_ name: ItemName) throws -> WireRecord? {
        guard try records[name] != nil || isVisible(name) else { return nil }
        return try record(name)
    }

    /// What is told of its deletion; nil: it is not deleted.
    func ending(_ name: ItemName) -> WireRecord? { endings[name] }

    /// As it was before.
    func before(_ name: ItemName) throws -> WireRecord? { try stored(name).state.record }

    /// Whether the caller could read the record as it was before.
    func isVisible(_ name: ItemName) throws -> Bool { try !isHidden(name) && isVisible(stored(name).state) }

    /// Whether readers of the zone's feed see the record.
    func isInFeed(_ record: WireRecord) -> Bool { access.areInFeed(record.type) }

    /// Whether the zone would have more records than it may, and has some of this batch.
    func isTooMany() throws -> Bool {
        var (made, ended) = (0, 0)
        for name in changed {
            let isThere = try stored(name).state.isThere
            if !isThere { made += 1 }
            if isThere, isDeleted(name) { ended += 1 }
        }
        return try made > 0 && zone.head().liveCount + made - ended > RecordLimits.recordCountMax
    }

    /// By how many bytes the zone will count more, with what is kept of what is overwritten; less than 0: less.
    func growth() throws -> Int64 {
        let entries = try lost().reduce(Int64(0)) { $0 + RecordHistory.counted($1.record, $1.body) }
        return try changed.reduce(entries + indexGrowth) { sum, name in
            let size = records[name].flatMap { $0 }?.counted(name) ?? 0
            return sum + Int64(size) - Int64(try stored(name).counted)
        }
    }
}
