import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// What a device's own half does when the service is slow, or refuses it.
@Suite struct ClientTests {
    @Test func whatIsSentAgainBecauseTheDiskIsSlowIsNotLost() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        // All of the credit is under way, for longer than a device waits.
        house.cloud.network.offloadTime = .seconds(8)
        let chunks = (0..<12).map { content($0, count: 1 << 20) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
        #expect(try house.chunkCount(of: mover.account) == 13)
    }

    /// A service that answers each request with bytes of its own, under the id that was asked for.
    private final class Liar {
        var socket: (any ReplySocket)?
        var isHonest = false
        let chunk = content(1)

        func answer(_ incoming: Incoming) {
            guard !incoming.isProbe else {
                _ = socket?.send([BulkFrame.control(.greeting, .none)], to: incoming.peer)
                return
            }
            let request = BulkFrame(incoming.message[0])
            guard request.kind == .get else { return }
            let bytes = isHonest ? chunk : content(2)
            _ = socket?.send(
                [frame(request.ticket, number: request.number, bytes, as: request.chunk)], to: incoming.peer)
        }
    }

    @Test func aChunkWithOtherBytesThanItsIdNamesIsRefused() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let transport = InProcessTransport(house.cloud.network)
        let (liar, address) = (Liar(), "tcp://127.0.0.1:7999")
        let keys = try transport.makeKeyPair()
        let holder = Unshared(liar)
        _ = try transport.startLoop(named: "liar") { loop in
            holder.value.socket = try loop.makeReplySocket(ReplySocketOptions(endpoint: address, keys: keys)) {
                for one in $0 { holder.value.answer(one) }
            }
        }
        let made = Unshared(MadeClient())
        let options = RequestSocketOptions(
            endpoints: [address], serverKey: keys.publicKey, keys: mover.client.keys)
        let pass = BulkClient.Pass(ticket: try ticket(house.open(mover)), creditBytes: 1 << 20)
        _ = try transport.startLoop(named: "device") { loop in
            made.value.client = try BulkClient(
                loop: loop, socket: options, purpose: BulkClient.Purpose(), generator: SplitMix64(seed: 7)
            ) { _, done in loop.schedule(after: .milliseconds(1)) { done(.success(pass)) } }
        }
        let client = try #require(made.value.client)
        let asked = id(of: liar.chunk)
        #expect(house.fetch([asked], with: client).map(\.code) == [.storageFailure])
        liar.isHonest = true
        #expect(try house.fetch([asked], with: client).first?.get() == liar.chunk)
    }

    private final class MadeClient { var client: BulkClient? }

    @Test func twoClientsOfADeviceShareItsCredit() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        // Another one of the device has nearly all of it.
        let good = try ticket(house.open(mover, upload: upload(2), bytes: 8 << 20))
        house.cloud.network.offloadTime = .seconds(1)
        for number in 0..<7 {
            try mover.send(frame(good, number: UInt64(number), content(number + 50, count: 1 << 20)))
        }
        house.cloud.network.run(for: .milliseconds(10))
        let chunks = (0..<4).map { content($0, count: 1 << 20) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
    }

    /// What the connection was for is over for the service too, which says so: nothing is opened again for that.
    @Test func aConnectionIsUsedForTheNextUpload() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 4 << 20))
        #expect(!client.rest(), "There is no ticket yet.")
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        #expect(client.rest())
        #expect(client.creditBytes == 0)
        house.cloud.network.run(for: .seconds(60))
        client.hasten()
        #expect(client.creditBytes == 0, "It asks for no ticket while it rests.")
        #expect(client.resume(for: BulkClient.Purpose(upload: upload(2), uploadBytes: 4 << 20)))
        #expect(!client.resume(for: BulkClient.Purpose(upload: upload(3), uploadBytes: 4 << 20)))
        #expect(house.store([content(2)], with: client).allSatisfy { $0.isSuccess })
        #expect(try house.chunkCount(of: mover.account) == 2)
        client.cancel()
        #expect(!client.rest())
        #expect(!client.resume(for: BulkClient.Purpose()))
    }

    @Test(arguments: [UInt64(1), 2, 3])
    func whatIsLostDoubledOrOvertakenIsMadeUpFor(seed: UInt64) throws {
        let house = try BulkHouse(seed: seed)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.faults = Faults(loss: 0.05, duplication: 0.05, reordering: 0.05)
        let chunks = (0..<100).map { content($0) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
        #expect(try house.fetch(chunks.map(id), with: client).map { try $0.get() } == chunks)
        #expect(try house.chunkCount(of: mover.account) == 101)
    }

    /// Nothing is told a second time that one is connected.
    @Test func aGreetingThatIsLostIsMadeUpFor() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        house.cloud.network.faults = Faults(loss: 1)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        house.cloud.network.run(for: .milliseconds(500))
        house.cloud.network.faults = .none
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
    }

    /// Whoever reads gives up after half a minute in which nothing came, and has heard nothing yet by which the line
    /// could be known.
    @Test(arguments: [1, 40]) func whatIsLostBeforeAnythingWasHeardIsFetchedInTime(count: Int) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        // Of more than the service may send at once.
        let chunks = (0..<count).map { content($0, count: 200_000) }
        let first = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store(chunks, with: first).allSatisfy { $0.isSuccess })
        let client = try mover.connect(BulkClient.Purpose())
        house.cloud.network.run(for: .seconds(5))
        house.cloud.network.offloadTime = .milliseconds(10)
        var fetched: [Int: [UInt8]] = [:]
        for (index, chunk) in chunks.enumerated() {
            client.fetch(id(of: chunk)) { fetched[index] = try? $0.get().withContent { [UInt8]($0) } }
        }
        // The requests arrive, and no answer does.
        house.cloud.network.run(for: .milliseconds(5))
        house.cloud.network.faults = Faults(loss: 1)
        house.cloud.network.run(for: .seconds(9))
        house.cloud.network.faults = .none
        #expect(fetched.isEmpty)
        _ = house.cloud.network.run(within: .seconds(20)) { fetched.count == count }
        #expect(fetched.count == count && fetched.allSatisfy { $0.value == chunks[$0.key] })
    }

    /// A line on which the first answer takes a while carries nothing twice but that one.
    @Test func aSlowLineIsNotFilledWithWhatIsOnItsWay() throws {
        let reads = Counter()
        let house = try BulkHouse { CountingStore($0, reads) }
        let mover = try TestBulk(of: house.cloud)
        let chunks = (0..<20).map { content($0, count: 100_000) }
        let first = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store(chunks, with: first).allSatisfy { $0.isSuccess })
        let client = try mover.connect(BulkClient.Purpose())
        house.cloud.network.run(for: .seconds(5))
        house.cloud.network.faults = Faults(latency: .seconds(12)...(.seconds(12)))
        #expect(try house.fetch(chunks.map(id), with: client).map { try $0.get() } == chunks)
        house.cloud.network.run(for: .seconds(60))
        #expect(reads.count.withLock { (20...23).contains($0) })
    }

    @Test func whoIsGivenTicketsThatAreNoneAsksMoreAndMoreSeldom() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        var generator = SplitMix64(seed: 3)
        let asked = Asked()
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20)) { _, done in
            asked.count += 1
            done(.success(BulkClient.Pass(ticket: BulkTicket(using: &generator), creditBytes: 8 << 20)))
        }
        client.store(bytes: 1000, { $0.fill(with: content(1, count: 1000)) }) { _ in }
        house.cloud.network.run(for: .seconds(60))
        #expect(asked.count > 3)
        #expect(asked.count < 30)
    }

    private final class Asked {
        var count = 0
    }

    /// It is what this device keeps in memory, and less than a chunk would never begin.
    @Test(arguments: [UInt64(0), 10, 1 << 63, .max]) func aCreditThatCannotBeMeantIsBounded(credit: UInt64) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 16 << 20))
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20)) { _, done in
            house.cloud.network.later(.milliseconds(1)) {
                done(.success(BulkClient.Pass(ticket: good, creditBytes: credit)))
            }
        }
        house.cloud.network.run(for: .seconds(1))
        #expect((BulkLimits.chunkBytesMax...BulkLimits.creditBytes).contains(client.room))
        #expect(house.store([content(1, count: 1 << 20)], with: client).allSatisfy { $0.isSuccess })
    }

    /// However long the service is away.
    @Test(arguments: [Duration.seconds(40), .seconds(3600)]) func aServiceThatComesBackIsGoneOnWith(
        away: Duration
    ) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        let waits = Waits()
        client.onProgress = { [unowned client] in
            if let wait = client.progress.waiting { waits.all.append(wait) }
        }
        house.cloud.crash(.documents)
        let results = Results<Void>(20)
        for number in 0..<20 {
            let chunk = content(number)
            client.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, number) }
        }
        let fetched = Results<BulkFrame>(1)
        client.fetch(id(of: content(100))) { fetched.note($0, 0) }
        house.cloud.network.run(for: away)
        #expect(results.answered == 0 && client.ended == nil)
        #expect(client.progress.chunksLeft == 21 && client.progress.chunksDone == 1)
        // It says why, and asks more and more seldom.
        #expect(client.progress.waiting?.reason.code.retry == .afterBackoff)
        #expect(client.progress.waiting.map { $0.until > house.cloud.network.now - .seconds(60) } == true)
        #expect(waits.all.count >= 2 && waits.all.count < 150)
        try house.cloud.start(.documents)
        house.cloud.network.run(within: .seconds(90)) { results.areAll && fetched.areAll }
        #expect(results.answered == 20 && results.all.allSatisfy { $0.isSuccess })
        #expect(fetched.all.allSatisfy { $0.isSuccess })
        #expect(client.progress.chunksLeft == 0 && client.progress.chunksDone == 22)
        #expect(client.progress.waiting == nil)
        #expect(try house.chunkCount(of: mover.account) == 21)
        // What was waited then is forgotten: the next time it is gone on with at once.
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        let before = house.cloud.network.now
        #expect(house.store([content(200)], with: client).allSatisfy { $0.isSuccess })
        #expect(house.cloud.network.now - before < .seconds(15))
    }

    private final class Waits {
        var all: [BulkProgress.Wait] = []
    }

    @Test func whatNoRepeatCuresEndsItAndWhatOneDoesDoesNot() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let asked = Asked()
        let refusals: [CloudError.Code] = [
            .networkFailure, .deadlineExceeded, .serviceUnavailable, .requestRateLimited, .tokenExpired,
            .accountTemporarilyUnavailable, .storageFailure, .quotaExceeded,
        ]
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20)) { _, done in
            let code = refusals[min(asked.count, refusals.count - 1)]
            asked.count += 1
            house.cloud.network.later(.milliseconds(1)) { done(.failure(CloudError(code, "A test says so."))) }
        }
        #expect(house.store([content(1)], with: client).map(\.code) == [.quotaExceeded])
        #expect(asked.count == refusals.count)
        #expect(client.ended?.code == .quotaExceeded)
        house.cloud.network.run(for: .seconds(120))
        #expect(asked.count == refusals.count)
    }

    @Test func aTicketIsAskedForNoSoonerThanTheServiceSays() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let asked = Asked()
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20)) { _, done in
            asked.count += 1
            house.cloud.network.later(.milliseconds(1)) {
                done(.failure(CloudError(.serviceBusy, "A test says so.", retryAfter: .seconds(60))))
            }
        }
        house.cloud.network.run(for: .seconds(100))
        #expect(asked.count == 2)
        #expect(client.progress.waiting?.attempts == 2)
    }

    @Test func whatWasWrittenTooMuchOfGoesOnWhenItMay() throws {
        var configuration = Transfers.Configuration()
        configuration.writtenADayLeast = 2 << 20
        configuration.writtenADayPlans = 0
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        let results = Results<Void>(3)
        for number in 0..<3 {
            // The last one has to wait for three hours.
            let chunk = content(number, count: number < 2 ? 1 << 20 : 1 << 18)
            client.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, number) }
        }
        let told = Asked()
        client.onProgress = { told.count += 1 }
        house.cloud.network.run(for: .seconds(3600))
        #expect(results.answered == 2)
        // It does not ask before it may.
        #expect(told.count < 50)
        #expect(client.progress.waiting?.reason.code == .requestRateLimited)
        house.cloud.network.run(within: .seconds(48 * 3600)) { results.areAll }
        #expect(results.all.count == 3 && results.all.allSatisfy { $0.isSuccess })
    }

    /// While it asks for a ticket, while it waits for one, with chunks under way, paused or not sent, from a
    /// completion.
    @Test(arguments: [0, 1, 5, 20, 100, 1000, 20_000, 40_000])
    func whoGivesUpHasItsAnswersAndIsNotCalledAgain(milliseconds: Int64) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        if milliseconds >= 1000 { house.cloud.crash(.documents) }
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 64 << 20))
        let calls = Asked()
        client.onRoom = { calls.count += 1 }
        client.onProgress = { calls.count += 1 }
        house.cloud.network.offloadTime = .milliseconds(50)
        let results = Results<Void>(40)
        for number in 0..<40 {
            let chunk = content(number, count: 1 << 20)
            client.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, number) }
        }
        let fetched = Results<BulkFrame>(1)
        client.fetch(id(of: content(100))) { fetched.note($0, 0) }
        house.cloud.network.run(for: .milliseconds(milliseconds))
        client.cancel()
        #expect(results.areAll && fetched.areAll)
        #expect(results.all.contains { $0.code == .operationCancelled })
        #expect(results.all.allSatisfy { $0.isSuccess || $0.code == .operationCancelled })
        #expect(client.progress.chunksLeft == 0 && client.progress.waiting == nil)
        calls.count = 0
        if milliseconds >= 1000 { try house.cloud.start(.documents) }
        house.cloud.network.run(for: .seconds(120))
        #expect(calls.count == 0)
        client.cancel()
        #expect(house.store([content(2)], with: client).map(\.code) == [.operationCancelled])
    }

    @Test func aClientThatGaveUpIsGone() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        weak var client: BulkClient?
        do {
            let asked = Asked()
            let made = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20)) { _, done in
                asked.count += 1
                house.cloud.network.later(.milliseconds(1)) {
                    done(.failure(CloudError(.serviceUnavailable, "A test says so.")))
                }
            }
            client = made
            made.onRoom = { _ = made.room }
            made.onProgress = { _ = made.progress }
            house.cloud.network.run(for: .seconds(1))
            made.cancel()
            let count = asked.count
            house.cloud.network.run(for: .seconds(120))
            #expect(count > 2 && asked.count == count)
            // The test's own hold on it.
            _ = try mover.connect(BulkClient.Purpose())
        }
        house.cloud.network.run(for: .seconds(120))
        #expect(client == nil)
    }

    @Test func nothingIsLeftWithoutAnAnswerByAClientThatIsClosed() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        client.close()
        #expect(house.store([content(2)], with: client).map(\.code) == [.networkFailure])
        #expect(house.fetch([id(of: content(1))], with: client).map(\.code) == [.networkFailure])
    }
}

/// Counts the chunks that are read.
private final class CountingStore: BlobStore {
    private let store: SegmentStore
    private let reads: Counter

    init(_ store: SegmentStore, _ reads: Counter) { (self.store, self.reads) = (store, reads) }

    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        try store.put(&group, in: partition)
    }
    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        reads.count.withLock { $0 += 1 }
        try store.read(place, of: id, into: bytes)
    }
    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        try store.readRaw(segment, at: offset, into: bytes)
    }
    func remove(_ segment: SegmentID) throws { try store.remove(segment) }
    func segments(in partition: Int) throws -> [SegmentState] { try store.segments(in: partition) }
    var room: DiskRoom? { store.room }
}

private final class Counter: Sendable {
    let count = Mutex(0)
}
