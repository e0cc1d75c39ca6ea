import NephosCore
import Testing

@testable import NephosChunks

/// What a device could send in place of a manifest.
@Suite struct HostileManifestTests {
    let good: [UInt8]

    init() { good = node(0, list(3, count: 40)).bytes }

    func refusal(_ change: (inout [UInt8]) -> Void) -> CloudError.Code? {
        var bytes = good
        change(&bytes)
        return code { _ = try decoded(bytes) }
    }

    func setLength(_ length: UInt64, of child: Int, in bytes: inout [UInt8]) {
        withUnsafeBytes(of: length.littleEndian) {
            bytes.replaceSubrange(8 + child * 40 + 32..<8 + child * 40 + 40, with: $0)
        }
    }

    @Test func theBytesOfANodeAreThoseOfTheProtocol() throws {
        let small = node(0, [.init(id: id(1), length: 65_537), .init(id: id(2), length: 0x01_0203)])
        #expect(
            small.bytes
                == [1, 0, 0, 0, 2, 0, 0, 0] + id(1).bytes + [1, 0, 1, 0, 0, 0, 0, 0] + id(2).bytes
                + [3, 2, 1, 0, 0, 0, 0, 0])
        #expect(try decoded(small.bytes).length == 65_537 + 0x01_0203)
    }

    @Test func eachRuleOfANodeIsChecked() {
        #expect(refusal { _ in } == nil)
        #expect(refusal { $0[0] = 0 } == .incompatibleVersion)
        #expect(refusal { $0[0] = 2 } == .incompatibleVersion)
        #expect(refusal { $0[1] = 1 } == .incompatibleVersion)
        #expect(refusal { $0[2] = 7 } == .invalidArguments)
        #expect(refusal { $0[3] = 1 } == .invalidArguments)
        #expect(refusal { $0[4] = 39 } == .invalidArguments)
        #expect(refusal { $0[4] = 41 } == .invalidArguments)
        #expect(refusal { $0[7] = 0xff } == .invalidArguments)
        #expect(refusal { $0 = Array($0[..<8]) + [] } == .invalidArguments)
        #expect(refusal { $0 = [1, 0, 0, 0, 0, 0, 0, 0] } == .invalidArguments)
        #expect(refusal { $0 = [] } == .invalidArguments)
        #expect(refusal { $0.append(0) } == .invalidArguments)
        #expect(refusal { setLength(0, of: 3, in: &$0) } == .invalidArguments)
        #expect(refusal { setLength(1 << 20, of: 3, in: &$0) } == nil)
        #expect(refusal { setLength(1 << 20 + 1, of: 3, in: &$0) } == .invalidArguments)
        #expect(refusal { $0.replaceSubrange(8..<40, with: repeatElement(0, count: 32)) } == .invalidArguments)
        // 513 children, in the right size.
        #expect(code { _ = try decoded(node(0, list(1, count: 513)).bytes) } == .invalidArguments)
        #expect(code { _ = try decoded(node(0, list(1, count: 512)).bytes) } == nil)
    }

    @Test func sumsNeitherOverflowNorPassTheMost() {
        func lengths(_ lengths: UInt64...) -> CloudError.Code? {
            code { _ = try decoded(node(1, lengths.map { .init(id: id($0), length: $0) }).bytes) }
        }
        #expect(lengths(1 << 43, 1 << 43) == nil)
        #expect(lengths(1 << 43, 1 << 43, 1) == .invalidArguments)
        #expect(lengths(.max) == .invalidArguments)
        #expect(lengths(.max, 2) == .invalidArguments)
        #expect(lengths(5, .max) == .invalidArguments)
        #expect(lengths(1 << 63, 1 << 63, 10) == .invalidArguments)
    }

    @Test func everyDamageIsRefusedOrIsAnotherNode() throws {
        for place in good.indices {
            for bit in 0..<8 {
                var bytes = good
                bytes[place] ^= 1 << UInt8(bit)
                guard let node = try? decoded(bytes) else { continue }
                #expect(node.encoded() == bytes, "byte \(place), bit \(bit)")
                let whole = try decoded(good)
                let expected = NodeReference(
                    id: good.withUnsafeBytes { ChunkID(hashing: $0) }, level: 0, length: whole.length)
                #expect(
                    code { try bytes.withUnsafeBytes { _ = try ManifestNode(decoding: $0, as: expected) } }
                        == .invalidArguments)
            }
        }
        for count in 0..<good.count { #expect(code { _ = try decoded(Array(good[..<count])) } == .invalidArguments) }
    }

    @Test func bytesAtRandomAreNoNode() {
        var random = SplitMix64(seed: 4)
        for _ in 0..<5000 {
            var bytes = content(random.next(), count: Int(random.next() % 200))
            // Past the header, most of them.
            for (place, byte) in [1, 0, UInt8(random.next() % 7), 0, UInt8(random.next() % 5), 0, 0, 0].enumerated()
            where place < bytes.count { bytes[place] = byte }
            guard let node = try? decoded(bytes) else { continue }
            #expect(node.encoded() == bytes)
        }
    }

    // MARK: Trees

    /// What comes of reading this tree.
    func reading(_ top: ManifestBuilder.Node, _ nodes: [ManifestBuilder.Node]) -> CloudError.Code? {
        code { _ = try Tree(root: top.reference, nodes: nodes + [top]).read() }
    }

    @Test func levelsAndLengthsOfATreeAgree() {
        let leaf = node(0, list(1, count: 3))
        let other = node(0, list(2, count: 3))
        let length = leaf.reference.length
        func top(_ length: UInt64, level: UInt8 = 1) -> ManifestBuilder.Node {
            node(level, [.init(id: leaf.id, length: length), .init(id: other.id, length: other.reference.length)])
        }
        #expect(reading(top(length), [leaf, other]) == nil)
        #expect(reading(top(length + 1), [leaf, other]) == .invalidArguments)
        #expect(reading(top(length - 1), [leaf, other]) == .invalidArguments)
        // A level is left out, or there twice.
        #expect(reading(top(length, level: 2), [leaf, other]) == .invalidArguments)
        let same = node(
            1, [.init(id: top(length).id, length: top(length).reference.length), .init(id: id(9), length: 1)])
        #expect(reading(same, [leaf, other, top(length)]) == .invalidArguments)
        // The root says something else than the top node.
        var root = top(length).reference
        root.level = 2
        #expect(code { _ = try Tree(root: root, nodes: [leaf, other, top(length)]).read() } == .invalidArguments)
        root = top(length).reference
        root.length += 1
        #expect(code { _ = try Tree(root: root, nodes: [leaf, other, top(length)]).read() } == .invalidArguments)
    }

    @Test func otherBytesThanTheNodesAreRefusedAndTheRightOnesTaken() throws {
        let tree = try Tree(list(5, count: 100))
        var reader = ManifestReader(tree.root)
        let other = try Tree(list(6, count: 100))
        #expect(code { try (other.nodes[other.root.id] ?? []).withUnsafeBytes { try reader.take($0) } } != nil)
        // The same length and level, and other chunks.
        var bytes = tree.nodes[tree.root.id] ?? []
        bytes[8] ^= 1
        #expect(code { try bytes.withUnsafeBytes { try reader.take($0) } } == .invalidArguments)
        #expect(reader.next() == .node(try #require(tree.root.node)))
        bytes[8] ^= 1
        try bytes.withUnsafeBytes { try reader.take($0) }
        #expect(code { try bytes.withUnsafeBytes { try reader.take($0) } } == .invalidArguments)
    }

    @Test func aTopWithOneChildIsRefusedAndALastNodeWithOneIsNot() {
        let leaf = node(0, list(1, count: 3))
        let single = node(0, list(2, count: 1))
        #expect(reading(node(1, [.init(id: leaf.id, length: leaf.reference.length)]), [leaf]) == .invalidArguments)
        #expect(reading(single, []) == .invalidArguments)
        let top = node(
            1,
            [
                .init(id: leaf.id, length: leaf.reference.length),
                .init(id: single.id, length: single.reference.length),
            ])
        #expect(reading(top, [leaf, single]) == nil)
    }

    /// One node named 512 times on each level: as long as it may be, from the fewest bytes.
    func diamonds(levels: UInt8, chunk: UInt64, width: Int = 512) -> [ManifestBuilder.Node] {
        var nodes: [ManifestBuilder.Node] = []
        var child = ManifestNode.Child(id: id(1), length: chunk)
        for level in 0..<levels {
            let next = node(level, Array(repeating: child, count: width))
            nodes.append(next)
            child = ManifestNode.Child(id: next.id, length: next.reference.length)
        }
        return nodes
    }

    @Test func aTreeOfDiamondsIsAsLongAsItSaysAndEachStepIsSmall() throws {
        // 512^4 chunks of 256 bytes are 16 TiB.
        let nodes = diamonds(levels: 4, chunk: 256)
        let top = try #require(nodes.last)
        #expect(top.reference.length == ContentRoot.bytesMax)
        let tree = try Tree(root: top.reference, nodes: nodes)
        // The last byte is four nodes away.
        var reader = ManifestReader(tree.root, from: ContentRoot.bytesMax - 1)
        for _ in 0..<4 {
            guard case .node(let node) = reader.next() else { break }
            try (tree.nodes[node.id] ?? []).withUnsafeBytes { try reader.take($0) }
        }
        #expect(
            reader.next()
                == .chunk(ManifestReader.Chunk(id: id(1), offset: ContentRoot.bytesMax - 256, length: 256)))
        #expect(reader.next() == .end)
        // One more level cannot be said.
        let more = node(4, [.init(id: top.id, length: top.reference.length), .init(id: id(2), length: 1)])
        #expect(code { _ = try decoded(more.bytes) } == .invalidArguments)
    }

    @Test func eachNodeOfATreeOfDiamondsIsAskedForOnce() throws {
        let nodes = diamonds(levels: 7, chunk: 1, width: 64)
        let tree = try Tree(root: try #require(nodes.last).reference, nodes: nodes)
        var difference = ManifestDifference(to: tree.root)
        var (asked, found) = (0, 0)
        walk: while true {
            switch difference.next() {
            case .node(let node):
                asked += 1
                try (tree.nodes[node.id] ?? []).withUnsafeBytes { try difference.take($0) }
            case .chunk: found += 1
            case .end: break walk
            }
        }
        #expect(asked == 7)
        #expect(found == 64)
    }

    @Test func aWalkOfTooManyNodesEnds() throws {
        let tree = try Tree(list(8, count: 5000))
        var difference = ManifestDifference(to: tree.root, nodesMax: 3)
        var taken = 0
        let end = code {
            while true {
                guard case .node(let node) = difference.next() else { continue }
                try (tree.nodes[node.id] ?? []).withUnsafeBytes { try difference.take($0) }
                taken += 1
            }
        }
        #expect(end == .limitExceeded)
        #expect(taken == 3)
    }
}
