internal import Crypto
import Foundation
import NephosChunks
import NephosCore

/// A chunk of a content, which its service knows by its hash.
struct CutChunk: Hashable {
    var id: ChunkID
    /// 1 to ``BulkLimits/chunkBytesMax``.
    var length: Int

    /// What names a content of these chunks.
    static func root(of chunks: [CutChunk]) throws -> ChunkID {
        var manifest = ManifestBuilder()
        for chunk in chunks { _ = try manifest.append(chunk.id, length: chunk.length) }
        return manifest.finish().root.id
    }

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

extension CutChunk {
    /// The manifest nodes above a content's chunks, children first.
    static func nodes(of chunks: [CutChunk]) throws -> [Data] {
        var manifest = ManifestBuilder()
        var nodes: [Data] = []
        for chunk in chunks { nodes += try manifest.append(chunk.id, length: chunk.length).map { Data($0.bytes) } }
        return nodes + manifest.finish().nodes.map { Data($0.bytes) }
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
    var nodes: [Data]
}

/// Cuts a content into chunks, as its bytes come by. Keeps none of them.
struct ContentCutter {
    private var chunker = Chunker()
    private var hash = SHA256()
    private var manifest = ManifestBuilder()
    private var chunks: [CutChunk] = []
    private var nodes: [Data] = []
    /// Of the manifest nodes so far.
    private(set) var nodeBytes = 0

    /// Takes the next bytes.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`: no content is so long.
    mutating func take(_ bytes: UnsafeRawBufferPointer) throws {
        var rest = bytes
        while !rest.isEmpty {
            let begun = chunker.begun
            guard let end = chunker.cut(in: rest) else { return hash.update(bufferPointer: rest) }
            hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: rest[..<end]))
            try endChunk(length: begun + end)
            rest = UnsafeRawBufferPointer(rebasing: rest[end...])
        }
    }

    private mutating func endChunk(length: Int) throws {
        guard let id = ChunkID(bytes: Array(hash.finalize())) else {
            throw CloudError(.internalError, "A hash has 32 bytes.")
        }
        hash = SHA256()
        chunks.append(CutChunk(id: id, length: length))
        try add(manifest.append(id, length: length))
    }

    private mutating func add(_ finished: [ManifestBuilder.Node]) {
        nodes += finished.map { Data($0.bytes) }
        nodeBytes += finished.reduce(0) { $0 + $1.bytes.count }
    }

    /// Ends the content.
    mutating func finish() throws -> CutContent {
        if let length = chunker.finish() { try endChunk(length: length) }
        let (root, last) = manifest.finish()
        add(last)
        return CutContent(
            length: root.length, root: root.id, depth: UInt32(root.depth), chunks: chunks, nodes: nodes)
    }
}
