internal import CZstd
internal import NephosCore

/// Puts the bytes of a chunk into the form in which they are sent or kept, and gets them back.
///
/// The first byte says how: 0, what follows are the bytes as they are; 1, they are one Zstandard frame (RFC 8878) that
/// tells its content's size and uses no dictionary. Compressed is what becomes an eighth smaller by it at least. A
/// chunk's id is of its bytes before this.
///
/// One is for one thread: it keeps the memory that Zstandard works in, about 1 MiB once it has encoded.
public final class ChunkCoder {
    /// How many bytes longer the coded form is, at most.
    public static let overhead = 1
    /// Bytes of the coded form, at most.
    public static let codedBytesMax = BulkLimits.chunkBytesMax + overhead

    private static let plain: UInt8 = 0
    private static let zstandard: UInt8 = 1
    /// The first bytes of a frame. Others, which the library may also know, are formats from before the RFC, and frames
    /// without content.
    private static let magic: UInt32 = 0xfd2f_b528
    private static let level: Int32 = 1

    // Made when they are first needed: a service only decodes.
    private var compressor: OpaquePointer?
    private var decompressor: OpaquePointer?

    public init() {}

    deinit {
        // Both take nil.
        ZSTD_freeCCtx(compressor)
        ZSTD_freeDCtx(decompressor)
    }

    /// Encodes a chunk into the buffer.
    ///
    /// - Parameters:
    ///   - chunk: 1 byte to 1 MiB.
    ///   - output: As long as the chunk and ``overhead``, or longer.
    /// - Returns: Bytes of the coded form.
    /// - Throws: ``CloudError`` `.invalidArguments` for other lengths; `.internalError` without memory.
    public func encode(_ chunk: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) throws -> Int {
        guard Self.isLength(chunk.count), output.count >= chunk.count + Self.overhead else {
            throw CloudError(
                .invalidArguments, "A chunk has 1 byte to 1 MiB, and its coded form one more at most.",
                details: ["bytes": String(chunk.count), "room": String(output.count)])
        }
        let compressor = try compressor ?? made(ZSTD_createCCtx())
        self.compressor = compressor
        let payload = UnsafeMutableRawBufferPointer(rebasing: output[1...])
        // It gives up where the room ends.
        let room = chunk.count - max(1, chunk.count / 8)
        let count = ZSTD_compressCCtx(
            compressor, payload.baseAddress, room, chunk.baseAddress, chunk.count, Self.level)
        if ZSTD_isError(count) == 0 {
            output[0] = Self.zstandard
            return count + 1
        }
        output[0] = Self.plain
        payload.copyMemory(from: chunk)
        return chunk.count + 1
    }

    /// Encodes a chunk. As the other.
    public func encode(_ chunk: UnsafeRawBufferPointer) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: chunk.count + Self.overhead) { output, count in
            count = try encode(chunk, into: UnsafeMutableRawBufferPointer(output))
        }
    }

    /// How long the chunk will be, by what its coded form says. Nothing is decoded for it.
    ///
    /// - Throws: ``CloudError`` `.incompatibleVersion` for a first byte that this build does not know;
    ///   `.invalidArguments` if no chunk is coded so.
    public static func decodedLength(of coded: UnsafeRawBufferPointer) throws -> Int {
        guard coded.count > 1, coded.count <= codedBytesMax else { throw damaged() }
        let payload = UnsafeRawBufferPointer(rebasing: coded[1...])
        switch coded[0] {
        case plain: return payload.count
        case zstandard:
            guard payload.count >= 4, UInt32(littleEndian: payload.loadUnaligned(as: UInt32.self)) == magic else {
                throw damaged()
            }
            // What is not told, or is no header, are the two greatest numbers.
            let size = ZSTD_getFrameContentSize(payload.baseAddress, payload.count)
            guard let length = Int(exactly: size), isLength(length) else { throw damaged() }
            return length
        default:
            throw CloudError(
                .incompatibleVersion, "A chunk is coded in a way that is not known here. Upgrade the older side.",
                details: ["coding": String(coded[0])])
        }
    }

    /// Decodes a chunk into the buffer. The buffer's content is any if it throws.
    ///
    /// - Parameter output: As long as the chunk is, by ``decodedLength(of:)`` and by what else is known of it.
    /// - Throws: As ``decodedLength(of:)``, and `.invalidArguments` if the chunk is not as long as the buffer;
    ///   `.internalError` without memory.
    public func decode(_ coded: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) throws {
        guard try Self.decodedLength(of: coded) == output.count else { throw Self.damaged() }
        let payload = UnsafeRawBufferPointer(rebasing: coded[1...])
        guard coded[0] == Self.zstandard else { return output.copyMemory(from: payload) }
        // One frame, and nothing behind it: the library would decode several, and pass over some.
        guard ZSTD_findFrameCompressedSize(payload.baseAddress, payload.count) == payload.count else {
            throw Self.damaged()
        }
        let decompressor = try decompressor ?? made(ZSTD_createDCtx())
        self.decompressor = decompressor
        let count = ZSTD_decompressDCtx(
            decompressor, output.baseAddress, output.count, payload.baseAddress, payload.count)
        // An error is a number beyond all lengths.
        guard count == output.count else { throw Self.damaged() }
    }

    /// Decodes a chunk. As the other; at most 1 MiB is allocated, and nothing before its length is known.
    public func decode(_ coded: UnsafeRawBufferPointer) throws -> [UInt8] {
        let length = try Self.decodedLength(of: coded)
        return try [UInt8](unsafeUninitializedCapacity: length) { output, count in
            try decode(
                coded, into: UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(output)[..<length]))
            count = length
        }
    }

    private static func isLength(_ length: Int) -> Bool { length > 0 && length <= BulkLimits.chunkBytesMax }

    private static func damaged() -> CloudError {
        CloudError(.invalidArguments, "The coded form of a chunk is damaged.")
    }

    private func made(_ context: OpaquePointer?) throws -> OpaquePointer {
        guard let context else { throw CloudError(.internalError, "There is no memory to compress with.") }
        return context
    }
}
