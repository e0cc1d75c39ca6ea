public import NephosCore
public import NephosStorage

/// A chunk of which the bytes, or the row itself, were found damaged.
public struct DamagedChunk: Hashable, Sendable {
    public var owner: Owner
    public var id: ChunkID
    /// Where it was found to be; as its row says, which may be damaged itself.
    public var place: SegmentPlace
    public var damage: Damage

    public init(owner: Owner, id: ChunkID, place: SegmentPlace, damage: Damage = .bytes) {
        self.owner = owner
        self.id = id
        self.place = place
        self.damage = damage
    }

    public init(_ chunk: IndexedChunk, damage: Damage = .bytes) {
        self.init(owner: chunk.owner, id: chunk.id, place: chunk.place, damage: damage)
    }

    /// What ails a chunk, as its note says: so it is known what shows that it is whole after all. The numbers are stored.
    public enum Damage: Int64, Sendable {
        /// The disk does not give back what was put, or the row is damaged.
        case bytes = 0
        /// The bytes are those that were put, and do not open.
        case seal = 1
        /// The segment is not there, or ends before it.
        case gone = 2
    }
}

/// A chunk that can be read, whatever its note says: the disk gave an error for a while, or was not there; a segment was
/// brought back.
public struct RecoveredChunk: Hashable, Sendable {
    public var chunk: IndexedChunk
    /// It was opened; else its bytes alone were compared with what was put.
    public var isOpened: Bool

    public init(_ chunk: IndexedChunk, isOpened: Bool) {
        self.chunk = chunk
        self.isOpened = isOpened
    }
}

/// Which chunks were found damaged: by a fetch, or by scrubbing. Whoever asks what is missing is told of them, so that a
/// device which has their bytes sends them again.
///
/// A note lives as long as the damage: ``ChunkIndex`` removes it with the chunk's row, and when other bytes take the
/// place of these; and whoever reads the chunk after all has it forgotten. So there are never more notes than rows of
/// chunks. One that is moved keeps its note: what was found may be more than a reading of its bytes shows.
public enum DamagedChunks {
    /// Notes that these are damaged, but for those that were removed, replaced or moved since it was found.
    ///
    /// - Returns: Those that were not noted before.
    public static func note(
        _ chunks: [DamagedChunk], at time: Timestamp, in transaction: any Transaction
    ) throws -> [DamagedChunk] {
        try chunks.filter { chunk in
            let partition = chunk.place.segment.partition
            let key = Self.key(chunk.id, of: chunk.owner, in: partition)
            guard try ChunkIndex.row(key, in: partition, in: transaction)?.place == chunk.place else { return false }
            let now = SQLValue.integer(Int64(clamping: time.milliseconds))
            let values = key + [now, .integer(chunk.damage.rawValue)]
            return try transaction.execute(ContentStatements.noteDamaged, values) == 1
        }
    }

    /// Removes the notes of these, but for those that were replaced or moved since they were read. One that does not
    /// open is whole only if it was opened.
    ///
    /// - Returns: How many notes there were.
    @discardableResult
    public static func forget(_ chunks: [RecoveredChunk], in transaction: any Transaction) throws -> Int {
        try chunks.reduce(0) { count, recovered in
            let chunk = recovered.chunk
            let partition = chunk.place.segment.partition
            let key = Self.key(chunk.id, of: chunk.owner, in: partition)
            guard try ChunkIndex.row(key, in: partition, in: transaction)?.place == chunk.place else { return count }
            return try count
                + (recovered.isOpened
                    ? transaction.execute(ContentStatements.forgetDamaged, key)
                    : transaction.execute(
                        ContentStatements.forgetDamagedBytes, key + [.integer(DamagedChunk.Damage.seal.rawValue)]))
        }
    }

    /// Of a partition's rows those whose notes say nothing but of their bytes. Costs one look where the partition has
    /// none.
    static func ofBytes(
        among rows: [ChunkRow], in partition: Int, in transaction: any ReadTransaction
    ) throws -> Set<ChunkRow> {
        let seal = SQLValue.integer(DamagedChunk.Damage.seal.rawValue)
        let hasAny = try transaction.first(
            ContentStatements.isAnyDamagedBytes, [.integer(Int64(partition)), seal]
        ) { _ in true }
        guard hasAny == true else { return [] }
        return try Set(
            rows.filter {
                try transaction.first(ContentStatements.isDamagedBytes, $0.key + [seal]) { _ in true } == true
            })
    }

    public static func isNoted(
        _ id: ChunkID, of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> Bool {
        try transaction.first(ContentStatements.isDamaged, key(id, of: owner, in: partition)) { _ in true } ?? false
    }

    /// Those of the chunks that are noted. Costs one look where the owner has none.
    public static func noted(
        among ids: [ChunkID], of owner: Owner, in partition: Int, in transaction: any ReadTransaction
    ) throws -> Set<ChunkID> {
        guard try !list(of: owner, in: partition, limit: 1, in: transaction).isEmpty else { return [] }
        return try Set(ids.filter { try isNoted($0, of: owner, in: partition, in: transaction) })
    }

    /// An owner's, by their ids, those behind this one.
    public static func list(
        of owner: Owner, in partition: Int, after id: ChunkID? = nil, limit: Int, in transaction: any ReadTransaction
    ) throws -> [ChunkID] {
        let values: [SQLValue] = [
            .integer(Int64(partition)), .text(owner.rawValue), .blob(id?.bytes ?? []), .integer(Int64(max(1, limit))),
        ]
        return try transaction.all(ContentStatements.damagedOfOwner, values) { ChunkID(bytes: $0.blob(0)) }
            .compactMap { $0 }
    }

    /// How many there are, of all owners.
    public static func count(in transaction: any ReadTransaction) throws -> Int {
        try transaction.first(ContentStatements.damagedCount) { Int(clamping: $0.integer(0)) } ?? 0
    }

    private static func key(_ id: ChunkID, of owner: Owner, in partition: Int) -> [SQLValue] {
        [.integer(Int64(partition)), .text(owner.rawValue), .blob(id.bytes)]
    }
}

/// How far all segments were scrubbed: one row, so that a restart goes on where the last run was.
public struct ScrubPlace: Hashable, Sendable {
    /// The last segment that was read through in this round; nil: none.
    public var segment: SegmentID?
    /// When the round began.
    public var began: Timestamp
    /// Whether all segments were read in it.
    public var isDone: Bool

    public init(segment: SegmentID?, began: Timestamp, isDone: Bool = false) {
        self.segment = segment
        self.began = began
        self.isDone = isDone
    }

    /// Nil: nothing was ever scrubbed.
    public static func read(in transaction: any ReadTransaction) throws -> ScrubPlace? {
        try transaction.first(ContentStatements.scrubPlace) { row in
            let partition = Int(clamping: row.integer(0))
            return ScrubPlace(
                segment: partition < 0 ? nil : SegmentID(partition: partition, number: row.integer(1)),
                began: Timestamp(milliseconds: UInt64(clamping: row.integer(2))), isDone: row.integer(3) != 0)
        }
    }

    public func write(in transaction: any Transaction) throws {
        try transaction.execute(
            ContentStatements.setScrubPlace,
            [
                .integer(Int64(segment?.partition ?? -1)), .integer(segment?.number ?? 0),
                .integer(Int64(clamping: began.milliseconds)), .integer(isDone ? 1 : 0),
            ])
    }
}
