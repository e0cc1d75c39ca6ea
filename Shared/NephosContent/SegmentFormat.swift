internal import NephosCore
internal import NephosStorage

// All numbers are written with their least significant byte first.

/// The first bytes of a segment.
///
///     0  "NEPHSEGM"
///     8  layout, 4 bytes
///     12 partition, 4 bytes
///     16 number, 8 bytes
///     24 checksum of what is before it, 8 bytes
enum SegmentHeader {
    static let byteCount = 32
    /// A place beyond this is none of ours, whatever a row says: 1 TiB.
    static let segmentBytesMax = 1 << 40

    private static let magic: UInt64 = 0x4d47_4553_4850_454e
    /// Another layout is refused, not guessed at.
    private static let layout: UInt32 = 1

    static func fits(_ segment: SegmentID) -> Bool {
        segment.partition >= 0 && segment.partition < partitionCount && segment.number > 0
            && segment.number < SegmentName.numberEnd
    }

    /// - Parameter bytes: ``byteCount`` or more.
    static func write(_ segment: SegmentID, to bytes: UnsafeMutableRawBufferPointer) {
        bytes.storeBytes(of: magic.littleEndian, as: UInt64.self)
        bytes.storeBytes(of: layout.littleEndian, toByteOffset: 8, as: UInt32.self)
        bytes.storeBytes(of: UInt32(segment.partition).littleEndian, toByteOffset: 12, as: UInt32.self)
        bytes.storeBytes(of: UInt64(segment.number).littleEndian, toByteOffset: 16, as: UInt64.self)
        let sum = Checksum.of(UnsafeRawBufferPointer(rebasing: bytes[..<24]))
        bytes.storeBytes(of: sum.littleEndian, toByteOffset: 24, as: UInt64.self)
    }

    /// Whether these are the first bytes of this very segment, in the layout that we know.
    static func isHeader(_ bytes: UnsafeRawBufferPointer, of segment: SegmentID) -> Bool {
        guard bytes.count >= byteCount, fits(segment) else { return false }
        return withUnsafeTemporaryAllocation(byteCount: byteCount, alignment: 8) { expected in
            write(segment, to: expected)
            return expected.elementsEqual(bytes[..<byteCount])
        }
    }
}

/// What stands before each chunk's sealed bytes.
///
///     0  "NCHK"
///     4  length of the sealed bytes, 4 bytes
///     8  chunk id, 32 bytes
///     40 checksum of the sealed bytes, 8 bytes
///     48 checksum of what is before it, and of the place, 8 bytes
///
/// Since the place goes into the checksum, a record that lies where it was not written is none: neither the rest
/// of a file that the disk had before, nor what a disk wrote to the wrong place.
struct RecordHeader: Hashable {
    static let byteCount = 56
    private static let magic: UInt32 = 0x4b48_434e

    var id: ChunkID
    var length: Int
    var payloadSum: UInt64

    init(id: ChunkID, length: Int, payloadSum: UInt64) {
        self.id = id
        self.length = length
        self.payloadSum = payloadSum
    }

    /// The header at this place; nil if it is none, or damaged.
    init?(_ bytes: UnsafeRawBufferPointer, in segment: SegmentID, at offset: Int) {
        guard bytes.count >= Self.byteCount,
            UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self)) == Self.magic,
            UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 48, as: UInt64.self))
                == Self.sum(UnsafeRawBufferPointer(rebasing: bytes[..<48]), in: segment, at: offset),
            let id = ChunkID(bytes: UnsafeRawBufferPointer(rebasing: bytes[8..<40]))
        else { return nil }
        let length = Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self)))
        guard length <= ChunkGroup.chunkBytesMax else { return nil }
        self.id = id
        self.length = length
        payloadSum = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 40, as: UInt64.self))
    }

    /// - Parameter bytes: ``byteCount`` or more.
    func write(to bytes: UnsafeMutableRawBufferPointer, in segment: SegmentID, at offset: Int) {
        bytes.storeBytes(of: Self.magic.littleEndian, as: UInt32.self)
        bytes.storeBytes(of: UInt32(length).littleEndian, toByteOffset: 4, as: UInt32.self)
        id.withBytes { UnsafeMutableRawBufferPointer(rebasing: bytes[8..<40]).copyMemory(from: $0) }
        bytes.storeBytes(of: payloadSum.littleEndian, toByteOffset: 40, as: UInt64.self)
        let sum = Self.sum(UnsafeRawBufferPointer(rebasing: bytes[..<48]), in: segment, at: offset)
        bytes.storeBytes(of: sum.littleEndian, toByteOffset: 48, as: UInt64.self)
    }

    func isPayload(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.count == length && Checksum.of(bytes) == payloadSum
    }

    private static func sum(_ bytes: UnsafeRawBufferPointer, in segment: SegmentID, at offset: Int) -> UInt64 {
        let place = (
            Int64(segment.partition).littleEndian, segment.number.littleEndian, Int64(offset).littleEndian
        )
        return Checksum.of(bytes, seed: withUnsafeBytes(of: place) { Checksum.of($0) })
    }
}

/// What a segment's file is called: its number, as 16 decimal digits, so that names sort as the numbers do.
enum SegmentName {
    /// Numbers end here: 16 digits. As milliseconds it is the year 318,857.
    static let numberEnd: Int64 = 10_000_000_000_000_000
    private static let suffix = ".segment"

    static func of(_ number: Int64) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, 16 - digits.utf8.count)) + digits + suffix
    }

    /// Nil for a file that is none of ours.
    static func number(of name: String) -> Int64? {
        guard name.hasSuffix(suffix), let number = Int64(name.dropLast(suffix.utf8.count)),
            number > 0, number < numberEnd, of(number) == name
        else { return nil }
        return number
    }

    static func folder(_ partition: Int) -> String {
        let digits = String(partition)
        return String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
    }
}

extension SegmentID {
    /// Where its file is within a folder of content: `PARTITION/NUMBER.segment`. Nil for numbers that no store gives.
    public var filePath: String? {
        SegmentHeader.fits(self) ? SegmentName.folder(partition) + "/" + SegmentName.of(number) : nil
    }

    /// Bytes that a segment's file begins with.
    public static var headerBytes: Int { SegmentHeader.byteCount }

    /// Whether these are the first bytes of this very segment.
    public func isHeader(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { SegmentHeader.isHeader($0, of: self) } }

    /// The segment whose file is at this place; nil: it is none of ours.
    public init?(filePath: String) {
        let parts = filePath.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, let partition = Int(parts[0]), let number = SegmentName.number(of: String(parts[1])),
            SegmentName.folder(partition) == parts[0]
        else { return nil }
        self.init(partition: partition, number: number)
        guard SegmentHeader.fits(self) else { return nil }
    }
}
