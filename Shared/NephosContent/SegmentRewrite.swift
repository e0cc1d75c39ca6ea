public import NephosCore
public import NephosStorage

/// Frees the dead room of a segment: copies what is live into the partition's current segment, in bounded steps,
/// until no row names it.
///
/// A step flushes the copies, then moves the rows in one transaction, each only where it still names the old
/// place; the transaction that leaves no row in the segment notes when. So a crash between any two leaves every
/// chunk at the place that its row names. The file goes later, with ``removeEmptied(of:before:limit:through:)``:
/// whoever brings back yesterday's database finds its chunks there, and so does who looks at a newer file through an
/// old one. Whoever reads meanwhile gets its bytes, or `.moved`.
public struct SegmentRewrite: Sendable {
    /// What a step came to.
    public enum Progress: Hashable, Sendable {
        /// There is more to copy.
        case goesOn
        /// Nothing is left in the segment. Its file stays for a time.
        case done
        /// Something may still be appended to it, or rows are on their way. Try again later.
        case notClosed
        /// All is copied but for these chunks, which cannot be read. The segment stays, as what is left of them. Rows
        /// that are damaged themselves keep it too, and are not among them; scrubbing names those.
        case damaged([IndexedChunk])
    }

    public let segment: SegmentID
    private let store: any BlobStore
    private var cursor = RowCursor()
    private var damaged: [ChunkRow] = []

    /// Rows that are read at once.
    private static let rowsMax = 512

    public init(_ segment: SegmentID, in store: any BlobStore) {
        self.segment = segment
        self.store = store
    }

    /// Chunks that were copied, and whose rows are to be moved.
    public struct Copied: Sendable {
        fileprivate let segment: SegmentID
        fileprivate let chunks: [IndexedChunk]
        fileprivate let failed: [ChunkRow]
        /// The rows that were looked at: of these at first the copied and the failed ones, in their order.
        fileprivate let rows: [ChunkRow]
        /// Released where the transaction has ended.
        fileprivate let stored: StoredGroup?

        /// Moves the rows. In one transaction, on the service's loop.
        ///
        /// - Parameter time: Now.
        /// - Returns: Whether nothing is left in the segment.
        public func move(at time: Timestamp, in transaction: any Transaction) throws -> Bool {
            let moves = Array(zip(chunks, (stored?.chunks ?? []).map(\.place))).map { (chunk: $0, to: $1) }
            try ChunkIndex.move(moves, in: transaction)
            return try ChunkIndex.forget(segment, at: time, in: transaction)
        }

        /// The rows are moved, or never will be.
        public func release() { stored?.release() }
    }

    /// A step: copies as much as fits the group, and moves the rows. On a work pool's thread. Whoever must not wait for
    /// the transaction there takes the parts one by one: ``copy(_:through:)``, ``Copied/move(at:in:)``,
    /// ``finish(_:isEmpty:)``.
    ///
    /// - Parameters:
    ///   - group: As long as one step may be, but for the longest chunk at least; it is empty afterwards.
    ///   - time: Now.
    ///   - commit: Runs the body as one transaction, for instance on the service's loop, and returns when it is
    ///     committed.
    /// - Throws: ``CloudError`` `.storageFailure`; ``ContentDisk/Gone``; what `commit` throws. The segment is as it was,
    ///   but for dead room in the current one; the step may be repeated.
    public mutating func step(
        _ group: inout ChunkGroup, at time: Timestamp, through snapshots: any Snapshots,
        commit: ((any Transaction) throws -> Bool) throws -> Bool
    ) throws -> Progress {
        guard let copied = try copy(&group, through: snapshots) else { return .notClosed }
        defer { copied.release() }
        let isEmpty = try commit { try copied.move(at: time, in: $0) }
        return finish(copied, isEmpty: isEmpty)
    }

    /// Copies as much as fits the group. On a work pool's thread.
    ///
    /// - Returns: What was copied, to be released when its rows are moved; nil: the segment is not closed.
    /// - Throws: ``CloudError`` `.storageFailure`; ``ContentDisk/Gone``.
    public func copy(_ group: inout ChunkGroup, through snapshots: any Snapshots) throws -> Copied? {
        group.removeAll()
        defer { group.removeAll() }
        // Before the rows are read: from then on no row is added.
        guard try store.segments(in: segment.partition).allSatisfy({ $0.id != segment || $0.isClosed }) else {
            return nil
        }
        let (old, cursor) = (segment, cursor)
        let rows = try snapshots.read { try ChunkIndex.rows(in: old, after: cursor, limit: Self.rowsMax, in: $0) }
        var copied: [IndexedChunk] = []
        var failed: [ChunkRow] = []
        for row in rows {
            guard let chunk = row.chunk, chunk.place.isSound else {
                failed.append(row)
                continue
            }
            guard group.isEmpty || group.hasRoom(for: chunk.place.length) else { break }
            do {
                try group.append(chunk.id, length: chunk.place.length, chunk.form) {
                    try store.read(chunk.place, of: chunk.id, into: $0)
                }
                copied.append(chunk)
            } catch is ChunkFailure {
                failed.append(row)
            }
        }
        let stored = copied.isEmpty ? nil : try store.put(&group, in: segment.partition, through: snapshots)
        return Copied(segment: segment, chunks: copied, failed: failed, rows: rows, stored: stored)
    }

    /// Notes how far it is, once the rows are moved.
    public mutating func finish(_ copied: Copied, isEmpty: Bool) -> Progress {
        if isEmpty { return .done }
        damaged += copied.failed
        let count = copied.chunks.count + copied.failed.count
        let staying = Set(copied.failed)
        for row in copied.rows[..<count] { cursor.pass(row, stays: staying.contains(row)) }
        guard count == copied.rows.count && copied.rows.count < Self.rowsMax else { return .goesOn }
        return .damaged(damaged.compactMap(\.chunk))
    }

    /// Removes the files of segments that were emptied before this time; leave the operator as long to notice as in
    /// ``removeUnknown(in:of:begunBefore:through:)``. On a work pool's thread.
    ///
    /// - Returns: Segments that are removed, at most so many, and now to be forgotten with
    ///   ``ChunkIndex/forgetEmptied(_:in:)``. Until then they are returned again.
    /// - Throws: ``CloudError`` `.storageFailure`. The rest is found again.
    public static func removeEmptied(
        of store: any BlobStore, before time: Timestamp, limit: Int, through snapshots: any Snapshots
    ) throws -> [SegmentID] {
        let (emptied, unknown) = try snapshots.read { transaction in
            let emptied = try ChunkIndex.emptied(before: time, limit: limit, in: transaction)
            // A damaged row may name anything. What it names stays.
            return (emptied, try emptied.filter { try !ChunkIndex.isKnown($0, in: transaction) })
        }
        for segment in unknown where SegmentHeader.fits(segment) { try store.remove(segment) }
        return emptied
    }

    /// Removes the partition's segments that no row knows: what a crash left between bytes and rows. Those that were
    /// emptied are left to ``removeEmptied(of:before:limit:through:)``.
    ///
    /// Only those that are closed: of these no group's rows are on their way any more, in this process; and in
    /// no other one, since a store's folder belongs to one process.
    ///
    /// - Parameter time: Those begun before it. A database that was brought back from a copy does not know what was
    ///   stored since; leave the operator a day or two to notice.
    /// - Returns: How many were removed.
    /// - Throws: ``CloudError`` `.storageFailure`. The rest is found again.
    public static func removeUnknown(
        in partition: Int, of store: any BlobStore, begunBefore time: Timestamp, through snapshots: any Snapshots
    ) throws -> Int {
        let unknown = try unknown(in: partition, of: store, through: snapshots) {
            $0.number < Int64(clamping: time.milliseconds)
        }
        for segment in unknown { try store.remove(segment) }
        return unknown.count
    }

    /// The partition's closed segments that are longer than rows know, and how long they are: a crash, or a failed
    /// transaction, left dead room in them that nothing counts. To be noted with ``ChunkIndex/noteLengths(_:in:)``. On a
    /// work pool's thread.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public static func outgrown(
        in partition: Int, of store: any BlobStore, through snapshots: any Snapshots
    ) throws -> [SegmentID: Int] {
        // Before the rows are read, as above.
        let closed = try store.segments(in: partition).filter(\.isClosed)
        guard !closed.isEmpty else { return [:] }
        return try snapshots.read { transaction in
            let longer = try closed.filter { state in
                try ChunkIndex.use(of: state.id, in: transaction).map { $0.length < state.length } ?? false
            }
            return Dictionary(longer.map { ($0.id, $0.length) }) { first, _ in first }
        }
    }

    /// The partition's closed segments that no row knows, and that are not noted as emptied either. Whoever cannot say
    /// since when the rows are as they are notes these with ``ChunkIndex/noteEmptied(_:at:in:)``, and they go as those
    /// that were emptied then. On a work pool's thread.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public static func unknown(
        in partition: Int, of store: any BlobStore, through snapshots: any Snapshots,
        where isMeant: (SegmentID) -> Bool = { _ in true }
    ) throws -> [SegmentID] {
        // Before the rows are read, as above.
        let closed = try store.segments(in: partition).filter { $0.isClosed && isMeant($0.id) }
        guard !closed.isEmpty else { return [] }
        return try snapshots.read { transaction in
            try closed.map(\.id).filter {
                try !ChunkIndex.isKnown($0, in: transaction) && !ChunkIndex.isEmptied($0, in: transaction)
            }
        }
    }
}
