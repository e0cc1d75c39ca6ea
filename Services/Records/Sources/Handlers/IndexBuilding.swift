internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// Indexes are made, and removed, in steps.
extension RecordsService {
    /// What one step looks at: records, bytes of them, and rows of the index.
    private static let builtRecordsMax = 100
    private static let builtBytesMax = 512 << 10
    private static let builtRowsMax = 500
    private static let removedRowsMax = 1000
    /// Where room is asked for on the plan: when it is tried again, and how many steps of others go before.
    private static let busyPause: Duration = .seconds(1)
    private static let turnsOfBusy: Int64 = 1000
    /// Zones that are found to be done in one step.
    private static let zonesMax = 50

    func indexSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        // What goes makes room.
        if let ending = try IndexRows.first(.removing, passingOver: turn.failed, in: transaction) {
            turn.scope = ending.database
            let removed = try IndexRows.removeSome(
                of: ending.index.number, in: ending.database, limit: Self.removedRowsMax, transaction)
            if let removed {
                // What a deleted zone counted was given back with it.
                if try isThere(removed.zone, transaction) { try count(-removed.bytes, in: removed.zone, transaction) }
            } else {
                try IndexRows.remove(ending.index.number, of: ending.database, in: transaction)
            }
            return true
        }
        if try IndexRows.renewFirst(in: transaction) { return true }
        guard !transaction.isShortOfRoom,
            var building = try IndexRows.first(.building, passingOver: turn.failed, in: transaction)
        else { return false }
        turn.scope = building.database
        let database = try scope(building.database, transaction)
        for _ in 0..<Self.zonesMax {
            if let zone = try zone(building.zone, of: database) {
                let before = building
                do {
                    guard try buildSome(&building, in: zone) else { break }
                } catch let error as CloudError where error.code == .serviceBusy {
                    // Room is asked for: others go on meanwhile.
                    try IndexRows.set(before, turns: Self.turnsOfBusy, in: transaction)
                    runtime?.loop.schedule(after: Self.busyPause) { [weak self] in self?.indexing.beginSoon() }
                    return false
                } catch let error as CloudError where error.code == .quotaExceeded {
                    // What it has goes, as no save keeps it any more.
                    try IndexRows.set(.removing, of: building.index.number, of: building.database, in: transaction)
                    try IndexRows.add(building.index.definition, to: building.database, .refused, in: transaction)
                    return true
                }
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
        if database.scope.owner.isApp { return database }
        if name.rawValue.isEmpty { return try zone(RecordLimits.defaultZone, of: database) }
        guard let known = try database.zone(name) else { return nil }
        let zone = try zone(known.zoneID, of: database)
        return try zone.isAlive() ? zone : nil
    }

    private static func zoneName(after name: ItemName, in database: RecordScope) throws -> ItemName? {
        // What lies in the scope of a public one is records.
        guard !database.scope.owner.isApp else { return nil }
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
        let keys = try keys(of: items, building.index.definition, in: zone)
        // Of those that are left out the next step has its turn.
        if let last = keys.last, keys.count < items.count { (building.record, isDone) = (last.record, false) }
        let most = keys.reduce(Int64(0)) { sum, record in
            sum + record.keys.reduce(0) { $0 + IndexRows.counted($1, record.record) }
        }
        guard most > 0 else { return isDone }
        try count(most, in: zone.scope, zone.transaction)
        let place = try IndexRows.place(
            zone.scope.partition, zone: IndexRows.madeNumber(of: zone.scope, in: zone.transaction),
            index: building.index.number)
        var growth: Int64 = 0
        for record in keys {
            for key in record.keys {
                growth += try IndexRows.add(key, of: record.record, at: place, in: zone.transaction)
            }
        }
        try IndexRows.add(bytes: growth, to: zone.scope, in: zone.transaction)
        try count(growth - most, in: zone.scope, zone.transaction)
        return isDone
    }

    /// - Returns: Of the first of the items, as many as one step has.
    private func keys(
        of items: [FeedItem], _ definition: IndexDefinition, in zone: RecordScope
    ) throws -> [(record: ItemName, keys: Set<[UInt8]>)] {
        let opener = try zone.opener()
        let words = opener.words
        var keys: [(record: ItemName, keys: Set<[UInt8]>)] = []
        var rows = 0
        for item in items where rows <= Self.builtRowsMax {
            let parts = StoredRecord.parts(of: item.body)
            let body = parts.flatMap { try? opener.open($0.sealed, as: .item(item.name)) }
            // One that does not open has none.
            let record = body.flatMap { try? WireRecord(serializedBytes: $0) }
            let found =
                record.map { definition.keys(of: QueriedRecord(name: item.name, record: $0), words: words) } ?? []
            rows += found.count
            keys.append((item.name, found))
        }
        return keys
    }

    private func isThere(_ zone: ScopeName, _ transaction: any HandlerTransaction) throws -> Bool {
        let zone = try scope(zone, transaction)
        return try zone.isAlive()
    }
}
