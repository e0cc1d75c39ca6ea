internal import CNephosZstd
public import NephosCore

/// Compresses chunks, and gets them back.
///
/// A compressed chunk is one Zstandard frame (RFC 8878) that tells its content's size, uses no dictionary, and is
/// shorter than the chunk. Compressed is what becomes an eighth smaller by it at least.
///
/// One is for one thread. It keeps the memory that it works in: about 2 MiB once it has compressed, about 1 MiB once it
/// has decoded.
public final class ChunkCoder {
    /// The first bytes of a frame. Others, which the library may also know, are formats from before the RFC, and frames
    /// without content.
    private static let magic: UInt32 = 0xfd2f_b528
    private static let level: Int32 = 1
    /// A frame may ask a reader that takes it piece by piece for so many bytes. No chunk needs more.
    private static let windowBytesMax = BulkLimits.chunkBytesMax

    /// Of a longer chunk some pieces are tried first, which takes microseconds: what is compressed already, as most of what
    /// is large, costs a quarter so of what it costs to try all of it. Of files of all kinds this passes over less than a
    /// hundredth of what would be saved.
    private static let sampledFrom = 32 << 10
    private static let sampleBytes = 2048
    private static let sampleCount = 4

    // Made when they are first needed: a service only decodes. Samples have one of their own, since it would be made
    // anew again and again for lengths so different.
    private var compressor: OpaquePointer?
    private var sampler: OpaquePointer?
    private var decompressor: OpaquePointer?
    private var room: UnsafeMutableRawBufferPointer?

    public init() {}

    deinit {
        // All take nil.
        ZSTD_freeCCtx(compressor)
        ZSTD_freeCCtx(sampler)
        ZSTD_freeDCtx(decompressor)
        room?.deallocate()
    }

    // MARK: Compressing

    /// Compresses a chunk, if it saves enough.
    ///
    /// - Parameters:
    ///   - chunk: 1 byte to 1 MiB.
    ///   - body: Gets the frame, which is valid during the call.
    /// - Returns: Nil: it is not worth while, or there is no memory for it. Use the chunk as it is.
    public func withCompressed<Result>(
        _ chunk: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) rethrows -> Result? {
        guard Self.isLength(chunk.count), mayShrink(chunk) else { return nil }
        if compressor == nil { compressor = ZSTD_createCCtx() }
        // It gives up where the room ends.
        guard let frame = compressed(chunk, by: compressor, bytesMax: chunk.count - max(1, chunk.count / 8)) else {
            return nil
        }
        return try body(frame)
    }

    /// Whether it is worth while to try: one of the samples, which lie evenly, becomes a 32nd smaller.
    private func mayShrink(_ chunk: UnsafeRawBufferPointer) -> Bool {
        guard chunk.count > Self.sampledFrom else { return true }
        if sampler == nil { sampler = ZSTD_createCCtx() }
        let step = (chunk.count - Self.sampleBytes) / (Self.sampleCount - 1)
        return (0..<Self.sampleCount).contains { number in
            let start = number * step
            let sample = UnsafeRawBufferPointer(rebasing: chunk[start..<start + Self.sampleBytes])
            return compressed(sample, by: sampler, bytesMax: Self.sampleBytes - Self.sampleBytes / 32) != nil
        }
    }

    /// - Returns: Nil: it does not become as short as that.
    private func compressed(
        _ bytes: UnsafeRawBufferPointer, by context: OpaquePointer?, bytesMax: Int
    ) -> UnsafeRawBufferPointer? {
        guard let context, bytesMax > 0 else { return nil }
        let output = ownRoom()
        let count = ZSTD_compressCCtx(
            context, output.baseAddress, bytesMax, bytes.baseAddress, bytes.count, Self.level)
        guard ZSTD_isError(count) == 0 else { return nil }
        return UnsafeRawBufferPointer(rebasing: output[..<count])
    }

    private func ownRoom() -> UnsafeMutableRawBufferPointer {
        if let room { return room }
        let made = UnsafeMutableRawBufferPointer.allocate(byteCount: BulkLimits.chunkBytesMax, alignment: 16)
        room = made
        return made
    }

    // MARK: Decoding

    /// How long the chunk will be, by what its encoded bytes say. Nothing is decoded for it.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` if no chunk is encoded so.
    public static func length(
        ofEncoded bytes: UnsafeRawBufferPointer, _ encoding: ChunkEncoding
    ) throws(CloudError) -> Int {
        switch encoding {
        case .plain:
            guard isLength(bytes.count) else { throw damaged() }
            return bytes.count
        case .zstandard:
            guard bytes.count >= 4, UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self)) == magic else {
                throw damaged()
            }
            // What is not told, or is no header, are the two greatest numbers.
            let size = ZSTD_getFrameContentSize(bytes.baseAddress, bytes.count)
            // What is not shorter would take more room than it counts on a plan.
            guard let length = Int(exactly: size), isLength(length), bytes.count < length,
                windowBytes(of: bytes) <= windowBytesMax
            else { throw damaged() }
            return length
        }
    }

    /// - Parameter frame: One with a whole header.
    private static func windowBytes(of frame: UnsafeRawBufferPointer) -> Int {
        let (descriptor, window) = (frame[4], Int(frame[5]))
        // A single segment: it is the content.
        guard descriptor & 0x20 == 0 else { return 0 }
        return (1 << (10 + window >> 3)) / 8 * (8 + window & 7)
    }

    /// Decodes a chunk into the buffer. The buffer's content is any if it throws.
    ///
    /// - Parameter output: As long as the chunk is, by ``length(ofEncoded:_:)`` and by what else is known of it.
    /// - Throws: As ``length(ofEncoded:_:)``, and `.invalidArguments` if the chunk is not as long as the buffer;
    ///   `.internalError` without memory.
    public func decode(
        _ bytes: UnsafeRawBufferPointer, _ encoding: ChunkEncoding, into output: UnsafeMutableRawBufferPointer
    ) throws(CloudError) {
        guard try Self.length(ofEncoded: bytes, encoding) == output.count else { throw Self.damaged() }
        guard encoding == .zstandard else { return output.copyMemory(from: bytes) }
        // One frame, and nothing behind it: the library would decode several, and pass over some.
        guard ZSTD_findFrameCompressedSize(bytes.baseAddress, bytes.count) == bytes.count else { throw Self.damaged() }
        if decompressor == nil { decompressor = ZSTD_createDCtx() }
        guard let decompressor else {
            throw CloudError(.internalError, "There is no memory to decompress with.")
        }
        let count = ZSTD_decompressDCtx(
            decompressor, output.baseAddress, output.count, bytes.baseAddress, bytes.count)
        // An error is a number beyond all lengths.
        guard count == output.count else { throw Self.damaged() }
    }

    /// Decodes a chunk, in memory that is used again for the next: 1 MiB, whatever the chunk says.
    ///
    /// - Parameter body: Gets the chunk, which is valid during the call.
    /// - Throws: As ``decode(_:_:into:)``; what the body throws.
    public func withDecoded<Result>(
        _ bytes: UnsafeRawBufferPointer, _ encoding: ChunkEncoding, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        let length = try Self.length(ofEncoded: bytes, encoding)
        guard encoding != .plain else { return try body(bytes) }
        let output = UnsafeMutableRawBufferPointer(rebasing: ownRoom()[..<length])
        try decode(bytes, encoding, into: output)
        return try body(UnsafeRawBufferPointer(output))
    }

    private static func isLength(_ length: Int) -> Bool { length > 0 && length <= BulkLimits.chunkBytesMax }

    private static func damaged() -> CloudError {
        CloudError(.invalidArguments, "What was sent as a compressed chunk is none. Send it again as it is.")
    }
}
