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

    /// Whether the bytes are the whole record of a chunk, as it was written to this place.
    public func isRecord(_ bytes: [UInt8], of chunk: ChunkID) -> Bool {
        bytes.withUnsafeBytes { bytes in
            guard bytes.count == recordBytes, let header = RecordHeader(bytes, in: segment, at: offset),
                header.id == chunk
            else { return false }
            return header.isPayload(UnsafeRawBufferPointer(rebasing: bytes[RecordHeader.byteCount...]))
        }
    }
}

/// What the sealed bytes of a chunk are made of: what cannot be seen of them without the key.
public struct SealedForm: Hashable, Sendable {
    /// How it was sealed (``ChunkSealer``), so that what an old suite sealed can be found.
    public var suite: UInt8
    /// Bytes of the chunk as it is, before it was compressed and sealed.
    public var contentLength: Int

    public init(suite: UInt8, contentLength: Int) {
        self.suite = suite
        self.contentLength = contentLength
    }

    /// Of a chunk that was sealed as it is.
    ///
    /// - Parameter length: Bytes, sealed.
    public static func plain(sealedLength length: Int) -> SealedForm {
        SealedForm(suite: ChunkSealer.suite(of: .plain), contentLength: max(0, length - ChunkSealer.overhead))
    }

    /// Whether so many sealed bytes can be of this form. What is compressed is shorter than the chunk.
    func fits(_ length: Int) -> Bool {
        switch ChunkSealer.encoding(ofSuite: suite) {
        case .zstandard: contentLength > length - ChunkSealer.overhead && contentLength <= BulkLimits.chunkBytesMax
        case .plain: contentLength == max(0, length - ChunkSealer.overhead)
        // A newer version knows; but that a chunk has no other length.
        case nil: (1...BulkLimits.chunkBytesMax).contains(contentLength)
        }
    }
}

/// A chunk that was put.
public struct StoredChunk: Hashable, Sendable {
    public var id: ChunkID
    public var place: SegmentPlace
    public var form: SealedForm

    /// - Parameter form: Nil: it was sealed as it is.
    public init(id: ChunkID, place: SegmentPlace, _ form: SealedForm? = nil) {
        self.id = id
        self.place = place
        self.form = form ?? .plain(sealedLength: place.length)
    }
}
