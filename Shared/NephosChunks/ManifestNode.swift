public import NephosCore

/// A node as its parent names it: all that has to be true of its bytes.
public struct NodeReference: Hashable, Sendable {
    /// The SHA-256 of its bytes.
    public var id: ChunkID
    /// 0: its children are chunks.
    public var level: UInt8
    /// Bytes of content below it.
    public var length: UInt64

    public init(id: ChunkID, level: UInt8, length: UInt64) {
        self.id = id
        self.level = level
        self.length = length
    }
}

/// A node of the tree that lists the chunks of a content. It is stored as a chunk itself.
///
///     0  suite, 1: chunks as ``Chunker`` makes them, known by the SHA-256 of their bytes as they are
///     1  key, 0: the device has not encrypted them
///     2  level, 0 to 6
///     3  0
///     4  number of children, 4 bytes
///     8  of each child its id, 32 bytes, and its length in bytes of content, 8 bytes
///
/// Numbers have their least significant byte first. With lengths in place of offsets, what was changed in front of a
/// node does not change it.
public struct ManifestNode: Hashable, Sendable {
    /// A chunk or a node of the level below.
    public struct Child: Hashable, Sendable {
        public var id: ChunkID
        /// Bytes of content.
        public var length: UInt64

        public init(id: ChunkID, length: UInt64) {
            self.id = id
            self.length = length
        }
    }

    public static let levelMax: UInt8 = 6
    public static let childrenMax = 512
    /// Bytes of a node, at most.
    public static let bytesMax = headerBytes + childrenMax * childBytes

    static let headerBytes = 8
    public static let childBytes = ChunkID.byteCount + 8
    private static let suite: UInt8 = 1
    private static let noKey: UInt8 = 0

    public let level: UInt8
    /// Bytes of content below it.
    public let length: UInt64
    /// 1 to ``childrenMax``.
    public let children: [Child]

    /// Of children that were checked.
    init(level: UInt8, length: UInt64, children: [Child]) {
        self.level = level
        self.length = length
        self.children = children
    }

    /// Reads a node that is known by nothing but its bytes.
    ///
    /// Whether its nodes end where ``ManifestBuilder`` ends them is not looked at: a tree that was made otherwise is
    /// read all the same.
    ///
    /// - Throws: ``CloudError`` `.incompatibleVersion` for a suite or a key that this build does not know;
    ///   `.invalidArguments` for whatever else is no node.
    public init(decoding bytes: UnsafeRawBufferPointer) throws {
        guard bytes.count >= Self.headerBytes else { throw Self.refused("size") }
        guard bytes[0] == Self.suite, bytes[1] == Self.noKey else {
            throw CloudError(
                .incompatibleVersion, "A manifest is in a form that is not known here. Upgrade the older side.",
                details: ["suite": String(bytes[0]), "key": String(bytes[1])])
        }
        let level = bytes[2]
        guard level <= Self.levelMax, bytes[3] == 0 else { throw Self.refused("header") }
        let count = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        guard (1...UInt32(Self.childrenMax)).contains(count) else { throw Self.refused("count") }
        guard bytes.count == Self.headerBytes + Int(count) * Self.childBytes else { throw Self.refused("size") }
        let childLengthMax = level == 0 ? UInt64(BulkLimits.chunkBytesMax) : ContentRoot.bytesMax
        var length: UInt64 = 0
        var children: [Child] = []
        children.reserveCapacity(Int(count))
        for place in stride(from: Self.headerBytes, to: bytes.count, by: Self.childBytes) {
            let idBytes = UnsafeRawBufferPointer(rebasing: bytes[place..<place + ChunkID.byteCount])
            guard let id = ChunkID(bytes: idBytes), id != .none else { throw Self.refused("id") }
            let childLength = UInt64(
                littleEndian: bytes.loadUnaligned(fromByteOffset: place + ChunkID.byteCount, as: UInt64.self))
            // The sum so far is at most the most that is allowed, so that the difference is one.
            guard childLength > 0, childLength <= childLengthMax, childLength <= ContentRoot.bytesMax - length else {
                throw Self.refused("length")
            }
            length += childLength
            children.append(Child(id: id, length: childLength))
        }
        self.init(level: level, length: length, children: children)
    }

    /// Reads the node that a parent or a root names.
    ///
    /// - Throws: As ``init(decoding:)``, and `.invalidArguments` if it is another node, or its level or length is not
    ///   what was said of it.
    public init(decoding bytes: UnsafeRawBufferPointer, as expected: NodeReference) throws {
        try self.init(decoding: bytes)
        guard level == expected.level else { throw Self.refused("level") }
        guard length == expected.length else { throw Self.refused("length") }
        guard ChunkID(hashing: bytes) == expected.id else { throw Self.refused("id") }
    }

    /// The nodes that it names; none at level 0.
    public var nodes: [NodeReference] {
        guard level > 0 else { return [] }
        return children.map { NodeReference(id: $0.id, level: level - 1, length: $0.length) }
    }

    /// The bytes that it is stored as.
    public func encoded() -> [UInt8] {
        let size = Self.headerBytes + children.count * Self.childBytes
        return [UInt8](unsafeUninitializedCapacity: size) { buffer, filled in
            let bytes = UnsafeMutableRawBufferPointer(buffer)
            bytes[0] = Self.suite
            bytes[1] = Self.noKey
            bytes[2] = level
            bytes[3] = 0
            bytes.storeBytes(of: UInt32(children.count).littleEndian, toByteOffset: 4, as: UInt32.self)
            var place = Self.headerBytes
            for child in children {
                child.id.withBytes {
                    UnsafeMutableRawBufferPointer(rebasing: bytes[place..<place + ChunkID.byteCount]).copyMemory(
                        from: $0)
                }
                bytes.storeBytes(
                    of: child.length.littleEndian, toByteOffset: place + ChunkID.byteCount, as: UInt64.self)
                place += Self.childBytes
            }
            filled = size
        }
    }

    static func refused(_ reason: String) -> CloudError {
        CloudError(.invalidArguments, "A manifest is not well-formed.", details: ["reason": reason])
    }
}
