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
    func stage(_ found: RecordItems.Finding, _ offers: StagedOffers, in records: RecordTransaction) throws {
        switch found {
        case .lost(let lost):
            guard let content = lost.mine.record, isToBeOffered(content),
                let save = try offered(
                    content, of: lost.mine.name.rawValue, over: lost.theirs?.record, isLater: lost.isLater,
                    in: records)
            else { return }
            try offers.add(save)
        case .undeleted(let tombstone, let theirs):
            guard theirs.record.map(isToBeOffered) ?? true,
                let deletion = Self.deletion(tombstone, of: theirs.name.rawValue, over: theirs.record)
            else { return }
            try offers.add(deletion)
        }
    }

    /// In a public database each account's devices offer what that account has made: all have the same.
    private func isToBeOffered(_ record: WireRecord) -> Bool {
        !place.isPublic || record.created.accountID == engine.session?.accountID.rawValue
    }

    /// - Parameters:
    ///   - theirs: What the server has; nil: nothing.
    ///   - isLater: Than that.
    /// - Returns: Nil: the server has it, or it waits already.
    func offered(
        _ content: WireRecord, of name: String, over theirs: WireRecord?, isLater: Bool, in records: RecordTransaction
    ) throws -> RecordTransaction.Pending? {
        guard content.version != theirs?.version, try !records.isWaiting(content.version, of: name) else { return nil }
        return RecordTransaction.Pending(offering: content, of: name, over: isLater ? theirs : nil)
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

    /// Queues what is offered before whatever waits. Saves go before deletions: what has left a record's children was
    /// moved before the record was deleted. Parents are saved before their children, and deleted after them.
    func offer(_ offers: StagedOffers, by engine: DeviceEngine) throws {
        guard !offers.isEmpty else { return }
        try offers.rank(turn: Pending.savesTurn, upTo: RecordLimits.parentsMax, outermostFirst: true)
        try offers.rank(turn: Pending.deletionsTurn, upTo: RecordLimits.parentsMax, outermostFirst: false)
        // How many there will be says where the first one goes.
        var batches = Batches()
        try offers.forEach { _ = batches.isNext($0) }
        let first = try rows.firstPlace(of: batches.count)
        var position = first - 1
        var request = WireZoneChanges()
        request.notAtomic = true
        let payload: Data = try request.serializedData()
        batches = Batches()
        try offers.forEach { offer in
            if batches.isNext(offer) {
                position += 1
                try rows.put(
                    payload, at: position, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
            }
            var pending = try Pending(offer)
            (pending.position, pending.place) = (position, batches.place)
            try put(pending)
        }
        // Whatever the server has lost, what is here of assets goes along.
        if try assets.isAnyHere() { for place in first..<position + 1 { try awaitAssets(at: place, areAllNew: true) } }
        try offers.clear()
    }

    /// Divides what is offered into requests.
    private struct Batches {
        private(set) var count = 0
        /// Of the last one in its batch.
        private(set) var place = 0
        private var (turn, bytes) = (0, 0)

        /// Whether it begins another one.
        mutating func isNext(_ offer: StagedOffers.Offer) -> Bool {
            let size = offer.change.count
            place += 1
            let isNext =
                count == 0 || offer.turn != turn || place >= RecordTransaction.offersMax
                || bytes + size > RecordTransaction.offeredBytesMax
            if isNext { (count, place, bytes) = (count + 1, 0, 0) }
            (turn, bytes) = (offer.turn, bytes + size)
            return isNext
        }
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
        let depths = ParentDepths(changes.map { ($0.change.record, $0.parent) })
        let all = changes.enumerated().map { (offset: $0, depth: depths.depth(under: $1.parent), change: $1) }
        let saves = all.filter { !$0.change.isDeletion }.sorted { ($0.depth, $0.offset) < ($1.depth, $1.offset) }
        let deletions = all.filter(\.change.isDeletion).sorted { ($1.depth, $0.offset) < ($0.depth, $1.offset) }
        return (saves + deletions).map(\.change)
    }

    fileprivate static let savesTurn = 0
    fileprivate static let deletionsTurn = 1

    fileprivate init(_ offer: StagedOffers.Offer) throws {
        self.init(
            position: 0, change: try WireRecordChange(serializedBytes: offer.change),
            ancestor: try offer.ancestor.map { try WireRecord(serializedBytes: $0) })
    }

    var isDeletion: Bool {
        if case .delete? = change.kind { true } else { false }
    }

    /// The record that it belongs to, or that it belonged to before it is deleted.
    fileprivate var parent: String? {
        if case .save(let save)? = change.kind, save.hasParent { return save.parent.isEmpty ? nil : save.parent }
        return ancestor?.parentName
    }
}

/// How many of some records lie above one of them.
struct ParentDepths {
    private let parents: [ItemName: ItemName?]

    init(_ records: [(name: String, parent: String?)]) {
        parents = Dictionary(records.map { (ItemName($0.name), $0.parent.map { ItemName($0) }) }) { $1 }
    }

    func depth(under parent: String?) -> Int {
        var (depth, above) = (0, parent.map { ItemName($0) })
        while let name = above, let next = parents[name], depth < RecordLimits.parentsMax {
            depth += 1
            above = next
        }
        return depth
    }
}

extension Sequence where Element == Record {
    /// So that they can be saved in several requests: what belongs to another comes after that.
    package var parentsFirst: [Record] {
        let depths = ParentDepths(map { ($0.id.name, $0.parent) })
        return enumerated().map { (offset: $0, depth: depths.depth(under: $1.parent), record: $1) }
            .sorted { ($0.depth, $0.offset) < ($1.depth, $1.offset) }.map(\.record)
    }
}

extension StagedOffers {
    func add(_ pending: RecordTransaction.Pending) throws {
        try add(
            Offer(
                turn: pending.isDeletion
                    ? RecordTransaction.Pending.deletionsTurn : RecordTransaction.Pending.savesTurn,
                change: pending.change.serializedData(), ancestor: pending.ancestor?.serializedData(),
                name: pending.change.record, parent: pending.parent))
    }
}
