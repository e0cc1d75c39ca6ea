import Foundation
import NephosBulk
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What the disk has lost is missing for whoever asks, and is whole again once it was sent again.
@Suite struct DamagedContentTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    private func info(_ device: ContainerDevice) throws -> WireContainerInfo {
        var request = WireReadChanges()
        request.scope = device.container
        return try WireContainerInfo(
            serializedBytes: device.call("ReadChanges", request, as: WireReadChangesReply.self).info)
    }

    /// Notes the chunk as a fetch or a scrub does.
    private func damage(_ chunk: ChunkID) throws {
        let account = here.mover.account
        let (owner, partition) = (Owner(account), ScopeName(account, "").partition)
        try house.cloud.storage(of: .documents).write { transaction in
            let found = try #require(try ChunkIndex.find(chunk, of: owner, in: partition, in: transaction))
            _ = try DamagedChunks.note([DamagedChunk(found)], at: Timestamp(milliseconds: 1), in: transaction)
        }
    }

    private func find(_ ids: [ChunkID], _ device: ContainerDevice) throws -> [[UInt32]] {
        let reply = try device.find(ids, in: [])
        return [reply.missing, reply.damaged]
    }

    @Test func aDamagedChunkIsMissingUntilItIsSentAgain() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        try here.closeUpload(here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())]))
        house.cloud.network.run(for: .seconds(5))
        let used = try house.used()
        #expect(try info(here).lostChunks == 0)
        try house.damageSegments()
        // The last of them; whoever cannot read it finds it.
        #expect(throws: CloudError.self) { try here.fetch(bytes.ids[1]) }
        house.cloud.network.run(for: .seconds(1))
        #expect(try find(bytes.ids, here) == [[1], [1]])
        #expect(try info(here).lostChunks == 1)
        // What would rest on it is refused as if it were not there.
        let other = TestContent(ids: [bytes.ids[1]], lengths: [70_000])
        expect(.unknownItem) { try here.apply([.create(ContainerDevice.makeID(), "b", other.content())]) }
        let upload = try here.store(bytes)
        #expect(try find(bytes.ids, here) == [[], []])
        #expect(try here.fetch(bytes.ids[1]) == bytes.chunks[1])
        #expect(try info(here).lostChunks == 0)
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == used)
        #expect(try house.counts() == Counts(chunks: 2, uses: 3, nodes: 1))
        #expect(try here.fetch(bytes.ids[1]) == bytes.chunks[1])
    }

    /// On a full plan, with an upload that has no room at all; and a repeat whose first answer was lost.
    @Test func whatIsDamagedHealsWithoutRoom() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try here.closeUpload(here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())]))
        house.cloud.network.run(for: .seconds(5))
        try damage(bytes.ids[0])
        let upload = ContainerDevice.makeID().bytes
        try here.store(bytes, in: upload, bytes: 0)
        #expect(try find(bytes.ids, here) == [[], []])
        // It is there now, and needs no room either.
        let client = try here.mover.connect(BulkClient.Purpose(upload: upload, uploadBytes: 0))
        #expect(try here.send(bytes.chunks[0], with: client) == nil)
        // What no content rests on does.
        #expect(try here.send([UInt8](repeating: 1, count: 5000), with: client) == .quotaExceeded)
        #expect(try house.used() == 100_000)
    }

    /// The room that a device asks for is for what is new: what heals takes none of it, though there is some.
    @Test(arguments: [false, true]) func whatHealsTakesNoRoomOfWhatIsNew(comesTwice: Bool) throws {
        let old = TestContent(seed: 1, chunks: [50_000])
        try here.closeUpload(here.put(old, as: [.create(ContainerDevice.makeID(), "a", old.content())]))
        house.cloud.network.run(for: .seconds(5))
        try damage(old.ids[0])
        let both = TestContent(seed: 1, chunks: [50_000, 70_000])
        #expect(both.ids[0] == old.ids[0])
        let upload = ContainerDevice.makeID().bytes
        let client = try here.mover.connect(
            BulkClient.Purpose(upload: upload, uploadBytes: UInt64(BulkLimits.counted(70_000))))
        #expect(try here.send(both.chunks[0], with: client) == nil)
        if comesTwice {
            // Before anything has asked whether it is whole again.
            try damage(old.ids[0])
            #expect(try here.send(both.chunks[0], with: client) == nil)
        }
        #expect(try here.send(both.chunks[1], with: client) == nil)
        #expect(try find(old.ids, here) == [[], []])
        try here.apply([.create(ContainerDevice.makeID(), "b", both.content())], nodes: both.nodes, upload: upload)
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts().chunks == 2)
        #expect(try here.fetch(both.ids[0]) == both.chunks[0])
    }

    /// However much is damaged elsewhere in the account.
    @Test(arguments: [1100, 9000]) func whatIsDamagedElsewhereHidesNothing(count: Int) throws {
        let bytes = TestContent(seed: 1, chunks: [50_000])
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        try damage(bytes.ids[0])
        let note = SQL(
            """
            INSERT INTO content_damaged (partition_number, owner, id, found_at, damage)
            SELECT partition_number, owner, ?1, found_at, damage FROM content_damaged WHERE id = ?2
            """)
        try house.cloud.storage(of: .documents).write { transaction in
            for number in 0..<count {
                let id = [0, 0, UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 0, count: 28)
                _ = try transaction.execute(note, [.blob(id), .blob(bytes.ids[0].bytes)])
            }
        }
        // Not all of very many are looked at, and then there may be one.
        #expect(try info(here).lostChunks == 1)
        #expect(try find(bytes.ids, here) == [[0], [0]])
    }

    /// An app learns nothing of what is damaged in a container that it does not list.
    @Test func anotherAppIsToldNothing() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        try damage(bytes.ids[0])
        let other = try house.device(app: "T.other")
        other.container = "T.elsewhere"
        #expect(try find(bytes.ids, other) == [[0], []])
        #expect(try info(other).lostChunks == 0)
        #expect(try info(here).lostChunks == 1)
    }

    @Test func lostChunksAreCountedUntilTheyAreSentAgain() throws {
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 300))
        try here.put(bytes, as: [.create(ContainerDevice.makeID(), "a", bytes.content())])
        for chunk in bytes.ids { try damage(chunk) }
        #expect(try info(here).lostChunks == 300)
        #expect(try here.missing(bytes.ids).count == 300)
        try here.store(bytes)
        #expect(try info(here).lostChunks == 0)
    }

    /// A node lies in a row, and is found by its hash.
    @Test func aDamagedNodeIsMissingAndTakesItsPlaceAgain() throws {
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 700))
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "a", bytes.content())])
        let before = (try house.used(), try house.counts())
        let nodes = bytes.nodes.map { $0.withUnsafeBytes { ChunkID(hashing: $0) } }
        for node in nodes {
            let flip = SQL("UPDATE content_nodes SET node = X'00', length = 1, node_level = 3 WHERE id = ?1")
            _ = try house.cloud.storage(of: .documents).write { try $0.execute(flip, [.blob(node.bytes)]) }
        }
        expect(.storageFailure) { _ = try here.nodes([Data(bytes.root.bytes)]) }
        #expect(try here.missing(nodes) == Array(0..<nodes.count))
        let other = ContainerDevice.makeID()
        try here.apply([.create(other, "b", bytes.content())], nodes: bytes.nodes)
        #expect(try here.nodes(nodes.map { Data($0.bytes) }) == bytes.nodes)
        #expect(try house.used() == before.0 && house.counts() == before.1)
        try here.apply([.trash(id), .remove(id), .trash(other), .remove(other)])
        house.cloud.network.run(for: .seconds(60))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)
    }
}

extension ContainerDevice {
    /// - Returns: Why the chunk was not stored; nil: it was.
    fileprivate func send(_ chunk: [UInt8], with client: BulkClient) throws -> CloudError.Code? {
        let answer = Answer()
        client.store(bytes: chunk.count) { target in
            target.copyBytes(from: chunk)
            return chunk.withUnsafeBytes { ChunkID(hashing: $0) }
        } then: {
            answer.result = $0
        }
        run(until: { answer.result != nil })
        if case .failure(let error)? = answer.result { return error.code }
        return try #require(answer.result).map { nil }.get()
    }

    private final class Answer { var result: Result<Void, CloudError>? }
}
