internal import NephosCore
private import Synchronization

#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// The one writer of a partition: appends groups to its current segment, and begins another when that is full or
/// has failed.
///
/// It writes to nothing that an earlier run left, and reads none of it. The file may end before what rows name (it was
/// brought back from a copy, or the disk lost its end), or with a group that a crash tore, or where the disk cannot
/// read; and only rows could tell where it is safe to go on.
final class PartitionWriter: Sendable {
    private struct State {
        var current: Current?
        var lastNumber: Int64 = 0
    }

    private struct Current {
        var segment: SegmentID
        /// Bytes that are durable.
        var end: Int
    }

    private let partition: Int
    private let disk: SegmentFolder
    private let segmentBytesMax: Int
    private let now: @Sendable () -> Timestamp
    private let state = Mutex(State())
    /// Groups of each segment that are not released. Apart from the state, so that releasing does not wait for a flush.
    private let underWay = UnderWay()

    init(_ partition: Int, on disk: SegmentFolder, segmentBytesMax: Int, now: @escaping @Sendable () -> Timestamp) {
        self.partition = partition
        self.disk = disk
        self.segmentBytesMax = min(max(segmentBytesMax, SegmentHeader.byteCount), SegmentHeader.segmentBytesMax / 2)
        self.now = now
    }

    /// - Throws: ``CloudError`` `.storageFailure`.
    func put(_ group: inout ChunkGroup) throws -> StoredGroup {
        try state.withLock { state in
            try DiskFailure.translated { try append(&group, &state) ?? begin(&group, &state) }
        }
    }

    /// - Returns: Nil: it would begin a segment.
    /// - Throws: ``CloudError`` `.storageFailure`.
    func append(_ group: inout ChunkGroup) throws -> StoredGroup? {
        try state.withLock { state in try DiskFailure.translated { try append(&group, &state) } }
    }

    /// Begins anew: with another segment, whose number is greater than what is there by then.
    func drop() { state.withLock { $0 = State() } }

    /// Whether the segment is closed (see ``SegmentState/isClosed``); and its end, where that is not the file's.
    func standing(of segment: SegmentID) -> (isClosed: Bool, end: Int?) {
        let end = state.withLock { state in
            // One that was begun after the listing is not in it.
            state.current?.segment == segment ? state.current?.end : nil
        }
        // In this order: nothing can be put any more to a segment that is not the current one.
        return (end == nil && !underWay.has(segment), end)
    }

    /// - Returns: Nil: there is no current segment, or it has no room. Begin another.
    private func append(_ group: inout ChunkGroup, _ state: inout State) throws -> StoredGroup? {
        guard let current = state.current, current.end + group.used <= segmentBytesMax else { return nil }
        return try append(&group, to: current, &state)
    }

    /// - Returns: Nil: the segment's file is gone, and with it what was written. Begin another.
    private func append(_ group: inout ChunkGroup, to current: Current, _ state: inout State) throws -> StoredGroup? {
        let file: SegmentFile
        do {
            file = try disk.file(current.segment, isWritable: true)
        } catch let failure as DiskFailure where failure.number == ENOENT {
            state.current = nil
            return nil
        }
        let chunks = group.settle(in: current.segment, at: current.end)
        do {
            try write(group, to: file, at: current.end)
        } catch {
            // As it was before; if not even that succeeds, nothing is written to it any more.
            do { try file.cut(to: current.end) } catch { state.current = nil }
            throw error
        }
        do {
            try file.flush()
            // Somebody may have taken the file away, or the folder, while it was open here.
            guard try disk.isInPlace(file, of: current.segment) else {
                disk.openFiles.forget(current.segment)
                state.current = nil
                return nil
            }
        } catch {
            // The kernel may have dropped the pages and hold them for written.
            state.current = nil
            try? file.cut(to: current.end)
            throw error
        }
        state.current = Current(segment: current.segment, end: current.end + group.used)
        return stored(chunks, in: current.segment)
    }

    private func begin(_ group: inout ChunkGroup, _ state: inout State) throws -> StoredGroup {
        // Also what an earlier run left, and what has come with a disk that was mounted meanwhile.
        state.lastNumber = max(state.lastNumber, try disk.numbers(in: partition).last ?? 0)
        let time = Int64(clamping: now().milliseconds)
        let segment = SegmentID(partition: partition, number: max(state.lastNumber + 1, time))
        guard SegmentHeader.fits(segment) else {
            throw CloudError(.storageFailure, "There are no more numbers for segments. Check the system's clock.")
        }
        // Whatever comes of it: a name is used once.
        state.lastNumber = segment.number
        let file = try disk.create(segment)
        let start = SegmentHeader.byteCount
        let chunks = group.settle(in: segment, at: start)
        do {
            try withUnsafeTemporaryAllocation(byteCount: start, alignment: 8) { header in
                SegmentHeader.write(segment, to: header)
                try file.write(UnsafeRawBufferPointer(header), at: 0)
            }
            try write(group, to: file, at: start)
            try file.flush()
            try disk.sync(partition)
            try disk.openFiles.keep(file, of: segment)
        } catch {
            // Nobody knows of it. If it stays, it is found as a file without rows.
            try? disk.remove(segment)
            throw error
        }
        state.current = Current(segment: segment, end: start + group.used)
        return stored(chunks, in: segment)
    }

    private func write(_ group: ChunkGroup, to file: SegmentFile, at offset: Int) throws {
        try group.bytes.withUnsafeBytes {
            try file.write(UnsafeRawBufferPointer(rebasing: $0[..<group.used]), at: offset)
        }
    }

    private func stored(_ chunks: [StoredChunk], in segment: SegmentID) -> StoredGroup {
        underWay.begin(segment)
        return StoredGroup(chunks) { [underWay] in underWay.end(segment) }
    }
}

/// How many groups of each segment are on their way to their rows.
private final class UnderWay: Sendable {
    private let counts = Mutex<[SegmentID: Int]>([:])

    func has(_ segment: SegmentID) -> Bool { counts.withLock { $0[segment] != nil } }

    func begin(_ segment: SegmentID) { counts.withLock { $0[segment, default: 0] += 1 } }

    func end(_ segment: SegmentID) {
        counts.withLock { counts in
            let count = counts[segment, default: 0]
            counts[segment] = count > 1 ? count - 1 : nil
        }
    }
}
