internal import Crypto

/// What a chunk of content is known by within its owner: the SHA-256 of its bytes. To the store that keeps it these are
/// 32 bytes that mean nothing.
public struct ChunkID: Hashable, Sendable {
    /// Bytes of an id.
    public static let byteCount = 32

    private let words: (UInt64, UInt64, UInt64, UInt64)

    /// - Returns: Nil if there are not 32 bytes.
    public init?(bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.byteCount else { return nil }
        words = bytes.loadUnaligned(as: (UInt64, UInt64, UInt64, UInt64).self)
    }

    /// - Returns: Nil if there are not 32 bytes.
    public init?(bytes: [UInt8]) {
        guard let id = bytes.withUnsafeBytes({ ChunkID(bytes: $0) }) else { return nil }
        self = id
    }

    /// A copy of the bytes.
    public var bytes: [UInt8] { withBytes { [UInt8]($0) } }

    /// The 32 bytes, valid during the call.
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try withUnsafeBytes(of: words, body)
    }

    public static func == (left: ChunkID, right: ChunkID) -> Bool { left.words == right.words }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(words.0)
        hasher.combine(words.1)
        hasher.combine(words.2)
        hasher.combine(words.3)
    }
}

extension ChunkID {
    /// The id of the chunk with these bytes.
    public init(hashing bytes: UnsafeRawBufferPointer) {
        words = SHA256.hash(data: bytes).withUnsafeBytes { $0.loadUnaligned(as: (UInt64, UInt64, UInt64, UInt64).self) }
    }
}

extension ChunkID {
    /// No chunk: 32 zeros.
    public static let none = ChunkID(words: (0, 0, 0, 0))

    private init(words: (UInt64, UInt64, UInt64, UInt64)) { self.words = words }
}
