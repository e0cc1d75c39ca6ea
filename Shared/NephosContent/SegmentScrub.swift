public import NephosCore
public import NephosStorage

/// Reads a segment through, once, and compares it with what was written and with the rows. It needs no keys, and
/// changes nothing.
///
/// What lies behind the last chunk that has a row, and is no record, is not reported: a crash leaves such bytes.
public struct SegmentScrub: Sendable {
    /// Something that is not as it should be.
    public enum Finding: Hashable, Sendable {
        /// The chunk's bytes are not what was put, or its row names a place of another one.
        case damaged(IndexedChunk)
        /// The chunk's row names a place that is not there.
        case missing(IndexedChunk)
        /// The chunk can be read again: its note says that it could not.
        case recovered(IndexedChunk)
        /// The chunk's row itself is damaged. Remove the chunk, or store it again.
        case damagedRow(owner: Owner, id: [UInt8], SegmentPlace)
        /// The segment does not say at its beginning what it is. Its chunks can be read.
        case damagedHeader(SegmentID)
        /// What is damaged there belongs to no chunk. It loses nothing; but the disk may be failing.
        case damagedDeadRoom(SegmentID, offset: Int)
    }

    public let segment: SegmentID
    private let store: any BlobStore
    /// How far it was read.
    public private(set) var offset = 0
    private var cursor = RowCursor()
    private var findings: [Finding] = []
    /// Of the rows that are looked at those that are noted for their bytes.
    private var noted: Set<ChunkRow> = []

    /// Rows that are read at once.
    private static let rowsMax = 512

    public init(_ segment: SegmentID, in store: any BlobStore) {
        self.segment = segment
        self.store = store
    }

    /// Looks at the next records. On a work pool's thread.
    ///
    /// - Parameter bytesMax: Read about as much; one record at least, and so up to
    ///   ``ChunkGroup/chunkBytesMax`` more.
    /// - Returns: What this step found, and whether the segment is read through.
    /// - Throws: ``CloudError`` `.storageFailure`: the database or the folder cannot be read. What cannot be read of
    ///   the segment alone is a finding.
    public mutating func step(
        bytesMax: Int, through snapshots: any Snapshots
    ) throws -> (findings: [Finding], isDone: Bool) {
        findings = []
        // Rows first: what they name is in the file already.
        let (segment, cursor) = (segment, cursor)
        let (rows, noted) = try snapshots.read { snapshot in
            let rows = try ChunkIndex.rows(in: segment, after: cursor, limit: Self.rowsMax, in: snapshot)
            return (rows, try DamagedChunks.ofBytes(among: rows, in: segment.partition, in: snapshot))
        }
        self.noted = noted
        let length = try store.segments(in: segment.partition).first { $0.id == segment }?.length ?? 0
        let isDone = try look(at: rows, length: length, bytesMax: bytesMax)
        return (try confirmed(through: snapshots), isDone)
    }

    /// - Returns: Whether the segment's end was reached.
    private mutating func look(at rows: [ChunkRow], length: Int, bytesMax: Int) throws -> Bool {
        var buffer = [UInt8](repeating: 0, count: 4096)
        var budget = max(1, bytesMax)
        if offset == 0 {
            if try !bytes(SegmentHeader.byteCount, at: 0, &buffer, { SegmentHeader.isHeader($0, of: segment) }) {
                findings.append(.damagedHeader(segment))
            }
            offset = SegmentHeader.byteCount
        }
        var next = 0
        while budget > 0 {
            guard next < rows.count else {
                if rows.count == Self.rowsMax { return false }
                guard try lookAtDeadRoom(until: length, hasMore: false, &buffer, &budget) else { return true }
                continue
            }
            let row = rows[next]
            if row.place.isSound, offset < row.place.offset, row.place.offset <= length {
                _ = try lookAtDeadRoom(until: row.place.offset, hasMore: true, &buffer, &budget)
                continue
            }
            next += 1
            cursor.pass(row)
            guard let chunk = row.chunk else {
                findings.append(.damagedRow(owner: row.owner, id: row.id, row.place))
                continue
            }
            if try look(at: chunk, length: length, &buffer), noted.contains(row) { findings.append(.recovered(chunk)) }
            if chunk.place.isSound { budget -= chunk.place.recordBytes }
        }
        return false
    }

    /// - Returns: Whether it is as it was put.
    private mutating func look(at chunk: IndexedChunk, length: Int, _ buffer: inout [UInt8]) throws -> Bool {
        let place = chunk.place
        guard place.isSound, place.end <= length else {
            findings.append(.missing(chunk))
            return false
        }
        let isWhole = try bytes(place.recordBytes, at: place.offset, &buffer) { bytes in
            guard let header = RecordHeader(bytes, in: segment, at: place.offset), header.id == chunk.id else {
                return false
            }
            return header.isPayload(UnsafeRawBufferPointer(rebasing: bytes[RecordHeader.byteCount...]))
        }
        // A place within another chunk's record was compared with its own header, and is none.
        let isSound = isWhole && chunk.isSound
        if !isSound { findings.append(.damaged(chunk)) }
        offset = max(offset, place.end)
        return isSound
    }

    /// Looks at a record that no row names, if there is one.
    ///
    /// - Parameters:
    ///   - end: Where the next chunk that has a row begins, or the segment ends.
    ///   - hasMore: Whether there is such a chunk.
    /// - Returns: Whether there may be more before the end.
    private mutating func lookAtDeadRoom(
        until end: Int, hasMore: Bool, _ buffer: inout [UInt8], _ budget: inout Int
    ) throws -> Bool {
        guard offset < end else { return false }
        let (segment, start) = (segment, offset)
        budget -= RecordHeader.byteCount
        var header: RecordHeader?
        _ = try bytes(min(RecordHeader.byteCount, end - start), at: start, &buffer) {
            header = RecordHeader($0, in: segment, at: start)
            return true
        }
        guard let header, header.length <= end - start - RecordHeader.byteCount else {
            if hasMore { findings.append(.damagedDeadRoom(segment, offset: start)) }
            offset = end
            return hasMore
        }
        let isWhole = try bytes(header.length, at: start + RecordHeader.byteCount, &buffer) { header.isPayload($0) }
        if !isWhole { findings.append(.damagedDeadRoom(segment, offset: start)) }
        offset = start + RecordHeader.byteCount + header.length
        budget -= header.length
        return true
    }

    /// Whether the segment has so many bytes there that can be read, and they are as they should be.
    private func bytes(
        _ count: Int, at offset: Int, _ buffer: inout [UInt8], _ check: (UnsafeRawBufferPointer) -> Bool
    ) throws -> Bool {
        if buffer.count < count { buffer = [UInt8](repeating: 0, count: count) }
        return try buffer.withUnsafeMutableBytes { buffer in
            let room = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
            do {
                return try store.readRaw(segment, at: offset, into: room) == count
                    && check(UnsafeRawBufferPointer(room))
            } catch is ChunkFailure {
                return false
            }
        }
    }

    /// The findings without those that came of what happened meanwhile: a chunk that was removed or moved, and a
    /// segment that was rewritten, need not be there any more.
    private func confirmed(through snapshots: any Snapshots) throws -> [Finding] {
        guard !findings.isEmpty else { return [] }
        let segment = segment
        return try snapshots.read { transaction in
            try findings.filter { finding in
                switch finding {
                case .damaged(let chunk), .missing(let chunk), .recovered(let chunk):
                    return try place(chunk.owner, chunk.id.bytes, in: transaction) == chunk.place
                case .damagedRow(let owner, let id, let place):
                    return try self.place(owner, id, in: transaction) == place
                case .damagedHeader, .damagedDeadRoom:
                    return try ChunkIndex.isKnown(segment, in: transaction)
                }
            }
        }
    }

    private func place(
        _ owner: Owner, _ id: [UInt8], in transaction: any ReadTransaction
    ) throws -> SegmentPlace? {
        let key: [SQLValue] = [.integer(Int64(segment.partition)), .text(owner.rawValue), .blob(id)]
        return try ChunkIndex.row(key, in: segment.partition, in: transaction)?.place
    }
}
