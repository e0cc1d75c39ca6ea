public import NephosCore

/// A content that a service keeps for an owner: what its version says of it.
public struct UsedContent: Hashable, Sendable {
    /// Bytes.
    public var length: UInt64
    /// Whether it lies in its version, and no chunk is needed.
    public var isInline: Bool
    /// The id of the only chunk, or of the manifest's first node.
    public var root: ChunkID
    /// Levels of nodes above the chunks.
    public var depth: Int
    public var app: AppID
    public var device: DeviceID
    /// Bytes that count besides: for the row that has it.
    public var rowBytes: UInt64

    public init(
        length: UInt64, isInline: Bool, root: ChunkID, depth: Int, app: AppID, device: DeviceID,
        rowBytes: UInt64 = 0
    ) {
        self.length = length
        self.isInline = isInline
        self.root = root
        self.depth = depth
        self.app = app
        self.device = device
        self.rowBytes = rowBytes
    }
}
