public import NephosCore

/// Chunks that are put in one go: sealed into one buffer, in the form in which they lie in a segment, and written
/// from there. So no chunk is copied between its seal and the disk.
///
/// Of a fixed size; keep it, and use it again after ``removeAll()``.
public struct ChunkGroup: Sendable {
    /// Bytes of one chunk, sealed, at most: 4 MiB.
    public static let chunkBytesMax = 4 << 20
    /// Bytes of a group, at most, headers included: 16 MiB. What may be torn by a crash is no longer than this.
    public static let groupBytesMax = 16 << 20

    struct Entry {
        var header: RecordHeader
        var form: SealedForm
        /// Where its record begins in ``bytes``.
        var start: Int
    }

    private(set) var bytes: [UInt8]
    private(set) var used = 0
    private(set) var entries: [Entry] = []

    /// - Parameter capacity: Bytes, the ``RecordHeader``s included; between what one small chunk needs and
    ///   ``groupBytesMax``.
    public init(capacity: Int = 8 << 20) {
        bytes = [UInt8](repeating: 0, count: min(max(capacity, 4096), Self.groupBytesMax))
    }

    public var isEmpty: Bool { entries.isEmpty }
    public var count: Int { entries.count }

    /// Whether a chunk of so many sealed bytes can still be added. One that never can, in an empty group neither, is
    /// longer than ``chunkBytesMax`` or the group.
    public func hasRoom(for length: Int) -> Bool {
        length >= 0 && length <= Self.chunkBytesMax && length <= bytes.count - used - RecordHeader.byteCount
    }

    /// Adds a chunk whose sealed bytes the closure writes. If it throws, nothing was added.
    ///
    /// - Parameter form: Nil: it is sealed as it is.
    /// - Throws: ``CloudError`` `.limitExceeded` when there is no room (``hasRoom(for:)``): put the group first.
    ///   What the closure throws.
    public mutating func append(
        _ id: ChunkID, length: Int, _ form: SealedForm? = nil, _ write: (UnsafeMutableRawBufferPointer) throws -> Void
    ) throws {
        guard hasRoom(for: length) else {
            throw CloudError(
                .limitExceeded, "The chunk does not fit into the group. Put the group, or make smaller chunks.",
                details: ["bytes": String(length)])
        }
        let start = used
        let payload = start + RecordHeader.byteCount
        let sum = try bytes.withUnsafeMutableBytes { bytes in
            let room = UnsafeMutableRawBufferPointer(rebasing: bytes[payload..<payload + length])
            try write(room)
            return Checksum.of(UnsafeRawBufferPointer(room))
        }
        entries.append(
            Entry(
                header: RecordHeader(id: id, length: length, payloadSum: sum),
                form: form ?? .plain(sealedLength: length), start: start))
        used = payload + length
    }

    /// Adds a chunk that is sealed already.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when there is no room.
    public mutating func append(_ id: ChunkID, sealed: [UInt8]) throws {
        try append(id, length: sealed.count) { room in
            sealed.withUnsafeBytes { room.copyMemory(from: $0) }
        }
    }

    /// Empties it. The bytes stay in memory until others overwrite them.
    public mutating func removeAll() {
        entries.removeAll(keepingCapacity: true)
        used = 0
    }

    /// Writes the headers, now that it is known where the group will lie.
    ///
    /// - Returns: The chunks with their places.
    mutating func settle(in segment: SegmentID, at offset: Int) -> [StoredChunk] {
        bytes.withUnsafeMutableBytes { bytes in
            entries.map { entry in
                let header = UnsafeMutableRawBufferPointer(rebasing: bytes[entry.start...])
                entry.header.write(to: header, in: segment, at: offset + entry.start)
                let place = SegmentPlace(segment: segment, offset: offset + entry.start, length: entry.header.length)
                return StoredChunk(id: entry.header.id, place: place, entry.form)
            }
        }
    }
}
