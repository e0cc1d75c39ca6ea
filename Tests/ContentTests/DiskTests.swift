import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosContent

/// A disk that gives trouble: nothing that was there is lost, and it goes on once the cause is gone.
@Suite struct DiskTests {
    let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aFullDiskRefusesAGroupAndKeepsTheOthers() throws {
        let disk = try SmallDisk(megabytes: 4)
        defer { disk.remove() }
        let store = try SegmentStore(folder: disk.folder)
        let before = try store.put(0..<2, count: 400_000)
        try disk.fill()
        let segment = try #require(before.first).place.segment
        let length = try #require(try store.segments(in: 7).first).length
        // To the segment that is there, and to one that would be new.
        for partition in [7, 8] {
            #expect(code { _ = try store.put(2..<4, count: 400_000, in: partition) } == .storageFailure)
        }
        let path = disk.folder + "/0007/" + SegmentName.of(segment.number)
        #expect(try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int == length)
        #expect(try store.segments(in: 8).isEmpty)
        for (number, chunk) in before.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 400_000))
        }
        try disk.empty()
        let after = try store.put(2..<4, count: 400_000)
        #expect(after.first?.place.offset == before.last?.place.end && after.first?.place.segment == segment)
        for (number, chunk) in (before + after).enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 400_000))
        }
    }

    @Test func theErrorSaysThatTheDiskIsFull() throws {
        let disk = FailingDisk()
        let store = try store(folder, disk: disk)
        _ = try store.put(0..<1)
        disk.fail(.write, ENOSPC)
        let error = #expect(throws: CloudError.self) { try store.put(1..<2) }
        #expect(error?.message == CloudError.diskFull.message && error?.code.retry == .afterBackoff)
    }

    @Test func aSegmentThatCannotBeCutBackIsNotWrittenToAnyMore() throws {
        let disk = FailingDisk()
        let store = try store(folder, disk: disk)
        let before = try #require(try store.put(0..<1).first)
        disk.fail(.write, EIO)
        disk.fail(.cut, EIO)
        #expect(code { _ = try store.put(1..<2) } == .storageFailure)
        disk.heal()
        let after = try #require(try store.put(1..<2).first)
        #expect(after.place.segment != before.place.segment)
        #expect(try store.read(before.place, of: before.id) == content(0, count: 100))
        #expect(try store.read(after.place, of: after.id) == content(1, count: 100))
    }

    @Test func afterAFlushThatFailedANewSegmentBegins() throws {
        let disk = FailingDisk()
        let store = try store(folder, disk: disk)
        let before = try #require(try store.put(0..<1).first)
        disk.fail(.flush, EIO)
        #expect(code { _ = try store.put(1..<2) } == .storageFailure)
        #expect(try folder.bytes(of: before.place.segment).count == before.place.end)
        disk.heal()
        let after = try #require(try store.put(1..<2).first)
        #expect(after.place.segment.number > before.place.segment.number)
        #expect(try store.read(before.place, of: before.id) == content(0, count: 100))
        #expect(try store.segments(in: 7).map(\.isClosed) == [true, false])
    }

    @Test(arguments: [DiskCall.create, .write, .flush, .syncFolder])
    func aNewSegmentThatFailsLeavesNoFile(call: DiskCall) throws {
        let disk = FailingDisk()
        let store = try store(folder, disk: disk)
        disk.fail(call, EIO)
        #expect(code { _ = try store.put(0..<1) } == .storageFailure)
        #expect(try store.segments(in: 7).isEmpty)
        disk.heal()
        let chunk = try #require(try store.put(0..<1).first)
        #expect(try store.read(chunk.place, of: chunk.id) == content(0, count: 100))
    }

    @Test func whereTheDiskCannotReadTheNewestFileAnotherIsBegun() throws {
        let before = try #require(try store(folder).put(0..<1).first)
        let disk = FailingDisk()
        disk.fail(.read, EIO)
        let store = try store(folder, disk: disk)
        let after = try #require(try store.put(1..<2).first)
        #expect(try store.segments(in: 7).map(\.isClosed) == [true, false])
        #expect(isDamaged { _ = try store.read(before.place, of: before.id) })
        disk.heal()
        #expect(try store.read(before.place, of: before.id) == content(0, count: 100))
        #expect(try store.read(after.place, of: after.id) == content(1, count: 100))
    }

    /// A file that cannot be opened or read is damaged by itself, whatever the reason; what passes by itself is not, nor
    /// what is of the whole folder.
    @Test(arguments: [
        (EIO, true), (EACCES, true), (EBADMSG, true), (117, true), (EMFILE, false), (ENFILE, false), (ENOMEM, false),
    ])
    func whatCannotBeReadIsDamagedUnlessItPasses(number: Int32, isDamage: Bool) throws {
        let disk = FailingDisk()
        let store = try store(folder, disk: disk)
        let chunk = try #require(try store.put(0..<1).first)
        disk.fail(.read, number)
        let read = { _ = try store.read(chunk.place, of: chunk.id) }
        #expect(isDamaged(read) == isDamage)
        #expect(isDamage || code(read) == .storageFailure)
        store.closeFiles()
        try FileManager.default.moveItem(atPath: folder.path + "/0007", toPath: folder.path + "/away")
        try Data().write(to: URL(fileURLWithPath: folder.path + "/0007"))
        disk.heal()
        #expect(code(read) == .storageFailure && !isDamaged(read))
    }

    /// The file alone, and its folder; removed, and moved away.
    @Test(arguments: ["", "/0007"], [false, true])
    func whatIsPutWhileItsFileGoesIsThereAfterAll(name: String, isMoved: Bool) throws {
        let store = try store(folder)
        let first = try #require(try store.put(0..<1).first)
        let path = name.isEmpty ? folder.file(first.place.segment) : folder.path + name
        if isMoved {
            try FileManager.default.moveItem(atPath: path, toPath: folder.path + "/away")
        } else {
            try FileManager.default.removeItem(atPath: path)
        }
        let chunks = try store.put(1..<2) + store.put(2..<3)
        for (number, chunk) in chunks.enumerated() {
            #expect(folder.has(chunk.place.segment) && chunk.place.segment != first.place.segment)
            #expect(try store.read(chunk.place, of: chunk.id) == content(number + 1, count: 100))
        }
        #expect(throws: ChunkFailure.moved(first.place)) { try store.read(first.place, of: first.id) }
    }

    /// Rows are newer than the files that were brought back: what they name is not written over by others.
    @Test func anOldFileIsNotWrittenToWhereRowsNameChunks() throws {
        let rows: [StoredChunk]
        let (early, late): ([UInt8], [UInt8])
        do {
            let store = try store(folder)
            let segment = try store.put(0..<3)[0].place.segment
            early = try folder.bytes(of: segment)
            rows = try store.put(3..<6)
            late = try folder.bytes(of: segment)
            try folder.write(early, to: segment)
        }
        let store = try store(folder)
        let new = try store.put(10..<13)
        for chunk in rows { #expect(isDamaged { _ = try store.read(chunk.place, of: chunk.id) }) }
        // The right file is found again.
        try folder.write(late, to: rows[0].place.segment)
        for (number, chunk) in rows.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number + 3, count: 100))
        }
        for (number, chunk) in new.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number + 10, count: 100))
        }
    }
}
