internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What becomes of a record's rows in one index.
struct IndexChange {
    var index: Int64
    var record: ItemName
    var removed: Set<[UInt8]>
    var added: Set<[UInt8]>
}

extension ZoneBatch {
    /// What becomes of the rows of indexes with the batch.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: the request would change too many.
    func decideIndexes() throws {
        indexChanges = []
        let indexes = try room.indexes(of: zone)
        guard !indexes.isEmpty else { return }
        let words = try zone.madeWords()
        var rows = 0
        for name in changed {
            let records = try [before(name), result(name)].map { $0.map { QueriedRecord(name: name, record: $0) } }
            for index in indexes {
                // Of one that is damaged nobody knows what it had. What it leaves is passed over by queries.
                let keys = records.map { $0.map { index.definition.keys(of: $0, words: words) } ?? [] }
                let change = IndexChange(
                    index: index.number, record: name, removed: keys[0].subtracting(keys[1]),
                    added: keys[1].subtracting(keys[0]))
                rows += change.removed.count + change.added.count
                // To find out what an index of words has takes about as long as to write it.
                zone.charge(bytes: (keys[0].count + keys[1].count) * Self.bytesPerKey)
                if !change.removed.isEmpty || !change.added.isEmpty { indexChanges.append(change) }
            }
        }
        guard rows <= room.indexRows else {
            throw CloudError(
                .limitExceeded, "The request changes too much of the indexes. Divide it.",
                details: ["maximum": "\(RecordLimits.indexRowsMax)"])
        }
    }

    /// What making a key costs, in bytes that are opened.
    private static let bytesPerKey = 128

    func writeIndexes() throws {
        guard !indexChanges.isEmpty else { return }
        let number = try IndexRows.madeNumber(of: zone.scope, in: zone.transaction)
        for change in indexChanges {
            let place = IndexRows.place(zone.scope.partition, zone: number, index: change.index)
            for key in change.removed { try IndexRows.remove(key, of: change.record, at: place, in: zone.transaction) }
            for key in change.added { try IndexRows.add(key, of: change.record, at: place, in: zone.transaction) }
        }
    }
}
