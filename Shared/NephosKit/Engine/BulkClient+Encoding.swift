internal import NephosBus
internal import NephosChunks
internal import NephosCore

/// Chunks as they travel, and as they are.
extension BulkClient {
    /// A chunk as it is sent.
    struct MadeChunk: Sendable {
        let frame: Frame
        let number: UInt64
        /// Of content, as it is.
        let bytes: Int
        let chunk: ChunkID
    }

    /// Makes a chunk ready to be sent, compressed if that saves enough: some milliseconds for ``BulkLimits/chunkBytesMax``,
    /// on any thread.
    ///
    /// - Parameters:
    ///   - number: One of ``nextNumber()``.
    ///   - bytes: Of content; 1 to ``BulkLimits/chunkBytesMax``.
    ///   - coder: Nil: it goes as it is.
    ///   - write: Writes the content where it will be sent from, if it is not compressed, and returns its hash.
    static func make(
        _ number: UInt64, under ticket: BulkTicket, bytes: Int, by coder: ChunkCoder?,
        _ write: (UnsafeMutableRawBufferPointer) throws -> ChunkID
    ) rethrows -> MadeChunk {
        let plain = try BulkFrame(BulkFrame.chunk(ticket, number: number, contentBytes: bytes, write))
        return MadeChunk(
            frame: coder.flatMap { compressed(plain, by: $0) } ?? plain.frame, number: number, bytes: bytes,
            chunk: plain.chunk)
    }

    /// The same chunk, compressed; nil: that saves too little.
    static func compressed(_ plain: BulkFrame, by coder: ChunkCoder) -> Frame? {
        plain.withContent { content in
            coder.withCompressed(content) { bytes in
                BulkFrame.chunk(
                    plain.ticket, number: plain.number, encoding: .zstandard, contentBytes: bytes.count
                ) {
                    $0.copyMemory(from: bytes)
                    return plain.chunk
                }
            }
        }
    }

    /// A chunk that has come, as it is.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`: it is none.
    func decoded(_ frame: BulkFrame) throws -> BulkFrame {
        guard frame.encoding != .plain else { return frame }
        return try frame.withContent { bytes in
            let length = try ChunkCoder.length(ofEncoded: bytes, frame.encoding)
            return try BulkFrame(
                BulkFrame.chunk(frame.ticket, number: frame.number, contentBytes: length) {
                    try coder.decode(bytes, frame.encoding, into: $0)
                    return frame.chunk
                })
        }
    }
}
