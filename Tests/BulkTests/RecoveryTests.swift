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

/// A note of damage ends with what it was of, and is not made of what is no damage.
@Suite struct RecoveryTests {
    private let ills = Ills()
    private let log = LogLines()
    private let house: BulkHouse
    private let mover: TestBulk

    init() throws {
        var configuration = Transfers.Configuration()
        configuration.scrubInterval = .seconds(600)
        configuration.scrubBytesASecondLeast = 1
        house = try BulkHouse(configuration: configuration, log: log) { [ills] in IllStore($0, ills) }
        mover = try TestBulk(of: house.cloud)
    }

    private func noted() throws -> Int {
        try house.cloud.storage(of: .documents).write { try DamagedChunks.count(in: $0) }
    }

    private func damagedCount() throws -> UInt64? {
        let health: WireCheckHealthReply = try house.cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters["chunks.damaged"]
    }

    private func missing() throws -> UInt64? {
        let health: WireCheckHealthReply = try house.cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters["content.missing"]
    }

    private func store(_ numbers: Range<Int>) throws -> BulkClient {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store(numbers.map { content($0) }, with: client).allSatisfy { $0.isSuccess })
        return client
    }

    private func fetch(_ number: Int, _ client: BulkClient) -> Result<[UInt8], CloudError>? {
        house.fetch([id(of: content(number))], with: client).first
    }

    @Test func aFetchThatOpensAChunkForgetsItsNote() throws {
        let client = try store(0..<1)
        house.cloud.network.run(for: .seconds(11))
        ills.set(.unreadable)
        #expect(fetch(0, client)?.code == .storageFailure)
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 1 && damagedCount() == 1)
        ills.set(nil)
        #expect(try fetch(0, client)?.get() == content(0))
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 0 && damagedCount() == 0)
    }

    @Test func aRoundOfScrubbingForgetsWhatTheDiskGivesBackAgain() throws {
        house.cloud.network.run(for: .seconds(60))
        _ = try store(0..<3)
        ills.set(.unreadable)
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() == 3 && damagedCount() == 3)
        #expect(log.count(of: "Chunks of content cannot be read any more") >= 1)
        ills.set(nil)
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() == 0 && damagedCount() == 0)
    }

    /// Its bytes are what was put: to read them shows nothing.
    @Test func whatDidNotOpenIsWholeOnceItOpens() throws {
        let client = try store(0..<1)
        ills.set(.unopened)
        #expect(fetch(0, client)?.code == .storageFailure)
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() == 1)
        ills.set(nil)
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() == 1)
        #expect(try fetch(0, client)?.get() == content(0))
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 0)
    }

    /// The service is older than what it has stored.
    @Test func whatANewerVersionHasSealedIsNotDamaged() throws {
        let client = try store(0..<1)
        ills.set(.suite)
        guard case .failure(let error)? = fetch(0, client) else {
            Issue.record("It was opened.")
            return
        }
        #expect(error.code == .storageFailure && error.details["reason"] == "version")
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 0)
    }

    /// Its disk is not mounted: no device is told to send everything again.
    @Test func aFolderThatIsNotThereIsToldAndNothingIsNoted() throws {
        let client = try store(0..<3)
        #expect(try missing() ?? 0 == 0)
        ills.set(.unmounted)
        for _ in 0..<3 {
            guard case .failure(let error)? = fetch(0, client) else {
                Issue.record("It was read.")
                return
            }
            #expect(error.code == .storageFailure && error.details["reason"] == "content_missing")
        }
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() == 0)
        #expect(try missing() == 1)
        #expect((1...4).contains(log.count(of: "Most segments of content are not in their folder")))
        ills.set(nil)
        #expect(try fetch(0, client)?.get() == content(0))
        house.cloud.network.run(for: .seconds(31))
        #expect(try missing() == 0)
    }

    /// What is put there would be hidden once the disk is mounted, and would count as most of what there is.
    @Test func aFolderThatIsNotThereTakesNothingBeforeItsLossIsAccepted() throws {
        let client = try store(0..<1)
        ills.set(.unmounted)
        let partition = ScopeName(mover.account, ItemName("")).partition
        let before = try house.store.segments(in: partition)
        // It is not known yet, then it is; the first of them is there already, and cannot be read.
        for seconds in [0, 31] {
            house.cloud.network.run(for: .seconds(seconds))
            for result in house.store((0..<3).map { content($0) }, with: client) {
                guard case .failure(let error) = result else {
                    Issue.record("It was taken.")
                    continue
                }
                #expect(error.code == .storageFailure && error.details["reason"] == "content_missing")
            }
        }
        #expect(try missing() == 1)
        #expect(try house.store.segments(in: partition) == before)
        ills.accept()
        #expect(house.store((0..<3).map { content($0) }, with: client).allSatisfy { $0.isSuccess })
    }

    /// The disk goes while the service runs, which has its files open still, and comes back.
    @Test func aFolderThatIsEmptyAllOfASuddenTakesNothing() throws {
        let client = try store(0..<1)
        let away = house.folder + "-away"
        let files = FileManager.default
        try files.moveItem(atPath: house.folder, toPath: away)
        try files.createDirectory(atPath: house.folder, withIntermediateDirectories: false)
        guard case .failure(let error)? = house.store([content(1)], with: client).first else {
            Issue.record("It was taken.")
            return
        }
        #expect(error.code == .storageFailure && error.details["reason"] == "content_missing")
        #expect(try files.contentsOfDirectory(atPath: house.folder).isEmpty)
        try files.removeItem(atPath: house.folder)
        try files.moveItem(atPath: away, toPath: house.folder)
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        for number in 0..<2 { #expect(try fetch(number, client)?.get() == content(number)) }
    }

    /// Whoever runs the service says that it will not come back.
    @Test func whatIsLostForGoodIsNotedOnceThatIsAccepted() throws {
        let client = try store(0..<3)
        ills.set(.unmounted)
        house.cloud.network.run(for: .seconds(31))
        #expect(try missing() == 1)
        ills.accept()
        house.cloud.network.run(for: .seconds(31))
        #expect(try missing() == 0)
        guard case .failure(let error)? = fetch(0, client) else {
            Issue.record("It was read.")
            return
        }
        #expect(error.code == .storageFailure && error.details["reason"] == "damaged")
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 1)
    }

    /// Nobody has to fetch anything for it.
    @Test func aFolderThatIsLostOrCannotBeReadIsToldWithoutBeingAskedFor() throws {
        _ = try store(0..<1)
        for (ill, words) in [
            (Ills.Ill.unmounted, "Most segments of content are not in their folder"),
            (.unlisted, "The folder of content cannot be read"),
        ] {
            ills.set(ill)
            house.cloud.network.run(for: .seconds(31))
            #expect(try missing() == 1)
            #expect(log.count(of: words) == 1)
            ills.set(nil)
            house.cloud.network.run(for: .seconds(31))
            #expect(try missing() == 0)
        }
    }

    /// One of several is lost, and what lay in it can be healed.
    @Test func whatASegmentThatIsLostHeldIsNoted() throws {
        let client = try store(0..<1)
        for first in stride(from: 1, to: 40, by: 13) { _ = try store(first..<first + 13) }
        let partition = ScopeName(mover.account, ItemName("")).partition
        let segments = try house.store.segments(in: partition)
        #expect(segments.count > 2)
        try house.store.remove(segments[0].id)
        let again = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        _ = client
        #expect(fetch(0, again)?.code == .storageFailure)
        house.cloud.network.run(for: .seconds(1))
        #expect(try noted() == 1)
    }

    /// Neither missing nor unreadable in the way of a bad sector: its inode is broken, or its mode is.
    @Test func whatTheDiskRefusesToOpenIsDamagedAndHeals() throws {
        for first in stride(from: 0, to: 40, by: 13) { _ = try store(first..<first + 13) }
        let partition = ScopeName(mover.account, ItemName("")).partition
        let segment = try #require(try house.store.segments(in: partition).first).id
        let file = house.folder + "/" + (try #require(segment.filePath))
        try FileManager.default.removeItem(atPath: file)
        try FileManager.default.createSymbolicLink(atPath: file, withDestinationPath: file)
        house.store.closeFiles()
        house.cloud.network.run(for: .seconds(1300))
        #expect(try noted() > 0)
        #expect(try missing() ?? 0 == 0)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(fetch(0, client)?.code == .storageFailure)
        #expect(house.store([content(0)], with: client).allSatisfy { $0.isSuccess })
        #expect(try fetch(0, client)?.get() == content(0))
    }

    /// Of each file is known only that it could not be looked at.
    @Test func aSegmentThatCannotBeReadThroughKeepsNoneBehindItFromThat() throws {
        house.cloud.network.run(for: .seconds(30))
        for first in stride(from: 0, to: 40, by: 13) { _ = try store(first..<first + 13) }
        let segments = try house.store.segments(in: ScopeName(mover.account, ItemName("")).partition)
        ills.fail(try #require(segments.first).id)
        try house.store.remove(try #require(segments.last).id)
        house.cloud.network.run(for: .seconds(2000))
        #expect(try noted() > 0)
        #expect((1...3).contains(log.count(of: "A segment of content could not be read through")))
    }

    /// Nor does a machine that is busy have one passed over.
    @Test func aSegmentIsReadThroughOnceThereIsTime() throws {
        house.cloud.network.run(for: .seconds(30))
        for first in stride(from: 0, to: 40, by: 13) { _ = try store(first..<first + 13) }
        let segments = try house.store.segments(in: ScopeName(mover.account, ItemName("")).partition)
        ills.fail(try #require(segments.first).id, with: CloudError(.serviceBusy, "The pool is full."))
        house.cloud.network.run(for: .seconds(3600))
        #expect(log.count(of: "A segment of content could not be read through") == 0)
        // It is not busy for ever.
        house.cloud.network.run(for: .seconds(7200))
        #expect(log.count(of: "A segment of content could not be read through") == 1)
    }

    /// It may be the last who has it that sends it again.
    @Test func whatNobodyCanSayIsThereIsPutAgain() throws {
        let client = try store(0..<1)
        ills.set(.failing)
        #expect(fetch(0, client)?.code == .storageFailure)
        #expect(house.store((0..<2).map { content($0) }, with: client).allSatisfy { $0.isSuccess })
        ills.set(nil)
        for number in 0..<2 { #expect(try fetch(number, client)?.get() == content(number)) }
    }

    /// What goes with its chunk is counted no more either.
    @Test func theCountFallsWhenNotedChunksAreRemoved() throws {
        let client = try store(0..<2)
        house.cloud.network.run(for: .seconds(11))
        ills.set(.unreadable)
        for number in 0..<2 { #expect(fetch(number, client)?.code == .storageFailure) }
        house.cloud.network.run(for: .seconds(2))
        // Also the second, which came while the first was counted.
        #expect(try damagedCount() == 2)
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .seconds(5))
        #expect(try noted() == 0 && damagedCount() == 0)
    }
}

/// What ails the disk.
private final class Ills: Sendable {
    enum Ill { case unreadable, unopened, suite, unmounted, unlisted, failing }

    private let ill = Mutex<Ill?>(nil)
    var now: Ill? { ill.withLock { $0 } }
    func set(_ new: Ill?) { ill.withLock { $0 = new } }

    private let segment = Mutex<(id: SegmentID, failure: CloudError)?>(nil)
    /// Reading it through fails, and nobody knows why.
    func failure(of other: SegmentID) -> CloudError? {
        segment.withLock { segment in segment.flatMap { $0.id == other ? $0.failure : nil } }
    }
    func fail(_ new: SegmentID, with failure: CloudError = IllStore.failure) {
        segment.withLock { $0 = (new, failure) }
    }

    private let accepted = Mutex(false)
    var isAccepted: Bool { accepted.withLock { $0 } }
    func accept() { accepted.withLock { $0 = true } }
}

/// A store that gives back what a disk that ails gives back.
private struct IllStore: BlobStore {
    let store: SegmentStore
    let ills: Ills

    init(_ store: SegmentStore, _ ills: Ills) {
        self.store = store
        self.ills = ills
    }

    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        try store.put(&group, in: partition)
    }
    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        switch ills.now {
        case .unreadable: throw ChunkFailure.damaged(place)
        case .unmounted: throw ChunkFailure.moved(place)
        case .failing: throw Self.failure
        case .unopened, .suite, .unlisted, nil: break
        }
        try store.read(place, of: id, into: bytes)
        if ills.now == .unopened { bytes[bytes.count - 1] ^= 1 }
        if ills.now == .suite { bytes[0] = 99 }
    }
    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        let place = SegmentPlace(segment: segment, offset: offset, length: bytes.count)
        if let failure = ills.failure(of: segment) { throw failure }
        switch ills.now {
        case .unreadable: throw ChunkFailure.damaged(place)
        case .unmounted: throw ChunkFailure.moved(place)
        case .unopened, .suite, .unlisted, .failing, nil: return try store.readRaw(segment, at: offset, into: bytes)
        }
    }
    static let failure = CloudError(.storageFailure, "Too many files are open.")
    func remove(_ segment: SegmentID) throws { try store.remove(segment) }
    func segments(in partition: Int) throws -> [SegmentState] {
        switch ills.now {
        case .unmounted: []
        case .unlisted: throw CloudError(.storageFailure, "The disk does not answer.")
        default: try store.segments(in: partition)
        }
    }
    var room: DiskRoom? { store.room }
    var isLossAccepted: Bool { ills.isAccepted }
}
