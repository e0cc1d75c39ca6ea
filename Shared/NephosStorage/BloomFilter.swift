internal import NephosCore

/// A set of operation ids that may take one it does not hold for one that it
/// holds, and never the other way round (Bloom, 1970): a mebibyte, however many
/// it holds. Both bits of an id lie in one line of the processor's cache, so that
/// asking waits for memory once (Putze, Sanders, Singler, 2007).
///
/// With 350,000 ids, five seconds of as many writes as two cores can do, it is
/// wrong about one in 130.
struct BloomFilter {
    private static let bitCount: UInt64 = 1 << 23
    private static let lineBits: UInt64 = 512
    /// An array's elements begin 32 bytes behind a line's beginning; with four words more, lines begin where lines do.
    private static let wordsBefore = 4

    /// No words until something is inserted.
    private var words: [UInt64] = []
    private var isEmpty = true

    mutating func insert(_ id: OperationID) {
        if words.isEmpty { words = Array(repeating: 0, count: Int(Self.bitCount / 64) + Self.wordsBefore) }
        isEmpty = false
        let (first, second) = Self.bits(of: id)
        words[Self.word(of: first)] |= 1 << (first % 64)
        words[Self.word(of: second)] |= 1 << (second % 64)
    }

    func contains(_ id: OperationID) -> Bool {
        guard !isEmpty else { return false }
        let (first, second) = Self.bits(of: id)
        return words[Self.word(of: first)] & 1 << (first % 64) != 0
            && words[Self.word(of: second)] & 1 << (second % 64) != 0
    }

    mutating func removeAll() {
        guard !isEmpty else { return }
        isEmpty = true
        for index in words.indices { words[index] = 0 }
    }

    private static func word(of bit: UInt64) -> Int { Int(bit / 64) + wordsBefore }

    /// From the high half of a product, which every bit of the id has a share in.
    private static func bits(of id: OperationID) -> (UInt64, UInt64) {
        let product = (id.low ^ id.high &* 0x9e37_79b9_7f4a_7c15).multipliedFullWidth(by: 0xd6e8_feb8_6659_fd93)
        let hash = product.high ^ product.low
        let first = hash % bitCount
        return (first, first & ~(lineBits - 1) | (hash >> 32) % lineBits)
    }
}
