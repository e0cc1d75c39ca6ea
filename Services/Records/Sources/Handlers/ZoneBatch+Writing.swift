internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// What is written of what was decided.
extension ZoneBatch {
    /// Writes records, and the rows beside them. What is written for good was counted before (``growth()``).
    ///
    /// - Parameter start: What is overwritten is kept from then on.
    /// - Returns: What readers of the feed are told, the change, and how many bytes became free besides.
    func write(keepingFrom start: Timestamp) throws -> (told: [ChangedItem], change: ScopeChange, freed: Int64) {
        let digestKey = try zone.madeDigestKey()
        var items: [FeedItem] = []
        var told: [ChangedItem] = []
        for name in changed {
            let former = try stored(name)
            let planned = records[name] ?? nil
            let ending: [UInt8]? = try planned == nil ? endings[name]?.serializedBytes() : nil
            // One that is deleted stays as it was: whoever has it hears of it.
            let showing = planned.map { former.showing.after(isInFeed: isInFeed($0.record)) } ?? former.showing
            let isShown = showing == .item
            if isShown || former.showing == .item {
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
                        former: tags,
                        sealed: try (planned?.body ?? ending).map { try zone.seal($0, as: .item(name)) } ?? [],
                        isOffered: offered.contains(name)),
                    showing: showing))
            try writeReferences(of: name, from: former, to: planned)
            try writeCircle(of: name, planned?.record)
        }
        // What is kept has them before they are given back.
        let kept = try lost()
        for (name, _, _) in kept where keepsAssets {
            let assets = try stored(name).assets
            if !assets.isEmpty { try contents.keep(assets, of: name, in: zone.scope, zone.transaction) }
        }
        for name in changed { try writeAssets(of: name) }
        let indexed = try writeIndexes()
        zone.charge(bytes: items.reduce(0) { $0 + $1.body.count })
        let freed =
            try indexed
            + RecordHistory(rows: zone.rows).add(kept, at: start) { body, record, number in
                try zone.seal(body, as: .history(of: record, number))
            } noted: { name, number in
                guard keepsAssets else { return }
                // Of a private database all are in one container.
                let assets = try stored(name).assets.map { ($0, ItemName("")) }
                try AssetRows(rows: zone.rows).add(
                    Dictionary(assets, uniquingKeysWith: { first, _ in first }), of: name, entry: number)
            }
        return (told, try zone.transaction.put(zone.scope, items), freed)
    }

    /// By whom the record is found, in a public database.
    private func writeCircle(of name: ItemName, _ record: WireRecord?) throws {
        guard zone.scope.owner.isApp else { return }
        let creators = [record, try before(name)].compactMap { $0.map { AccountID($0.created.accountID) } }
        try CircleRows.set(
            record.flatMap { access.circle(of: $0) }, of: name, madeBy: creators, in: zone.scope, zone.transaction)
    }

    /// What saves by force overwrite, as it is kept.
    func lost() throws -> [(record: ItemName, account: String, body: [UInt8])] {
        // Kept, it would take the very room that there is none of.
        guard !zone.transaction.isShortOfRoom else { return [] }
        return try overwritten.compactMap { name in
            guard let lost = try stored(name).state.record, let winner = records[name] ?? nil else { return nil }
            var entry = WireRecordHistoryEntry()
            entry.record = lost
            entry.winnerVersion = winner.record.version
            entry.winner = winner.record.modified
            return (name, zone.scope.owner.isApp ? lost.modified.accountID : "", try entry.serializedBytes())
        }
    }
}
