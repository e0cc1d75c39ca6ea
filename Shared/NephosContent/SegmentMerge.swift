/// What two copies of one segment have between them: of each record the copy in which it is whole.
///
/// A record is whole when its bytes have the checksum in its header, and the header its own. Nothing else says which of
/// two copies is damaged where they differ.
public struct SegmentMerge {
    /// Bytes that are taken from one of the copies.
    public struct Run: Hashable, Sendable {
        /// 0 or 1.
        public var copy: Int
        public var range: Range<Int>
        /// Whether they are right as that copy has them, by their checksums.
        public var isWhole: Bool
    }

    private let segment: SegmentID
    private let lengths: [Int]
    private let read: (Int, Range<Int>) throws -> [UInt8]?
    private var runs: [Run] = []

    /// - Parameters:
    ///   - lengths: Of the first copy and of the second.
    ///   - read: Bytes of a copy, by its number; nil: it has not so many, or they cannot be read.
    public init(
        of segment: SegmentID, lengths: (Int, Int), reading read: @escaping (Int, Range<Int>) throws -> [UInt8]?
    ) {
        self.segment = segment
        self.lengths = [lengths.0, lengths.1]
        self.read = read
    }

    /// Reads both, record by record: 4 MiB of each in memory at most.
    ///
    /// - Parameters:
    ///   - length: How many bytes are wanted. One of the copies has as many.
    ///   - marks: Where records are known to begin, in their order: there it goes on where neither has a header.
    /// - Returns: Whence each byte comes, in order; what is whole in neither, and what is no record, from the first copy
    ///   as far as that goes. Nil: the copies have records in the same place that were written as two different ones, so
    ///   that neither is a copy of the other.
    public mutating func merged(length: Int, marks: [Int]) throws -> [Run]? {
        runs = []
        var offset = min(SegmentHeader.byteCount, length)
        let named = try (0...1).first { copy in
            try bytes(of: copy, 0..<offset) { SegmentHeader.isHeader($0, of: segment) } == true
        }
        take(0..<offset, from: named)
        var marks = marks[...]
        while offset < length {
            let headers = try (0...1).map { copy in
                try bytes(of: copy, offset..<offset + RecordHeader.byteCount) {
                    RecordHeader($0, in: segment, at: offset)
                } ?? nil
            }
            let known = headers.compactMap(\.self)
            guard Set(known).count < 2 else { return nil }
            marks = marks.drop { $0 <= offset }
            guard let header = known.first else {
                let next = min(marks.first ?? length, length)
                take(offset..<next, from: nil)
                offset = next
                continue
            }
            let start = min(offset + RecordHeader.byteCount, length)
            let end = min(start + header.length, length)
            take(offset..<start, from: headers.firstIndex(of: header))
            let whole = try (0...1).first { copy in
                try bytes(of: copy, start..<start + header.length, header.isPayload) == true
            }
            take(start..<end, from: whole)
            offset = end
        }
        return runs
    }

    private func bytes<Result>(
        of copy: Int, _ range: Range<Int>, _ body: (UnsafeRawBufferPointer) -> Result
    ) throws -> Result? {
        guard range.upperBound <= lengths[copy] else { return nil }
        return try read(copy, range).map { $0.withUnsafeBytes(body) }
    }

    /// - Parameter copy: Nil: neither is known to be right.
    private mutating func take(_ range: Range<Int>, from copy: Int?) {
        if let copy { return take(Run(copy: copy, range: range, isWhole: true)) }
        let middle = min(max(lengths[0], range.lowerBound), range.upperBound)
        take(Run(copy: 0, range: range.lowerBound..<middle, isWhole: false))
        take(Run(copy: 1, range: middle..<range.upperBound, isWhole: false))
    }

    private mutating func take(_ run: Run) {
        guard !run.range.isEmpty else { return }
        if let last = runs.last, last.copy == run.copy, last.isWhole == run.isWhole {
            runs[runs.count - 1].range = last.range.lowerBound..<run.range.upperBound
        } else {
            runs.append(run)
        }
    }
}
