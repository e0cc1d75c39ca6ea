public import NephosCore

/// What a content is known by: its one chunk, or the top node of the tree that lists its chunks.
public struct ContentRoot: Hashable, Sendable {
    /// Levels of nodes above the chunks, at most.
    public static let depthMax = ManifestNode.levelMax + 1
    /// Bytes of a content, at most: 16 TiB.
    public static let bytesMax: UInt64 = 1 << 44

    /// Of the only chunk, or of the top node. ``ChunkID/none`` for a content without bytes.
    public let id: ChunkID
    /// 0: the content is one chunk, or none. Otherwise one more than the level of the top node.
    public let depth: UInt8
    /// Bytes of the content.
    public let length: UInt64

    /// The content without bytes.
    public static let empty = ContentRoot(checkedID: .none, depth: 0, length: 0)

    /// - Throws: ``CloudError`` `.invalidArguments` if no content has such a root.
    public init(id: ChunkID, depth: UInt8, length: UInt64) throws {
        let lengthMax = depth == 0 ? UInt64(BulkLimits.chunkBytesMax) : Self.bytesMax
        guard depth <= Self.depthMax, length <= lengthMax, (length == 0) == (id == .none), length > 0 || depth == 0
        else {
            throw CloudError(
                .invalidArguments, "No content has such a root.",
                details: ["depth": String(depth), "length": String(length)])
        }
        self.init(checkedID: id, depth: depth, length: length)
    }

    init(checkedID id: ChunkID, depth: UInt8, length: UInt64) {
        self.id = id
        self.depth = depth
        self.length = length
    }

    /// The top node; nil if the content is one chunk, or none.
    public var node: NodeReference? {
        depth == 0 ? nil : NodeReference(id: id, level: depth - 1, length: length)
    }
}
