import Foundation
import NephosBulk
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Contents may rest on what another container of the app has: nothing is sent, nothing is counted twice, and nothing is
/// told of a container that the app does not list.
@Suite struct SourceContainerTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    /// The same app's other container.
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
        there.container = "T.shared"
    }

    private func nodeBytes(_ content: TestContent) -> Int64 { counted(content.nodes) }

    /// Puts it into the first container; its upload is over.
    private func put(_ content: TestContent, _ name: String = "a") throws -> DocumentID {
        let id = ContainerDevice.makeID()
        try here.closeUpload(here.put(content, as: [.create(id, name, content.content())]))
        house.cloud.network.run(for: .seconds(5))
        return id
    }

    private func remove(_ id: DocumentID, by device: ContainerDevice) throws {
        try device.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(20))
    }

    @Test func aContentIsCopiedWithoutItsBytesAndOutlivesItsSource() throws {
        // More chunks than a node takes: two levels.
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 700))
        let id = try put(bytes)
        #expect(try there.missing(bytes.ids).count == 700)
        #expect(try there.find(bytes.ids, source: here.container).missing.isEmpty)
        // Each container has nodes of its own.
        #expect(try there.find([bytes.root], source: here.container).missing == [0])
        let copy = ContainerDevice.makeID()
        let create = WireDocumentChange.create(copy, "b", bytes.content())
        expect(.unknownItem) { try there.apply([create], nodes: bytes.nodes) }
        expect(.unknownItem) { try there.apply([create], source: here.container) }
        #expect(try there.list().isEmpty)
        try there.apply([create], nodes: bytes.nodes, source: here.container)
        // A repeat, whose answer was lost, takes nothing again.
        try there.apply([create], nodes: bytes.nodes, source: here.container)
        let uses = 700 + bytes.nodes.count
        #expect(try house.counts() == Counts(chunks: 700, uses: 2 * uses, nodes: 2 * bytes.nodes.count))
        #expect(try house.used() == 700 * 5000 + 2 * nodeBytes(bytes))
        try remove(id, by: here)
        #expect(try house.counts() == Counts(chunks: 700, uses: uses, nodes: bytes.nodes.count))
        #expect(try house.used() == 700 * 5000 + nodeBytes(bytes))
        #expect(try there.fetch(bytes.ids[699]) == bytes.chunks[699])
        #expect(try there.nodes([Data(bytes.root.bytes)]) == [try #require(bytes.nodes.last)])
        try remove(copy, by: there)
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)
    }

    @Test func theCopyGoesFirstAndItsSourceStays() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try _ = put(bytes)
        let copy = ContainerDevice.makeID()
        try there.apply([.create(copy, "b", bytes.content())], source: here.container)
        #expect(try house.counts() == Counts(chunks: 1, uses: 2, nodes: 0))
        #expect(try house.used() == 100_000)
        try remove(copy, by: there)
        #expect(try house.counts() == Counts(chunks: 1, uses: 1, nodes: 0))
        #expect(try house.used() == 100_000)
        #expect(try here.fetch(bytes.ids[0]) == bytes.chunks[0])
    }

    /// Those of a very long content go ahead of it, without a chunk of it in the upload.
    @Test func nodesGoAheadOfACopy() throws {
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 5000, count: 700))
        let id = try put(bytes)
        let (ahead, rest) = (Array(bytes.nodes.dropLast()), Array(bytes.nodes.suffix(1)))
        let upload = ContainerDevice.makeID().bytes
        var open = WireOpenTransfer()
        open.transferID = Data(upload)
        try there.call("OpenTransfer", open, as: WireOpenTransferReply.self)
        expect(.unknownItem) { try there.apply([], nodes: ahead, upload: upload) }
        try there.apply([], nodes: ahead, upload: upload, source: here.container)
        // What it came from goes for good before the content does.
        try remove(id, by: here)
        let copy = ContainerDevice.makeID()
        try there.apply(
            [.create(copy, "b", bytes.content())], nodes: rest, upload: upload, source: here.container)
        try there.closeUpload(upload)
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counts() == Counts(chunks: 700, uses: 700 + bytes.nodes.count, nodes: bytes.nodes.count))
        #expect(try house.used() == 700 * 5000 + nodeBytes(bytes))
        #expect(try there.fetch(bytes.ids[0]) == bytes.chunks[0])
    }

    @Test func whatIsOfNoUseAnyMoreIsNotTaken() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try remove(try put(bytes), by: here)
        #expect(try there.find(bytes.ids, source: here.container).missing == [0])
        expect(.unknownItem) {
            try there.apply([.create(ContainerDevice.makeID(), "b", bytes.content())], source: here.container)
        }
    }

    /// Alike for a container that the app does not list and for one that there is not; nothing of either is told.
    @Test func nothingIsToldOfAContainerThatTheAppDoesNotList() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try _ = put(bytes)
        let other = try house.device(app: "T.other")
        other.container = "T.elsewhere"
        func failures(_ source: String) -> [CloudError?] {
            func failure(_ body: () throws -> Void) -> CloudError? {
                do { try body() } catch { return CloudError(wrapping: error) }
                return nil
            }
            return [
                failure { _ = try other.find(bytes.ids, source: source) },
                failure {
                    try other.apply([.create(ContainerDevice.makeID(), "b", bytes.content())], source: source)
                },
            ]
        }
        let hidden = failures("T.letters")
        #expect(hidden.allSatisfy { $0?.code == .missingEntitlement })
        #expect(hidden == failures("T.nowhere"))
        // Through one that it lists, what is elsewhere is not there either.
        #expect(try other.find(bytes.ids, source: "T.shared").missing == [0])
        expect(.unknownItem) {
            try other.apply([.create(ContainerDevice.makeID(), "b", bytes.content())], source: "T.shared")
        }
        #expect(try other.list().isEmpty)
    }

    @Test func aDamagedChunkIsNotTaken() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try _ = put(bytes)
        try house.damageSegments()
        #expect(throws: CloudError.self) { try here.fetch(bytes.ids[0]) }
        house.cloud.network.run(for: .seconds(1))
        let found = try there.find(bytes.ids, source: here.container)
        #expect(found.missing == [0] && found.damaged.isEmpty)
        expect(.unknownItem) {
            try there.apply([.create(ContainerDevice.makeID(), "b", bytes.content())], source: here.container)
        }
    }
}
