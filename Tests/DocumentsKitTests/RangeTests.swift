import Foundation
import NephosChunks
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Of a part of a content only what it touches is fetched.
@Suite struct RangeTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    @Test(arguments: [100, 4096, 50_000, 3_000_000]) func aPartIsAsTheWholeHasIt(count: Int) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            let content = bytes(count, seed: UInt64(count))
            try await one.container.put(content, at: "x")
            let total = UInt64(count)
            let ranges = [
                0..<1, 0..<total, total - 1..<total, total / 3..<total / 2, total / 2..<total + 5, total..<total + 1,
                7..<7, UInt64.max - 1..<UInt64.max,
            ]
            func check(_ device: ContainerCloud.Device) async throws {
                for range in ranges {
                    let part = try await device.container.read("x", range: range)
                    let inside = range.clamped(to: 0..<total)
                    // A difference of megabytes is not to be printed.
                    let isSame = part == content[Int(inside.lowerBound)..<Int(inside.upperBound)]
                    #expect(isSame, "\(range)")
                }
            }
            // From the home, and from the server.
            try await check(one)
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            try await check(two)
            await #expect(throws: CloudError.self) { try await two.container.read("/Documents", range: 0..<1) }
        }
    }

    @Test func onlyTheNodesAndChunksOfThePartAreRead() throws {
        // Three levels of nodes, of contents that nobody has.
        let chunks = (0..<20_000).map { number in
            CutChunk(id: withUnsafeBytes(of: number) { ChunkID(hashing: $0) }, length: 100_000 + number % 7)
        }
        var builder = ManifestBuilder()
        var nodes: [ChunkID: Data] = [:]
        for chunk in chunks {
            for node in try builder.append(chunk.id, length: chunk.length) { nodes[node.id] = Data(node.bytes) }
        }
        let (root, last) = builder.finish()
        for node in last { nodes[node.id] = Data(node.bytes) }
        #expect(root.depth >= 2)
        func read(_ range: Range<UInt64>?) throws -> (chunks: [(chunk: CutChunk, offset: Int)], nodes: Int, asks: Int) {
            var (found, count, asks): ([(chunk: CutChunk, offset: Int)], Int, Int) = ([], 0, 0)
            var walk = try ContentWalk(
                root: root.id, depth: UInt32(root.depth), length: root.length, range: range ?? 0..<root.length)
            while true {
                switch try walk.next() {
                case .end: return (found, count, asks)
                case .chunk(let chunk, let offset): found.append((chunk, offset))
                case .nodes(let ids):
                    (count, asks) = (count + ids.count, asks + 1)
                    #expect(ids.count <= DocumentLimits.nodesReadMax)
                    try walk.take(ids.compactMap { nodes[$0] })
                }
            }
        }
        let all = try read(nil)
        #expect(all.chunks.map(\.chunk) == chunks && all.nodes == nodes.count)
        // Those of the lowest level come many at a time.
        #expect(all.asks * 8 < all.nodes)
        let middle = root.length / 2
        let part = try read(middle..<middle + 250_000)
        #expect(part.nodes <= 2 * Int(root.depth) && (3...4).contains(part.chunks.count))
        let first = try #require(part.chunks.first), end = try #require(part.chunks.last)
        #expect(first.offset <= Int(middle) && first.offset + first.chunk.length > Int(middle))
        #expect(end.offset < Int(middle) + 250_000 && end.offset + end.chunk.length >= Int(middle) + 250_000)
        let one = try read(0..<1)
        #expect(one.chunks.map(\.chunk) == [chunks[0]] && one.nodes == Int(root.depth))
        let none = try read(root.length..<root.length + 1)
        #expect(none.chunks.isEmpty && none.nodes == 0)
    }

    /// Three nodes that each name one child 512 times: 134 million chunks of a byte each.
    @Test func aNodeThatIsNamedManyTimesIsAskedForOnceAndHeldOnce() throws {
        var (id, length): ([UInt8], UInt64) = (Array(repeating: 1, count: 32), 1)
        var nodes: [ChunkID: Data] = [:]
        for level in UInt8(0)..<3 {
            let child = id + withUnsafeBytes(of: length.littleEndian) { Array($0) }
            let node = Data([1, 0, level, 0, 0, 2, 0, 0] + (0..<512).flatMap { _ in child })
            let name = node.withUnsafeBytes { ChunkID(hashing: $0) }
            nodes[name] = node
            (id, length) = (name.bytes, length * 512)
        }
        let root = try #require(ChunkID(bytes: id))
        func residentBytes() throws -> Int {
            let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
            return try #require(text.split(separator: " ").dropFirst().first.flatMap { Int($0) }) * Int(getpagesize())
        }
        // Other tests of this process allocate meanwhile, so the least of several walks counts. All are kept: what one
        // holds is not given to the next.
        var (walks, least): ([ContentWalk], Int) = ([], .max)
        while least >= 16 << 20, walks.count < 8 {
            let before = try residentBytes()
            var walk = try ContentWalk(root: root, depth: 3, length: length, range: 0..<length)
            var (asked, count) = (0, 0)
            while count < 600_000 {
                let step = try walk.next()
                if step == .end { break }
                if case .nodes(let ids) = step {
                    asked += ids.count
                    try walk.take(ids.compactMap { nodes[$0] })
                } else {
                    count += 1
                }
            }
            #expect(asked == 3 && count == 600_000)
            least = min(least, try residentBytes() - before)
            walks.append(walk)
        }
        #expect(least < 16 << 20)
    }

    @Test func aNodeThatIsNotWhatWasSaidOfItIsADamageOfTheContent() throws {
        let chunks = (0..<600).map { CutChunk(id: withUnsafeBytes(of: $0) { ChunkID(hashing: $0) }, length: 1000) }
        let top = try CutChunk.nodes(of: chunks).count
        #expect(top > 1)
        var walk = try ContentWalk(
            root: try CutChunk.root(of: chunks), depth: 2, length: 600_000, range: 0..<600_000)
        guard case .nodes(let ids) = try walk.next() else { throw CloudError(.internalError, "It needs a node.") }
        for wrong in [[], [Data()], [Data([1, 0, 0, 0])], Array(repeating: Data(), count: ids.count + 1)] {
            let error = #expect(throws: CloudError.self) { try walk.take(wrong) }
            #expect(error?.code == .storageFailure)
        }
    }

    @Test func aPartMovesNoMoreThanItsChunks() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(5_000_000, seed: 9), at: "x")
            try await one.settle()
            try await two.settle()
            let part = try await two.container.read("x", range: 2_000_000..<2_000_100)
            #expect(part == bytes(5_000_000, seed: 9)[2_000_000..<2_000_100])
            let fetched: Int = try await two.session.engine.perform { engine, completion in
                completion(
                    Result { try engine.contents.join(.documents("", app: ContainerCloud.app)).progress.bytesDone }
                        .mapError { CloudError(wrapping: $0) })
            }
            #expect(fetched > 0 && fetched <= 1 << 20)
        }
    }
}
