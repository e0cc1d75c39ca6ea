internal import Crypto

/// A SHA-256 of bytes that come in order, in which those that lie in gaps are zeros: so it stays the same when what
/// could not be read once is read later.
struct SumWithGaps {
    private static let zeros = [UInt8](repeating: 0, count: FileCopy.pieceBytes)

    private var sum = SHA256()
    private let gaps: [Range<Int>]

    /// - Parameter gaps: In order, none within another.
    init(_ gaps: [Range<Int>]) { self.gaps = gaps }

    /// Of what has come so far, in hex.
    var hash: String {
        let soFar = sum
        return hex(soFar.finalize())
    }

    mutating func update(_ bytes: UnsafeRawBufferPointer, at place: Int) {
        let end = place + bytes.count
        var next = place
        for gap in gaps where gap.overlaps(place..<end) {
            let hole = gap.clamped(to: place..<end)
            sum.update(bufferPointer: UnsafeRawBufferPointer(rebasing: bytes[next - place..<hole.lowerBound - place]))
            for start in stride(from: hole.lowerBound, to: hole.upperBound, by: Self.zeros.count) {
                sum.update(data: Self.zeros.prefix(min(Self.zeros.count, hole.upperBound - start)))
            }
            next = hole.upperBound
        }
        sum.update(bufferPointer: UnsafeRawBufferPointer(rebasing: bytes[(next - place)...]))
    }
}
