internal import NephosCore

/// A set of operation ids that may take one it does not hold for one that it
/// holds, and never the other way round (Bloom, 1970): a mebibyte, however many
/// it holds, and two loads to ask.
///
/// With 350,000 ids, five seconds of as many writes as two cores can do, it is
/// wrong about one in 150.
struct BloomFilter {
    private static let bitCount: UInt64 = 1 << 23

    /// No words until something is inserted.
    private var words: [UInt64] = []
    private var isEmpty = true

    mutating func insert(_ id: OperationID) {
        if words.isEmpty { words = Array(repeating: 0, count: Int(Self.bitCount / 64)) }
        isEmpty = false
        let (first, second) = Self.bits(of: id)
        words[Int(first / 64)] |= 1 << (first % 64)
        words[Int(second / 64)] |= 1 << (second % 64)
    }

    func contains(_ id: OperationID) -> Bool {
        guard !isEmpty else { return false }
        let (first, second) = Self.bits(of: id)
        return words[Int(first / 64)] & 1 << (first % 64) != 0 && words[Int(second / 64)] & 1 << (second % 64) != 0
    }

    mutating func removeAll() {
        guard !isEmpty else { return }
        isEmpty = true
        for index in words.indices { words[index] = 0 }
    }

    /// From the high half of a product, which every bit of the id has a share in.
    private static func bits(of id: OperationID) -> (UInt64, UInt64) {
        let product = (id.low ^ id.high &* 0x9e37_79b9_7f4a_7c15).multipliedFullWidth(by: 0xd6e8_feb8_6659_fd93)
        let hash = product.high ^ product.low
        return (hash % bitCount, (hash >> 32) % bitCount)
    }
}
