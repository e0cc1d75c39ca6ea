public import NephosCore

/// One segment: some chunks of one partition, in one file or object.
public struct SegmentID: Hashable, Sendable {
    /// From 0 to 1023.
    public var partition: Int
    /// When it was begun, in milliseconds since 1970, or one more than the newest in its partition that is there. So
    /// it is not used again after its file was removed, or was brought back from a copy, unless the clock was set back
    /// as well.
    public var number: Int64

    public init(partition: Int, number: Int64) {
        self.partition = partition
        self.number = number
    }
}

/// Where a chunk lies.
public struct SegmentPlace: Hashable, Sendable {
    public var segment: SegmentID
    /// Bytes from the segment's start to the chunk's record.
    public var offset: Int
    /// Bytes of the chunk, sealed. Its record has ``RecordHeader/byteCount`` more.
    public var length: Int

    public init(segment: SegmentID, offset: Int, length: Int) {
        self.segment = segment
        self.offset = offset
        self.length = length
    }

    /// Whether the numbers are such as a store gives. Those of a damaged row need not be.
    public var isSound: Bool {
        SegmentHeader.fits(segment) && offset >= SegmentHeader.byteCount && offset <= SegmentHeader.segmentBytesMax
            && soundLength != nil
    }

    /// The length, if a chunk may be so long.
    var soundLength: Int? { length >= 0 && length <= ChunkGroup.chunkBytesMax ? length : nil }

    /// Bytes from the segment's start to the end of the record. Only of a sound place.
    var end: Int { offset + recordBytes }
    /// Bytes that it takes in its segment.
    public var recordBytes: Int { RecordHeader.byteCount + length }
}

/// A chunk that was put.
public struct StoredChunk: Hashable, Sendable {
    public var id: ChunkID
    public var place: SegmentPlace

    public init(id: ChunkID, place: SegmentPlace) {
        self.id = id
        self.place = place
    }
}
