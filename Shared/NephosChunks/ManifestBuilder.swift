public import NephosCore

/// Makes the tree of a content from its chunks, one after the other.
///
/// The same chunks always make the same tree. A node ends with a child whose id says so, so that a chunk that is
/// changed, put in or taken out changes about one node of each level. Holds at most one unfinished node of each level.
public struct ManifestBuilder: Sendable {
    /// A node that is finished, to be stored as a chunk.
    public struct Node: Sendable, Hashable {
        public let reference: NodeReference
        public let bytes: [UInt8]

        public var id: ChunkID { reference.id }
    }

    /// Chunks of a content, at most: as many as 16 TiB have that end where they may. So no tree has more than six
    /// levels of nodes: each but the last of a level has at least ``childrenMin`` children.
    public static let chunksMax = Int(ContentRoot.bytesMax) / Chunker.minimum

    /// A node with fewer children does not end by a child's id.
    static let childrenMin = 32

    private struct Level {
        var children: [ManifestNode.Child] = []
        var length: UInt64 = 0
    }

    private var levels: [Level] = []
    private var chunks = 0
    /// Bytes of content so far.
    public private(set) var length: UInt64 = 0

    public init() {}

    /// Adds the next chunk.
    ///
    /// - Parameter length: Bytes of the chunk, 1 to 1 MiB.
    /// - Returns: The nodes that it finishes, children first; mostly none.
    /// - Throws: ``CloudError`` `.invalidArguments` for a length that no chunk has, for the id of no chunk, or for more
    ///   than a content may have. Nothing was added then.
    public mutating func append(_ id: ChunkID, length: Int) throws -> [Node] {
        guard length > 0, length <= BulkLimits.chunkBytesMax, id != .none else {
            throw CloudError(
                .invalidArguments, "No chunk has such a length or id.", details: ["length": String(length)])
        }
        guard chunks < Self.chunksMax, UInt64(length) <= ContentRoot.bytesMax - self.length else {
            throw CloudError(
                .invalidArguments, "A content has 16 TiB and 2^28 chunks at most.",
                details: ["length": String(self.length), "chunks": String(chunks)])
        }
        chunks += 1
        self.length += UInt64(length)
        var finished: [Node] = []
        add(ManifestNode.Child(id: id, length: UInt64(length)), at: 0, &finished)
        return finished
    }

    /// Ends the content. The builder is as new then.
    ///
    /// - Returns: The root, and the nodes that were not finished yet, children first.
    public mutating func finish() -> (root: ContentRoot, nodes: [Node]) {
        defer { self = ManifestBuilder() }
        var finished: [Node] = []
        var level = 0
        while level < levels.count {
            // Nothing beside it, and nothing above: it is the root itself.
            if level == levels.count - 1, levels[level].children.count == 1, let top = levels[level].children.first {
                return (ContentRoot(checkedID: top.id, depth: UInt8(level), length: top.length), finished)
            }
            if !levels[level].children.isEmpty { end(level, &finished) }
            level += 1
        }
        return (.empty, finished)
    }

    private mutating func add(_ child: ManifestNode.Child, at level: Int, _ finished: inout [Node]) {
        if level == levels.count { levels.append(Level()) }
        levels[level].children.append(child)
        levels[level].length += child.length
        let count = levels[level].children.count
        if count >= Self.childrenMin && Self.ends(child.id) || count >= ManifestNode.childrenMax {
            end(level, &finished)
        }
    }

    private mutating func end(_ level: Int, _ finished: inout [Node]) {
        let node = ManifestNode(
            level: UInt8(level), length: levels[level].length, children: levels[level].children)
        levels[level].children.removeAll(keepingCapacity: true)
        levels[level].length = 0
        let bytes = node.encoded()
        let id = bytes.withUnsafeBytes { ChunkID(hashing: $0) }
        finished.append(
            Node(reference: NodeReference(id: id, level: node.level, length: node.length), bytes: bytes))
        add(ManifestNode.Child(id: id, length: node.length), at: level + 1, &finished)
    }

    /// Whether a node may end with this child: one of 128 does.
    private static func ends(_ id: ChunkID) -> Bool { id.withBytes { $0[0] & 0x7f == 0 } }
}
