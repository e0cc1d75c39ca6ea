import NephosBulk
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// Whatever is killed at whatever moment: what was answered is there, and what is sent again is stored once.
@Suite struct CrashTests {
    /// Runs something between the flush and the rows.
    private final class Watched: BlobStore {
        let inner: SegmentStore
        let afterPut = Mutex<(@Sendable () throws -> Void)?>(nil)
        init(_ inner: SegmentStore) { self.inner = inner }

        func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
            let stored = try inner.put(&group, in: partition)
            try afterPut.withLock { $0 }?()
            return stored
        }
        func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
            try inner.read(place, of: id, into: bytes)
        }
        func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
            try inner.readRaw(segment, at: offset, into: bytes)
        }
        func remove(_ segment: SegmentID) throws { try inner.remove(segment) }
        func segments(in partition: Int) throws -> [SegmentState] { try inner.segments(in: partition) }
        var room: DiskRoom? { inner.room }
    }

    @Test func killedBetweenTheFlushAndTheRows() throws {
        var watched: Watched?
        let house = try BulkHouse(wrapping: {
            let made = Watched($0)
            watched = made
            return made
        })
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        let network = house.cloud.network
        let killed = Atomic(false)
        watched?.afterPut.withLock {
            $0 = {
                guard !killed.exchange(true, ordering: .relaxed) else { return }
                network.crash("documents")
                network.crash("documents bulk")
            }
        }
        let results = Results<Void>(1)
        client.store(bytes: 100_000, { $0.fill(with: content(1)) }) { results.note($0, 0) }
        network.run(within: .seconds(5)) { killed.load(ordering: .relaxed) }
        network.run(for: .seconds(1))
        #expect(!results.areAll)
        #expect(try house.chunkCount(of: mover.account) == 0)
        try house.cloud.start(.documents)
        network.run(within: .seconds(60)) { results.areAll }
        #expect(results.all.allSatisfy { $0.isSuccess })
        #expect(try house.fetch([id(of: content(1))], with: client).first?.get() == content(1))
        #expect(try house.chunkCount(of: mover.account) == 1)
    }

    @Test func whatAKillLeftWithoutRowsIsGivenBack() throws {
        var watched: Watched?
        var configuration = Transfers.Configuration()
        configuration.upkeepInterval = .seconds(60)
        configuration.emptiedRetention = .seconds(3600)
        let house = try BulkHouse(
            configuration: configuration,
            wrapping: {
                let made = Watched($0)
                watched = made
                return made
            })
        let mover = try TestBulk(of: house.cloud)
        let network = house.cloud.network
        func send(_ chunk: [UInt8]) throws {
            try mover.send(frame(ticket(house.open(mover, upload: upload(1), bytes: 2 << 20)), chunk))
            network.run(for: .seconds(1))
        }
        watched?.afterPut.withLock {
            $0 = {
                network.crash("documents")
                network.crash("documents bulk")
            }
        }
        try send(content(1, count: 900_000))
        watched?.afterPut.withLock { $0 = nil }
        try house.cloud.start(.documents)
        // This one does not fit into the same segment.
        try send(content(2, count: 400_000))
        #expect(try house.chunkCount(of: mover.account) == 1)
        #expect(try house.diskBytes(of: mover.account) > 1_300_000)
        // An older database may have been brought back: what it does not know stays for a time.
        network.run(for: .seconds(3000))
        #expect(try house.diskBytes(of: mover.account) > 1_300_000)
        network.run(for: .seconds(6000))
        #expect(try house.diskBytes(of: mover.account) < 500_000)
    }

    @Test func killedBetweenTheRowsAndTheAnswer() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        let results = Results<Void>(1)
        client.store(bytes: 100_000, { $0.fill(with: content(1)) }) { results.note($0, 0) }
        house.cloud.network.run(within: .seconds(5)) { (try? house.chunkCount(of: mover.account)) == 1 }
        house.cloud.crash(.documents)
        house.cloud.network.run(for: .seconds(1))
        #expect(!results.areAll)
        try house.cloud.start(.documents)
        house.cloud.network.run(within: .seconds(60)) { results.areAll }
        #expect(results.all.allSatisfy { $0.isSuccess })
        #expect(try house.chunkCount(of: mover.account) == 1)
        let opened = try house.open(mover, upload: upload(1), bytes: 1 << 20)
        #expect(opened.storedBytes == 100_000)
        #expect(opened.reservedBytes == 1 << 20)
    }

    @Test func aRestartInTheMiddleOfMuchIsNotNoticed() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let chunks = (0..<200).map { content($0) }
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 32 << 20))
        let results = Results<Void>(chunks.count)
        for (index, chunk) in chunks.enumerated() {
            client.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, index) }
        }
        for _ in 0..<5 {
            house.cloud.network.run(for: .milliseconds(7))
            house.cloud.crash(.documents)
            house.cloud.network.run(for: .milliseconds(20))
            try house.cloud.start(.documents)
        }
        house.cloud.network.run(within: .seconds(120)) { results.areAll }
        #expect(results.all.allSatisfy { $0.isSuccess })
        let fetched = house.fetch(chunks.map(id), with: client)
        #expect(try fetched.map { try $0.get() } == chunks)
        #expect(try house.chunkCount(of: mover.account) == 200)
    }

    @Test func aDeviceThatWasKilledGoesOnUnderTheSameID() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let chunks = (0..<20).map { content($0) }
        let purpose = BulkClient.Purpose(upload: upload(1), uploadBytes: 2_000_000)
        let first = try mover.connect(purpose)
        let results = Results<Void>(chunks.count)
        for (index, chunk) in chunks.enumerated() {
            first.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, index) }
        }
        house.cloud.network.run(within: .seconds(5)) { ((try? house.chunkCount(of: mover.account)) ?? 0) > 3 }
        let second = try mover.connect(purpose)
        // The room is exactly what is needed, so nothing may count twice.
        #expect(house.store(chunks, with: second).allSatisfy { $0.isSuccess })
        #expect(try house.chunkCount(of: mover.account) == 20)
        #expect(try house.used(by: mover.account) == 2_000_000)
    }

    @Test func aFullDiskIsToldAndNothingCounts() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        house.cloud.setCommitsFail(of: .documents, true)
        try mover.send(frame(good, content(1)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.failure.code == .storageFailure)
        house.cloud.setCommitsFail(of: .documents, false)
        mover.clear()
        try mover.send(frame(good, content(1)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
        #expect(try house.open(mover, upload: upload(1), bytes: 1 << 20).storedBytes == 100_000)
    }
}
