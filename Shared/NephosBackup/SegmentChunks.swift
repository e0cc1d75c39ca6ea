internal import Foundation
internal import NephosContent
internal import NephosCore
internal import NephosStorage

/// What a service needs of one segment: its header, and the chunks that the service's database names in it. Copies of the
/// segment are asked for them.
struct SegmentChunks {
    private struct Part {
        var range: Range<Int>
        var isWhole: ([UInt8]) -> Bool

        /// Nil: it is not whole there.
        func bytes(in file: FileCopy.Opened) -> [UInt8]? { file.bytes(in: range).flatMap { isWhole($0) ? $0 : nil } }
    }

    private let parts: [Part]

    /// - Parameter database: A copy that nobody writes to.
    init(of segment: ServiceSegment, namedBy database: String) throws {
        let id = segment.segment
        let rows = """
            FROM content_chunks WHERE partition_number = \(id.partition) AND segment_number = \(id.number)
            ORDER BY segment_offset, owner, id
            """
        let ids = try DatabaseCopy.blobs("SELECT id \(rows)", of: database)
        let places = try DatabaseCopy.integers("SELECT segment_offset, length \(rows)", of: database)
        let chunks = zip(ids, places).compactMap { chunk, row -> Part? in
            let place = SegmentPlace(segment: id, offset: Int(clamping: row[0]), length: Int(clamping: row[1]))
            // A damaged row names none.
            guard let chunk = ChunkID(bytes: chunk), place.isSound else { return nil }
            return Part(range: place.offset..<place.offset + place.recordBytes) { place.isRecord($0, of: chunk) }
        }
        parts = [Part(range: 0..<SegmentID.headerBytes, isWhole: id.isHeader)] + chunks
    }

    /// Whether a copy has all of it whole.
    func areWhole(in path: String) throws -> Bool {
        let file = try FileCopy.Opened(path, O_RDONLY)
        return parts.allSatisfy { $0.bytes(in: file) != nil }
    }

    /// Takes what is not whole in the copy that was restored from other copies.
    ///
    /// - Parameters:
    ///   - path: The copy.
    ///   - target: What it was restored to.
    func fill(_ target: FileCopy.Opened, copiedFrom path: String, from others: [String]) throws {
        let file = try FileCopy.Opened(path, O_RDONLY)
        let others = others.compactMap { try? FileCopy.Opened($0, O_RDONLY) }
        for part in parts where part.bytes(in: file) == nil {
            guard let found = others.lazy.compactMap({ part.bytes(in: $0) }).first else { continue }
            guard lseek(target.descriptor, off_t(part.range.lowerBound), SEEK_SET) >= 0 else {
                throw FileCopy.failure(target.path)
            }
            try found.withUnsafeBytes { try FileCopy.write($0, to: target) }
        }
        guard fsync(target.descriptor) == 0 else { throw FileCopy.failure(target.path) }
    }
}
