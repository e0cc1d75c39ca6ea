import Foundation
import NephosCore
import NephosStorage
import Synchronization
import Testing

@testable import NephosContent

@Suite struct SegmentRewriteTests {
    let folder: TemporaryFolder
    let engine: SQLiteEngine

    struct Crash: Error {}

    init() throws {
        folder = try TemporaryFolder()
        engine = try SQLiteEngine(path: folder.path + "/database")
        try engine.migrate(ContentSchema.migrations)
    }

    /// Chunks with rows in a segment that is full, a quarter of them live.
    func mostlyDead(_ store: SegmentStore, count: Int = 40, bytes: Int = 1000) throws -> [StoredChunk] {
        let chunks = try store.put(0..<count, count: bytes)
        _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
        _ = try store.put(1000..<1001, count: 900_000)
        let dead = chunks.indices.filter { $0 % 4 != 0 }.map { chunks[$0].id }
        _ = try engine.write { try ChunkIndex.remove(dead, of: owner, in: 7, in: $0) }
        return chunks.indices.filter { $0 % 4 == 0 }.map { chunks[$0] }
    }

    /// A store whose segments are so short that every other put begins one.
    func shortStore() throws -> SegmentStore { try store(folder, segmentBytesMax: 900_000) }

    func expectAll(_ chunks: [StoredChunk], in store: SegmentStore, bytes: Int = 1000) throws {
        for (place, chunk) in chunks.enumerated() {
            let read = try store.read(chunk.id, of: owner, in: 7, through: engine.snapshots)
            #expect(read == content(place * 4, count: bytes))
        }
    }

    let now = Timestamp(milliseconds: 1_800_000_000_000)

    /// Removes segments that were emptied before this time.
    @discardableResult
    func removeEmptied(in store: any BlobStore, before time: Timestamp) throws -> [SegmentID] {
        let removed = try SegmentRewrite.removeEmptied(of: store, before: time, limit: 100, through: engine.snapshots)
        try engine.write { try ChunkIndex.forgetEmptied(removed, in: $0) }
        return removed
    }

    /// - Parameter isKept: Whether an emptied file stays for a time, as it should.
    func rewrite(
        _ segment: SegmentID, in store: SegmentStore, capacity: Int = 8 << 20, isKept: Bool = true
    ) throws -> SegmentRewrite.Progress {
        defer { if !isKept { _ = try? removeEmptied(in: store, before: now.advanced(by: .seconds(1))) } }
        var rewrite = SegmentRewrite(segment, in: store)
        var group = ChunkGroup(capacity: capacity)
        for _ in 0..<1000 {
            let progress = try rewrite.step(&group, at: now, through: engine.snapshots) { try engine.write($0) }
            if progress != .goesOn { return progress }
        }
        Issue.record("It does not end.")
        return .goesOn
    }

    @Test(arguments: [4096, 8 << 20])
    func whatIsLiveMovesAndTheFileGoes(capacity: Int) throws {
        let store = try shortStore()
        let live = try mostlyDead(store)
        let segment = live[0].place.segment
        let worth = try engine.write { try ChunkIndex.segmentsWorthRewriting(limit: 10, in: $0) }
        #expect(worth.map(\.segment) == [segment])
        #expect(try rewrite(segment, in: store, capacity: capacity) == .done)
        #expect(try store.read(live[0].place, of: live[0].id) == content(0, count: 1000))
        #expect(try removeEmptied(in: store, before: now) == [])
        #expect(folder.has(segment))
        #expect(try removeEmptied(in: store, before: now.advanced(by: .milliseconds(1))) == [segment])
        #expect(!folder.has(segment))
        #expect(throws: ChunkFailure.moved(live[0].place)) { try store.read(live[0].place, of: live[0].id) }
        try expectAll(live, in: store)
        #expect(try engine.write { try ChunkIndex.use(of: segment, in: $0) } == nil)
        #expect(try engine.write { try ChunkIndex.use(of: owner, in: 7, in: $0) } == (10_000, 10))
    }

    @Test func aSegmentInUseIsLeftAlone() throws {
        let store = try shortStore()
        let chunks = try store.put(0..<4)
        let segment = chunks[0].place.segment
        // The current one.
        #expect(try rewrite(segment, in: store) == .notClosed)
        // Full, but a group's rows are on their way.
        let group = try store.putUnreleased(4..<5)
        _ = try store.put(1000..<1001, count: 899_900)
        #expect(try rewrite(segment, in: store) == .notClosed)
        let far = Timestamp(milliseconds: .max)
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: far, through: engine.snapshots) == 0)
        _ = try engine.write { try ChunkIndex.add(group.chunks, of: owner, in: $0) }
        group.release()
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: far, through: engine.snapshots) == 0)
        #expect(try rewrite(segment, in: store) == .done)
        let read = try store.read(id(4), of: owner, in: 7, through: engine.snapshots)
        #expect(read == content(4, count: 100))
    }

    /// Before the rows are moved, and after.
    @Test(arguments: [false, true])
    func aCrashLosesNoChunkAndLeavesNoFileForGood(isCommitted: Bool) throws {
        let live: [StoredChunk]
        do {
            let store = try shortStore()
            live = try mostlyDead(store)
            var rewrite = SegmentRewrite(live[0].place.segment, in: store)
            var group = ChunkGroup()
            #expect(throws: Crash.self) {
                try rewrite.step(&group, at: now, through: engine.snapshots) { body in
                    if isCommitted { _ = try engine.write(body) }
                    throw Crash()
                }
            }
        }
        let store = try shortStore()
        let segment = live[0].place.segment
        #expect(folder.has(segment))
        try expectAll(live, in: store)
        let snapshots = engine.snapshots
        let early = Timestamp(milliseconds: UInt64(segment.number))
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: early, through: snapshots) == 0)
        let late = Timestamp(milliseconds: UInt64(segment.number) + 1)
        // The file was emptied, and goes as such.
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: late, through: snapshots) == 0)
        #expect(folder.has(segment))
        #expect(try removeEmptied(in: store, before: late) == (isCommitted ? [segment] : []))
        #expect(folder.has(segment) == !isCommitted)
        if !isCommitted { #expect(try rewrite(segment, in: store) == .done) }
        try expectAll(live, in: store)
    }

    @Test func aCrashBetweenBytesAndRowsLeavesDeadRoomThatGoes() throws {
        let before = try shortStore().putUnreleased(0..<4).chunks[0].place.segment
        let store = try shortStore()
        _ = try store.put(0..<4)
        let chunks = try store.put(4..<8)
        _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
        // The dead room counts.
        let use = try #require(try engine.write { try ChunkIndex.use(of: chunks[0].place.segment, in: $0) })
        #expect(use.length - use.liveBytes == SegmentHeader.byteCount + 4 * 156)
        // Files of which no row knows, of the run before and of this one.
        let unknown = try store.put(8..<9, count: 899_900)[0].place.segment
        _ = try store.put(9..<10)
        let far = Timestamp(milliseconds: .max)
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: far, through: engine.snapshots) == 2)
        #expect(!folder.has(before) && !folder.has(unknown) && folder.has(chunks[0].place.segment))
        for chunk in chunks { _ = try store.read(chunk.place, of: chunk.id) }
    }

    @Test func aDamagedChunkKeepsItsSegmentAndIsNamed() throws {
        let store = try shortStore()
        let live = try mostlyDead(store)
        let segment = live[0].place.segment
        var bytes = try folder.bytes(of: segment)
        bytes[live[3].place.offset + 100] ^= 1
        bytes[live[6].place.offset + 2] ^= 1
        try folder.write(bytes, to: segment)
        let damaged = [3, 6].map { IndexedChunk(owner: owner, id: live[$0].id, place: live[$0].place) }
        #expect(try rewrite(segment, in: store, capacity: 4096) == .damaged(damaged))
        #expect(folder.has(segment))
        for (number, chunk) in live.enumerated() where number != 3 && number != 6 {
            let read = try store.read(chunk.id, of: owner, in: 7, through: engine.snapshots)
            #expect(read == content(number * 4, count: 1000))
        }
        _ = try engine.write { try ChunkIndex.remove(damaged.map(\.id), of: owner, in: 7, in: $0) }
        #expect(try rewrite(segment, in: store) == .done)
    }

    @Test func aMissingSegmentIsSaidToBeMissing() throws {
        let store = try shortStore()
        let live = try mostlyDead(store)
        try store.remove(live[0].place.segment)
        #expect(throws: ChunkFailure.missing(live[0].place)) {
            try store.read(live[0].id, of: owner, in: 7, through: engine.snapshots)
        }
        #expect(try store.read(id(1), of: owner, in: 7, through: engine.snapshots) == nil)
    }

    /// What threads that read share.
    private final class Readers: Sendable {
        let isOver = Atomic(false)
        let reads = Atomic(0)
        let failures = Atomic(0)
        let scrubs = Atomic(0)
        let running = Atomic(0)
    }

    @Test func whoReadsMeanwhileGetsItsBytes() throws {
        let store = try shortStore()
        let live = try mostlyDead(store, count: 200)
        let (snapshots, readers) = (engine.snapshots, Readers())
        for seed in 0..<3 {
            readers.running.add(1, ordering: .relaxed)
            Thread.detachNewThread {
                var random = SplitMix64(seed: UInt64(seed))
                while !readers.isOver.load(ordering: .relaxed) {
                    let number = Int.random(in: 0..<live.count, using: &random)
                    let read = try? store.read(live[number].id, of: owner, in: 7, through: snapshots)
                    if read != content(number * 4, count: 1000) { readers.failures.add(1, ordering: .relaxed) }
                    readers.reads.add(1, ordering: .relaxed)
                }
                readers.running.subtract(1, ordering: .releasing)
            }
        }
        // And scrubbed: what goes meanwhile is not reported as missing.
        readers.running.add(1, ordering: .relaxed)
        Thread.detachNewThread {
            while !readers.isOver.load(ordering: .relaxed) {
                let segments = (try? snapshots.read { try ChunkIndex.segments(limit: 100, in: $0) }) ?? []
                for segment in segments {
                    var scrub = SegmentScrub(segment.segment, in: store)
                    do {
                        while true {
                            let step = try scrub.step(bytesMax: 20_000, through: snapshots)
                            readers.failures.add(step.findings.count, ordering: .relaxed)
                            if step.isDone { break }
                        }
                        readers.scrubs.add(1, ordering: .relaxed)
                    } catch {
                        readers.failures.add(1, ordering: .relaxed)
                    }
                }
            }
            readers.running.subtract(1, ordering: .releasing)
        }
        defer {
            readers.isOver.store(true, ordering: .relaxed)
            while readers.running.load(ordering: .acquiring) > 0 { usleep(1000) }
        }
        // Each segment is moved while it is read, round and round.
        var moved = 0
        for round in 0..<30 {
            let segments = try engine.write { try ChunkIndex.segments(limit: 100, in: $0) }
            for segment in segments {
                let progress = try rewrite(segment.segment, in: store, capacity: 16_384, isKept: false)
                if progress == .done { moved += 1 }
            }
            _ = try store.put(2000 + round..<2001 + round, count: 899_000)
        }
        while readers.reads.load(ordering: .relaxed) < 300 || readers.scrubs.load(ordering: .relaxed) < 10,
            readers.failures.load(ordering: .relaxed) == 0
        {
            usleep(1000)
        }
        #expect(moved >= 20 && readers.failures.load(ordering: .relaxed) == 0)
        try expectAll(live, in: store)
    }

    /// Yesterday's database is brought back after a rewriting.
    @Test func anOlderDatabaseFindsItsChunksUntilTheGraceIsOver() throws {
        let store = try shortStore()
        let chunks = try store.put(0..<10)
        _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
        _ = try store.put(1000..<1001, count: 899_000)
        let old = try engine.copyInMemory()
        _ = try engine.write { try ChunkIndex.remove((0..<8).map { try id($0) }, of: owner, in: 7, in: $0) }
        #expect(try rewrite(chunks[0].place.segment, in: store) == .done)
        #expect(try removeEmptied(in: store, before: now).isEmpty)
        // Begun long ago, it is kept nevertheless.
        let far = Timestamp(milliseconds: .max)
        #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: far, through: engine.snapshots) == 0)
        for number in 0..<10 {
            let read = try store.read(id(number), of: owner, in: 7, through: old.snapshots)
            #expect(read == content(number, count: 100))
        }
    }

    /// The file is newer than the rows, which take it for mostly dead.
    @Test func anOlderDatabaseRemovesNothingNewerUntilTheGraceIsOver() throws {
        let old: SQLiteEngine
        let segment: SegmentID
        do {
            let store = try shortStore()
            let chunks = try store.put(0..<10)
            segment = chunks[0].place.segment
            _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
            _ = try engine.write { try ChunkIndex.remove((0..<8).map { try id($0) }, of: owner, in: 7, in: $0) }
            old = try engine.copyInMemory()
            let more = try store.put(100..<400, count: 2000)
            _ = try engine.write { try ChunkIndex.add(more, of: owner, in: $0) }
        }
        let store = try shortStore()
        var rewrite = SegmentRewrite(segment, in: store)
        var group = ChunkGroup()
        let progress = try rewrite.step(&group, at: now, through: old.snapshots) { try old.write($0) }
        #expect(progress == .done)
        let emptied = try SegmentRewrite.removeEmptied(of: store, before: now, limit: 10, through: old.snapshots)
        #expect(emptied.isEmpty)
        // The operator brings the right database back.
        for number in 100..<400 {
            let read = try store.read(id(number), of: owner, in: 7, through: engine.snapshots)
            #expect(read == content(number, count: 2000))
        }
    }

    /// Whatever a row says that names it as emptied.
    @Test func aSegmentInWhichAChunkLiesIsNotRemoved() throws {
        let store = try shortStore()
        let live = try mostlyDead(store)
        let note = SQL("INSERT INTO content_emptied (partition_number, segment_number, emptied_at) VALUES (7, ?1, 0)")
        _ = try engine.write { try $0.execute(note, [.integer(live[0].place.segment.number)]) }
        try removeEmptied(in: store, before: now)
        #expect(folder.has(live[0].place.segment))
        try expectAll(live, in: store)
    }

    @Test func aDamagedRowKeepsItsSegmentAndTheOthersMove() throws {
        let store = try shortStore()
        let live = try mostlyDead(store)
        let segment = live[0].place.segment
        try engine.write {
            _ = try $0.execute(SQL("UPDATE content_chunks SET suite = 257 WHERE id = ?1"), [.blob(live[3].id.bytes)])
        }
        #expect(try rewrite(segment, in: store, capacity: 4096) == .damaged([]))
        #expect(folder.has(segment))
        for (number, chunk) in live.enumerated() where number != 3 {
            let place = try engine.write { try ChunkIndex.find(chunk.id, of: owner, in: 7, in: $0)?.place }
            #expect(place?.segment != segment)
            let read = try store.read(chunk.id, of: owner, in: 7, through: engine.snapshots)
            #expect(read == content(number * 4, count: 1000))
        }
        _ = try engine.write { try ChunkIndex.remove([live[3].id], of: owner, in: 7, in: $0) }
        #expect(try rewrite(segment, in: store) == .done)
    }

    /// Does something once, as soon as rows were read.
    private final class Interrupted: Snapshots {
        let inner: any Snapshots
        let afterRead: Mutex<(@Sendable () throws -> Void)?>

        init(_ inner: any Snapshots, afterRead: @escaping @Sendable () throws -> Void) {
            self.inner = inner
            self.afterRead = Mutex(afterRead)
        }

        func read<Result>(_ body: (any ReadTransaction) throws -> Result) throws -> Result {
            let result = try inner.read(body)
            let action = afterRead.withLock { action in
                defer { action = nil }
                return action
            }
            try action?()
            return result
        }
    }

    /// A crash, or a commit that failed, between bytes and rows: they lie behind a chunk that keeps the segment.
    @Test func whatNoRowEverNamedIsDeadRoom() throws {
        let store = try store(folder)
        let chunk = try #require(try store.put(0..<1).first)
        _ = try engine.write { try ChunkIndex.add([chunk], of: owner, in: $0) }
        _ = try store.put(1..<9, count: 1000)
        let segment = chunk.place.segment
        // It may still be written to, and rows may be on their way.
        #expect(try SegmentRewrite.outgrown(in: 7, of: store, through: engine.snapshots).isEmpty)
        store.closeFiles()
        let lengths = try SegmentRewrite.outgrown(in: 7, of: store, through: engine.snapshots)
        #expect(lengths == [segment: try folder.bytes(of: segment).count])
        #expect(try engine.write { try ChunkIndex.segmentsWorthRewriting(limit: 9, in: $0).isEmpty })
        _ = try engine.write { try ChunkIndex.noteLengths(lengths, in: $0) }
        let worth = try engine.write { try ChunkIndex.segmentsWorthRewriting(limit: 9, in: $0).map(\.segment) }
        #expect(worth == [segment])
        #expect(try SegmentRewrite.outgrown(in: 7, of: store, through: engine.snapshots).isEmpty)
    }

    /// Rows that are committed after rows were read: whether the segment is closed was asked before.
    @Test(arguments: [false, true])
    func whatGetsItsRowsMeanwhileStays(isRewritten: Bool) throws {
        let store = try shortStore()
        let group = try store.putUnreleased(0..<4)
        let segment = group.chunks[0].place.segment
        _ = try store.put(1000..<1001, count: 899_900)
        let later = Later(engine)
        let snapshots = Interrupted(engine.snapshots) {
            try later.add(group.chunks)
            group.release()
        }
        // Its closing is not known to whoever asked before.
        if isRewritten {
            var rewrite = SegmentRewrite(segment, in: store)
            var buffer = ChunkGroup()
            let progress = try rewrite.step(&buffer, at: now, through: snapshots) { try engine.write($0) }
            #expect(progress == .notClosed)
        } else {
            // Another one that is closed, so that rows are read at all.
            _ = try store.put(1001..<1002, count: 899_900)
            let far = Timestamp(milliseconds: .max)
            #expect(try SegmentRewrite.removeUnknown(in: 7, of: store, begunBefore: far, through: snapshots) == 1)
            let read = try store.read(id(0), of: owner, in: 7, through: engine.snapshots)
            #expect(read == content(0, count: 100))
        }
        #expect(folder.has(segment))
    }

    /// The engine, for a closure that runs on this very thread.
    // Unchecked: the store calls the closure from within the test's own call, and nobody else has it.
    private final class Later: @unchecked Sendable {
        let engine: SQLiteEngine
        init(_ engine: SQLiteEngine) { self.engine = engine }

        func add(_ chunks: [StoredChunk]) throws {
            _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
        }
    }
}
