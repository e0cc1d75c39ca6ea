import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Synchronization
import Testing

@testable import NephosContent

/// A folder of its own for each test, removed with it.
final class TemporaryFolder {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "content-tests-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func file(_ segment: SegmentID) -> String {
        path + "/" + SegmentName.folder(segment.partition) + "/" + SegmentName.of(segment.number)
    }

    func bytes(of segment: SegmentID) throws -> [UInt8] {
        [UInt8](try Data(contentsOf: URL(fileURLWithPath: file(segment))))
    }

    /// In place: a file that is emptied first is flushed by the system when it is closed, which takes milliseconds.
    func write(_ bytes: [UInt8], to segment: SegmentID) throws {
        let descriptor = open(file(segment), O_WRONLY | O_CLOEXEC)
        defer { close(descriptor) }
        try #require(pwrite(descriptor, bytes, bytes.count, 0) == bytes.count)
        try #require(ftruncate(descriptor, off_t(bytes.count)) == 0)
    }

    func has(_ segment: SegmentID) -> Bool { FileManager.default.fileExists(atPath: file(segment)) }
}

/// Makes calls to the disk fail, with this error number, until it is told otherwise.
final class FailingDisk: Sendable {
    private let failing = Mutex<[DiskCall: Int32]>([:])

    func fail(_ call: DiskCall, _ number: Int32) { failing.withLock { $0[call] = number } }
    func heal() { failing.withLock { $0 = [:] } }
    func result(of call: DiskCall) -> Int32 { failing.withLock { $0[call] ?? 0 } }
}

func store(
    _ folder: TemporaryFolder, segmentBytesMax: Int = 1 << 20, openFilesMax: Int = 16, disk: FailingDisk? = nil,
    milliseconds: UInt64 = 1_800_000_000_000
) throws -> SegmentStore {
    try SegmentStore(
        folder: folder.path, segmentBytesMax: segmentBytesMax, openFilesMax: openFilesMax,
        now: { Timestamp(milliseconds: milliseconds) }, faults: { disk?.result(of: $0) ?? 0 })
}

/// The id of the chunk with this number.
func id(_ number: Int) throws -> ChunkID {
    var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: number &* 31), count: 32)
    withUnsafeBytes(of: number.littleEndian) { bytes.replaceSubrange(0..<8, with: $0) }
    return try #require(ChunkID(bytes: bytes))
}

/// Bytes that are this chunk's alone.
func content(_ number: Int, count: Int) -> [UInt8] {
    [UInt8](SplitMix64.bytes(count, seed: UInt64(truncatingIfNeeded: number)))
}

extension SegmentStore {
    /// Puts chunks of these numbers, `count` bytes each, in one group that is released at once.
    func put(_ numbers: some Sequence<Int>, count: Int = 100, in partition: Int = 7) throws -> [StoredChunk] {
        let group = try putUnreleased(numbers, count: count, in: partition)
        group.release()
        return group.chunks
    }

    func putUnreleased(_ numbers: some Sequence<Int>, count: Int = 100, in partition: Int = 7) throws -> StoredGroup {
        var group = ChunkGroup(capacity: 1 << 20)
        for number in numbers { try group.append(id(number), sealed: content(number, count: count)) }
        return try put(&group, in: partition)
    }
}

let owner = Owner("account_a")

/// The code that a body fails with, nil if it does not fail.
func code(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return CloudError(wrapping: error).code }
    return nil
}

func isDamaged(_ body: () throws -> Void) -> Bool {
    do { try body() } catch ChunkFailure.damaged { return true } catch { return false }
    return false
}
