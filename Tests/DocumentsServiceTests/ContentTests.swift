import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Contents rest on chunks and nodes: nothing that is in use goes, nothing that is not stays, and the plan counts what
/// is there, once.
@Suite struct ContentTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    /// What is named a thousand times is looked for once, and costs as much.
    @Test func anIdThatIsNamedOftenIsLookedForOnce() throws {
        var budgets = BudgetConfiguration.unlimited
        budgets.device = .init(capacity: 1000, refillPerSecond: 1)
        let house = try ContainerHouse(budgets: budgets)
        let here = try house.device()
        let bytes = TestContent(seed: 3, chunks: Array(repeating: 3000, count: 400))
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        let other = TestContent(seed: 4, chunks: [100]).ids[0]
        let largest = try #require(bytes.nodes.max { $0.count < $1.count })
        let node = largest.withUnsafeBytes { ChunkID(hashing: $0) }
        let asked = Array(repeating: node, count: 1000) + [other, bytes.ids[0], other]
        for _ in 0..<20 { #expect(try here.missing(asked) == [1000, 1002]) }
    }

    @Test func aLongContentRestsOnWhatWasStored() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000, 200_000])
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "a", bytes.content())])
        let item = try here.item(id)
        #expect(item.content.length == 370_000 && item.content.depth == 1)
        #expect(try here.missing(bytes.ids).isEmpty)
        #expect(try house.used() == 370_000 + counted(bytes.nodes))
        #expect(try here.nodes([Data(bytes.root.bytes)]) == bytes.nodes)
        #expect(try house.counts() == Counts(chunks: 3, uses: 4, nodes: 1))
    }

    @Test func aContentOfOneChunkHasNoNode() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "a", bytes.content())])
        #expect(try here.item(id).content.depth == 0)
        #expect(try house.used() == 100_000)
        #expect(try house.counts() == Counts(chunks: 1, uses: 1, nodes: 0))
    }

    /// What is there already is neither sent nor counted again, and stays until the last that rests on it has gone.
    @Test func whatTwoContentsShareIsThereOnceUntilBothAreGone() throws {
        let first = TestContent(seed: 1, chunks: [100_000, 70_000])
        let second = TestContent(seed: 1, chunks: [100_000, 70_000, 50_000])
        let (one, two) = (ContainerDevice.makeID(), ContainerDevice.makeID())
        try here.put(first, as: [.create(one, "a", first.content())])
        #expect(try here.missing(second.ids) == [2])
        try here.put(second, as: [.create(two, "b", second.content())])
        let nodes = counted(first.nodes + second.nodes)
        #expect(try house.used() == 220_000 + nodes)
        try here.apply([.trash(one), .remove(one)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 3, uses: 4, nodes: 1))
        #expect(try house.used() == 220_000 + counted([second.nodes[0]]))
        try here.apply([.trash(two), .remove(two)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)
    }

    @Test func aTreeOfNodesGoesLevelByLevel() throws {
        // More chunks than a node takes: two levels.
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 700))
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "a", bytes.content())])
        #expect(try here.item(id).content.depth == 2)
        #expect(bytes.nodes.count > 2)
        #expect(try house.counts() == Counts(chunks: 700, uses: 700 + bytes.nodes.count, nodes: bytes.nodes.count))
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(20))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)
    }

    @Test func anUploadThatEndsTakesNothingThatIsInUse() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let id = ContainerDevice.makeID()
        let upload = try here.put(bytes, as: [.create(id, "a", bytes.content())])
        // Stored in it and never committed.
        let rest = TestContent(seed: 9, chunks: [60_000])
        let other = try here.store(rest)
        for upload in [upload, other] { try here.closeUpload(upload) }
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 2, uses: 3, nodes: 1))
        #expect(try house.used() == 170_000 + counted([bytes.nodes[0]]))
        #expect(try here.fetch(bytes.ids[1]) == bytes.chunks[1])
    }

    /// An app fetches what its containers rest on, and what it has sent itself; another's chunk is none, hash or not.
    @Test func anAppFetchesNothingOfAnothers() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let id = ContainerDevice.makeID()
        let other = try house.device(app: "T.other")
        let upload = try here.store(bytes)
        #expect(try here.fetch(bytes.ids[0]) == bytes.chunks[0])
        #expect(throws: CloudError.self) { try other.fetch(bytes.ids[0]) }
        try here.apply([.create(id, "a", bytes.content())], upload: upload)
        #expect(try here.fetch(bytes.ids[0]) == bytes.chunks[0])
        #expect(throws: CloudError.self) { try other.fetch(bytes.ids[0]) }
        // Through a container that both list it is both's.
        (here.container, other.container) = ("T.shared", "T.shared")
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        #expect(try other.fetch(bytes.ids[0]) == bytes.chunks[0])
        // And not for longer.
        let shared = try other.names()["a"]
        try other.apply([.trash(try #require(shared)), .remove(try #require(shared))])
        house.cloud.network.run(for: .seconds(5))
        #expect(throws: CloudError.self) { try other.fetch(bytes.ids[0]) }
        #expect(try here.fetch(bytes.ids[0]) == bytes.chunks[0])
    }

    /// Nothing can be probed: what another app's container or another account has is sent again, and stored once.
    @Test func whatIsElsewhereIsSentAgainAndCountedOnce() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "a", bytes.content())])
        let other = try house.device(app: "T.other")
        other.container = "T.elsewhere"
        #expect(try other.missing(bytes.ids) == [0])
        expect(.unknownItem) { try other.apply([.create(ContainerDevice.makeID(), "a", bytes.content())]) }
        // In its upload it counts until that is closed.
        try other.closeUpload(other.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())]))
        #expect(try house.counts() == Counts(chunks: 1, uses: 2, nodes: 0))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 100_000)
        // What it counted goes to the one that is left.
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 1, uses: 1, nodes: 0))
        #expect(try house.used() == 100_000)
        #expect(try other.list().count == 1)
    }

    @Test func whatIsSaidOfAContentHasToBeTrue() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let upload = try here.store(bytes)
        let wrong: [(inout WireDocumentContent) -> Void] = [
            { $0.length += 1 }, { $0.depth = 0 }, { $0.depth = 2 }, { $0.root = Data(bytes.ids[0].bytes) },
            { $0.depth = .max },
        ]
        for change in wrong {
            var content = bytes.content()
            change(&content)
            #expect(throws: CloudError.self) {
                try here.apply(
                    [.create(ContainerDevice.makeID(), "a", content)], nodes: bytes.nodes, upload: upload)
            }
        }
        // A node that names what was never stored, or says another length of it; and one that nothing names.
        let foreign = TestContent(seed: 3, chunks: [100_000, 70_000])
        let longer = TestContent(ids: bytes.ids, lengths: [100_001, 70_000])
        for other in [foreign, longer] {
            expect(.unknownItem) {
                try here.apply(
                    [.create(ContainerDevice.makeID(), "a", other.content())], nodes: other.nodes, upload: upload)
            }
        }
        expect(.invalidArguments) {
            try here.apply(
                [.create(ContainerDevice.makeID(), "a", bytes.content())], nodes: [[1, 2, 3]] + bytes.nodes,
                upload: upload)
        }
        #expect(try here.list().isEmpty)
        #expect(try house.counts() == Counts(chunks: 2, uses: 0, nodes: 0))
        try here.apply([.create(ContainerDevice.makeID(), "a", bytes.content())], nodes: bytes.nodes, upload: upload)
    }

    /// Those of a very long content go ahead of it, and are the upload's until it comes.
    @Test func nodesGoAheadOfTheirContent() throws {
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 700))
        let (ahead, rest) = (Array(bytes.nodes.dropLast()), Array(bytes.nodes.suffix(1)))
        let upload = try here.store(bytes)
        expect(.unknownItem) { try here.apply([], nodes: ahead) }
        try here.apply([], nodes: ahead, upload: upload)
        #expect(try here.missing([bytes.root]) == [0])
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)

        let again = try here.store(bytes)
        try here.apply([], nodes: ahead, upload: again)
        try here.apply([.create(ContainerDevice.makeID(), "a", bytes.content())], nodes: rest, upload: again)
        try here.closeUpload(again)
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counts() == Counts(chunks: 700, uses: 700 + bytes.nodes.count, nodes: bytes.nodes.count))
        #expect(try house.used() == 700 * 5000 + counted(bytes.nodes))
    }

    /// Of a repeat nothing is needed that its upload has had.
    /// To go on with it, and to nobody who has not stored it.
    @Test func whatAnUploadHoldsIsNotMissingToIt() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000, 50_000])
        let upload = try here.store(TestContent(seed: 1, chunks: [100_000, 70_000]))
        let found = try here.find(bytes.ids, in: upload)
        #expect(found.missing == [2] && found.held == [0, 1] && found.storedBytes == 170_000)
        for other in [[], ContainerDevice.makeID().bytes] {
            let found = try here.find(bytes.ids, in: other)
            #expect(found.missing == [0, 1, 2] && found.held.isEmpty && found.storedBytes == 0)
        }
        let stranger = try house.device(app: "T.other")
        stranger.container = "T.shared"
        let strange = try stranger.find(bytes.ids, in: upload)
        #expect(strange.missing == [0, 1, 2] && strange.held.isEmpty && strange.storedBytes == 0)
        expect(.invalidArguments) { _ = try here.find(bytes.ids, in: [1, 2, 3]) }
        try here.closeUpload(upload)
        #expect(try here.find(bytes.ids, in: upload).missing == [0, 1, 2])
    }

    /// Under another id it is taken: that is told apart from what never is.
    @Test func whatAnEndedUploadIsRefusedSaysSo() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        // Another list of the same chunks.
        let node = TestContent(ids: Array(bytes.ids.reversed()), lengths: [70_000, 100_000]).nodes
        let upload = ContainerDevice.makeID().bytes
        func failure(_ body: () throws -> Void) -> CloudError? {
            do { try body() } catch { return CloudError(wrapping: error) }
            return nil
        }
        #expect(failure { try here.apply([], nodes: node, upload: upload) }?.isOfEndedUpload == true)
        #expect(failure { try here.apply([], nodes: node) }?.code == .invalidArguments)
        try here.store(TestContent(seed: 3, chunks: (0..<300).map { 5000 + $0 }), in: upload)
        try here.closeUpload(upload)
        var request = WireOpenTransfer()
        request.transferID = Data(upload)
        let error = failure { try here.call("OpenTransfer", request, as: WireOpenTransferReply.self) }
        #expect(error?.code == .constraintViolation && error?.isOfEndedUpload == true)
    }

    @Test func anUploadIsGoneOnWithInTheRoomOfWhatItHoldsAndLacks() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000, 50_000])
        let half = TestContent(seed: 1, chunks: [100_000, 70_000])
        let upload = try here.store(half)
        // Another device commits the same meanwhile.
        let there = try house.device()
        try there.closeUpload(try there.put(half, as: [.create(ContainerDevice.makeID(), "half", half.content())]))
        let found = try here.find(bytes.ids, in: upload)
        #expect(found.missing == [2] && found.held.isEmpty && found.storedBytes == 170_000)
        try here.store(bytes, in: upload, bytes: found.storedBytes + 50_000)
        try here.apply(
            [.create(ContainerDevice.makeID(), "all", bytes.content())], nodes: bytes.nodes, upload: upload)
        // What was committed is not in it any more: it needs room for the rest alone.
        #expect(try here.find(bytes.ids, in: upload).storedBytes == 170_000)
        let rest = TestContent(seed: 2, chunks: [60_000])
        let before = try house.used()
        try here.store(rest, in: upload, bytes: 170_000 + 60_000)
        #expect(try house.used() == before + 60_000)
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(5))
        let nodes = counted(half.nodes + bytes.nodes)
        #expect(try house.used() == 220_000 + nodes)
    }

    @Test func aRepeatNeedsItsUploadNoMore() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let id = ContainerDevice.makeID()
        let create = WireDocumentChange.create(id, "a", bytes.content())
        let upload = try here.put(bytes, as: [create])
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(5))
        try here.apply([create], nodes: bytes.nodes, upload: upload)
        #expect(try house.counts() == Counts(chunks: 2, uses: 3, nodes: 1))
    }

    /// Who reads refuses a tree whose top has one child.
    @Test func aTopNodeHasTwoChildren() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let upload = try here.store(bytes)
        let node = [1, 0, 0, 0, 1, 0, 0, 0] + bytes.ids[0].bytes + withUnsafeBytes(of: UInt64(100_000)) { [UInt8]($0) }
        var content = bytes.content()
        content.depth = 1
        content.root = Data(node.withUnsafeBytes { ChunkID(hashing: $0) }.bytes)
        expect(.invalidArguments) {
            try here.apply([.create(ContainerDevice.makeID(), "a", content)], nodes: [node], upload: upload)
        }
    }

    @Test func oldVersionsGoAndWhatTheyRestOnGoesWithThem() throws {
        let id = try here.makeFile("a", "0")
        var version = try here.item(id).content.version
        for number in 1...DocumentLimits.versionsMax + 5 {
            let content = WireDocumentContent.inline("\(number)", base: version)
            try here.apply([.replace(id, content)])
            version = content.version
        }
        let versions = try here.versions(of: id)
        #expect(versions.count == DocumentLimits.versionsMax)
        #expect(versions.first?.text == "105")
        #expect(try house.used() == Int64(versions.reduce(0) { $0 + $1.inline.count }))
    }
}

/// What documents has in rows.
struct Counts: Hashable {
    var chunks: Int
    var uses: Int
    var nodes: Int
}

extension ContainerHouse {
    func counts() throws -> Counts {
        try cloud.storage(of: .documents).write { transaction in
            func count(_ statement: SQL) throws -> Int { try transaction.first(statement) { Int($0.integer(0)) } ?? 0 }
            return Counts(
                chunks: try count(Self.selectChunks), uses: try count(Self.selectUses),
                nodes: try count(Self.selectNodes))
        }
    }

    private static let selectChunks = SQL("SELECT COUNT(*) FROM content_chunks")
    private static let selectUses = SQL("SELECT COUNT(*) FROM content_uses")
    private static let selectNodes = SQL("SELECT COUNT(*) FROM content_nodes")
}

extension TestContent {
    func content(base: Data = Data()) -> WireDocumentContent {
        var content = WireDocumentContent()
        content.version = Data(ContainerDevice.makeID().bytes)
        content.base = base
        content.length = UInt64(length)
        content.root = Data(root.bytes)
        content.depth = UInt32(depth)
        return content
    }
}

extension ContainerDevice {
    func missing(_ ids: [ChunkID]) throws -> [Int] { try find(ids, in: []).missing.map { Int($0) } }

    func find(_ ids: [ChunkID], in upload: [UInt8] = [], source: String = "") throws -> WireFindMissingReply {
        var request = WireFindMissing()
        request.container = container
        request.ids = ids.map { Data($0.bytes) }
        request.transferID = Data(upload)
        request.sourceContainer = source
        return try call("FindMissing", request, as: WireFindMissingReply.self)
    }

    func nodes(_ ids: [Data]) throws -> [[UInt8]] {
        var request = WireReadNodes()
        request.container = container
        request.ids = ids
        return try call("ReadNodes", request, as: WireReadNodesReply.self).nodes.map { [UInt8]($0) }
    }

    /// Stores those of the chunks that the container lacks.
    ///
    /// - Returns: The upload.
    @discardableResult
    func store(_ content: TestContent, in upload: [UInt8] = makeID().bytes, bytes: UInt64? = nil) throws -> [UInt8] {
        let missing = try self.missing(content.ids).map { content.chunks[$0] }
        let room = UInt64(missing.reduce(0) { $0 + BulkLimits.counted($1.count) })
        let client = try mover.connect(BulkClient.Purpose(upload: upload, uploadBytes: bytes ?? room))
        let stored = Stored()
        for chunk in missing {
            client.store(bytes: chunk.count) { target in
                target.copyBytes(from: chunk)
                return chunk.withUnsafeBytes { ChunkID(hashing: $0) }
            } then: { result in
                if case .success = result { stored.count += 1 }
            }
        }
        run(until: { stored.count == missing.count })
        #expect(stored.count == missing.count)
        return upload
    }

    private final class Stored { var count = 0 }

    /// Stores what is missing, and commits; the upload stays open.
    @discardableResult
    func put(_ content: TestContent, as changes: [WireDocumentChange]) throws -> [UInt8] {
        let upload = try store(content)
        try apply(changes, nodes: content.nodes, upload: upload)
        return upload
    }

    /// Fetches a chunk, outside any upload.
    func fetch(_ chunk: ChunkID) throws -> [UInt8] {
        let client = try mover.connect(BulkClient.Purpose())
        let fetched = Fetched()
        client.fetch(chunk) { fetched.result = $0 }
        run(until: { fetched.result != nil })
        return try #require(fetched.result).get().withContent { [UInt8]($0) }
    }

    private final class Fetched { var result: Result<BulkFrame, CloudError>? }

    func closeUpload(_ upload: [UInt8]) throws {
        var request = WireCloseTransfer()
        request.transferID = Data(upload)
        try call("CloseTransfer", request, as: WireCloseTransferReply.self)
    }
}
