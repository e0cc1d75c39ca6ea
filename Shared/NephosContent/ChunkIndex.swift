public import NephosCore
public import NephosStorage

/// A chunk's row.
public struct IndexedChunk: Hashable, Sendable {
    public var owner: Owner
    public var id: ChunkID
    public var place: SegmentPlace
    public var form: SealedForm

    /// - Parameter form: Nil: it was sealed as it is.
    public init(owner: Owner, id: ChunkID, place: SegmentPlace, _ form: SealedForm? = nil) {
        self.owner = owner
        self.id = id
        self.place = place
        self.form = form ?? .plain(sealedLength: place.length)
    }

    /// Whether the row's numbers are such as were put. Those of a damaged row need not be.
    public var isSound: Bool { place.isSound && form.fits(place.length) }
}

/// A chunk's row as it is, which may be damaged.
struct ChunkRow: Hashable {
    var owner: Owner
    /// Of a chunk that was added: 32 bytes.
    var id: [UInt8]
    var place: SegmentPlace
    var suite: Int64
    var contentLength: Int

    /// Nil: no chunk has such an id, or none is sealed so.
    var chunk: IndexedChunk? {
        guard let id = ChunkID(bytes: id), let suite = UInt8(exactly: suite) else { return nil }
        return IndexedChunk(
            owner: owner, id: id, place: place, SealedForm(suite: suite, contentLength: contentLength))
    }

    /// The values that name it.
    var key: [SQLValue] { [.integer(Int64(place.segment.partition)), .text(owner.rawValue), .blob(id)] }
}

/// What rows say of a segment.
public struct SegmentUse: Hashable, Sendable {
    public var segment: SegmentID
    /// Bytes to the end of the last chunk that had a row, or is known to have none. The file may be longer.
    public var length: Int
    /// Bytes of those chunks that have one now, their records' headers included.
    public var liveBytes: Int
}

/// Where chunks lie: rows in the caller's own database, in its own transactions.
///
/// It keeps no state. What counts how often a chunk is used, and so when it is removed, is the caller's.
///
/// A row that is damaged stands for itself alone: it is removed like any other, and is no chunk where many are asked
/// for. Scrubbing names it.
public enum ChunkIndex {
    /// Adds the chunks of an owner that were put. One that the owner has already keeps its place; the new bytes are
    /// dead room.
    ///
    /// - Parameter chunks: All of one partition.
    /// - Returns: How many sealed bytes the owner has more.
    /// - Throws: ``CloudError`` `.invalidArguments`: no store gives such a place.
    @discardableResult
    public static func add(
        _ chunks: [StoredChunk], of owner: Owner, in transaction: any Transaction
    ) throws -> Int {
        try add(chunks, of: owner, replacing: false, in: transaction)
    }

    /// Adds the chunks of an owner that were put, also where it has them already: those get the new place, and what
    /// lies at the old one is dead room. So a chunk that was damaged is whole again.
    ///
    /// - Parameter chunks: All of one partition.
    /// - Returns: How many sealed bytes the owner has more.
    /// - Throws: ``CloudError`` `.invalidArguments`: no store gives such a place.
    @discardableResult
    public static func replace(
        _ chunks: [StoredChunk], of owner: Owner, in transaction: any Transaction
    ) throws -> Int {
        try add(chunks, of: owner, replacing: true, in: transaction)
    }

    private static func add(
        _ chunks: [StoredChunk], of owner: Owner, replacing: Bool, in transaction: any Transaction
    ) throws -> Int {
        var tally = Tally()
        for chunk in chunks {
            let place = chunk.place
            guard place.isSound else { throw CloudError(.invalidArguments, "There is no such place in a segment.") }
            let values: [SQLValue] = [
                .integer(Int64(place.segment.partition)), .text(owner.rawValue), .blob(chunk.id.bytes),
                .integer(place.segment.number), .integer(Int64(place.offset)), .integer(Int64(place.length)),
                .integer(Int64(chunk.form.suite)), .integer(Int64(chunk.form.contentLength)),
            ]
            let isNew = try transaction.execute(ContentStatements.insertChunk, values) == 1
            // The bytes of one that is not new are noted too: that is how they are known to be dead.
            tally.added(place, isLive: isNew || replacing)
            if isNew {
                tally.count(1, place.length, of: owner, in: place.segment.partition)
            } else if replacing {
                try replace(values, in: transaction, &tally)
            }
        }
        try tally.write(to: transaction)
        return tally.owners.values.reduce(0) { $0 + $1.bytes }
    }

    /// - Parameter values: Those that could not be inserted.
    private static func replace(_ values: [SQLValue], in transaction: any Transaction, _ tally: inout Tally) throws {
        guard case .integer(let partition) = values[0],
            let old = try row(Array(values[..<3]), in: Int(partition), in: transaction)
        else { return }
        try transaction.execute(ContentStatements.replaceChunk, values)
        try transaction.execute(ContentStatements.forgetDamaged, old.key)
        tally.lost(old.place)
        // A damaged length says nothing of what was counted once: about as much, if it was not compressed otherwise.
        if case .integer(let length) = values[5], let before = old.place.soundLength {
            tally.count(0, Int(length) - before, of: old.owner, in: Int(partition))
        }
    }

    /// The chunk's row, or nil.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: the row is damaged. Put the chunk again, and
    ///   ``replace(_:of:in:)``.
    public static func find(
        _ id: ChunkID, of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> IndexedChunk? {
        let values: [SQLValue] = [.integer(Int64(partition)), .text(owner.rawValue), .blob(id.bytes)]
        guard let row = try row(values, in: partition, in: transaction) else { return nil }
        guard let chunk = row.chunk else {
            throw CloudError(
                .storageFailure, "The row of a chunk is damaged. Store the chunk again, or restore the last backup.")
        }
        return chunk
    }

    /// - Parameter key: ``ChunkRow/key``.
    static func row(
        _ key: [SQLValue], in partition: Int, in transaction: any ReadTransaction
    ) throws -> ChunkRow? {
        try transaction.first(ContentStatements.chunk, key) { row($0, in: partition) }
    }

    /// The rows of those that the owner has, by their ids. One that is damaged is left out.
    public static func find(
        _ ids: [ChunkID], of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> [ChunkID: IndexedChunk] {
        let chunks = try rows(ids, of: owner, in: partition, in: transaction).values.compactMap(\.chunk)
        return Dictionary(chunks.map { ($0.id, $0) }) { first, _ in first }
    }

    private static func rows(
        _ ids: [ChunkID], of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> [[UInt8]: ChunkRow] {
        var found: [[UInt8]: ChunkRow] = [:]
        var start = 0
        while start < ids.count {
            let some = ids[start..<min(ids.count, start + ContentStatements.chunksMax)]
            // The last one again, for as many as the statement takes.
            let blobs =
                some + [ChunkID](repeating: some[some.endIndex - 1], count: ContentStatements.chunksMax - some.count)
            let values: [SQLValue] = [.integer(Int64(partition)), .text(owner.rawValue)]
            try transaction.query(ContentStatements.chunks, values + blobs.map { .blob($0.bytes) }) {
                let row = Self.row($0, in: partition)
                found[row.id] = row
                return true
            }
            start += some.count
        }
        return found
    }

    /// Removes chunks of an owner; what it does not have is removed already. Their bytes become dead room.
    ///
    /// - Returns: How many sealed bytes the owner has less.
    @discardableResult
    public static func remove(
        _ ids: [ChunkID], of owner: Owner, in partition: Int, in transaction: any Transaction
    ) throws -> Int {
        // An id that is named twice is found once.
        try remove(Array(rows(ids, of: owner, in: partition, in: transaction).values), in: transaction)
    }

    /// Removes an owner's chunks, at most `limit` in one call.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    public static func removeAll(
        of owner: Owner, in partition: Int, limit: Int, in transaction: any Transaction
    ) throws -> Bool {
        let limit = max(1, limit)
        let values: [SQLValue] = [.integer(Int64(partition)), .text(owner.rawValue), .integer(Int64(limit))]
        let rows = try transaction.all(ContentStatements.chunksOfOwner, values) { row($0, in: partition) }
        _ = try remove(rows, in: transaction)
        return rows.count == limit
    }

    /// How many sealed bytes and chunks an owner has.
    public static func use(
        of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> (bytes: Int, chunks: Int) {
        let values: [SQLValue] = [.integer(Int64(partition)), .text(owner.rawValue)]
        return try transaction.first(ContentStatements.owner, values) {
            (bytes: Int($0.integer(0)), chunks: Int($0.integer(1)))
        } ?? (bytes: 0, chunks: 0)
    }

    private static func remove(_ rows: [ChunkRow], in transaction: any Transaction) throws -> Int {
        var tally = Tally()
        for row in rows {
            guard try transaction.execute(ContentStatements.deleteChunk, row.key) == 1 else { continue }
            try transaction.execute(ContentStatements.forgetDamaged, row.key)
            tally.lost(row.place)
            tally.count(-1, -(row.place.soundLength ?? 0), of: row.owner, in: row.place.segment.partition)
        }
        try tally.write(to: transaction)
        return -tally.owners.values.reduce(0) { $0 + $1.bytes }
    }

    static func row(_ row: any SQLRow, in partition: Int) -> ChunkRow {
        let segment = SegmentID(partition: partition, number: row.integer(2))
        let place = SegmentPlace(segment: segment, offset: Int(row.integer(3)), length: Int(row.integer(4)))
        return ChunkRow(
            owner: Owner(row.text(0)), id: row.blob(1), place: place, suite: row.integer(5),
            contentLength: Int(row.integer(6)))
    }
}

/// What changes for segments and owners, gathered so that each row is written once.
struct Tally {
    private struct Key: Hashable {
        var partition: Int
        var owner: Owner
    }

    struct Use {
        var chunks = 0
        var bytes = 0
    }

    private var grown: [SegmentID: (length: Int, live: Int)] = [:]
    private var shrunk: [SegmentID: Int] = [:]
    private var uses: [Key: Use] = [:]

    var owners: [Owner: Use] { Dictionary(uses.map { ($0.key.owner, $0.value) }) { first, _ in first } }

    mutating func added(_ place: SegmentPlace, isLive: Bool) {
        let old = grown[place.segment] ?? (0, 0)
        grown[place.segment] = (max(old.length, place.end), old.live + (isLive ? place.recordBytes : 0))
    }

    mutating func lost(_ place: SegmentPlace) {
        // The row may be damaged, and then it says nothing of the segment.
        if place.isSound { shrunk[place.segment, default: 0] += place.recordBytes }
    }

    mutating func count(_ chunks: Int, _ bytes: Int, of owner: Owner, in partition: Int) {
        let key = Key(partition: partition, owner: owner)
        uses[key, default: Use()].chunks += chunks
        uses[key, default: Use()].bytes += bytes
    }

    func write(to transaction: any Transaction) throws {
        for (segment, change) in grown {
            try transaction.execute(
                ContentStatements.growSegment,
                [
                    .integer(Int64(segment.partition)), .integer(segment.number), .integer(Int64(change.length)),
                    .integer(Int64(change.live)),
                ])
        }
        for (segment, bytes) in shrunk {
            try transaction.execute(
                ContentStatements.shrinkSegment,
                [.integer(Int64(segment.partition)), .integer(segment.number), .integer(Int64(bytes))])
        }
        for (key, use) in uses {
            let (partition, owner) = (SQLValue.integer(Int64(key.partition)), SQLValue.text(key.owner.rawValue))
            try transaction.execute(
                ContentStatements.growOwner,
                [partition, owner, .integer(Int64(use.bytes)), .integer(Int64(use.chunks))])
            if use.chunks < 0 { try transaction.execute(ContentStatements.forgetOwner, [partition, owner]) }
        }
    }
}
