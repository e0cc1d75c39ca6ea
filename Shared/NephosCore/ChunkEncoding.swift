/// How a chunk's bytes are written where it is sent and where it lies. The numbers are part of the protocol.
///
/// A chunk's id and length are those of its bytes as they are, whatever the encoding.
public enum ChunkEncoding: UInt8, Sendable {
    /// As they are.
    case plain = 0
    /// One frame of Zstandard (RFC 8878), shorter than the bytes.
    case zstandard = 1
}
