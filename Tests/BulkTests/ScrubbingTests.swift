import Foundation
import NephosBulk
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// What the disk has lost is found, noted once, told, and heals; a restart forgets nothing of it.
@Suite struct ScrubbingTests {
    /// Chunks that are noted as damaged.
    private func noted(_ house: BulkHouse) throws -> Int {
        try house.cloud.storage(of: .documents).write { try DamagedChunks.count(in: $0) }
    }

    private func damagedCount(_ house: BulkHouse) throws -> UInt64? {
        let health: WireCheckHealthReply = try house.cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters["chunks.damaged"]
    }

    private func store(_ numbers: Range<Int>, _ mover: TestBulk, _ house: BulkHouse) throws -> BulkClient {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store(numbers.map { content($0) }, with: client).allSatisfy { $0.isSuccess })
        return client
    }

    @Test func whatAFetchCannotReadIsNotedOnceAndForgottenWhenItIsWhole() throws {
        let log = LogLines()
        let house = try BulkHouse(log: log)
        let mover = try TestBulk(of: house.cloud)
        let client = try store(0..<1, mover, house)
        house.cloud.network.run(for: .seconds(11))
        #expect(try damagedCount(house) == 0)
        try house.damageAll(of: mover.account)
        for _ in 0..<3 {
            let ids = Array(repeating: id(of: content(0)), count: 20)
            #expect(house.fetch(ids, with: client).allSatisfy { $0.code == .storageFailure })
        }
        #expect(try noted(house) == 1)
        #expect(try damagedCount(house) == 1)
        #expect(log.count(of: "Chunks of content cannot be read any more") == 1)
        #expect(house.store([content(0)], with: client).allSatisfy { $0.isSuccess })
        #expect(try noted(house) == 0)
        house.cloud.network.run(for: .seconds(1))
        #expect(try damagedCount(house) == 0)
        #expect(try house.fetch([id(of: content(0))], with: client).first?.get() == content(0))
    }

    /// Rounds of ten minutes.
    private static var configuration: Transfers.Configuration {
        var configuration = Transfers.Configuration()
        configuration.scrubInterval = .seconds(600)
        configuration.scrubBytesASecondLeast = 1
        return configuration
    }

    /// Of several segments.
    private func storeMuch(_ mover: TestBulk, _ house: BulkHouse) throws -> [SegmentID] {
        for first in stride(from: 0, to: 60, by: 10) { _ = try store(first..<first + 10, mover, house) }
        return try house.store.segments(in: ScopeName(mover.account, ItemName("")).partition).map(\.id)
    }

    /// Whoever runs the service need not wait for the interval, and a second time reads all of it once more.
    @Test func whatIsAskedForIsReadAtOnce() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        _ = try storeMuch(mover, house)
        house.cloud.network.run(for: .seconds(60))
        func counters() throws -> [String: UInt64] {
            let health: WireCheckHealthReply = try house.cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters.filter { $0.key.hasPrefix("content.scrub.") }
        }
        #expect(try counters().isEmpty)
        for round: UInt64 in 1...2 {
            if round == 2 { try house.damageAll(of: mover.account) }
            #expect(try noted(house) == 0)
            let request = house.folder + "/" + SegmentStore.scrubRequest
            try #require(FileManager.default.createFile(atPath: request, contents: nil))
            house.cloud.network.run(for: .seconds(40))
            #expect(!FileManager.default.fileExists(atPath: request))
            let found = try counters()
            #expect(found["content.scrub.rounds"] == round && found["content.scrub.unread_segments"] == 0)
            let total = found["content.scrub.bytes_total"] ?? 0
            #expect(total > 100_000 && found["content.scrub.bytes"] == total)
        }
        #expect(try noted(house) > 0)
    }

    /// Nobody asks for the chunk: the disk is read by itself, within the time that is said.
    @Test func aFlippedBitIsFoundWithinTheIntervalAndTold() throws {
        let log = LogLines()
        let house = try BulkHouse(configuration: Self.configuration, log: log)
        let mover = try TestBulk(of: house.cloud)
        // The first round finds nothing to read.
        house.cloud.network.run(for: .seconds(60))
        let segments = try storeMuch(mover, house).count
        #expect(segments >= 5)
        try house.damageAll(of: mover.account)
        house.cloud.network.run(for: .seconds(400))
        #expect(try noted(house) == 0)
        house.cloud.network.run(for: .seconds(600))
        #expect(try noted(house) == segments)
        #expect(try damagedCount(house) == UInt64(segments))
        #expect(log.count(of: "Chunks of content cannot be read any more") == segments)
        // And not told again by the next round.
        house.cloud.network.run(for: .seconds(700))
        #expect(log.count(of: "Chunks of content cannot be read any more") == segments)
    }

    @Test func aRestartKeepsTheNotesAndGoesOnWhereItWas() throws {
        let reads = Reads()
        let house = try BulkHouse(configuration: Self.configuration) { ReadCounter($0, reads) }
        let mover = try TestBulk(of: house.cloud)
        house.cloud.network.run(for: .seconds(60))
        let segments = try storeMuch(mover, house)
        // Into the second round, until some segments are read.
        reads.segments.clear()
        house.cloud.network.run(within: .seconds(1500)) { reads.segments.all.count >= 3 }
        let before = reads.segments.all
        try house.damageAll(of: mover.account)
        try restart(house)
        reads.segments.clear()
        house.cloud.network.run(within: .seconds(1500)) { reads.segments.all.contains(segments[segments.count - 1]) }
        // At most the segment that it was in is read again.
        let again = Set(before).intersection(reads.segments.all)
        #expect(again.count <= 1, "\(again)")
        house.cloud.network.run(for: .seconds(60))
        let count = try noted(house)
        #expect(count > 0 && count < segments.count)
        try restart(house)
        house.cloud.network.run(for: .seconds(15))
        #expect(try noted(house) == count)
        #expect(try damagedCount(house) == UInt64(count))
    }

    private func restart(_ house: BulkHouse) throws {
        house.cloud.crash(.documents)
        house.cloud.network.crash("documents bulk")
        house.cloud.network.run(for: .seconds(1))
        try house.cloud.start(.documents)
    }

    /// A round takes most of its time, and reads no faster than it may.
    @Test func theDiskIsReadNoFasterThanIsSaid() throws {
        let reads = Reads()
        var configuration = Transfers.Configuration()
        configuration.scrubInterval = .seconds(60)
        configuration.scrubBytesASecondLeast = 10_000
        configuration.scrubBytesASecondMax = 20_000
        let house = try BulkHouse(configuration: configuration) { ReadCounter($0, reads) }
        let mover = try TestBulk(of: house.cloud)
        _ = try store(0..<30, mover, house)
        house.cloud.network.run(for: .seconds(70))
        reads.segments.clear()
        reads.bytes.clear()
        house.cloud.network.run(for: .seconds(300))
        let bytes = reads.bytes.all.reduce(0, +)
        // One step may be ahead.
        #expect(bytes > 2_000_000 && bytes <= 20_000 * 300 + 2 << 20, "\(bytes)")
    }

    @Test func aChunkThatGoesTakesItsNoteWithIt() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try store(0..<1, mover, house)
        try house.damageAll(of: mover.account)
        #expect(house.fetch([id(of: content(0))], with: client).map(\.code) == [.storageFailure])
        #expect(try noted(house) == 1)
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try noted(house) == 0)
    }
}

/// What is read by scrubbing.
private final class Reads: Sendable {
    let segments = Kept<SegmentID>()
    let bytes = Kept<Int>()
}

private final class Kept<Value: Sendable>: Sendable {
    private let kept = Mutex<[Value]>([])
    var all: [Value] { kept.withLock { $0 } }
    func add(_ value: Value) { kept.withLock { $0.append(value) } }
    func clear() { kept.withLock { $0 = [] } }
}

private struct ReadCounter: BlobStore {
    let store: SegmentStore
    let reads: Reads

    init(_ store: SegmentStore, _ reads: Reads) {
        self.store = store
        self.reads = reads
    }

    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        try store.put(&group, in: partition)
    }
    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        try store.read(place, of: id, into: bytes)
    }
    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        if offset == 0 { reads.segments.add(segment) }
        reads.bytes.add(bytes.count)
        return try store.readRaw(segment, at: offset, into: bytes)
    }
    func remove(_ segment: SegmentID) throws { try store.remove(segment) }
    func segments(in partition: Int) throws -> [SegmentState] { try store.segments(in: partition) }
    var room: DiskRoom? { store.room }
}
