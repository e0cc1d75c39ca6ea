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
    /// By how many bytes more its rows count, at most.
    var growth: Int64
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
        var (rows, keyCount) = (0, 0)
        for name in changed {
            let records = try [before(name), record(name)].map { $0.map { QueriedRecord(name: name, record: $0) } }
            for index in indexes {
                // What one has left that was in quarantine is passed over by queries.
                let keys = records.map { $0.map { index.definition.keys(of: $0, words: words) } ?? [] }
                var change = IndexChange(
                    index: index.number, record: name, removed: keys[0].subtracting(keys[1]),
                    added: keys[1].subtracting(keys[0]), growth: 0)
                change.growth = change.added.reduce(0) { $0 + IndexRows.counted($1, name) }
                // Of one that is being made those that were there before may not be in it yet.
                if index.isReady {
                    change.growth -= change.removed.reduce(0) { $0 + IndexRows.counted($1, name) }
                }
                rows += change.removed.count + change.added.count
                keyCount += keys[0].count + keys[1].count + 1
                if !change.removed.isEmpty || !change.added.isEmpty { indexChanges.append(change) }
            }
        }
        // Those that stay as they are were made too.
        zone.charge(bytes: keyCount * Self.bytesPerKey)
        guard rows <= room.indexRows else {
            throw CloudError(
                .limitExceeded, "The request changes too much of the indexes. Divide it.",
                details: ["maximum": "\(RecordLimits.indexRowsMax)"])
        }
    }

    /// What making a key costs, in bytes that are opened.
    private static let bytesPerKey = 128

    /// By how many bytes the zone's rows of indexes will count more, at most.
    var indexGrowth: Int64 { indexChanges.reduce(0) { $0 + $1.growth } }

    /// - Returns: How many bytes less it is than that.
    func writeIndexes() throws -> Int64 {
        guard !indexChanges.isEmpty else { return 0 }
        var growth: Int64 = 0
        let number = try IndexRows.madeNumber(of: zone.scope, in: zone.transaction)
        for change in indexChanges {
            let place = IndexRows.place(zone.scope.partition, zone: number, index: change.index)
            for key in change.removed {
                growth -= try IndexRows.remove(key, of: change.record, at: place, in: zone.transaction)
            }
            for key in change.added {
                growth += try IndexRows.add(key, of: change.record, at: place, in: zone.transaction)
            }
        }
        try IndexRows.add(bytes: growth, to: zone.scope, in: zone.transaction)
        // More only where rows were lost: nobody is refused for that once it is written.
        return max(0, indexGrowth - growth)
    }
}
