public import NephosCore
internal import NephosFiles
public import NephosStorage
private import Synchronization

#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// A ``BlobStore`` of append-only files in one folder, for one process.
///
/// `<folder>/<partition>/<number>.segment`: each file holds chunks of one partition. Folders and files are made when
/// they are needed, readable by their owner only. A partition has one writer at a time: further puts to it wait.
public final class SegmentStore: BlobStore {
    private let folder: String
    /// What is on its way is known to this process alone.
    private let lock: FileLock
    private let disk: SegmentFolder
    private let partitions: [PartitionWriter]

    /// - Parameters:
    ///   - folder: Must exist.
    ///   - segmentBytesMax: Bytes of a segment, which only one whose first group is longer passes. It is what one
    ///     rewriting frees. Those that a run begins are written to by this run only.
    ///   - openFilesMax: Files that are kept open. There are at most as many more as calls at one time.
    ///   - now: The wall clock.
    /// - Throws: ``CloudError`` `.storageFailure`: the folder is missing or not ours, or another process has it open.
    public convenience init(
        folder: String, segmentBytesMax: Int = 64 << 20, openFilesMax: Int = 128,
        now: @escaping @Sendable () -> Timestamp = { .ofSystem }
    ) throws {
        try self.init(
            folder: folder, segmentBytesMax: segmentBytesMax, openFilesMax: openFilesMax, now: now, faults: { _ in 0 })
    }

    init(
        folder: String, segmentBytesMax: Int, openFilesMax: Int, now: @escaping @Sendable () -> Timestamp,
        faults: @escaping DiskFaults
    ) throws {
        self.folder = folder
        do { lock = try FileLock(folder + "/.lock") } catch .held {
            throw CloudError(
                .storageFailure,
                "Another process has this folder of content open. Stop it first: one process writes to it at a time.",
                details: ["folder": folder])
        } catch .unusable(let number) {
            throw DiskFailure(number: number).cloudError
        }
        let disk = SegmentFolder(path: folder, openFilesMax: openFilesMax, faults: faults)
        self.disk = disk
        partitions = (0..<partitionCount).map {
            PartitionWriter($0, on: disk, segmentBytesMax: segmentBytesMax, now: now)
        }
    }

    /// Files that are open at this moment, but for those that a call holds.
    var openFileCount: Int { disk.openFiles.count }

    public func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        guard !group.isEmpty else { throw Self.nothing }
        return try writer(partition).put(&group)
    }

    public func append(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup? {
        guard !group.isEmpty else { throw Self.nothing }
        return try writer(partition).append(&group)
    }

    private static let nothing = CloudError(.invalidArguments, "The group has no chunks.")

    public func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        guard place.isSound, bytes.count == place.length else { throw ChunkFailure.damaged(place) }
        try reading(place) {
            let file = try disk.file(place.segment)
            try withUnsafeTemporaryAllocation(byteCount: RecordHeader.byteCount, alignment: 8) { start in
                guard try file.read(header: start, payload: bytes, at: place.offset),
                    let header = RecordHeader(UnsafeRawBufferPointer(start), in: place.segment, at: place.offset),
                    header.id == id, header.isPayload(UnsafeRawBufferPointer(bytes))
                else { throw ChunkFailure.damaged(place) }
            }
        }
    }

    public func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        let place = SegmentPlace(segment: segment, offset: offset, length: bytes.count)
        guard SegmentHeader.fits(segment), offset >= 0, offset <= SegmentHeader.segmentBytesMax else {
            throw ChunkFailure.damaged(place)
        }
        return try reading(place) { try disk.file(segment).read(into: bytes, at: offset) }
    }

    public func remove(_ segment: SegmentID) throws {
        guard SegmentHeader.fits(segment) else { throw CloudError(.invalidArguments, "There is no such segment.") }
        try DiskFailure.translated { try disk.remove(segment) }
    }

    public func segments(in partition: Int) throws -> [SegmentState] {
        let writer = try writer(partition)
        return try DiskFailure.translated {
            let numbers = try disk.numbers(in: partition)
            return try numbers.compactMap { number in
                let segment = SegmentID(partition: partition, number: number)
                let (isClosed, end) = writer.standing(of: segment)
                guard let length = try end ?? length(of: segment) else { return nil }
                return SegmentState(id: segment, length: length, isClosed: isClosed)
            }
        }
    }

    /// Nil: there is no such file. One of which the disk does not even say that keeps nobody from listing the others.
    private func length(of segment: SegmentID) throws -> Int? {
        do { return try disk.length(of: segment) } catch let failure as DiskFailure {
            guard disk.isUsable(segment.partition) else { throw failure }
            return 0
        }
    }

    /// By a file that is made for that: nobody makes it by accident, and it goes with the folder.
    public static let acceptedLoss = "accept-loss"

    public var isLossAccepted: Bool { access(folder + "/" + Self.acceptedLoss, F_OK) == 0 }

    /// By a file, as ``acceptedLoss`` is.
    public static let scrubRequest = "scrub-now"

    public func takeScrubRequest() -> Bool { unlink(folder + "/" + Self.scrubRequest) == 0 }

    public var room: DiskRoom? {
        var figures = statvfs()
        guard statvfs(folder, &figures) == 0 else { return nil }
        let block = UInt64(figures.f_frsize)
        return DiskRoom(
            free: Int(clamping: UInt64(figures.f_bavail) * block),
            total: Int(clamping: UInt64(figures.f_blocks) * block))
    }

    /// Lets go of all files, as the end of the process does.
    package func closeFiles() {
        for writer in partitions { writer.drop() }
        disk.openFiles.forgetAll()
    }

    private func writer(_ partition: Int) throws -> PartitionWriter {
        guard partitions.indices.contains(partition) else {
            throw CloudError(
                .invalidArguments, "There is no such partition.", details: ["partition": String(partition)])
        }
        return partitions[partition]
    }

    private func reading<Result>(_ place: SegmentPlace, _ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch let failure as DiskFailure {
            switch failure.number {
            case ENOENT: throw ChunkFailure.moved(place)
            // The disk cannot give these bytes back, and others it can.
            case EIO: throw ChunkFailure.damaged(place)
            // Later it can.
            case EMFILE, ENFILE, ENOMEM: throw failure.cloudError
            // A broken inode, a mode that lets nobody read it: of this file alone, if its folder can be used.
            default: throw disk.isUsable(place.segment.partition) ? ChunkFailure.damaged(place) : failure.cloudError
            }
        }
    }
}
