/// Looks through a segment that an earlier run left.
enum SegmentTail {
    /// Where the segment ends, if it ends with a whole record; nil: it is torn or damaged.
    ///
    /// Headers are read all, sealed bytes only of the last group: an earlier one was flushed before the next began.
    ///
    /// - Throws: ``DiskFailure``.
    static func end(of segment: SegmentID, _ file: SegmentFile) throws -> Int? {
        let length = try file.status().length
        let lastGroup = length - ChunkGroup.groupBytesMax
        var bytes = [UInt8](repeating: 0, count: RecordHeader.byteCount)
        let isHeader = try bytes.withUnsafeMutableBytes {
            let count = try file.read(into: $0, at: 0)
            return SegmentHeader.isHeader(UnsafeRawBufferPointer(rebasing: $0[..<count]), of: segment)
        }
        guard isHeader else { return nil }
        var offset = SegmentHeader.byteCount
        while offset < length {
            let header = try bytes.withUnsafeMutableBytes { bytes in
                let start = UnsafeMutableRawBufferPointer(rebasing: bytes[..<RecordHeader.byteCount])
                guard try file.read(into: start, at: offset) == start.count else { return nil as RecordHeader? }
                return RecordHeader(UnsafeRawBufferPointer(start), in: segment, at: offset)
            }
            guard let header else { return nil }
            let payload = offset + RecordHeader.byteCount
            guard header.length <= length - payload else { return nil }
            if payload + header.length > lastGroup {
                if bytes.count < header.length { bytes = [UInt8](repeating: 0, count: header.length) }
                let isWhole = try bytes.withUnsafeMutableBytes { bytes in
                    let room = UnsafeMutableRawBufferPointer(rebasing: bytes[..<header.length])
                    return try file.read(into: room, at: payload) == header.length
                        && header.isPayload(UnsafeRawBufferPointer(room))
                }
                guard isWhole else { return nil }
            }
            offset = payload + header.length
        }
        return offset
    }
}
