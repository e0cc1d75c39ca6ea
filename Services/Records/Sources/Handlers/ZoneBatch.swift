internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// The changes of one zone, decided before anything is written: what the records would be then.
///
/// Where a change fails, the batch is decided anew without it (of a zone that does not change as a whole), so that none
/// of the others rests on what did not happen.
final class ZoneBatch {
    let zone: RecordScope
    private let stamp: WireRecordStamp
    /// Records as they are stored.
    private var stored: [ItemName: (state: SaveRule.State, counted: Int)] = [:]
    /// Records as they would be; nil: deleted.
    private var records: [ItemName: WireRecord?] = [:]
    /// Those that would be written, in their order.
    private var changed: [ItemName] = []
    /// What saves by force would overwrite.
    private var overwritten: [ItemName] = []
    /// Records that would go with others, and the change that makes them go.
    private(set) var cascaded: [(name: ItemName, cause: Int)] = []

    init(_ zone: RecordScope, stamp: WireRecordStamp) {
        self.zone = zone
        self.stamp = stamp
    }

    // MARK: Deciding

    /// - Parameter leavingOut: Changes that have failed.
    /// - Returns: Those that fail now, with why. None: the batch can be written.
    func decide(_ changes: [WireRecordChange], leavingOut failed: Set<Int>) throws -> [Int: CloudError] {
        records = [:]
        changed = []
        overwritten = []
        cascaded = []
        var failures: [Int: CloudError] = [:]
        var deletions: [(name: ItemName, cause: Int)] = []
        for (index, change) in changes.enumerated() where !failed.contains(index) {
            do {
                if let deleted = try apply(change) { deletions.append((deleted, index)) }
            } catch let error as CloudError { failures[index] = error }
        }
        guard failures.isEmpty else { return failures }
        let places = Dictionary(
            changes.enumerated().map { (ItemName($1.record), $0) }, uniquingKeysWith: { first, _ in first })
        try cascade(deletions, &failures)
        try checkReferences(places, &failures)
        return failures
    }

    private func stored(_ name: ItemName) throws -> (state: SaveRule.State, counted: Int) {
        if let known = stored[name] { return known }
        let record = try zone.record(name)
        stored[name] = record
        return record
    }

    /// The record as it would be.
    private func record(_ name: ItemName) throws -> WireRecord? {
        if let known = records[name] { return known }
        return try stored(name).state.record
    }

    /// - Returns: The record, if it is to be deleted.
    private func apply(_ change: WireRecordChange) throws -> ItemName? {
        let name = ItemName(change.record)
        let state = try stored(name).state
        switch change.kind {
        case .save(let save):
            switch try SaveRule.decide(save, over: state, stamp: stamp) {
            case .same: return nil
            case .write(let record, let overwrites):
                let bytes = try record.serializedData().count
                guard bytes <= RecordLimits.recordBytesMax else {
                    throw CloudError(
                        .limitExceeded, "The record is too large. Put what is large into an asset.",
                        details: ["bytes_max": "\(RecordLimits.recordBytesMax)", "bytes": "\(bytes)"])
                }
                set(record, name)
                if overwrites { overwritten.append(name) }
                return nil
            }
        case .delete(let deletion):
            try SaveRule.decideDeletion(of: state, base: deletion.base)
            guard state.record != nil else { return nil }
            set(nil, name)
            return name
        case nil:
            throw CloudError(.invalidArguments, "A change says what becomes of the record.")
        }
    }

    private func set(_ record: WireRecord?, _ name: ItemName) {
        records.updateValue(record, forKey: name)
        changed.append(name)
    }

    /// Deletes what refers to what is deleted, as far as it wants to go with it.
    private func cascade(
        _ deletions: [(name: ItemName, cause: Int)], _ failures: inout [Int: CloudError]
    ) throws {
        var queue = deletions[...]
        while let (target, cause) = queue.popFirst() {
            for source in try zone.rows.sources(
                .cascading, to: target, limit: RecordLimits.cascadingReferencesMax + 1)
            where records[source] == nil {
                guard cascaded.count < RecordLimits.cascadeMax else {
                    return failures[cause] = CloudError(
                        .limitExceeded, "Too many records would go with this one. Delete those that refer to it first.",
                        details: ["maximum": "\(RecordLimits.cascadeMax)"])
                }
                guard try stored(source).state.record != nil else { continue }
                set(nil, source)
                cascaded.append((source, cause))
                queue.append((source, cause))
            }
        }
    }

    /// Checks that each parent is there, that none goes which has children, and that no record has too many that would go
    /// with it.
    private func checkReferences(_ places: [ItemName: Int], _ failures: inout [Int: CloudError]) throws {
        let causes = Dictionary(cascaded.map { ($0.name, $0.cause) }, uniquingKeysWith: { first, _ in first })
        for name in changed {
            guard let cause = places[name] ?? causes[name], failures[cause] == nil else { continue }
            do {
                if let record = records[name] ?? nil {
                    try checkParent(of: record, name)
                    try checkTargets(of: record, name)
                } else {
                    try checkChildren(of: name)
                }
            } catch let error as CloudError { failures[cause] = error }
        }
    }

    private func checkParent(of record: WireRecord, _ name: ItemName) throws {
        guard !record.parent.isEmpty else { return }
        var above = ItemName(record.parent)
        for _ in 0..<RecordLimits.parentsMax {
            guard above != name else {
                throw CloudError(.referenceViolation, "A record cannot be its own parent, nor its parents'.")
            }
            guard let parent = try self.record(above) else {
                throw CloudError(.referenceViolation, "The parent is not there. Save it before, or with the record.")
            }
            // What has not moved was checked when it was saved.
            guard !parent.parent.isEmpty else { return }
            above = ItemName(parent.parent)
        }
        throw CloudError(
            .limitExceeded, "There would be too many parents above one another.",
            details: ["maximum": "\(RecordLimits.parentsMax)"])
    }

    private func checkChildren(of name: ItemName) throws {
        for child in try zone.rows.sources(.child, to: name, limit: RecordLimits.cascadeMax) {
            guard let record = try record(child), ItemName(record.parent) == name else { continue }
            throw CloudError(.referenceViolation, "The record has children. Delete them with it, or before.")
        }
    }

    /// - Throws: ``CloudError`` `.referenceViolation`: a target is deleted in the same batch; `.limitExceeded`.
    private func checkTargets(of record: WireRecord, _ name: ItemName) throws {
        let before = try stored(name).state.record?.cascadingTargets ?? []
        for target in record.cascadingTargets {
            if let known = records[target], known == nil {
                throw CloudError(
                    .referenceViolation, "The record refers to one that the same request deletes, and would go with it."
                )
            }
            guard !before.contains(target) else { continue }
            var sources = Set(
                try zone.rows.sources(
                    .cascading, to: target, limit: RecordLimits.cascadingReferencesMax + changed.count))
            for other in changed {
                let refers = (records[other] ?? nil)?.cascadingTargets.contains(target) ?? false
                if refers { sources.insert(other) } else { sources.remove(other) }
            }
            guard sources.count <= RecordLimits.cascadingReferencesMax else {
                throw CloudError(
                    .limitExceeded, "Too many records would be deleted with this one's target.",
                    details: ["maximum": "\(RecordLimits.cascadingReferencesMax)"])
            }
        }
    }

    /// - Returns: Which of the conditions does not hold; nil: all do.
    func unmet(_ conditions: [WireRecordCondition], _ changes: [WireRecordChange]) throws -> CloudError? {
        let named = Set(changes.map { ItemName($0.record) })
        for (index, condition) in conditions.enumerated() where !named.contains(ItemName(condition.record)) {
            guard try stored(ItemName(condition.record)).state.record?.version ?? Data() != condition.version else {
                continue
            }
            return CloudError(
                .constraintViolation, "A record is not as the device took it to be. Look again.",
                details: ["condition": "\(index)"])
        }
        return nil
    }

    // MARK: Writing

    var isEmpty: Bool { changed.isEmpty }

    /// How a record is now.
    func result(_ name: ItemName) throws -> WireRecord? { try record(name) }

    /// As it was before.
    func before(_ name: ItemName) throws -> WireRecord? { try stored(name).state.record }

    /// Whether the zone would have more records than it may, and has some of this batch.
    func isTooMany() throws -> Bool {
        var (made, ended) = (0, 0)
        for name in changed {
            let isThere = try stored(name).state.record != nil
            let willBe = records[name].map { $0 != nil } ?? isThere
            if willBe, !isThere { made += 1 }
            if isThere, !willBe { ended += 1 }
        }
        return try made > 0 && zone.head().liveCount + made - ended > RecordLimits.recordCountMax
    }

    /// By how many bytes the zone will count more, with what is kept of what is overwritten; less than 0: less.
    func growth() throws -> Int64 {
        let entries = try lost().reduce(Int64(0)) { $0 + RecordHistory.counted($1.record, $1.body) }
        return try changed.reduce(entries) { sum, name in
            let size = try (records[name] ?? nil).map { $0.countedBytes(name, encoded: try $0.serializedData().count) }
            return sum + Int64(size ?? 0) - Int64(try stored(name).counted)
        }
    }

    /// Writes records, and the rows beside them. What is written for good was counted before (``growth()``).
    ///
    /// - Returns: What was written, the change, and how many bytes became free besides.
    func write(at now: Timestamp) throws -> (records: [ChangedRecord], change: ScopeChange, freed: Int64) {
        let digestKey = try zone.madeDigestKey()
        var items: [FeedItem] = []
        var told: [ChangedRecord] = []
        for name in changed {
            let former = try stored(name)
            let record = records[name] ?? nil
            let body = try record.map { [UInt8](try $0.serializedData()) }
            told.append(ChangedRecord(name: name, body: body))
            var tags = former.state.former
            if let version = former.state.record?.version { tags.insert([UInt8](version), at: 0) }
            items.append(
                FeedItem(
                    name: name, deleted: body == nil,
                    digest: body.map { SetDigest(ofRecord: name, body: $0, key: digestKey) } ?? .empty,
                    size: body.map { record?.countedBytes(name, encoded: $0.count) ?? 0 } ?? 0,
                    body: StoredRecord.body(
                        former: tags, sealed: try body.map { try zone.seal($0, as: .item(name)) } ?? [])))
            try writeReferences(of: name, from: former.state.record, to: record)
        }
        let freed = try RecordHistory(rows: zone.rows).add(lost(), at: now) { body, number in
            try zone.seal(body, as: .history(number))
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
            entry.winnerVersion = winner.version
            entry.winner = winner.modified
            return (name, try entry.serializedBytes())
        }
    }

    private func writeReferences(of name: ItemName, from old: WireRecord?, to new: WireRecord?) throws {
        let before = old?.cascadingTargets ?? []
        let after = new?.cascadingTargets ?? []
        for target in before.subtracting(after).sorted() { try zone.rows.remove(.cascading, to: target, of: name) }
        for target in after.subtracting(before).sorted() { try zone.rows.add(.cascading, to: target, of: name) }
        let (parent, next) = (old?.parent ?? "", new?.parent ?? "")
        guard !parent.hasSameBytes(as: next) else { return }
        if !parent.isEmpty { try zone.rows.remove(.child, to: ItemName(parent), of: name) }
        if !next.isEmpty { try zone.rows.add(.child, to: ItemName(next), of: name) }
    }
}
