import NephosCore

@testable import NephosChunks

/// Bytes as SplitMix64 gives them, its numbers least significant byte first.
func content(_ seed: UInt64, count: Int) -> [UInt8] {
    var random = SplitMix64(seed: seed)
    return [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, filled in
        let bytes = UnsafeMutableRawBufferPointer(buffer)
        for place in stride(from: 0, to: count, by: 8) {
            bytes.storeBytes(of: random.next().littleEndian, toByteOffset: place, as: UInt64.self)
        }
        filled = count
    }
}

/// The chunks of these bytes, given in pieces as long as the closure says.
func chunkLengths(_ bytes: [UInt8], piece: () -> Int = { .max }) -> [Int] {
    var chunker = Chunker()
    var lengths: [Int] = []
    bytes.withUnsafeBytes { bytes in
        var place = 0
        while place < bytes.count {
            let end = place + min(piece(), bytes.count - place)
            var rest = UnsafeRawBufferPointer(rebasing: bytes[place..<end])
            while true {
                let begun = chunker.begun
                guard let length = chunker.cut(in: rest) else { break }
                lengths.append(begun + length)
                rest = UnsafeRawBufferPointer(rebasing: rest[length...])
            }
            place = end
        }
    }
    if let length = chunker.finish() { lengths.append(length) }
    return lengths
}

/// The chunks of these bytes as a content lists them.
func chunks(of bytes: [UInt8]) -> [ManifestNode.Child] {
    var place = 0
    return chunkLengths(bytes).map { length in
        defer { place += length }
        return bytes[place..<place + length].withUnsafeBytes {
            ManifestNode.Child(id: ChunkID(hashing: $0), length: UInt64(length))
        }
    }
}

func id(_ number: UInt64) -> ChunkID { withUnsafeBytes(of: number.littleEndian) { ChunkID(hashing: $0) } }

/// An id that ends nodes, or one that does not.
func id(ending: Bool, _ number: UInt64) -> ChunkID {
    var bytes = id(number).bytes
    bytes[0] = ending ? 0x80 : bytes[0] | 1
    return ChunkID(bytes: bytes) ?? .none
}

/// So many chunks of random lengths, some of them twice.
func list(_ seed: UInt64, count: Int) -> [ManifestNode.Child] {
    var random = SplitMix64(seed: seed)
    return (0..<count).map { _ in
        let number = random.next() % UInt64(2 * count)
        return ManifestNode.Child(id: id(seed << 32 + number), length: 1 + number * 7919 % (1 << 20))
    }
}

/// A tree, and where its nodes are kept.
struct Tree {
    var root = ContentRoot.empty
    var nodes: [ChunkID: [UInt8]] = [:]
    /// In the order in which they came.
    var finished: [ManifestBuilder.Node] = []

    init(_ chunks: [ManifestNode.Child]) throws {
        var builder = ManifestBuilder()
        for chunk in chunks { finished += try builder.append(chunk.id, length: Int(chunk.length)) }
        let end = builder.finish()
        root = end.root
        finished += end.nodes
        for node in finished { nodes[node.id] = node.bytes }
    }

    /// Of nodes that were made by hand.
    init(root: NodeReference, nodes: [ManifestBuilder.Node]) throws {
        self.root = try ContentRoot(id: root.id, depth: root.level + 1, length: root.length)
        for node in nodes { self.nodes[node.id] = node.bytes }
    }

    /// The chunks that a reader finds.
    func read(from start: UInt64 = 0) throws -> [ManifestReader.Chunk] {
        var reader = ManifestReader(root, from: start)
        var chunks: [ManifestReader.Chunk] = []
        while true {
            switch reader.next() {
            case .node(let node): try (nodes[node.id] ?? []).withUnsafeBytes { try reader.take($0) }
            case .chunk(let chunk): chunks.append(chunk)
            case .end: return chunks
            }
        }
    }

    /// All its nodes, the bytes of those of level 0 unread.
    func references() throws -> Set<NodeReference> {
        var known: Set<NodeReference> = []
        var reader = ManifestReader(root)
        while case .node(let node) = reader.next() {
            known.insert(node)
            if node.level == 0 {
                reader.skip()
            } else {
                try (nodes[node.id] ?? []).withUnsafeBytes { try reader.take($0) }
            }
        }
        return known
    }
}

/// What the builder would not make.
func node(_ level: UInt8, _ children: [ManifestNode.Child]) -> ManifestBuilder.Node {
    let length = children.reduce(0) { $0 &+ $1.length }
    let bytes = ManifestNode(level: level, length: length, children: children).encoded()
    let id = bytes.withUnsafeBytes { ChunkID(hashing: $0) }
    return ManifestBuilder.Node(reference: NodeReference(id: id, level: level, length: length), bytes: bytes)
}

func decoded(_ bytes: [UInt8]) throws -> ManifestNode { try bytes.withUnsafeBytes { try ManifestNode(decoding: $0) } }

/// The code of the error; nil if there is none, or another kind of one.
func code(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return (error as? CloudError)?.code }
    return nil
}
