internal import NephosChunks
package import NephosCore

/// A long content: chunks of random bytes, and the nodes above them.
package struct TestContent {
    package let chunks: [[UInt8]]
    package let ids: [ChunkID]
    package let nodes: [[UInt8]]
    package let root: ChunkID
    package let depth: Int
    package let length: Int

    /// - Parameters:
    ///   - seed: Of the first chunk; the others are random by it too, so that contents may share a beginning.
    ///   - bytes: Which there are in it: of few it compresses.
    package init(seed: UInt64, chunks lengths: [Int], of bytes: ClosedRange<UInt8> = .min ... .max) {
        chunks = lengths.enumerated().map { index, length in
            [UInt8](SplitMix64.bytes(length, seed: seed << 32 + UInt64(index), of: bytes))
        }
        ids = chunks.map { $0.withUnsafeBytes { ChunkID(hashing: $0) } }
        (nodes, root, depth, length) = Self.list(ids, lengths)
    }

    /// Of chunks that are not told.
    package init(ids: [ChunkID], lengths: [Int]) {
        chunks = []
        self.ids = ids
        (nodes, root, depth, length) = Self.list(ids, lengths)
    }

    private static func list(
        _ ids: [ChunkID], _ lengths: [Int]
    ) -> (nodes: [[UInt8]], root: ChunkID, depth: Int, length: Int) {
        var nodes: [[UInt8]] = []
        var builder = ManifestBuilder()
        for (id, length) in zip(ids, lengths) {
            nodes += (try? builder.append(id, length: length))?.map(\.bytes) ?? []
        }
        let (root, rest) = builder.finish()
        nodes += rest.map(\.bytes)
        return (nodes, root.id, Int(root.depth), Int(root.length))
    }
}
