internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// Indexes are made, and removed, in steps.
extension RecordsService {
    /// What one step looks at: records, bytes of them, and rows of the index.
    private static let builtRecordsMax = 200
    private static let builtBytesMax = 512 << 10
    private static let builtRowsMax = 2000
    private static let removedRowsMax = 1000
    /// Zones that are found to be done in one step.
    private static let zonesMax = 50

    func indexSome(in transaction: any HandlerTransaction) throws -> Bool {
        // What goes makes room.
        if let ending = try IndexRows.first(.removing, in: transaction) {
            if try !IndexRows.removeSome(
                of: ending.index.number, in: ending.database, limit: Self.removedRowsMax, transaction)
            {
                try IndexRows.remove(ending.index.number, of: ending.database, in: transaction)
            }
            return true
        }
        guard !transaction.isShortOfRoom, var building = try IndexRows.first(.building, in: transaction) else {
            return false
        }
        let database = try scope(building.database, transaction)
        for _ in 0..<Self.zonesMax {
            if let zone = try zone(building.zone, of: database) {
                guard try buildSome(&building, in: zone) else { break }
            }
            guard let next = try Self.zoneName(after: building.zone, in: database) else {
                try IndexRows.set(.ready, of: building.index.number, of: building.database, in: transaction)
                return true
            }
            (building.zone, building.record) = (next, ItemName(""))
        }
        try IndexRows.set(building, in: transaction)
        return true
    }

    /// - Parameter name: Empty: the default zone.
    private func zone(_ name: ItemName, of database: RecordScope) throws -> RecordScope? {
        if name.rawValue.isEmpty { return try zone(RecordLimits.defaultZone, of: database) }
        guard let known = try database.zone(name) else { return nil }
        let zone = try zone(known.zoneID, of: database)
        return try zone.isAlive() ? zone : nil
    }

    private static func zoneName(after name: ItemName, in database: RecordScope) throws -> ItemName? {
        var next: ItemName?
        try database.transaction.rows(database.scope, afterName: name) { row in
            if !row.deleted { next = row.name }
            return row.deleted
        }
        return next
    }

    /// - Returns: Whether the zone is done.
    private func buildSome(_ building: inout IndexRows.Unfinished, in zone: RecordScope) throws -> Bool {
        var items: [FeedItem] = []
        var (rows, bytes) = (0, 0)
        var isDone = true
        try zone.transaction.rows(zone.scope, afterName: building.record) { row in
            guard rows < Self.builtRecordsMax, bytes < Self.builtBytesMax else {
                isDone = false
                return false
            }
            rows += 1
            building.record = row.name
            guard !row.deleted else { return true }
            bytes += row.bodyBytes
            items.append(try row.item)
            return true
        }
        guard !items.isEmpty else { return isDone }
        let opener = try zone.opener()
        let words = opener.words
        var made = 0
        var place: [SQLValue]?
        for item in items {
            guard made <= Self.builtRowsMax else { return false }
            building.record = item.name
            guard let parts = StoredRecord.parts(of: item.body),
                let body = try? opener.open(parts.sealed, as: .item(item.name)),
                let record = try? WireRecord(serializedBytes: body)
            else { continue }
            for key in building.index.definition.keys(of: QueriedRecord(name: item.name, record: record), words: words)
            {
                let there =
                    try place
                    ?? IndexRows.place(
                        zone.scope.partition, zone: IndexRows.madeNumber(of: zone.scope, in: zone.transaction),
                        index: building.index.number)
                place = there
                try IndexRows.add(key, of: item.name, at: there, in: zone.transaction)
                made += 1
            }
        }
        return isDone
    }
}
