import NephosBulk
import NephosBus
import NephosChunks
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Chunks that compress travel and lie so, and are for everybody else what they were.
@Suite struct CompressionTests {
    let house: BulkHouse
    let mover: TestBulk

    init() throws {
        house = try BulkHouse()
        mover = try TestBulk(of: house.cloud)
    }

    private func counters() throws -> [String: UInt64] {
        let health: WireCheckHealthReply = try house.cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters
    }

    /// The answer to a frame.
    private func ask(_ frame: Frame) throws -> BulkFrame? {
        mover.clear()
        try mover.send(frame)
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        return mover.frames.first
    }

    @Test func whatCompressesTakesLessOnTheLineAndOnDisk() throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        let chunks = (0..<20).map { digits($0) } + [content(100)]
        // Some before there is a ticket.
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        #expect(client.progress.bytesDone == 2_100_000)
        #expect((900_000..<1_200_000).contains(client.progress.bytesMoved))
        #expect((900_000..<1_200_000).contains(try house.diskBytes(of: mover.account)))
        let counted = try counters()
        #expect(counted["content.received.bytes"] == UInt64(client.progress.bytesMoved))
        #expect(counted["content.received.plain_bytes"] == 2_100_000)
        let moved = client.progress.bytesMoved
        let reader = try TestBulk(of: house.cloud).connect(BulkClient.Purpose())
        #expect(try house.fetch(chunks.map(id), with: reader).map { try $0.get() } == chunks)
        #expect(reader.progress.bytesDone == 2_100_000 && reader.progress.bytesMoved == moved)
    }

    /// What it takes of the plan does not depend on how well it compresses, nor on who has sent it first.
    @Test func anUploadHasRoomForChunksAsTheyAre() throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 250_000))
        let answers = house.store((0..<3).map { digits($0) }, with: client)
        #expect(answers.map(\.code).filter { $0 == .quotaExceeded }.count == 1)
        #expect(answers.filter(\.isSuccess).count == 2)
        #expect(try house.open(mover, upload: upload(1), bytes: 300_000).storedBytes == 200_000)
    }

    /// What was sent and is not answered is what it took on the line.
    @Test func creditIsForWhatTravels() throws {
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 64 << 20))
        for number in 0..<24 {
            let chunk = [UInt8](repeating: UInt8(number), count: 1 << 20)
            try mover.send(packed(good, number: UInt64(number), chunk))
        }
        house.cloud.network.run(within: .seconds(20)) { mover.frames.count == 24 }
        #expect(mover.frames.count { $0.kind == .stored } == 24)
        #expect(try house.open(mover, upload: upload(1), bytes: 64 << 20).storedBytes == 24 << 20)
        #expect(try house.diskBytes(of: mover.account) < 100_000)
    }

    @Test func aDeviceThatKnowsNoZstandardGetsChunksAsTheyAre() throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        let chunk = digits(1)
        #expect(house.store([chunk], with: client).allSatisfy { $0.isSuccess })
        let good = try ticket(house.open(mover))
        func get(_ encoding: ChunkEncoding, credit: Int) throws -> BulkFrame? {
            try mover.send(BulkFrame.control(.credit, good, number: UInt64(credit)))
            return try ask(BulkFrame.control(.get, good, number: 1, chunk: id(of: chunk), encoding: encoding))
        }
        let packed = try #require(try get(.zstandard, credit: 60_000))
        #expect(packed.kind == .chunk && packed.encoding == .zstandard && packed.contentBytes < 60_000)
        // The credit is for what travels: there is too little for more.
        #expect(try get(.plain, credit: packed.contentBytes + 99_999) == nil)
        try mover.send(BulkFrame.control(.credit, good, number: UInt64(packed.contentBytes + 100_000)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        let plain = try #require(mover.frames.first)
        #expect(plain.kind == .chunk && plain.encoding == .plain && plain.withContent { [UInt8]($0) } == chunk)
    }

    @Test func whatADeviceStoresAsItIsComesSo() throws {
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        #expect(try ask(frame(good, digits(1)))?.kind == .stored)
        try mover.send(BulkFrame.control(.credit, good, number: 1 << 20))
        let answer = try ask(BulkFrame.control(.get, good, number: 1, chunk: id(of: digits(1)), encoding: .zstandard))
        #expect(answer?.encoding == .plain && answer?.withContent { [UInt8]($0) } == digits(1))
    }

    // MARK: What is refused

    /// Nothing is stored for it, and an honest device is served.
    @Test(arguments: Hostile.allCases)
    fileprivate func whatIsNoCompressedChunkIsRefused(hostile: Hostile) throws {
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 64 << 20))
        for number in 0..<50 {
            let answer = try ask(hostile.frame(good, number: UInt64(number)))
            #expect(answer?.kind == .refused && answer?.failure.code == hostile.code)
        }
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.diskBytes(of: mover.account) == 0)
        let honest = try TestBulk(of: house.cloud)
        let client = try honest.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 1 << 20))
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        #expect(try house.fetch([id(of: digits(1))], with: client).first?.get() == digits(1))
    }

    /// A few bytes that open to a mebibyte each cost time: others have their turns between them.
    @Test func whatOpensToMuchKeepsNobodyWaiting() throws {
        try house.cloud.createAccount("other")
        let honest = try TestBulk(of: house.cloud, account: "other")
        let client = try honest.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 1 << 20))
        #expect(house.store([digits(0)], with: client).allSatisfy { $0.isSuccess })
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 64 << 20))
        let zeros = packed(good, [UInt8](repeating: 0, count: 1 << 20))
        // A batch takes its time.
        house.cloud.network.offloadTime = .milliseconds(200)
        for _ in 0..<200 { try mover.send(zeros) }
        house.cloud.network.run(for: .milliseconds(100))
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        // Two batches were under way, of seven mebibytes each.
        #expect(mover.frames.count < 30, "\(mover.frames.count)")
        house.cloud.network.offloadTime = nil
        house.cloud.network.run(within: .seconds(20)) { mover.frames.count == 200 }
        #expect(mover.frames.count { $0.kind == .stored } == 200)
    }

    /// Chunks that are none, as fast as a device can send them: what was opened in vain is paid for by who has sent it.
    @Test func whatIsOpenedInVainHoldsItsAccountOff() throws {
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 64 << 20))
        let count = 400
        for number in 0..<count { try mover.send(Hostile.other.frame(good, number: UInt64(number))) }
        house.cloud.network.run(within: .seconds(20)) { mover.frames.count == count }
        let opened = mover.frames.count { $0.failure.code == .invalidArguments }
        // And two batches that were under way.
        #expect((64...64 + 14).contains(opened), "\(opened)")
        #expect(mover.frames.count { $0.failure.code == .requestRateLimited } == count - opened)
        // The account's other devices are held off too, for some seconds, and nobody else.
        let own = try TestBulk(of: house.cloud)
        let client = try own.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 1 << 20))
        try house.cloud.createAccount("other")
        let other = try TestBulk(of: house.cloud, account: "other")
        let honest = try other.connect(BulkClient.Purpose(upload: upload(3), uploadBytes: 1 << 20))
        let before = house.cloud.network.now
        #expect(house.store([digits(1)], with: honest).allSatisfy { $0.isSuccess })
        #expect(house.cloud.network.now - before < .seconds(1))
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(20))
        #expect(try ask(Hostile.other.frame(good, number: 1))?.failure.code == .invalidArguments)
    }

    /// What is there already is opened in vain too, and counts by an eighth: who is honest hardly sends any of it.
    @Test func whatIsThereAlreadyCountsByAPart() throws {
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 64 << 20))
        let zeros = packed(good, [UInt8](repeating: 0, count: 1 << 20))
        for _ in 0..<600 { try mover.send(zeros) }
        house.cloud.network.run(within: .seconds(20)) { mover.frames.count == 600 }
        let stored = mover.frames.count { $0.kind == .stored }
        // Some are on their way before the first are counted.
        #expect((512...560).contains(stored), "\(stored)")
        #expect(mover.frames.count { $0.failure.code == .requestRateLimited } == 600 - stored)
    }

    // MARK: On disk

    @Test func aFlippedBitIsFoundNotedAndHeals() throws {
        var configuration = Transfers.Configuration()
        configuration.scrubInterval = .seconds(600)
        configuration.scrubBytesASecondLeast = 1
        let log = LogLines()
        let house = try BulkHouse(configuration: configuration, log: log)
        let mover = try TestBulk(of: house.cloud)
        house.cloud.network.run(for: .seconds(60))
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store([digits(1), digits(2)], with: client).allSatisfy { $0.isSuccess })
        try house.damageAll(of: mover.account)
        house.cloud.network.run(for: .seconds(1300))
        let place = (owner: Owner(mover.account), partition: ScopeName(mover.account, ItemName("")).partition)
        func noted() throws -> [ChunkID] {
            try house.cloud.storage(of: .documents).write {
                try DamagedChunks.list(of: place.owner, in: place.partition, limit: 9, in: $0)
            }
        }
        // The one that was written last.
        let lost = try noted()
        let bytes = try #require([digits(1), digits(2)].first { lost == [id(of: $0)] })
        #expect(log.count(of: "Chunks of content cannot be read any more") == 1)
        #expect(house.fetch([id(of: bytes)], with: client).map(\.code) == [.storageFailure])
        // As it is, from a device that does not compress; and then again another way.
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 8 << 20))
        try mover.send(frame(good, bytes))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
        #expect(try noted().isEmpty)
        #expect(try house.fetch([id(of: bytes)], with: client).first?.get() == bytes)
    }

    /// A row that says another length than the chunk has would let no content rest on it.
    @Test(arguments: [(7, true), (99_999, true), (99_999, false)])
    func aRowThatSaysAnotherLengthIsPutRight(length said: Int64, isTold: Bool) throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        let storage = try house.cloud.storage(of: .documents)
        _ = try storage.write {
            try $0.execute(SQL("UPDATE content_chunks SET content_length = ?1"), [.integer(said)])
        }
        // Whoever fetches it sees it, also who takes it compressed.
        if isTold { #expect(house.fetch([id(of: digits(1))], with: client).map(\.code) == [.storageFailure]) }
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        let length = try storage.write {
            try $0.first(SQL("SELECT content_length FROM content_chunks"), []) { $0.integer(0) }
        }
        #expect(length == 100_000)
        #expect(try house.fetch([id(of: digits(1))], with: client).first?.get() == digits(1))
    }

    /// The numbers of a damaged row may be any.
    @Test(arguments: [
        "length = -9223372036854775807 - 1", "length = 9223372036854775807", "content_length = -5",
        "suite = 77, content_length = 9223372036854775807", "suite = 77, content_length = -5",
    ])
    func noNumberOfADamagedRowEndsTheService(row: String) throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store([digits(1)], with: client).allSatisfy { $0.isSuccess })
        let storage = try house.cloud.storage(of: .documents)
        _ = try storage.write { try $0.execute(SQL("UPDATE content_chunks SET \(row)"), []) }
        #expect(house.fetch([id(of: digits(1))], with: client).map(\.code) == [.storageFailure])
        #expect(house.store([digits(2)], with: client).allSatisfy { $0.isSuccess })
        #expect(try house.fetch([id(of: digits(2))], with: client).first?.get() == digits(2))
    }

    @Test func deadRoomIsGivenBackAndWhatLivesIsMovedAsItLies() throws {
        var configuration = Transfers.Configuration()
        configuration.upkeepInterval = .seconds(60)
        configuration.emptiedRetention = .seconds(500)
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        let chunks = (0..<30).map { digits($0, count: 256 << 10) }
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let other = try mover.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 8 << 20))
        let kept = [chunks[3], chunks[14], chunks[25]]
        #expect(house.store(kept, with: other).allSatisfy { $0.isSuccess })
        let before = try house.diskBytes(of: mover.account)
        #expect((2 << 20..<5 << 20).contains(before))
        try house.close(mover, upload: upload(1))
        #expect(house.store([content(50)], with: other).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(800))
        #expect(try house.diskBytes(of: mover.account) < before / 2)
        #expect(try house.fetch(kept.map(id), with: other).map { try $0.get() } == kept)
        // Rows and segments say the same.
        let place = (owner: Owner(mover.account), partition: ScopeName(mover.account, ItemName("")).partition)
        let (use, live) = try house.cloud.storage(of: .documents).write {
            (try ChunkIndex.use(of: place.owner, in: place.partition, in: $0), try ChunkIndex.total(in: $0).liveBytes)
        }
        #expect(use.chunks == 4 && live == use.bytes + 4 * 56)
    }
}

/// What a device might send as a compressed chunk.
private enum Hostile: CaseIterable {
    case tooLong, longer, shorter, other, trailing, unknown, notShorter, noFrame

    var code: CloudError.Code { self == .unknown ? .incompatibleVersion : .invalidArguments }

    func frame(_ ticket: BulkTicket, number: UInt64) throws -> Frame {
        let zeros = [UInt8](repeating: 0, count: 1 << 20)
        var content = try compressed(zeros)
        var chunk = zeros
        // Behind magic, descriptor and window are four bytes of the length.
        func setLength(_ length: Int) {
            withUnsafeBytes(of: UInt32(length).littleEndian) { content.replaceSubrange(6..<10, with: $0) }
        }
        switch self {
        case .tooLong: setLength(1 << 20 + 1)
        case .longer:
            setLength(1 << 20 - 1)
            chunk = Array(zeros.dropLast())
        case .shorter:
            content = try compressed(Array(zeros.prefix(900_000)))
            setLength(1 << 20)
        case .other: chunk = digits(1)
        case .trailing: content += [0]
        case .unknown: break
        case .notShorter:
            // A byte, in a frame with a thousand empty blocks before it.
            content = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 1] + [UInt8](repeating: 0, count: 3000) + [9, 0, 0, 7]
            chunk = [7]
        case .noFrame: content = digits(1)
        }
        var bytes = [UInt8](repeating: 0, count: BulkFrame.headerBytes + content.count)
        BulkFrame.chunk(ticket, number: number, encoding: .zstandard, contentBytes: content.count) {
            $0.copyBytes(from: content)
            return id(of: chunk)
        }.withUnsafeBytes { bytes = [UInt8]($0) }
        if self == .unknown { bytes[2] = 2 }
        return Frame(bytes)
    }
}

private func compressed(_ chunk: [UInt8]) throws -> [UInt8] {
    try #require(chunk.withUnsafeBytes { ChunkCoder().withCompressed($0) { [UInt8]($0) } })
}

private func packed(_ ticket: BulkTicket, number: UInt64 = 1, _ chunk: [UInt8]) -> Frame {
    guard let content = try? compressed(chunk) else { return frame(ticket, number: number, chunk) }
    return BulkFrame.chunk(ticket, number: number, encoding: .zstandard, contentBytes: content.count) {
        $0.copyBytes(from: content)
        return id(of: chunk)
    }
}
