internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Which records of a public database those of a circle may read: rows beside those of its indexes, which have no such
/// number. They count on no plan by themselves: what a record counts has room for one.
enum CircleRows {
    private static let index: Int64 = 0

    static func place(_ partition: Int, zone: Int64) -> [SQLValue] {
        IndexRows.place(partition, zone: zone, index: index)
    }

    /// The rows of circles, in the order of records' names.
    static func plan(_ circles: [ReadingCircle]) -> IndexPlan {
        IndexPlan(
            index: RecordIndex(number: index, definition: IndexDefinition(type: "", fields: []), state: .ready),
            spans: circles.map { IndexSpan($0.key) }, isOrdered: true)
    }

    /// - Parameters:
    ///   - circle: Nil: administrators alone may read it, or it is deleted.
    ///   - creators: Who has made the record, and who has made the one before of the name.
    static func set(
        _ circle: ReadingCircle?, of record: ItemName, madeBy creators: [AccountID], in zone: ScopeName,
        _ transaction: any Transaction
    ) throws {
        let number = try IndexRows.madeNumber(of: zone, in: transaction)
        let place = place(zone.partition, zone: number)
        // What it was by roles that were others then may be there still.
        for former in [.everyone, .signedIn] + Set(creators).map(ReadingCircle.creator) where former != circle {
            _ = try IndexRows.remove(former.key, of: record, at: place, in: transaction)
        }
        if let circle { _ = try IndexRows.add(circle.key, of: record, at: place, in: transaction) }
    }

    private static let counted = SQL(
        """
        SELECT COUNT(*) FROM (
            SELECT 1 FROM record_index
            WHERE partition_number = ?1 AND zone_number = ?2 AND index_number = ?3 AND entry = ?4 LIMIT ?5) AS found
        """)

    /// How many records are in the circles; more than the limit are not counted.
    static func count(
        _ circles: [ReadingCircle], at place: [SQLValue], limit: Int, in reader: any ReadTransaction
    ) throws -> Int {
        try circles.reduce(0) { sum, circle in
            guard sum < limit else { return sum }
            let values = place + [.blob(circle.key), .integer(Int64(limit - sum))]
            return try sum + (reader.first(counted, values) { Int($0.integer(0)) } ?? 0)
        }
    }

    private static let select = SQL(
        """
        SELECT 1 FROM record_index
        WHERE partition_number = ?1 AND zone_number = ?2 AND index_number = ?3 AND entry = ?4 AND record = ?5
        """)

    /// Whether the record is one that those of a circle may read.
    static func hold(
        _ record: ItemName, _ circles: [ReadingCircle], in zone: ScopeName, _ reader: any ReadTransaction
    ) throws -> Bool {
        guard let number = try IndexRows.number(of: zone, in: reader) else { return false }
        let place = place(zone.partition, zone: number)
        return try circles.contains { circle in
            try reader.first(select, place + [.blob(circle.key), .text(record.rawValue)]) { _ in true } ?? false
        }
    }
}
