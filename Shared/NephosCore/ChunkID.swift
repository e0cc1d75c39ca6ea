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
    /// Its 64 hexadecimal digits, small letters.
    package var hex: String {
        let digits = [UInt8]("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    /// - Returns: Nil if these are not 64 hexadecimal digits.
    package init?(hex: String) {
        let digits = hex.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        guard digits.count == hex.utf8.count, digits.count == 2 * Self.byteCount else { return nil }
        self.init(bytes: stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) })
    }
}

extension ChunkID {
    /// No chunk: 32 zeros.
    public static let none = ChunkID(words: (0, 0, 0, 0))

    private init(words: (UInt64, UInt64, UInt64, UInt64)) { self.words = words }
}
