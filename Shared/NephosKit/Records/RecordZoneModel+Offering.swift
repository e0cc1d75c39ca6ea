internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

/// What the server has lost by a restore, and this device knows.
extension RecordZoneModel {
    /// What the server has taken once, and lost, is offered as it was: under its change tag, with what the server said of
    /// it, and sealed. Whoever else does so offers the same, and the server knows which is the later one of two. What
    /// others have saved there since the restore is not overwritten: then it is a conflict.
    ///
    /// It goes out before whatever waits: that was made from it.
    func offer(_ merged: RecordItems.Merged, in records: RecordTransaction) throws {
        var saves: [RecordTransaction.Pending] = []
        for lost in merged.lost {
            guard let content = lost.mine.record, isToBeOffered(content) else { continue }
            let theirs = lost.theirs?.record
            saves += try offered(
                content, of: lost.mine.name.rawValue, over: theirs, isLater: lost.isLater, in: records)
        }
        let deletions = merged.undeleted.compactMap { tombstone, theirs -> RecordTransaction.Pending? in
            guard theirs.record.map(isToBeOffered) ?? true else { return nil }
            return Self.deletion(tombstone, of: theirs.name.rawValue, over: theirs.record)
        }
        try records.offer(saves, deletions, by: engine)
    }

    /// In a public database each account's devices offer what that account has made: all have the same.
    private func isToBeOffered(_ record: WireRecord) -> Bool {
        !place.isPublic || record.created.accountID == engine.session?.accountID.rawValue
    }

    /// - Parameters:
    ///   - theirs: What the server has; nil: nothing.
    ///   - isLater: Than that.
    /// - Returns: At most one; none: the server has it, or it waits already.
    func offered(
        _ content: WireRecord, of name: String, over theirs: WireRecord?, isLater: Bool, in records: RecordTransaction
    ) throws -> [RecordTransaction.Pending] {
        guard content.version != theirs?.version, try !records.isWaiting(content.version, of: name) else { return [] }
        return [RecordTransaction.Pending(offering: content, of: name, over: isLater ? theirs : nil)]
    }

    /// - Returns: Nil: what was told of the deletion cannot be repeated.
    static func deletion(_ tombstone: Data, of name: String, over theirs: WireRecord?) -> RecordTransaction.Pending? {
        guard let end = try? WireRecord(serializedBytes: tombstone), end.seal != 0, !end.version.isEmpty else {
            return nil
        }
        var change = WireRecordChange()
        change.record = name
        change.delete.base = end.version
        change.delete.type = end.type
        change.delete.version = end.version
        change.delete.deleted = end.modified
        change.delete.seal = end.seal
        return RecordTransaction.Pending(position: 0, change: change, ancestor: theirs)
    }
}

extension RecordTransaction {
    /// What one request offers.
    private static let offersMax = 100
    private static let offeredBytesMax = 512 << 10

    /// Saves go before deletions: what has left a record's children was moved before the record was deleted.
    func offer(_ saves: [Pending], _ deletions: [Pending], by engine: DeviceEngine) throws {
        var request = WireZoneChanges()
        request.notAtomic = true
        let payload: Data = try request.serializedData()
        // Each is put before all others, and so the last one first.
        for batch in try (Self.batches(saves) + Self.batches(deletions)).reversed() {
            let position = try rows.prepend(
                payload, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
            for (place, pending) in batch.enumerated() {
                var pending = pending
                (pending.position, pending.place) = (position, place)
                try put(pending)
            }
            // Whatever the server has lost, what is here goes along.
            try awaitAssets(at: position, areAllNew: true)
        }
    }

    private static func batches(_ changes: [Pending]) throws -> [[Pending]] {
        var batches: [[Pending]] = []
        var bytes = 0
        for pending in Pending.inOrder(changes) {
            let size = try pending.change.serializedData().count
            if batches.isEmpty || batches[batches.count - 1].count >= offersMax || bytes + size > offeredBytesMax {
                batches.append([])
                bytes = 0
            }
            batches[batches.count - 1].append(pending)
            bytes += size
        }
        return batches
    }
}

extension RecordTransaction.Pending {
    /// - Parameter theirs: What it takes the place of; nil: nothing.
    init(offering content: WireRecord, of name: String, over theirs: WireRecord?) {
        var change = WireRecordChange()
        change.record = name
        change.save.version = content.version
        change.save.base = theirs?.version ?? Data()
        change.save.type = content.type
        change.save.fields = content.fields
        change.save.replace = true
        change.save.parent = content.parent
        change.save.created = content.created
        change.save.modified = content.modified
        change.save.seal = content.seal
        self.init(position: 0, change: change, ancestor: theirs)
    }

    /// So that they can be made one after the other: saves before deletions, parents before their children, and what is
    /// deleted before its parent.
    static func inOrder(_ changes: [Self]) -> [Self] {
        let parents = Dictionary(changes.map { ($0.change.record, $0.parent) }) { $1 }
        func depth(_ change: Self) -> Int {
            var (depth, above) = (0, change.parent)
            while let name = above, let next = parents[name], depth < RecordLimits.parentsMax {
                depth += 1
                above = next
            }
            return depth
        }
        let all = changes.enumerated().map { (offset: $0, depth: depth($1), change: $1) }
        let saves = all.filter { !$0.change.isDeletion }.sorted { ($0.depth, $0.offset) < ($1.depth, $1.offset) }
        let deletions = all.filter(\.change.isDeletion).sorted { ($1.depth, $0.offset) < ($0.depth, $1.offset) }
        return (saves + deletions).map(\.change)
    }

    var isDeletion: Bool {
        if case .delete? = change.kind { true } else { false }
    }

    /// The record that it belongs to, or that it belonged to before it is deleted.
    private var parent: String? {
        if case .save(let save)? = change.kind, save.hasParent { return save.parent.isEmpty ? nil : save.parent }
        return ancestor?.parentName
    }
}
