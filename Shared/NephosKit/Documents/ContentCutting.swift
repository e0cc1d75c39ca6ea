internal import Crypto
import Foundation
import NephosCore

/// A chunk of a content, which its service knows by its hash.
struct CutChunk: Hashable {
    var id: ChunkID
    /// 1 to ``BulkLimits/chunkBytesMax``.
    var length: Int

    private static let byteCount = ChunkID.byteCount + 4

    /// As a row keeps them.
    static func encode(_ chunks: [CutChunk]) -> Data {
        var data = Data(capacity: chunks.count * byteCount)
        for chunk in chunks {
            chunk.id.withBytes { data.append(contentsOf: $0) }
            withUnsafeBytes(of: UInt32(clamping: chunk.length).littleEndian) { data.append(contentsOf: $0) }
        }
        return data
    }

    static func decode(_ data: Data) -> [CutChunk] {
        data.withUnsafeBytes { bytes in
            stride(from: 0, to: bytes.count - bytes.count % byteCount, by: byteCount).compactMap { place in
                let length = bytes.loadUnaligned(fromByteOffset: place + ChunkID.byteCount, as: UInt32.self)
                return ChunkID(bytes: UnsafeRawBufferPointer(rebasing: bytes[place..<place + ChunkID.byteCount]))
                    .map { CutChunk(id: $0, length: Int(UInt32(littleEndian: length))) }
            }
        }
    }
}

/// What a content was cut into.
struct CutContent {
    var length: UInt64
    /// The id of the only chunk, or of a manifest node.
    var root: ChunkID
    /// Levels of nodes above the chunks.
    var depth: UInt32
    /// In their order.
    var chunks: [CutChunk]
    /// Manifest nodes, children first.
    var nodes: [Data] = []
}

/// Cuts a content into chunks, as its bytes come by. Keeps none of them.
protocol ContentCutting {
    /// Takes the next bytes.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: nothing so long can be kept.
    mutating func take(_ bytes: UnsafeRawBufferPointer) throws
    /// Ends the content, which is not empty.
    mutating func finish() throws -> CutContent
}

/// A content that is one chunk.
struct SingleChunkCutter: ContentCutting {
    private var hash = SHA256()
    private var length = 0

    mutating func take(_ bytes: UnsafeRawBufferPointer) throws {
        length += bytes.count
        guard length <= BulkLimits.chunkBytesMax else {
            throw CloudError(
                .limitExceeded, "This release keeps no content that is so long.",
                details: ["bytes_max": "\(BulkLimits.chunkBytesMax)"])
        }
        hash.update(bufferPointer: bytes)
    }

    mutating func finish() throws -> CutContent {
        guard let id = ChunkID(bytes: Array(hash.finalize())) else {
            throw CloudError(.internalError, "A hash has 32 bytes.")
        }
        return CutContent(
            length: UInt64(length), root: id, depth: 0, chunks: [CutChunk(id: id, length: length)])
    }
}

/// Finds the chunks of a content from what names it.
enum ContentReading {
    /// - Parameter readNodes: Gets manifest nodes, in the order asked.
    /// - Throws: ``CloudError`` `.storageFailure`: what names them is damaged; and what `readNodes` throws.
    static func chunks(
        root: ChunkID, depth: UInt32, length: UInt64,
        readNodes: ([ChunkID]) async throws(CloudError) -> [Data]
    ) async throws(CloudError) -> [CutChunk] {
        guard depth == 0 else {
            throw CloudError(.incompatibleVersion, "This release cannot read a content of several chunks.")
        }
        guard length <= UInt64(BulkLimits.chunkBytesMax) else { throw damaged }
        return [CutChunk(id: root, length: Int(length))]
    }

    static let damaged = CloudError(.storageFailure, "What the server says of this content cannot be true.")
}
