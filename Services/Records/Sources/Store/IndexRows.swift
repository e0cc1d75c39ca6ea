internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// The rows of indexes: which there are of a database, and under which keys its records are found.
enum IndexRows {
    enum State: Int64 {
        /// Records that were there before are being looked at. Saves keep it already.
        case building = 1
        case ready = 2
        case removing = 3
        /// The plan had no room for what was there before. It has no rows, and saves do not keep it.
        case refused = 4
    }

    private static let ofDatabase = "partition_number = ?1 AND owner = ?2 AND records_of = ?3"
    private static let select = SQL(
        "SELECT number, definition, state, folding_version FROM record_indexes WHERE \(ofDatabase) ORDER BY number")
    /// Of rows that are written from now on.
    private static let folding = Int64(FoldingRule.current.rawValue)
    private static let newestNumber = SQL(
        "SELECT number FROM record_indexes WHERE partition_number = ?1 ORDER BY number DESC LIMIT 1")
    private static let insert = SQL(
        """
        INSERT INTO record_indexes
            (partition_number, owner, records_of, number, definition, state, zone_name, record, turn, folding_version)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', '', 0, ?7)
        """)
    private static let setState = SQL(
        "UPDATE record_indexes SET state = ?5, zone_name = '', record = '' WHERE \(ofDatabase) AND number = ?4")
    private static let delete = SQL("DELETE FROM record_indexes WHERE \(ofDatabase) AND number = ?4")

    /// Those of a database that are kept: ready, or being made.
    static func indexes(of database: ScopeName, in reader: any ReadTransaction) throws -> [RecordIndex] {
        var indexes: [RecordIndex] = []
        try reader.query(select, ZoneRows.place(of: database)) { row in
            guard let state = State(rawValue: row.integer(2)), state != .removing,
                let wire = try? WireRecordIndex(serializedBytes: row.blob(1)),
                let definition = try? IndexDefinition(wire)
            else { return true }
            indexes.append(
                RecordIndex(
                    number: row.integer(0), definition: definition, state: state, isCurrent: row.integer(3) == folding))
            return true
        }
        return indexes
    }

    /// How many there are with those that are being removed.
    static func count(of database: ScopeName, in reader: any ReadTransaction) throws -> Int {
        try reader.all(select, ZoneRows.place(of: database)) { $0.integer(0) }.count
    }

    static func add(
        _ definition: IndexDefinition, to database: ScopeName, _ state: State, in transaction: any Transaction
    ) throws {
        let number = try transaction.first(newestNumber, [.integer(Int64(database.partition))]) { $0.integer(0) } ?? 0
        try transaction.execute(
            insert,
            ZoneRows.place(of: database) + [
                .integer(number + 1), .blob(try definition.stored.serializedBytes()), .integer(state.rawValue),
                .integer(folding),
            ])
    }

    static func set(
        _ state: State, of number: Int64, of database: ScopeName, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            setState, ZoneRows.place(of: database) + [.integer(number), .integer(state.rawValue)])
    }

    static func remove(_ number: Int64, of database: ScopeName, in transaction: any Transaction) throws {
        try transaction.execute(delete, ZoneRows.place(of: database) + [.integer(number)])
    }

    // MARK: Other foldings

    private static let columns = "owner, records_of, number, definition, zone_name, record, state"
    private static let ofOlderFolding = SQL(
        """
        SELECT \(columns) FROM record_indexes WHERE folding_version < ?1 AND state <> ?2
        ORDER BY folding_version LIMIT 1
        """)
    private static let ofNewerFolding = SQL(
        """
        SELECT \(columns) FROM record_indexes WHERE folding_version > ?1 AND state <> ?2
        ORDER BY folding_version LIMIT 1
        """)
    private static let setFolding = SQL(
        "UPDATE record_indexes SET folding_version = ?5 WHERE \(ofDatabase) AND number = ?4")

    /// Makes one index anew whose texts are folded by another version: an older program's, or a newer one's.
    ///
    /// - Returns: Whether there may be more.
    static func renewFirst(in transaction: any Transaction) throws -> Bool {
        let values: [SQLValue] = [.integer(folding), .integer(State.removing.rawValue)]
        let found =
            try transaction.first(ofOlderFolding, values, unfinished)
            ?? transaction.first(ofNewerFolding, values, unfinished)
        guard let found else { return false }
        let number = found.index.number
        if found.index.isRefused {
            // It has no rows.
            try transaction.execute(
                setFolding, ZoneRows.place(of: found.database) + [.integer(number), .integer(folding)])
        } else {
            try set(.removing, of: number, of: found.database, in: transaction)
            // One that cannot be read has no records.
            if !found.index.definition.type.isEmpty {
                try add(found.index.definition, to: found.database, .building, in: transaction)
            }
        }
        return true
    }

    // MARK: What is under way

    private static let firstOfState = SQL(
        """
        SELECT \(columns) FROM record_indexes
        WHERE state = ?1 ORDER BY turn, partition_number, number
        """)
    private static let setPlace = SQL(
        """
        UPDATE record_indexes SET zone_name = ?5, record = ?6,
            turn = (SELECT MAX(turn) + ?7 FROM record_indexes WHERE state = 1)
        WHERE \(ofDatabase) AND number = ?4
        """)

    /// An index that is being made or removed.
    struct Unfinished {
        var database: ScopeName
        var index: RecordIndex
        /// Empty: the default zone.
        var zone: ItemName
        var record: ItemName
    }

    /// The one whose turn it is.
    ///
    /// - Parameter failed: Databases whose indexes could not be made or removed just now.
    static func first(
        _ state: State, passingOver failed: Set<ScopeName>, in reader: any ReadTransaction
    ) throws -> Unfinished? {
        var found: Unfinished?
        try reader.query(firstOfState, [.integer(state.rawValue)]) { row in
            let next = unfinished(row)
            guard !failed.contains(next.database) else { return true }
            found = next
            return false
        }
        return found
    }

    private static func unfinished(_ row: any SQLRow) -> Unfinished {
        let wire = try? WireRecordIndex(serializedBytes: row.blob(3))
        return Unfinished(
            database: ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1))),
            index: RecordIndex(
                number: row.integer(2),
                // One that cannot be read has no records, and is made at once.
                definition: wire.flatMap { try? IndexDefinition($0) } ?? IndexDefinition(type: "", fields: []),
                state: State(rawValue: row.integer(6)) ?? .removing),
            zone: ItemName(row.text(4)), record: ItemName(row.text(5)))
    }

    /// - Parameter turns: After so many of others it has its turn again.
    static func set(_ unfinished: Unfinished, turns: Int64 = 1, in transaction: any Transaction) throws {
        try transaction.execute(
            setPlace,
            ZoneRows.place(of: unfinished.database) + [
                .integer(unfinished.index.number), .text(unfinished.zone.rawValue), .text(unfinished.record.rawValue),
                .integer(turns),
            ])
    }

    // MARK: Zones

    private static let selectZone = SQL("SELECT number FROM record_index_zones WHERE \(ZoneRows.key)")
    private static let newestZone = SQL(
        "SELECT number FROM record_index_zones WHERE partition_number = ?1 ORDER BY number DESC LIMIT 1")
    private static let insertZone = SQL(
        "INSERT INTO record_index_zones (partition_number, owner, zone, number, bytes) VALUES (?1, ?2, ?3, ?4, 0)")
    private static let selectBytes = SQL("SELECT bytes FROM record_index_zones WHERE \(ZoneRows.key)")
    private static let addBytes = SQL("UPDATE record_index_zones SET bytes = bytes + ?4 WHERE \(ZoneRows.key)")
    private static let deleteZone = SQL("DELETE FROM record_index_zones WHERE \(ZoneRows.key)")
    /// Of a database: its path, and what comes after it and a slash.
    private static let zoneWithRows = SQL(
        """
        SELECT number, zone FROM record_index_zones WHERE partition_number = ?1 AND owner = ?2 AND zone > ?3 AND zone < ?4
            AND EXISTS (SELECT 1 FROM record_index WHERE record_index.partition_number = ?1
                AND zone_number = record_index_zones.number AND index_number = ?5)
        ORDER BY zone LIMIT 1
        """)
    private static let zoneOfOwner = SQL(
        "SELECT zone FROM record_index_zones WHERE partition_number = ?1 AND owner = ?2 ORDER BY zone LIMIT 1")

    /// By which number the zone's rows are found; nil: it has none.
    static func number(of zone: ScopeName, in reader: any ReadTransaction) throws -> Int64? {
        try reader.first(selectZone, ZoneRows.place(of: zone)) { $0.integer(0) }
    }

    static func madeNumber(of zone: ScopeName, in transaction: any Transaction) throws -> Int64 {
        if let number = try number(of: zone, in: transaction) { return number }
        let newest = try transaction.first(newestZone, [.integer(Int64(zone.partition))]) { $0.integer(0) } ?? 0
        try transaction.execute(insertZone, ZoneRows.place(of: zone) + [.integer(newest + 1)])
        return newest + 1
    }

    /// What the zone's rows count, in bytes.
    static func bytes(of zone: ScopeName, in reader: any ReadTransaction) throws -> Int64 {
        try reader.first(selectBytes, ZoneRows.place(of: zone)) { $0.integer(0) } ?? 0
    }

    static func add(bytes: Int64, to zone: ScopeName, in transaction: any Transaction) throws {
        guard bytes != 0 else { return }
        try transaction.execute(addBytes, ZoneRows.place(of: zone) + [.integer(bytes)])
    }

    /// What a row counts, in bytes.
    static func counted(_ key: [UInt8], _ record: ItemName) -> Int64 {
        Int64(key.count + record.utf8.count + RecordLimits.indexRowBytes)
    }

    // MARK: Rows

    private static let ofIndex = "partition_number = ?1 AND zone_number = ?2 AND index_number = ?3"
    private static let insertRow = SQL(
        """
        INSERT INTO record_index (partition_number, zone_number, index_number, entry, record)
        VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, zone_number, index_number, entry, record) DO NOTHING
        """)
    private static let deleteRow = SQL("DELETE FROM record_index WHERE \(ofIndex) AND entry = ?4 AND record = ?5")
    private static let deleteOfIndex = SQL(
        """
        DELETE FROM record_index WHERE \(ofIndex) AND (entry, record) IN (
            SELECT entry, record FROM record_index WHERE \(ofIndex) ORDER BY entry, record LIMIT ?4)
        """)
    private static let sizeOfIndex = SQL(
        """
        SELECT SUM(LENGTH(entry) + LENGTH(record)), COUNT(*) FROM (
            SELECT entry, record FROM record_index WHERE \(ofIndex) ORDER BY entry, record LIMIT ?4) AS found
        """)
    private static let deleteOfZone = SQL(
        """
        DELETE FROM record_index WHERE partition_number = ?1 AND zone_number = ?2 AND (index_number, entry, record) IN (
            SELECT index_number, entry, record FROM record_index
            WHERE partition_number = ?1 AND zone_number = ?2 LIMIT ?3)
        """)

    static func place(_ partition: Int, zone: Int64, index: Int64) -> [SQLValue] {
        [.integer(Int64(partition)), .integer(zone), .integer(index)]
    }

    /// - Returns: What is counted more, in bytes; 0: it was there.
    static func add(
        _ key: [UInt8], of record: ItemName, at place: [SQLValue], in transaction: any Transaction
    ) throws -> Int64 {
        let rows = try transaction.execute(insertRow, place + [.blob(key), .text(record.rawValue)])
        return Int64(rows) * counted(key, record)
    }

    /// - Returns: What is counted less, in bytes; 0: it was not there.
    static func remove(
        _ key: [UInt8], of record: ItemName, at place: [SQLValue], in transaction: any Transaction
    ) throws -> Int64 {
        let rows = try transaction.execute(deleteRow, place + [.blob(key), .text(record.rawValue)])
        return Int64(rows) * counted(key, record)
    }

    /// Removes some of an index's rows.
    ///
    /// - Returns: What is counted less of which zone; nil: there were none.
    static func removeSome(
        of index: Int64, in database: ScopeName, limit: Int, _ transaction: any Transaction
    ) throws -> (zone: ScopeName, bytes: Int64)? {
        let place = ZoneRows.place(of: database)
        let container = database.path.rawValue.prefix { $0 != "/" }
        let zone = try transaction.first(
            zoneWithRows,
            // The character after the slash.
            [place[0], place[1], .text("\(container)/"), .text("\(container)0"), .integer(index)]
        ) { (number: $0.integer(0), scope: ScopeName(database.owner, ItemName($0.text(1)))) }
        guard let zone else { return nil }
        let values = Self.place(database.partition, zone: zone.number, index: index) + [.integer(Int64(limit))]
        let bytes = try transaction.first(sizeOfIndex, values) {
            $0.integer(0) + $0.integer(1) * Int64(RecordLimits.indexRowBytes)
        }
        try transaction.execute(deleteOfIndex, values)
        try add(bytes: -(bytes ?? 0), to: zone.scope, in: transaction)
        return (zone.scope, bytes ?? 0)
    }

    /// Removes some of a zone's rows.
    ///
    /// - Returns: Whether there may be more.
    static func removeSome(of zone: ScopeName, limit: Int, in transaction: any Transaction) throws -> Bool {
        guard let number = try number(of: zone, in: transaction) else { return false }
        let removed = try transaction.execute(
            deleteOfZone, [.integer(Int64(zone.partition)), .integer(number), .integer(Int64(limit))])
        guard removed < limit else { return true }
        try transaction.execute(deleteZone, ZoneRows.place(of: zone))
        return false
    }

    private static let deleteOfOwner = SQL(
        """
        DELETE FROM record_indexes WHERE partition_number = ?1 AND owner = ?2 AND (records_of, number) IN (
            SELECT records_of, number FROM record_indexes WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
        """)

    /// Removes some of what an account leaves.
    ///
    /// - Returns: Whether there may be more.
    static func removeRemains(of owner: Owner, limit: Int, in transaction: any Transaction) throws -> Bool {
        let partition = Int64(ScopeName(owner, "").partition)
        let zone = try transaction.first(zoneOfOwner, [.integer(partition), .text(owner.rawValue)]) {
            ScopeName(owner, ItemName($0.text(0)))
        }
        if let zone {
            _ = try removeSome(of: zone, limit: limit, in: transaction)
            return true
        }
        return try transaction.execute(
            deleteOfOwner, [.integer(partition), .text(owner.rawValue), .integer(Int64(limit))]) > 0
    }
}

// MARK: - Reading in order

extension IndexRows {
    struct Row {
        var key: [UInt8]
        var record: ItemName
    }

    private static let ascending = SQL(
        """
        SELECT entry, record FROM record_index WHERE \(ofIndex) AND (entry, record) > (?4, ?5) AND entry < ?6
        ORDER BY entry, record LIMIT ?7
        """)
    private static let descending = SQL(
        """
        SELECT entry, record FROM record_index WHERE \(ofIndex) AND (entry, record) < (?4, ?5) AND entry >= ?6
        ORDER BY entry DESC, record DESC LIMIT ?7
        """)

    /// Rows behind the first edge, up to the other: from the least to the greatest, or the other way.
    static func rows(
        at place: [SQLValue], from edge: (key: [UInt8], record: ItemName), to end: [UInt8], isReversed: Bool,
        limit: Int,
        in reader: any ReadTransaction
    ) throws -> [Row] {
        try reader.all(
            isReversed ? descending : ascending,
            place + [.blob(edge.key), .text(edge.record.rawValue), .blob(end), .integer(Int64(limit))]
        ) { Row(key: $0.blob(0), record: ItemName($0.text(1))) }
    }
}
