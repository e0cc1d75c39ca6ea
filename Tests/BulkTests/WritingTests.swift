import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosBulk

/// What is written and removed again is bounded too: it stays on disk for a time.
@Suite struct WritingTests {
    private static let megabyte = 1 << 20

    /// A cloud in which the account "small" may store 2 MB and write 8 within a day.
    private func makeHouse(seed: UInt64 = 1) throws -> BulkHouse {
        var configuration = Transfers.Configuration()
        configuration.writtenADayLeast = UInt64(4 * Self.megabyte)
        let house = try BulkHouse(seed: seed, configuration: configuration)
        try house.cloud.savePlan("small", bytes: UInt64(2 * Self.megabyte))
        try house.cloud.createAccount("small", plan: "small")
        return house
    }

    /// Opens an upload, stores a megabyte in it, and closes it.
    private func storeAndClose(_ number: Int, _ mover: TestBulk, _ house: BulkHouse) throws -> BulkFrame? {
        let id = (0..<16).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
        mover.clear()
        try mover.send(
            frame(
                ticket(house.open(mover, upload: id, bytes: UInt64(Self.megabyte))),
                content(number, count: Self.megabyte)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        try house.close(mover, upload: id)
        house.cloud.network.run(for: .milliseconds(200))
        return mover.frames.first
    }

    @Test func whoStoresAndRemovesWithoutAnEndIsToldToWait() throws {
        let house = try makeHouse()
        let mover = try TestBulk(of: house.cloud, account: "small")
        let answers = try (0..<20).map { try storeAndClose($0, mover, house) }
        let refused = answers.compactMap { $0 }.filter { $0.kind == .refused }
        #expect(answers.prefix(7).allSatisfy { $0?.kind == .stored })
        #expect(refused.count == 13)
        #expect(refused.allSatisfy { $0.failure.code == .requestRateLimited })
        #expect(try house.used(by: mover.account) == 0)
        #expect(try house.diskBytes(of: mover.account) < 9 * Self.megabyte)
        // Another account is not concerned.
        let other = try TestBulk(of: house.cloud)
        #expect(try storeAndClose(100, other, house)?.kind == .stored)
        // A restart forgives nothing.
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(1))
        let still = try #require(try storeAndClose(200, mover, house))
        #expect(still.failure.code == .requestRateLimited)
        // When it is said to come back it is taken.
        let wait = try #require(still.failure.retryAfter)
        #expect(wait >= .seconds(1) && wait < .seconds(6 * 3600))
        house.cloud.network.run(for: wait)
        let late = try TestBulk(of: house.cloud, account: "small")
        #expect(try storeAndClose(300, late, house)?.kind == .stored)
    }

    /// What the account has already is not written, and so is not refused either.
    @Test func whatIsThereAlreadyNeedsNothing() throws {
        let house = try makeHouse()
        let mover = try TestBulk(of: house.cloud, account: "small")
        let kept = try ticket(house.open(mover, upload: upload(1), bytes: UInt64(Self.megabyte / 2)))
        try mover.send(frame(kept, content(1)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        let answers = try (2..<12).map { try storeAndClose($0, mover, house) }
        #expect(answers.last??.failure.code == .requestRateLimited)
        mover.clear()
        try mover.send(frame(kept, content(1)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
    }

    /// A chunk that was written and refused afterwards has taken its room all the same.
    @Test func whatIsWrittenAndRefusedCountsToo() throws {
        let house = try makeHouse()
        let mover = try TestBulk(of: house.cloud, account: "small")
        house.cloud.network.faults.latency = .milliseconds(1)...(.milliseconds(1))
        var refused = 0
        for number in 0..<20 {
            let good = try ticket(house.open(mover, upload: upload(UInt8(number)), bytes: UInt64(Self.megabyte)))
            mover.clear()
            house.cloud.network.offloadTime = .milliseconds(20)
            try mover.send(frame(good, content(number, count: Self.megabyte)))
            house.cloud.network.run(for: .milliseconds(5))
            // It is being written.
            try house.close(mover, upload: upload(UInt8(number)))
            house.cloud.network.run(within: .seconds(5)) { mover.frames.contains { $0.number == 1 } }
            house.cloud.network.run(for: .milliseconds(300))
            refused += mover.frames.contains { $0.number == 1 && $0.failure.code == .requestRateLimited } ? 1 : 0
        }
        #expect(refused >= 10)
        #expect(try house.diskBytes(of: mover.account) < 9 * Self.megabyte)
    }

    /// Else a small chunk that stays keeps a whole segment of them on disk, and so does the next.
    @Test func whatIsWrittenAndRefusedIsKnownToBeDeadRoom() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(0, count: 4096)], with: client).allSatisfy { $0.isSuccess })
        let partition = ScopeName(mover.account, ItemName("")).partition
        let segment = try #require(try house.store.segments(in: partition).first).id
        house.cloud.network.faults.latency = .milliseconds(1)...(.milliseconds(1))
        let good = try ticket(house.open(mover, upload: upload(2), bytes: UInt64(Self.megabyte)))
        house.cloud.network.offloadTime = .milliseconds(20)
        try mover.send(frame(good, content(1, count: Self.megabyte / 2)))
        house.cloud.network.run(for: .milliseconds(5))
        // It is being written.
        try house.close(mover, upload: upload(2))
        house.cloud.network.run(for: .milliseconds(300))
        #expect(mover.frames.contains { $0.kind == .refused })
        let length = try house.store.segments(in: partition).first { $0.id == segment }?.length
        let use = try house.cloud.storage(of: .documents).write { try ChunkIndex.use(of: segment, in: $0) }
        #expect(try #require(use?.length) == length && #require(length) > Self.megabyte / 2)
        #expect(try #require(use?.liveBytes) < 8192)
    }

    /// The same where a crash, or a disk that was full, kept the transaction from saying so.
    @Test func whatACrashLeftInASegmentIsFoundAndFreed() throws {
        var configuration = Transfers.Configuration()
        configuration.upkeepInterval = .seconds(1)
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(0, count: 4096)], with: client).allSatisfy { $0.isSuccess })
        let partition = ScopeName(mover.account, ItemName("")).partition
        let segment = try #require(try house.store.segments(in: partition).first).id
        var group = ChunkGroup()
        try group.append(id(of: content(1)), sealed: content(1))
        try house.store.put(&group, in: partition).release()
        house.store.closeFiles()
        house.cloud.network.run(for: .seconds(60))
        #expect(try house.cloud.storage(of: .documents).write { try ChunkIndex.use(of: segment, in: $0) } == nil)
        let kept = content(0, count: 4096)
        #expect(try house.fetch([id(of: kept)], with: client).first?.get() == kept)
    }

    /// It was noted by a clock that was behind, or before the machine slept: a backup that is under way, or an older
    /// database, may name it.
    @Test(arguments: ["set", "slept", "set and started again"])
    func whatWasEmptiedBeforeTheClockWasSetIsKeptForItsTime(_ what: String) throws {
        var configuration = Transfers.Configuration()
        configuration.upkeepInterval = .seconds(20)
        configuration.emptiedRetention = .seconds(100)
        let house = try BulkHouse(configuration: configuration)
        let storage = try house.cloud.storage(of: .documents)
        let emptied = SQL("SELECT COUNT(*) FROM content_emptied")
        house.cloud.network.run(for: .seconds(30))
        let now = SimulatedNetwork.epoch.advanced(by: house.cloud.network.now)
        _ = try storage.write { try ChunkIndex.noteEmptied([SegmentID(partition: 3, number: 7)], at: now, in: $0) }
        house.cloud.network.run(for: .seconds(30))
        let week = Duration.seconds(7 * 24 * 3600)
        if what == "slept" {
            house.cloud.skip(week, of: .documents)
        } else {
            house.cloud.setClockOffset(of: .documents, week)
        }
        // Before the next round, and after it was written down how far the clock has come.
        house.cloud.network.run(for: .seconds(12))
        if what == "set and started again" {
            house.cloud.crash(.documents)
            try house.cloud.start(.documents)
        }
        // After a round, and before its time is over by a clock that is twice as fast.
        house.cloud.network.run(for: .seconds(18))
        #expect(try storage.write { try $0.first(emptied, []) { $0.integer(0) } } == 1)
        house.cloud.network.run(for: .seconds(130))
        #expect(try storage.write { try $0.first(emptied, []) { $0.integer(0) } } == 0)
    }

    @Test func aClockThatWasSetBackForgivesNothingAndKeepsNobodyOutForLong() throws {
        let writing = Writing(bytes: 8 << 20, bytesMax: 8 << 20)
        #expect(writing.after(.seconds(-3600)) == writing)
        #expect(writing.after(.seconds(12 * 3600)).bytes == 4 << 20)
        #expect(writing.after(.seconds(365 * 24 * 3600)).bytes == 0)
        let wait = try #require(Writing(bytes: .max, bytesMax: 8 << 20).refusal(of: .max)?.retryAfter)
        #expect(wait <= .seconds(48 * 3600))
        #expect(Writing(bytes: 0, bytesMax: 0).refusal(of: .max)?.code == .requestRateLimited)
        // What is on its way counts as much as what was written.
        #expect(Writing(bytes: 1 << 20, bytesMax: 8 << 20).refusal(of: 7 << 20) == nil)
        #expect(Writing(bytes: 1 << 20, bytesMax: 8 << 20).refusal(of: 9 << 20) != nil)
        #expect(Writing.bytesMax(ofPlan: .max, least: 1, plans: 4) == .max)
        #expect(Writing.bytesMax(ofPlan: 0, least: 5, plans: 4) == 5)
    }
}
