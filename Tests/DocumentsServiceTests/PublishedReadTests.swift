import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosHTTP
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// Many who read at one time, some of them hostile: each gets what is its own, or is told that it gets nothing.
@Suite struct PublishedReadTests {
    /// A file of one chunk, and its link.
    private func publish(_ device: ContainerDevice, seed: UInt64 = 1) throws -> (link: Link, content: TestContent) {
        let content = TestContent(seed: seed, chunks: [50_000, 20_000])
        let file = ContainerDevice.makeID()
        try device.put(content, as: [.create(file, "a.bin", content.content())])
        return (try device.publish(file), content)
    }

    private func body(_ link: Link, _ house: ContainerHouse) throws -> any HTTPBodySource {
        guard case .source(let body, _) = try house.begin(link.path).body else {
            throw CloudError(.internalError, "A long content comes in pieces.")
        }
        return body
    }

    private final class Pieces {
        var results: [Int: Result<[UInt8], any Error>] = [:]
    }

    /// More read than are read for at one time, and some of them are refused when their turn comes.
    @Test func whoIsRefusedItsTurnKeepsNobodyWaiting() throws {
        let house = try ContainerHouse(linksMax: 5)
        try house.cloud.createAccount("other")
        let (locked, other) = (try house.device(), try house.device(account: "other"))
        let (ends, stays) = (try publish(locked), try publish(other, seed: 2))
        let links = [stays.link, stays.link, ends.link, ends.link, stays.link, stays.link]
        let bodies = try links.map { try body($0, house) }
        try house.setLocked(true)
        house.cloud.network.run(for: .seconds(1))
        let pieces = Unshared(Pieces())
        for (index, body) in bodies.enumerated() { body.next { pieces.value.results[index] = $0 } }
        _ = house.cloud.network.run(within: .seconds(60)) { pieces.value.results.count == bodies.count }
        #expect(pieces.value.results.count == bodies.count)
        for (index, link) in links.enumerated() {
            let piece = try? pieces.value.results[index]?.get()
            let isRight = piece == (link.id == ends.link.id ? nil : stays.content.chunks[0])
            #expect(isRight, "\(index)")
        }
    }

    /// Whoever asks and goes has nothing read for it.
    @Test func nothingIsReadForThoseWhoAreGone() throws {
        let reads = Atomic(0)
        let house = try ContainerHouse(linksMax: 5, wrapping: { CountedStore($0) { reads.add(1, ordering: .relaxed) } })
        let (link, content) = try publish(house.device())
        let gone = try (0..<50).map { _ in try body(link, house) }
        let honest = try body(link, house)
        let before = reads.load(ordering: .relaxed)
        let pieces = Unshared(Pieces())
        for body in gone {
            body.next { _ in }
            body.cancel()
        }
        honest.next { pieces.value.results[0] = $0 }
        _ = house.cloud.network.run(within: .seconds(60)) { pieces.value.results.count == 1 }
        #expect(try pieces.value.results[0]?.get() == content.chunks[0])
        // Two may have been under way when it was told.
        #expect(reads.load(ordering: .relaxed) - before <= 3)
    }

    @Test func soManyLinksAreLookedUpAtOneTime() throws {
        let house = try ContainerHouse(linksMax: 5)
        let answering = try #require(house.cloud.publishedContents)
        let statuses = Unshared(Statuses())
        for _ in 0..<100 {
            answering(HTTPRequest(.get, "/p/\(LinkSecret.random().text)/a")) { statuses.value.all.append($0.status) }
        }
        _ = house.cloud.network.run(within: .seconds(60)) { statuses.value.all.count == 100 }
        #expect(statuses.value.all.count { $0 == 404 } == 64 && statuses.value.all.count { $0 == 503 } == 36)
        // And again when those are done.
        #expect(try house.get("/p/\(LinkSecret.random().text)/a").status == 404)
    }

    private final class Statuses { var all: [Int] = [] }

    /// Whoever has a link costs the service's loop no groups.
    @Test func aLinkIsOpenedWithoutAGroup() throws {
        let house = try ContainerHouse(linksMax: 5)
        let here = try house.device()
        let link = try here.publish(here.makeFile("a"))
        func groups() throws -> UInt64 {
            let health: WireCheckHealthReply = try here.mover.client.call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters["groups"] ?? 0
        }
        #expect(try house.get(link).status == 200)
        let before = try groups()
        for _ in 0..<30 { #expect(try house.get(link).status == 200) }
        #expect(try groups() - before < 10)
    }

    /// Whenever the one comes in relation to the other; also while the revoking is on its way to the disk.
    @Test func fromTheReplyOnARevokedLinkOpensNothing() throws {
        let house = try ContainerHouse(linksMax: 5, storageTurns: .later(upTo: .milliseconds(2)))
        let here = try house.device()
        let answering = try #require(house.cloud.publishedContents)
        var late = 0
        for delay in 0..<200 {
            let link = try here.publish(here.makeFile("file \(delay)"))
            var request = WireRevokeLink()
            request.container = here.container
            request.link = Data(link.id.bytes)
            let revoked = try here.mover.client.begin(
                "RevokeLink", request, at: .requests(.documents), accessToken: here.mover.accessToken)
            let statuses = Unshared(Statuses())
            house.cloud.network.run(for: .microseconds(delay * 20))
            answering(HTTPRequest(.get, link.path)) { statuses.value.all.append($0.status) }
            var wasRevokedFirst = false
            _ = house.cloud.network.run(within: .seconds(60)) {
                if revoked.result != nil, statuses.value.all.isEmpty { wasRevokedFirst = true }
                return revoked.result != nil && !statuses.value.all.isEmpty
            }
            #expect(statuses.value.all.count == 1)
            guard wasRevokedFirst else { continue }
            late += 1
            #expect(statuses.value.all == [404], "\(delay)")
        }
        #expect(late > 0)
    }

    /// What an HTTP reader finds is noted as what a device finds.
    @Test func whatAReaderCannotReadIsNotedAsDamaged() throws {
        let log = LogLines()
        let house = try ContainerHouse(linksMax: 5, log: log)
        let here = try house.device()
        let (link, content) = try publish(here)
        try house.damageSegments()
        let body = try body(link, house)
        #expect(try house.next(of: body) == content.chunks[0])
        #expect(throws: (any Error).self) { try house.next(of: body) }
        house.cloud.network.run(for: .seconds(1))
        #expect(try here.missing(content.ids) == [1])
        #expect(log.count(of: "Chunks of content cannot be read any more") == 1)
    }
}

/// Calls back at each read.
struct CountedStore: BlobStore {
    private let store: SegmentStore
    private let willRead: @Sendable () -> Void

    init(_ store: SegmentStore, willRead: @escaping @Sendable () -> Void) {
        self.store = store
        self.willRead = willRead
    }

    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        try store.put(&group, in: partition)
    }
    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        willRead()
        try store.read(place, of: id, into: bytes)
    }
    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        try store.readRaw(segment, at: offset, into: bytes)
    }
    func remove(_ segment: SegmentID) throws { try store.remove(segment) }
    func segments(in partition: Int) throws -> [SegmentState] { try store.segments(in: partition) }
    var room: DiskRoom? { store.room }
}
