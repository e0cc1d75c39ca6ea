public import NephosCore
public import NephosStorage

extension ChunkIndex {
    /// A segment's chunks, by their offsets, from this one on. Rows that are damaged are left out.
    public static func chunks(
        in segment: SegmentID, from offset: Int = .min, limit: Int, in transaction: any ReadTransaction
    ) throws -> [IndexedChunk] {
        try rows(in: segment, from: offset, limit: limit, in: transaction).compactMap(\.chunk)
    }

    private static func rows(
        in segment: SegmentID, from offset: Int, limit: Int, in transaction: any ReadTransaction
    ) throws -> [ChunkRow] {
        let values: [SQLValue] = [
            .integer(Int64(segment.partition)), .integer(segment.number), .integer(Int64(offset)),
            .integer(Int64(max(1, limit))),
        ]
        return try transaction.all(ContentStatements.chunksOfSegment, values) { row($0, in: segment.partition) }
    }

    /// The rows that come after those that the cursor has passed.
    static func rows(
        in segment: SegmentID, after cursor: RowCursor, limit: Int, in transaction: any ReadTransaction
    ) throws -> [ChunkRow] {
        let rows = try rows(in: segment, from: cursor.offset, limit: limit + cursor.passed, in: transaction)
        return Array(rows.dropFirst(cursor.passed))
    }

    /// What rows say of the segment; nil: no row knows it.
    public static func use(of segment: SegmentID, in transaction: any ReadTransaction) throws -> SegmentUse? {
        let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
        return try transaction.first(ContentStatements.segment, values, segmentUse)
    }

    /// Segments that rows know, in order, after this one.
    public static func segments(
        after segment: SegmentID? = nil, limit: Int, in transaction: any ReadTransaction
    ) throws -> [SegmentUse] {
        try transaction.all(ContentStatements.segments, after(segment, limit), segmentUse)
    }

    /// Bytes of all segments that rows know.
    public static func totalLength(in transaction: any ReadTransaction) throws -> Int {
        try transaction.first(ContentStatements.totalLength) { Int(clamping: $0.integer(0)) } ?? 0
    }

    /// All segments that rows know: how many, their bytes, and those that something lies in.
    public static func total(
        in transaction: any ReadTransaction
    ) throws -> (count: Int, length: Int, liveBytes: Int) {
        try transaction.first(ContentStatements.total) {
            (Int(clamping: $0.integer(0)), Int(clamping: $0.integer(1)), Int(clamping: $0.integer(2)))
        } ?? (0, 0, 0)
    }

    /// Segments that are dead by more than half, in order, after this one. Some may not be closed yet; their rewriting
    /// says so.
    public static func segmentsWorthRewriting(
        after segment: SegmentID? = nil, limit: Int, in transaction: any ReadTransaction
    ) throws -> [SegmentUse] {
        try transaction.all(ContentStatements.mostlyDeadSegments, after(segment, limit), segmentUse)
    }

    /// Notes how long segments are that a row knows: what lies behind their chunks is dead room, also where none of it
    /// ever had a row.
    public static func noteLengths(_ segments: [SegmentID: Int], in transaction: any Transaction) throws {
        for (segment, length) in segments {
            let key: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
            try transaction.execute(ContentStatements.lengthenSegment, key + [.integer(Int64(length))])
        }
    }

    /// The same with chunks that were put, whatever becomes of them.
    public static func noteLengths(with chunks: [StoredChunk], in transaction: any Transaction) throws {
        let ends = Dictionary(chunks.map { ($0.place.segment, $0.place.end) }, uniquingKeysWith: max)
        try noteLengths(ends, in: transaction)
    }

    /// Moves chunks' rows to where the chunks were copied, but for those that were removed or moved meanwhile.
    ///
    /// - Parameter moves: Rows as they were read, and the new places.
    static func move(_ moves: [(chunk: IndexedChunk, to: SegmentPlace)], in transaction: any Transaction) throws {
        var tally = Tally()
        for (chunk, place) in moves {
            let old = chunk.place
            let values: [SQLValue] = [
                .integer(Int64(old.segment.partition)), .text(chunk.owner.rawValue), .blob(chunk.id.bytes),
                .integer(old.segment.number), .integer(Int64(old.offset)), .integer(place.segment.number),
                .integer(Int64(place.offset)),
            ]
            let isMoved = try transaction.execute(ContentStatements.moveChunk, values) == 1
            tally.added(place, isLive: isMoved)
            if isMoved { tally.lost(old) }
        }
        try tally.write(to: transaction)
    }

    /// Removes the segment's row, if no chunk lies in it, and notes since when none does.
    ///
    /// - Returns: Whether none does.
    static func forget(_ segment: SegmentID, at time: Timestamp, in transaction: any Transaction) throws -> Bool {
        let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
        try transaction.execute(ContentStatements.forgetSegment, values)
        guard try !isKnown(segment, in: transaction) else { return false }
        let now = SQLValue.integer(Int64(clamping: time.milliseconds))
        try transaction.execute(ContentStatements.addEmptied, values + [now])
        return true
    }

    /// Notes segments in which nothing lies as emptied now. One that a row knows is left out.
    public static func noteEmptied(
        _ segments: [SegmentID], at time: Timestamp, in transaction: any Transaction
    ) throws {
        let now = SQLValue.integer(Int64(clamping: time.milliseconds))
        for segment in segments where try !isKnown(segment, in: transaction) {
            let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number), now]
            try transaction.execute(ContentStatements.addEmptied, values)
        }
    }

    /// Keeps emptied segments for so much longer: the machine slept, and a backup that is under way did not go on.
    public static func delayEmptied(by duration: Duration, in transaction: any Transaction) throws {
        try transaction.execute(ContentStatements.shiftEmptied, [.integer(duration.milliseconds)])
    }

    /// Segments that were emptied before this time.
    static func emptied(before time: Timestamp, limit: Int, in transaction: any ReadTransaction) throws -> [SegmentID] {
        let values: [SQLValue] = [.integer(Int64(clamping: time.milliseconds)), .integer(Int64(max(1, limit)))]
        return try transaction.all(ContentStatements.emptied, values) {
            SegmentID(partition: Int($0.integer(0)), number: $0.integer(1))
        }
    }

    static func isEmptied(_ segment: SegmentID, in transaction: any ReadTransaction) throws -> Bool {
        let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
        return try transaction.first(ContentStatements.isEmptied, values) { _ in true } ?? false
    }

    /// Forgets emptied segments whose files are removed.
    public static func forgetEmptied(_ segments: [SegmentID], in transaction: any Transaction) throws {
        for segment in segments {
            let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
            try transaction.execute(ContentStatements.forgetEmptied, values)
        }
    }

    /// Whether any row names the segment.
    static func isKnown(_ segment: SegmentID, in transaction: any ReadTransaction) throws -> Bool {
        if try use(of: segment, in: transaction) != nil { return true }
        return try !rows(in: segment, from: .min, limit: 1, in: transaction).isEmpty
    }

    private static func after(_ segment: SegmentID?, _ limit: Int) -> [SQLValue] {
        [
            .integer(Int64(segment?.partition ?? -1)), .integer(segment?.number ?? 0),
            .integer(Int64(max(1, limit))),
        ]
    }

    private static func segmentUse(_ row: any SQLRow) -> SegmentUse {
        let segment = SegmentID(partition: Int(row.integer(0)), number: row.integer(1))
        return SegmentUse(segment: segment, length: Int(row.integer(2)), liveBytes: Int(row.integer(3)))
    }
}

/// How far a segment's rows were looked at, by their offsets. Two have the same only in a damaged database, and even
/// then none is left out.
struct RowCursor {
    fileprivate(set) var offset = Int.min
    /// Rows of this very offset that were looked at, and are still there.
    fileprivate(set) var passed = 0

    /// - Parameter stays: Whether the row will be there when rows are read again.
    mutating func pass(_ row: ChunkRow, stays: Bool = true) {
        if row.place.offset != offset {
            offset = row.place.offset
            passed = 0
        }
        if stays { passed += 1 }
    }
}
