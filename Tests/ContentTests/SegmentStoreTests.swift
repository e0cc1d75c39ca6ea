import Foundation
import NephosCore
import Testing

@testable import NephosContent

@Suite struct SegmentStoreTests {
    let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    @Test func whatIsPutIsReadAlsoAfterAReopening() throws {
        var chunks: [StoredChunk] = []
        do {
            let store = try store(folder)
            chunks += try store.put(0..<3)
            chunks += try store.put(3..<5, count: 0)
            chunks += try store.put(5..<6, count: 500_000)
            for (number, chunk) in chunks.enumerated() {
                #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: chunk.place.length))
            }
        }
        let store = try store(folder)
        chunks += try store.put(6..<7)
        // Each run writes to its own.
        #expect(Set(chunks.map(\.place.segment)).count == 2)
        for (number, chunk) in chunks.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: chunk.place.length))
        }
    }

    @Test func aFullSegmentIsFollowedByAnother() throws {
        let store = try store(folder, segmentBytesMax: 1000)
        let chunks = try (0..<20).flatMap { try store.put($0..<$0 + 1, count: 300) }
        let segments = Set(chunks.map(\.place.segment))
        #expect(segments.count == 10)
        for segment in segments { #expect(try folder.bytes(of: segment).count <= 1000) }
        for (number, chunk) in chunks.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 300))
        }
        let states = try store.segments(in: 7)
        #expect(states.map(\.isClosed) == [Bool](repeating: true, count: 9) + [false])
        #expect(states.map(\.id.number) == states.map(\.id.number).sorted())
        #expect(try store.segments(in: 8).isEmpty)
    }

    @Test func aPlaceThatNoStoreGivesIsDamageAndNoTrap() throws {
        let store = try store(folder)
        let good = try #require(try store.put(0..<1).first)
        let numbers = [Int.min, -1, 0, 1, 31, 33, Int.max / 2, Int.max]
        for number in numbers {
            var place = good.place
            place.offset = number
            #expect(isDamaged { _ = try store.read(place, of: good.id) })
            place = good.place
            place.length = number
            #expect(isDamaged { _ = try store.read(place, of: good.id) })
            place = good.place
            place.segment.partition = number == 7 ? 8 : number
            #expect(throws: ChunkFailure.self) { try store.read(place, of: good.id) }
            place.segment = SegmentID(partition: 7, number: Int64(number))
            #expect(throws: ChunkFailure.self) { try store.read(place, of: good.id) }
        }
        #expect(isDamaged { _ = try store.read(good.place, of: id(1)) })
        for partition in [-1, 1024, Int.max] {
            #expect(code { _ = try store.put(0..<1, in: partition) } == .invalidArguments)
        }
        #expect(code { _ = try store.put(0..<0) } == .invalidArguments)
    }

    @Test func aFileCutAnywhereKeepsItsWholeRecordsAndIsNotWrittenTo() throws {
        let chunks = try store(folder).put(0..<3, count: 20)
        let segment = try #require(chunks.first).place.segment
        let whole = try folder.bytes(of: segment)
        for length in 0...whole.count {
            let folder = try TemporaryFolder()
            let more: StoredChunk
            do {
                let store = try store(folder)
                _ = try store.put(0..<3, count: 20)
                try folder.write(Array(whole[..<length]), to: segment)
            }
            do {
                let store = try store(folder)
                more = try #require(try store.put(9..<10, count: 20).first)
            }
            #expect(more.place.segment != segment, "cut at \(length)")
            let store = try store(folder)
            for (number, chunk) in chunks.enumerated() {
                if chunk.place.end <= length {
                    #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 20))
                } else {
                    #expect(isDamaged { _ = try store.read(chunk.place, of: chunk.id) }, "cut at \(length)")
                }
            }
            #expect(try store.read(more.place, of: more.id) == content(9, count: 20))
        }
    }

    @Test func aDamagedHeaderInTheMiddleCostsNoOtherChunkAtTheNextStart() throws {
        let chunks = try store(folder).put(0..<5)
        let damaged = chunks[1].place
        var bytes = try folder.bytes(of: damaged.segment)
        bytes[damaged.offset] ^= 1
        try folder.write(bytes, to: damaged.segment)
        let store = try store(folder)
        let more = try #require(try store.put(5..<6).first)
        #expect(more.place.segment != damaged.segment)
        for (number, chunk) in (chunks + [more]).enumerated() where number != 1 {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 100))
        }
        #expect(isDamaged { _ = try store.read(damaged, of: chunks[1].id) })
    }

    /// The header reached the disk, and the bytes behind it did not.
    @Test func aRecordWithoutItsBytesAtTheEndIsDamageAndNoOther() throws {
        let chunks = try store(folder).put(0..<3)
        var bytes = try folder.bytes(of: chunks[2].place.segment)
        bytes.replaceSubrange((bytes.count - 100)..., with: [UInt8](repeating: 0, count: 100))
        try folder.write(bytes, to: chunks[2].place.segment)
        let store = try store(folder)
        let more = try #require(try store.put(5..<6).first)
        #expect(more.place.segment != chunks[2].place.segment)
        #expect(try store.read(chunks[1].place, of: chunks[1].id) == content(1, count: 100))
        #expect(isDamaged { _ = try store.read(chunks[2].place, of: chunks[2].id) })
    }

    @Test func whatLiesWhereItWasNotWrittenIsDamage() throws {
        let store = try store(folder)
        let here = try store.put(0..<2)
        let there = try #require(try store.put(0..<2, in: 8).first)
        var bytes = try folder.bytes(of: here[0].place.segment)
        // The same chunk, as it lies in another partition: the same number, the same offset.
        #expect(
            there.place.segment.number == here[0].place.segment.number && there.place.offset == here[0].place.offset)
        try folder.write(bytes, to: there.place.segment)
        #expect(isDamaged { _ = try store.read(there.place, of: there.id) })
        // A whole record at another one's offset.
        bytes.replaceSubrange(here[1].place.offset..., with: bytes[here[0].place.offset..<here[0].place.end])
        try folder.write(bytes, to: here[0].place.segment)
        #expect(isDamaged { _ = try store.read(here[1].place, of: here[0].id) })
        #expect(try store.read(here[0].place, of: here[0].id) == content(0, count: 100))
    }

    @Test func aFolderHasOneStoreAtATime() throws {
        let first = try store(folder)
        #expect(code { _ = try store(folder) } == .storageFailure)
        _ = try first.put(0..<1)
    }

    @Test func manyPartitionsNeedFewOpenFiles() throws {
        let store = try store(folder, openFilesMax: 5)
        var chunks: [StoredChunk] = []
        for round in 0..<2 {
            for partition in 0..<200 {
                chunks += try store.put([round * 200 + partition], count: 10, in: partition)
                #expect(store.openFileCount <= 5)
            }
        }
        #expect(Set(chunks.map(\.place.segment)).count == 200)
        for (number, chunk) in chunks.enumerated() {
            #expect(try store.read(chunk.place, of: chunk.id) == content(number, count: 10))
            #expect(store.openFileCount <= 5)
        }
    }

    @Test func checksumsAreThoseOfTheirAuthors() {
        func sum(_ text: String, seed: UInt64 = 0) -> UInt64 {
            [UInt8](text.utf8).withUnsafeBytes { Checksum.of($0, seed: seed) }
        }
        #expect(sum("") == 0xef46_db37_51d8_e999)
        #expect(sum("a") == 0xd24e_c4f1_a98c_6e5b)
        #expect(sum("abc") == 0x44bc_2cf5_ad77_0999)
        #expect(sum("Nobody inspects the spammish repetition") == 0xfbce_a83c_8a37_8bf1)
    }

    /// What is behind an entry need not be there at all.
    @Test func anEntryOfTheFolderIsReadNoFurtherThanItGoes() throws {
        let page = Int(getpagesize())
        let memory = try #require(
            mmap(nil, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
        defer { munmap(memory, 2 * page) }
        try #require(mprotect(memory + page, page, PROT_NONE) == 0)
        let length = 48
        let entry = memory + page - length
        let start = try #require(MemoryLayout<dirent>.offset(of: \.d_name))
        let lengthStart = try #require(MemoryLayout<dirent>.offset(of: \.d_reclen))
        entry.storeBytes(of: UInt16(length), toByteOffset: lengthStart, as: UInt16.self)
        let name = SegmentName.of(5)
        for (place, byte) in name.utf8.enumerated() {
            entry.storeBytes(of: byte, toByteOffset: start + place, as: UInt8.self)
        }
        #expect(SegmentFolder.name(of: entry.assumingMemoryBound(to: dirent.self)) == name)
    }

    @Test func aFolderOfManyFilesIsListedWhole() throws {
        let store = try store(folder, segmentBytesMax: 1000)
        _ = try store.put(0..<1)
        let path = folder.path + "/0007/"
        for number in 1...700 {
            #expect(FileManager.default.createFile(atPath: path + SegmentName.of(Int64(number)), contents: nil))
        }
        #expect(try store.segments(in: 7).map(\.id.number) == Array(1...700) + [1_800_000_000_000])
    }

    /// Files of this folder that the process has open.
    private func descriptorCount() throws -> Int {
        let all = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        return all.filter {
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
            return target?.contains(folder.path + "/0") ?? false
        }.count
    }

    @Test func aFileThatMadeRoomIsClosed() throws {
        let store = try store(folder, openFilesMax: 5)
        for partition in 0..<100 { _ = try store.put([partition], count: 10, in: partition) }
        #expect(try descriptorCount() == 5)
        for partition in 0..<100 { for state in try store.segments(in: partition) { try store.remove(state.id) } }
        #expect(try descriptorCount() == 0)
    }

    /// Removed between its opening and its keeping: it would be kept for good.
    @Test func aFileThatWasRemovedMeanwhileIsNotKept() throws {
        let segment = try #require(try store(folder).put(0..<1).first).place.segment
        let disk = SegmentFolder(path: folder.path, openFilesMax: 5) { _ in 0 }
        let file = try disk.openFiles.file(segment) {
            let file = try SegmentFile(folder.file(segment), flags: O_RDONLY) { _ in 0 }
            try disk.remove(segment)
            return file
        }
        #expect(try file.status().isRemoved && disk.openFiles.count == 0)
    }
}
