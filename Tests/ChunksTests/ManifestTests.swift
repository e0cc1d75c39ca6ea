import NephosCore
import Testing

@testable import NephosChunks

@Suite struct ManifestTests {
    // MARK: Trees

    @Test func aContentOfOneChunkIsThatChunk() throws {
        let tree = try Tree([ManifestNode.Child(id: id(1), length: 5)])
        #expect(tree.root == (try ContentRoot(id: id(1), depth: 0, length: 5)))
        #expect(tree.finished.isEmpty)
        #expect(try tree.read() == [ManifestReader.Chunk(id: id(1), offset: 0, length: 5)])
        #expect(try tree.read(from: 4).count == 1)
        #expect(try tree.read(from: 5).isEmpty)
    }

    @Test func aContentWithoutBytesHasNoChunk() throws {
        let tree = try Tree([])
        #expect(tree.root == .empty)
        #expect(tree.root == (try ContentRoot(id: .none, depth: 0, length: 0)))
        #expect(tree.finished.isEmpty)
        #expect(try tree.read().isEmpty)
    }

    @Test(arguments: [2, 31, 32, 33, 511, 512, 513, 1000, 5000, 40_000])
    func whatIsBuiltIsReadAndBuiltAgainTheSame(count: Int) throws {
        let chunks = list(UInt64(count), count: count)
        let tree = try Tree(chunks)
        let found = try tree.read()
        #expect(found.map { ManifestNode.Child(id: $0.id, length: UInt64($0.length)) } == chunks)
        var offset: UInt64 = 0
        for chunk in found {
            #expect(chunk.offset == offset)
            offset += UInt64(chunk.length)
        }
        #expect(tree.root.length == offset)
        let again = try Tree(found.map { ManifestNode.Child(id: $0.id, length: UInt64($0.length)) })
        #expect(again.root == tree.root)
        #expect(again.finished == tree.finished)
    }

    @Test func childrenAreFinishedBeforeTheirParents() throws {
        let tree = try Tree(list(1, count: 20_000))
        var seen: Set<ChunkID> = []
        for node in tree.finished {
            #expect(node.bytes.count <= ManifestNode.bytesMax)
            for child in try decoded(node.bytes).nodes { #expect(seen.contains(child.id)) }
            seen.insert(node.id)
        }
        #expect(tree.finished.last?.id == tree.root.id)
    }

    /// The number of children of each node of level 0, of chunks whose ids end nodes or do not.
    func counts(_ ends: [Bool]) throws -> [Int] {
        let tree = try Tree(
            ends.enumerated().map { ManifestNode.Child(id: id(ending: $1, UInt64($0)), length: 1) })
        return try tree.finished.filter { $0.reference.level == 0 }.map { try decoded($0.bytes).children.count }
    }

    @Test func aNodeEndsWhereAnIdSaysSo() throws {
        // The 31st ends none yet, the 32nd does.
        #expect(try counts((1...100).map { $0 == 31 || $0 == 40 }) == [40, 60])
        #expect(try counts((1...100).map { $0 == 32 || $0 == 40 }) == [32, 68])
        #expect(try counts(Array(repeating: true, count: 70)) == [32, 32, 6])
        #expect(try counts(Array(repeating: false, count: 1025)) == [512, 512, 1])
        // Full, with nothing behind it: it is the root, and has no parent.
        #expect(try counts(Array(repeating: true, count: 32)) == [32])
        #expect(try counts(Array(repeating: false, count: 512)) == [512])
    }

    @Test(arguments: [32, 512])
    func aTreeHasNoTopWithOneChild(count: Int) throws {
        let tree = try Tree(
            (0..<UInt64(count)).map { ManifestNode.Child(id: id(ending: count == 32, $0), length: 1) })
        #expect(tree.root.depth == 1)
        #expect(tree.finished.count == 1)
    }

    @Test func theLargestContentHasSixLevelsAtMost() throws {
        // One id again and again, which ends a node at each 32nd: of so many chunks only the numbers are right here.
        var nodes = ManifestBuilder.chunksMax
        var levels = 0
        while nodes > 1 {
            nodes = (nodes + ManifestBuilder.childrenMin - 1) / ManifestBuilder.childrenMin
            levels += 1
        }
        #expect(levels <= Int(ManifestNode.levelMax))
    }

    @Test func aBuilderRefusesWhatNoContentHas() throws {
        var builder = ManifestBuilder()
        for length in [0, -1, .min, .max, 1 << 20 + 1] {
            #expect(code { _ = try builder.append(id(1), length: length) } == .invalidArguments)
        }
        #expect(code { _ = try builder.append(.none, length: 1) } == .invalidArguments)
        _ = try builder.append(id(1), length: 1 << 20)
        #expect(builder.finish().root.length == 1 << 20)
        // It is as new.
        #expect(builder.finish().root == .empty)
    }

    @Test func aRootThatNoContentHasIsRefused() throws {
        #expect(code { _ = try ContentRoot(id: id(1), depth: 8, length: 5) } == .invalidArguments)
        #expect(code { _ = try ContentRoot(id: id(1), depth: 0, length: 1 << 20 + 1) } == .invalidArguments)
        #expect(code { _ = try ContentRoot(id: id(1), depth: 7, length: 1 << 44 + 1) } == .invalidArguments)
        #expect(code { _ = try ContentRoot(id: id(1), depth: 0, length: 0) } == .invalidArguments)
        #expect(code { _ = try ContentRoot(id: .none, depth: 0, length: 1) } == .invalidArguments)
        #expect(code { _ = try ContentRoot(id: .none, depth: 1, length: 0) } == .invalidArguments)
        #expect(try ContentRoot(id: id(1), depth: 7, length: 1 << 44).node?.level == 6)
    }

    // MARK: Ranges

    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func aRangeBeginsInTheRightChunk(seed: UInt64) throws {
        let tree = try Tree(list(seed, count: 3000))
        let all = try tree.read()
        var random = SplitMix64(seed: seed)
        for _ in 0..<20 {
            let start = random.next() % tree.root.length
            #expect(try tree.read(from: start) == all.filter { $0.offset + UInt64($0.length) > start })
        }
        // Around the borders of a chunk.
        let border = all[1000].offset
        #expect(try tree.read(from: border).first == all[1000])
        #expect(try tree.read(from: border - 1).first == all[999])
        #expect(try tree.read(from: tree.root.length).isEmpty)
        #expect(try tree.read(from: .max).isEmpty)
    }

    @Test func aRangeNeedsOneNodeOfEachLevelFirst() throws {
        let tree = try Tree(list(1, count: 40_000))
        var reader = ManifestReader(tree.root, from: tree.root.length - 1)
        var nodes = 0
        while case .node(let node) = reader.next() {
            nodes += 1
            try (tree.nodes[node.id] ?? []).withUnsafeBytes { try reader.take($0) }
        }
        #expect(nodes == Int(tree.root.depth))
    }

    // MARK: Differences

    @Test func onlyWhatAnOldVersionHasNotIsWalked() throws {
        var chunks = list(7, count: 30_000)
        let old = try Tree(chunks)
        chunks[12_345] = ManifestNode.Child(id: id(1), length: 99)
        chunks.insert(ManifestNode.Child(id: id(2), length: 5), at: 20_000)
        let new = try Tree(chunks)
        var difference = ManifestDifference(to: new.root, known: try old.references())
        var (nodes, found) = (0, Set<ChunkID>())
        walk: while true {
            switch difference.next() {
            case .node(let node):
                nodes += 1
                try (new.nodes[node.id] ?? []).withUnsafeBytes { try difference.take($0) }
            case .chunk(let chunk): found.insert(chunk.id)
            case .end: break walk
            }
        }
        #expect(nodes <= 5)
        #expect(found.isSuperset(of: [id(1), id(2)]))
        #expect(found.count < 2000)
        // The same version again: nothing.
        var none = ManifestDifference(to: new.root, known: try new.references())
        #expect(none.next() == .end)
    }

    @Test func aKnownNodeThatIsSaidToBeLongerIsLookedAtAndRefused() throws {
        let leaf = node(0, [.init(id: id(1), length: 5), .init(id: id(2), length: 5)])
        let top = node(1, [.init(id: leaf.id, length: 10), .init(id: leaf.id, length: 1 << 40)])
        let tree = try Tree(root: top.reference, nodes: [leaf, top])
        var difference = ManifestDifference(to: tree.root, known: [leaf.reference])
        try top.bytes.withUnsafeBytes { try difference.take($0) }
        #expect(difference.next() == .node(NodeReference(id: leaf.id, level: 0, length: 1 << 40)))
        #expect(code { try leaf.bytes.withUnsafeBytes { try difference.take($0) } } == .invalidArguments)
    }
}
