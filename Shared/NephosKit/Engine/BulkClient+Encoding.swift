internal import NephosBus
internal import NephosChunks
internal import NephosCore

/// Chunks as they travel, and as they are.
extension BulkClient {
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
