public import NephosCore
public import NephosStorage
private import Synchronization

/// Where chunks' bytes lie: files by default, an object store when grown.
///
/// It knows no owners and no keys, and decides nothing: what is live is what a row of ``ChunkIndex`` points at.
/// First the bytes are durable, then the row is committed; so a crash leaves bytes without a row, which are dead
/// room, and never a row without bytes.
///
/// All calls wait for the disk or the network: they belong on a work pool's threads, never on a service's loop.
public protocol BlobStore: Sendable {
    /// Stores a group within one segment of the partition. When it returns, the bytes survive a loss of power.
    ///
    /// - Returns: The places, which have to be released once their rows are committed, or never will be.
    /// - Throws: ``CloudError`` `.storageFailure` (disk full, I/O error): nothing was stored, and what was there is
    ///   as it was. `.invalidArguments`: the group is empty, or there is no such partition.
    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup

    /// The same, if the group fits the partition's current segment, and that is in its place.
    ///
    /// - Returns: Nil: nothing was stored. To put it begins a segment.
    func append(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup?

    /// Reads a chunk's sealed bytes, and checks that they are what was put there under this id.
    ///
    /// - Parameter bytes: As many as the place's length.
    /// - Throws: ``ChunkFailure`` `.moved`, `.damaged`; ``CloudError`` `.storageFailure`: nobody can say at this moment
    ///   whether it is there (the folder cannot be used, too many files are open).
    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws

    /// Reads bytes as they lie, for scrubbing, as many as there are up to the buffer's size.
    ///
    /// - Returns: How many.
    /// - Throws: ``ChunkFailure`` `.moved` when there is no such segment, `.damaged` when the disk cannot read them.
    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int

    /// Removes a segment. One that is not there is removed already. Readers that have begun end as if it were there.
    func remove(_ segment: SegmentID) throws

    /// The partition's segments, by their numbers. The length of one that the disk cannot even look at is 0.
    func segments(in partition: Int) throws -> [SegmentState]

    /// How much room there is at this moment; nil: there is no end to it, or nobody knows.
    var room: DiskRoom? { get }

    /// Whether whoever runs the service has said that segments which are not there are lost for good.
    var isLossAccepted: Bool { get }

    /// Whether whoever runs the service wants all segments to be read through now. Says so once for each time.
    func takeScrubRequest() -> Bool
}

extension BlobStore {
    /// Of a store that cannot tell what begins a segment: everything may.
    public func append(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup? { nil }

    public var isLossAccepted: Bool { false }

    public func takeScrubRequest() -> Bool { false }
}

/// Room on the disk that content lies on, in bytes.
public struct DiskRoom: Hashable, Sendable {
    public var free: Int
    /// Of the whole disk.
    public var total: Int

    public init(free: Int, total: Int) {
        self.free = free
        self.total = total
    }
}

/// A segment as the store sees it.
public struct SegmentState: Hashable, Sendable {
    public var id: SegmentID
    /// Bytes of it that are durable.
    public var length: Int
    /// Nothing will be appended to it any more, and the rows of all that was are committed, or never will be. Ask
    /// this before the rows, never after: then what they say of the segment can only become less.
    public var isClosed: Bool
}

/// Chunks that were put, and whose rows are on their way.
///
/// Until it is released, its segment is neither rewritten nor removed: whoever reads the rows does not see
/// these chunks yet, and would take their bytes for dead.
public final class StoredGroup: Sendable {
    public let chunks: [StoredChunk]
    private let ended: @Sendable () -> Void
    private let isReleased = Atomic(false)

    /// - Parameter ended: Called once; on any thread, and waits for nothing long.
    public init(_ chunks: [StoredChunk], ended: @escaping @Sendable () -> Void) {
        self.chunks = chunks
        self.ended = ended
    }

    /// The rows are committed, or never will be. It does not wait, so that a loop may call it.
    ///
    /// Call it where the transaction has ended, not earlier and not only by letting go: the optimiser lets go of a
    /// value after its last use.
    public func release() {
        if isReleased.exchange(true, ordering: .acquiringAndReleasing) == false { ended() }
    }

    deinit { release() }
}

/// Why a chunk cannot be had, where the caller can do something about it.
public enum ChunkFailure: Error, Hashable, Sendable {
    /// Its segment is not there (any more): it was rewritten since the place was looked up. Look the place up again;
    /// if it is still the same, the chunk is missing.
    case moved(SegmentPlace)
    /// Its row names a place that is not there. Restore it from a backup, or ask a device for it.
    case missing(SegmentPlace)
    /// What lies there is not what was put. Restore it from a backup, or ask a device for it.
    case damaged(SegmentPlace)
    /// The chunk does not open: another key, owner or id sealed it, or it was changed. The cipher cannot tell which.
    case notAuthentic
    /// It was sealed in a way that this build does not know. Upgrade it.
    case suiteUnknown(UInt8)
}

extension BlobStore {
    /// A chunk's sealed bytes.
    ///
    /// - Throws: ``ChunkFailure`` `.moved`, `.damaged`; ``CloudError`` `.storageFailure`.
    public func read(_ place: SegmentPlace, of id: ChunkID) throws -> [UInt8] {
        // The row may be damaged: its length is checked before there is memory for it.
        guard place.isSound else { throw ChunkFailure.damaged(place) }
        return try [UInt8](unsafeUninitializedCapacity: place.length) { bytes, count in
            try read(place, of: id, into: UnsafeMutableRawBufferPointer(start: bytes.baseAddress, count: place.length))
            count = place.length
        }
    }
}

extension BlobStore {
    /// A chunk's sealed bytes, wherever it lies now; nil: the owner has no such chunk.
    ///
    /// It is looked up again when it was moved meanwhile.
    ///
    /// - Throws: ``ChunkFailure`` `.missing`, `.damaged`; ``CloudError`` `.storageFailure`.
    public func read(
        _ id: ChunkID, of owner: Owner, in partition: Int, through snapshots: any Snapshots
    ) throws -> [UInt8]? {
        var gone: SegmentPlace?
        while true {
            let chunk = try snapshots.read { try ChunkIndex.find(id, of: owner, in: partition, in: $0) }
            guard let place = chunk?.place else { return nil }
            if place == gone { throw ChunkFailure.missing(place) }
            do { return try read(place, of: id) } catch ChunkFailure.moved { gone = place }
        }
    }
}
