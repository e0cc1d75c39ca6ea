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
    private let access: RecordAccess
    let room: RequestRoom
    /// What the assets of its records rest on.
    private let contents: BroughtContents
    private let stamp: WireRecordStamp
    /// By the service's clock.
    private let now: Timestamp
    /// What has a time of before lay in the copy that the service came back from, if it did.
    private let epochBegan: Int64
    /// Records as they are stored.
    private var stored: [ItemName: StoredState] = [:]
    /// Records as they would be; nil: deleted.
    private var records: [ItemName: PlannedRecord?] = [:]
    /// Those that would be written, in their order.
    private(set) var changed: [ItemName] = []
    /// What is kept and told of those that would be deleted.
    private var endings: [ItemName: WireRecord] = [:]
    /// Those that would be as they were before a restore.
    private var offered: Set<ItemName> = []
    /// Records that are already as was asked, and by which change: they are not to go with others.
    private var unchanged: [ItemName: Int] = [:]
    /// What saves by force would overwrite.
    private var overwritten: [ItemName] = []
    /// Records that would go with others, and the change that makes them go.
    private(set) var cascaded: [(name: ItemName, cause: Int)] = []
    /// References that would be made or removed.
    private(set) var referencesChanged = 0
    /// Assets that records would have from now on, would have no more, or that would be kept of what is overwritten.
    private(set) var assetsChanged = 0
    /// What becomes of the rows of indexes.
    var indexChanges: [IndexChange] = []
    /// How many records refer to a target now, so that they go with it.
    private var sourceCounts: [ItemName: Int] = [:]

    private struct StoredState {
        var state: SaveRule.State
        var counted: Int
        var targets: Set<ItemName>
        var standing: StoredRecord.Standing
        var assets: Set<StoredAsset>
    }

    /// A record as it would be stored.
    private struct PlannedRecord {
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
            let state = try stored(name).state
            do {
                switch try apply(change, to: name, state) {
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

    private func stored(_ name: ItemName) throws -> StoredState {
        if let known = stored[name] { return known }
        let found = try zone.record(name, within: room)
        let record = StoredState(
            state: found.state, counted: found.counted, targets: found.state.record?.cascadingTargets ?? [],
            standing: found.standing,
            // Of one that is damaged the rows alone tell.
            assets: try found.state.isDamaged
                ? AssetRows(rows: zone.rows).assets(of: name) : found.state.record?.storedAssets ?? [])
        stored[name] = record
        return record
    }

    /// The record as it would be.
    private func record(_ name: ItemName) throws -> WireRecord? {
        if let known = records[name] { return known?.record }
        return try stored(name).state.record
    }

    private func isDeleted(_ name: ItemName) -> Bool {
        guard let known = records[name] else { return false }
        return known == nil
    }

    private enum Effect { case saved, unchanged, deleted }

    private func apply(
        _ change: WireRecordChange, to name: ItemName, _ state: SaveRule.State
    ) throws -> Effect {
        switch change.kind {
        case .save(let save):
            if let former = try former(save, name) {
                // In a public database who may not change a record brings no former one back either: of one that was
                // deleted long ago nobody may know any more.
                guard access.mayWrite(former), try OfferRule.decide(former, over: state) == .write else {
                    return .unchanged
                }
                set(try planned(former, name), name)
                offered.insert(name)
                return .saved
            }
            switch try decide(save, over: state) {
            case .same: return .unchanged
            case .write(let record, let overwrites):
                set(try planned(record, name), name)
                if overwrites { overwritten.append(name) }
                return .saved
            }
        case .delete(let deletion):
            var stamp = SaveRule.later(stamp, than: state)
            let isFormer = try isFormer(deletion, name)
            if isFormer {
                stamp = deletion.deleted
                guard
                    mayWrite(state),
                    try OfferRule.decideDeletion(
                        of: [UInt8](deletion.version), at: stamp.time, over: state) == .write
                else { return .unchanged }
            } else {
                // What the caller may not read is not there.
                guard !state.isThere || isVisible(state) else { return .unchanged }
                guard !state.isThere || mayWrite(state) else { throw Self.notYours }
                try SaveRule.decideDeletion(of: state, base: deletion.base)
            }
            guard state.isThere else { return .unchanged }
            try end(name, state, stamp)
            if isFormer { offered.insert(name) }
            return .deleted
        case nil:
            throw CloudError(.invalidArguments, "A change says what becomes of the record.")
        }
    }

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

    /// Whether the caller may know that there is one. Of one that is damaged nobody knows more than its name.
    private func isVisible(_ state: SaveRule.State) -> Bool { state.record.map(access.mayRead) ?? true }

    private func mayWrite(_ state: SaveRule.State) -> Bool {
        state.record.map(access.mayWrite) ?? access.mayWriteWhatIsDamaged
    }

    /// - Throws: ``CloudError`` `.limitExceeded`: the record would be too large.
    private func planned(_ record: WireRecord, _ name: ItemName) throws -> PlannedRecord {
        var record = record
        record.seal = try OwnWords(record, named: name, in: zone.scope).seal(in: zone.transaction)
        let body = try ChangeRule.encoded(record)
        return PlannedRecord(record: record, body: body, targets: record.cascadingTargets, assets: record.storedAssets)
    }

    /// The record as the service had it before it was restored; nil: it is a save like any other.
    private func former(_ save: WireSaveRecord, _ name: ItemName) throws -> WireRecord? {
        guard save.seal != 0 else { return nil }
        var all = save
        all.replace = true
        let record = SaveRule.made(all, from: WireRecord(), created: save.created, save.modified)
        let isOwn = try OwnWords(record, named: name, in: zone.scope).areOwn(
            save.seal, at: save.modified.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
        return isOwn ? record : nil
    }

    private func isFormer(_ deletion: WireDeleteRecord, _ name: ItemName) throws -> Bool {
        guard deletion.seal != 0 else { return false }
        return try OwnWords(
            deletionOf: deletion.version, type: deletion.type, by: deletion.deleted, of: name, in: zone.scope
        ).areOwn(
            deletion.seal, at: deletion.deleted.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
    }

    private func end(_ name: ItemName, _ state: SaveRule.State, _ stamp: WireRecordStamp) throws {
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

    /// Deletes what refers to what is deleted, as far as it wants to go with it.
    private func cascade(
        _ deletions: [(name: ItemName, cause: Int)], _ failures: inout [Int: CloudError]
    ) throws {
        var queue = deletions[...]
        /// Rows that were looked at; each would be removed.
        var seen = 0
        while let (target, cause) = queue.popFirst() {
            let sources = try zone.rows.sources(.cascading, to: target, limit: room.references - seen + 1)
            seen += sources.count
            guard seen <= room.references else { throw RequestRoom.tooManyReferences }
            for source in sources where records[source] == nil {
                let known = try stored(source)
                // Of one that is damaged the row alone tells; of another the record does.
                guard known.state.isDamaged || known.targets.contains(target) else { continue }
                let (stamp, isFormer) = (endings[target]?.modified ?? stamp, offered.contains(target))
                // Of a deletion that is offered again: it was saved after that, and stayed then too.
                if isFormer, known.state.record.map({ $0.modified.time > stamp.time }) ?? false {
                    continue
                }
                if let index = unchanged[source] {
                    failures[index] = Self.targetIsDeleted
                    continue
                }
                guard cascaded.count < room.cascades else {
                    return failures[cause] = CloudError(
                        .limitExceeded,
                        "Too many records would go with those of the request. Divide it, or delete some of them first.",
                        details: ["maximum": "\(RecordLimits.cascadeMax)"])
                }
                try end(source, known.state, SaveRule.later(stamp, than: known.state))
                if isFormer { offered.insert(source) }
                cascaded.append((source, cause))
                queue.append((source, cause))
            }
        }
    }

    /// Checks that each parent is there, that none goes which has children, and that no record has too many that would go
    /// with it.
    private func checkReferences(_ places: [ItemName: Int], _ failures: inout [Int: CloudError]) throws {
        let causes = Dictionary(cascaded.map { ($0.name, $0.cause) }, uniquingKeysWith: { first, _ in first })
        let growth = try sourceGrowth()
        guard referencesChanged <= room.references else { throw RequestRoom.tooManyReferences }
        /// Those that cannot be deleted.
        var staying: [ItemName] = []
        for name in changed {
            guard let cause = places[name] ?? causes[name], failures[cause] == nil else { continue }
            if let planned = records[name] ?? nil {
                failures[cause] = try fault(of: planned, name, growth)
            } else if try hasChildren(name) {
                failures[cause] = Self.hasChildren
                staying.append(name)
            }
        }
        // What stays needs its parents: they are not tried one after the other.
        while let name = staying.popLast() {
            guard let parent = try stored(name).state.record?.parent, !parent.isEmpty else { continue }
            let above = ItemName(parent)
            guard isDeleted(above), let cause = places[above] ?? causes[above], failures[cause] == nil else { continue }
            failures[cause] = Self.hasChildren
            staying.append(above)
        }
    }

    /// What becomes of a record's assets. What goes with a deletion is given back in steps.
    private func assets(of name: ItemName) throws -> (added: Set<StoredAsset>, removed: Set<StoredAsset>) {
        guard let planned = records[name].flatMap({ $0 }) else { return ([], []) }
        let before = try stored(name).assets
        return (planned.assets.subtracting(before), before.subtracting(planned.assets))
    }

    /// Checks that everything is there that the records' assets rest on.
    private func checkAssets(_ places: [ItemName: Int], _ failures: inout [Int: CloudError]) throws {
        for name in changed {
            let (added, removed) = try assets(of: name)
            assetsChanged += added.count + removed.count
            guard let cause = places[name], failures[cause] == nil, assetsChanged <= room.assets else { continue }
            let unchecked = try contents.unchecked(added, of: name, in: zone.scope)
            guard !unchecked.isEmpty else { continue }
            do {
                try contents.check(unchecked, of: name, in: zone.scope, zone.transaction)
            } catch let error as CloudError { failures[cause] = error }
        }
        for name in overwritten where keepsAssets { assetsChanged += try stored(name).assets.count }
        guard assetsChanged <= room.assets else { throw RequestRoom.tooManyAssets }
    }

    /// Whether what is overwritten by force is kept with its assets. In a public database whoever makes a record under a
    /// name anew would have those of the one before.
    private var keepsAssets: Bool { !zone.scope.owner.isApp }

    /// By how much more, or fewer, records targets would be referred to; notes how many references change.
    private func sourceGrowth() throws -> [ItemName: Int] {
        var growth: [ItemName: Int] = [:]
        for name in changed {
            let before = try stored(name).targets
            let after = records[name].flatMap { $0 }?.targets ?? []
            for target in before.subtracting(after) {
                growth[target, default: 0] -= 1
                referencesChanged += 1
            }
            for target in after.subtracting(before) {
                growth[target, default: 0] += 1
                referencesChanged += 1
            }
        }
        return growth
    }

    private static let targetIsDeleted = CloudError(
        .referenceViolation, "The record refers to one that the same request deletes, and would go with it.")
    private static let hasChildren = CloudError(
        .referenceViolation, "The record has children. Delete them with it, or before.")

    private func fault(
        of planned: PlannedRecord, _ name: ItemName, _ growth: [ItemName: Int]
    ) throws -> CloudError? {
        try faultOfParent(of: planned.record, name) ?? faultOfTargets(of: planned, name, growth)
    }

    /// One that keeps its parent is saved wherever that has been moved: it is there as long as it has children.
    private func faultOfParent(of record: WireRecord, _ name: ItemName) throws -> CloudError? {
        let before = try stored(name).state.record?.parent ?? ""
        guard !record.parent.isEmpty, !record.parent.hasSameBytes(as: before) else { return nil }
        var above = ItemName(record.parent)
        for _ in 0..<RecordLimits.parentsMax {
            guard above != name else {
                return CloudError(.referenceViolation, "A record cannot be its own parent, nor its parents'.")
            }
            guard let parent = try self.record(above), access.mayRead(parent) else {
                return CloudError(.referenceViolation, "The parent is not there. Save it before, or with the record.")
            }
            guard above != ItemName(record.parent) || offered.contains(name) || mayHang(on: parent) else {
                return Self.notYoursToHangOn
            }
            guard !parent.parent.isEmpty else { return nil }
            above = ItemName(parent.parent)
        }
        return CloudError(
            .limitExceeded, "There would be too many parents above one another.",
            details: ["maximum": "\(RecordLimits.parentsMax)"])
    }

    /// Children that the batch does not know are looked for in growing steps: one is enough.
    private func hasChildren(_ name: ItemName) throws -> Bool {
        for limit in [32, changed.count + 1] {
            let children = try zone.rows.sources(.child, to: name, limit: limit)
            for child in children where !isDeleted(child) {
                let isDamaged = try records[child] == nil && stored(child).state.isDamaged
                guard try isDamaged || record(child).map({ ItemName($0.parent) == name }) ?? false else { continue }
                return true
            }
            if children.count < limit { break }
        }
        return false
    }

    /// - Returns: `.referenceViolation`: a target is deleted in the same batch; `.limitExceeded`.
    private func faultOfTargets(
        of planned: PlannedRecord, _ name: ItemName, _ growth: [ItemName: Int]
    ) throws -> CloudError? {
        let before = try stored(name).targets
        for target in planned.targets {
            guard !isDeleted(target) else { return Self.targetIsDeleted }
            guard !before.contains(target) else { continue }
            // What is offered again was hung there before the service was restored.
            if access.isRestricted, !offered.contains(name) {
                guard let record = try record(target), access.mayRead(record) else { return Self.noTarget }
                guard mayHang(on: record) else { return Self.notYoursToHangOn }
            }
            guard try sourceCount(target) + growth[target, default: 0] <= RecordLimits.cascadingReferencesMax else {
                return CloudError(
                    .limitExceeded, "Too many records would be deleted with this one's target.",
                    details: ["maximum": "\(RecordLimits.cascadingReferencesMax)"])
            }
        }
        return nil
    }

    /// What hangs on a record keeps it from being deleted, or goes with it: strangers hang nothing there.
    private func mayHang(on record: WireRecord) -> Bool { access.mayWrite(record) }

    private static let noTarget = CloudError(
        .referenceViolation,
        "In a public database a record that is to go with another one refers to one that is there. Save that before, or with it."
    )
    private static let notYoursToHangOn = CloudError(
        .permissionFailure,
        "In a public database a record has a parent, or goes with another one, only where the caller may change that one. Refer to it without that."
    )

    private func sourceCount(_ target: ItemName) throws -> Int {
        if let known = sourceCounts[target] { return known }
        let count = try zone.rows.sourceCount(of: target)
        sourceCounts[target] = count
        return count
    }

    /// - Returns: Which of the conditions does not hold; nil: all do.
    func unmet(_ conditions: [WireRecordCondition], _ changes: [WireRecordChange]) throws -> CloudError? {
        let named = Set(changes.map { ItemName($0.record) })
        for (index, condition) in conditions.enumerated() where !named.contains(ItemName(condition.record)) {
            var state = try stored(ItemName(condition.record)).state
            if !isVisible(state) { state = SaveRule.State() }
            guard state.isDamaged || state.record?.version ?? Data() != condition.version else { continue }
            return CloudError(
                .constraintViolation, "A record is not as the device took it to be. Look again.",
                details: ["condition": "\(index)"])
        }
        return nil
    }

    // MARK: What comes of it

    var isEmpty: Bool { changed.isEmpty }
    var hasDeletions: Bool { !endings.isEmpty }

    /// How a record is now.
    func result(_ name: ItemName) throws -> WireRecord? { try record(name) }

    /// What is told of its deletion; nil: it is not deleted.
    func ending(_ name: ItemName) -> WireRecord? { endings[name] }

    /// As it was before.
    func before(_ name: ItemName) throws -> WireRecord? { try stored(name).state.record }

    /// Whether the caller could read the record as it was before.
    func isVisible(_ name: ItemName) throws -> Bool { isVisible(try stored(name).state) }

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

// MARK: - Writing

extension ZoneBatch {
    /// Writes records, and the rows beside them. What is written for good was counted before (``growth()``).
    ///
    /// - Returns: What readers of the feed are told, the change, and how many bytes became free besides.
    func write(at now: Timestamp) throws -> (told: [ChangedItem], change: ScopeChange, freed: Int64) {
        let digestKey = try zone.madeDigestKey()
        var items: [FeedItem] = []
        var told: [ChangedItem] = []
        for name in changed {
            let former = try stored(name)
            let planned = records[name] ?? nil
            let ending: [UInt8]? = try planned == nil ? endings[name]?.serializedBytes() : nil
            // One that is deleted stays as it stood: whoever has it hears of it.
            let standing = planned.map { former.standing.after(isInFeed: isInFeed($0.record)) } ?? former.standing
            let isShown = standing == .shown
            if isShown || former.standing == .shown {
                told.append(
                    ChangedItem(name: name, body: isShown ? planned?.body : nil, deletion: ending ?? []))
            }
            var tags = former.state.former
            if let version = former.state.record?.version { tags.insert([UInt8](version), at: 0) }
            items.append(
                FeedItem(
                    name: name, deleted: planned == nil,
                    digest: isShown
                        ? planned.map { SetDigest(ofItem: name, body: $0.body, key: digestKey) } ?? .empty : .empty,
                    size: planned?.counted(name) ?? 0,
                    body: StoredRecord.body(
                        standing, former: tags,
                        sealed: try (planned?.body ?? ending).map { try zone.seal($0, as: .item(name)) } ?? [],
                        isOffered: offered.contains(name))))
            try writeReferences(of: name, from: former, to: planned)
        }
        // What is kept has them before they are given back.
        let kept = try lost()
        for (name, _) in kept where keepsAssets {
            let assets = try stored(name).assets
            if !assets.isEmpty { try contents.keep(assets, of: name, in: zone.scope, zone.transaction) }
        }
        for name in changed { try writeAssets(of: name) }
        let indexed = try writeIndexes()
        zone.charge(bytes: items.reduce(0) { $0 + $1.body.count })
        let freed =
            try indexed
            + RecordHistory(rows: zone.rows).add(kept, at: now) { body, record, number in
                try zone.seal(body, as: .history(of: record, number))
            } noted: { name, number in
                guard keepsAssets else { return }
                try AssetRows(rows: zone.rows).add(stored(name).assets, of: name, entry: number)
            }
        return (told, try zone.transaction.put(zone.scope, items), freed)
    }

    /// What saves by force overwrite, as it is kept.
    private func lost() throws -> [(record: ItemName, body: [UInt8])] {
        // Kept, it would take the very room that there is none of.
        guard !zone.transaction.isShortOfRoom else { return [] }
        return try overwritten.compactMap { name in
            guard let lost = try stored(name).state.record, let winner = records[name] ?? nil else { return nil }
            var entry = WireRecordHistoryEntry()
            entry.record = lost
            entry.winnerVersion = winner.record.version
            entry.winner = winner.record.modified
            return (name, try entry.serializedBytes())
        }
    }

    private func writeAssets(of name: ItemName) throws {
        let rows = AssetRows(rows: zone.rows)
        guard !isDeleted(name) else {
            if try !stored(name).assets.isEmpty { try rows.retire(name, at: zone.head().token.sequence) }
            return
        }
        let (added, removed) = try assets(of: name)
        guard !added.isEmpty || !removed.isEmpty else { return }
        try contents.take(added, givingBack: removed, of: name, in: zone.scope, zone.transaction)
        try rows.remove(removed, of: name)
        try rows.add(added, of: name)
    }

    private func writeReferences(of name: ItemName, from old: StoredState, to new: PlannedRecord?) throws {
        let (before, after) = (old.targets, new?.targets ?? [])
        for target in before.subtracting(after).sorted() { try zone.rows.remove(.cascading, to: target, of: name) }
        for target in after.subtracting(before).sorted() { try zone.rows.add(.cascading, to: target, of: name) }
        let (parent, next) = (old.state.record?.parent ?? "", new?.record.parent ?? "")
        guard !parent.hasSameBytes(as: next) else { return }
        if !parent.isEmpty { try zone.rows.remove(.child, to: ItemName(parent), of: name) }
        if !next.isEmpty { try zone.rows.add(.child, to: ItemName(next), of: name) }
    }
}
