internal import Crypto

/// Stands for an access token on a connection that has carried it before, where
/// the token itself, some 600 bytes, would be most of a small request.
///
/// The first 16 bytes of the token's SHA-256. It proves nothing by itself: a
/// service takes it for a token that it has verified on this same connection.
public struct TokenDigest: Hashable, Sendable {
    /// Bytes on the wire.
    public static let byteCount = 16

    private let high: UInt64
    private let low: UInt64

    /// The digest of a token.
    public init(of token: String) {
        var token = token
        let digest = token.withUTF8 { SHA256.hash(data: UnsafeRawBufferPointer($0)) }
        (high, low) = digest.withUnsafeBytes {
            ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
    }

    /// The digest in these 16 bytes, or nil if there are not 16.
    public init?(bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.byteCount else { return nil }
        high = bytes.loadUnaligned(as: UInt64.self)
        low = bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
    }

    /// The 16 bytes on the wire.
    public var bytes: [UInt8] { withUnsafeBytes(of: (high, low)) { [UInt8]($0) } }
}
