internal import Core
public import Storage

extension ChunkIndex {
    /// A segment's chunks, by their offsets, from this one on.
    public static func chunks(
        in segment: SegmentID, from offset: Int = .min, limit: Int, in transaction: any ReadTransaction
    ) throws -> [IndexedChunk] {
        let values: [SQLValue] = [
            .integer(Int64(segment.partition)), .integer(segment.number), .integer(Int64(offset)),
            .integer(Int64(max(1, limit))),
        ]
        return try transaction.all(ContentStatements.chunksOfSegment, values) {
            try chunk($0, in: segment.partition)
        }
    }

    /// The chunks that come after those that the cursor has passed.
    static func chunks(
        in segment: SegmentID, after cursor: RowCursor, limit: Int, in transaction: any ReadTransaction
    ) throws -> [IndexedChunk] {
        let rows = try chunks(in: segment, from: cursor.offset, limit: limit + cursor.passed, in: transaction)
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

    /// Segments that are dead by more than half, in order, after this one. Some may not be closed yet; their rewriting
    /// says so.
    public static func segmentsWorthRewriting(
        after segment: SegmentID? = nil, limit: Int, in transaction: any ReadTransaction
    ) throws -> [SegmentUse] {
        try transaction.all(ContentStatements.mostlyDeadSegments, after(segment, limit), segmentUse)
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

    /// Removes the segment's row, if no chunk lies in it.
    ///
    /// - Returns: Whether none does, so that its file may be removed once this is committed.
    static func forget(_ segment: SegmentID, in transaction: any Transaction) throws -> Bool {
        let values: [SQLValue] = [.integer(Int64(segment.partition)), .integer(segment.number)]
        try transaction.execute(ContentStatements.forgetSegment, values)
        return try !isKnown(segment, in: transaction)
    }

    /// Whether any row names the segment.
    static func isKnown(_ segment: SegmentID, in transaction: any ReadTransaction) throws -> Bool {
        if try use(of: segment, in: transaction) != nil { return true }
        return try !chunks(in: segment, limit: 1, in: transaction).isEmpty
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
    mutating func pass(_ chunk: IndexedChunk, stays: Bool = true) {
        if chunk.place.offset != offset {
            offset = chunk.place.offset
            passed = 0
        }
        if stays { passed += 1 }
    }
}
