internal import NephosCore

/// Bytes that nobody should send, the same ones for a seed: some at random, most of them good ones that were changed,
/// cut short, or put together with another's.
package struct BadBytes: Sequence {
    private let count: Int
    private let good: [[UInt8]]
    private let seed: UInt64

    /// - Parameter good: What they are made of.
    package init(_ count: Int, from good: [[UInt8]], seed: UInt64) {
        self.count = count
        self.good = good
        self.seed = seed
    }

    package func makeIterator() -> Iterator { Iterator(left: count, good: good, random: SplitMix64(seed: seed)) }

    package struct Iterator: IteratorProtocol {
        fileprivate var left: Int
        fileprivate let good: [[UInt8]]
        fileprivate var random: SplitMix64

        package mutating func next() -> [UInt8]? {
            guard left > 0 else { return nil }
            left -= 1
            guard var bytes = good.randomElement(using: &random), upTo(7) > 0 else {
                return (0..<upTo(100)).map { _ in byte() }
            }
            for _ in 0...upTo(1) { harm(&bytes) }
            return bytes
        }

        private mutating func upTo(_ most: Int) -> Int { Int(random.next() % UInt64(most + 1)) }

        private mutating func byte() -> UInt8 { UInt8(truncatingIfNeeded: random.next()) }

        private mutating func harm(_ bytes: inout [UInt8]) {
            guard !bytes.isEmpty else { return bytes.append(byte()) }
            // Often near the beginning, where the lengths of all the rest are.
            let place = upTo((upTo(1) == 0 ? Swift.min(bytes.count, 40) : bytes.count) - 1)
            let part = place..<Swift.min(bytes.count, place + 1 + upTo(8))
            switch upTo(7) {
            case 0: bytes[place] = byte()
            case 1: bytes[place] ^= 1 << UInt8(upTo(7))
            // Where numbers end and go on, and the greatest ones.
            case 2: bytes[place] = [0, 0x7f, 0x80, 0xff][upTo(3)]
            case 3: bytes.insert(byte(), at: place)
            case 4: bytes.removeSubrange(part)
            case 5: bytes.insert(contentsOf: Array(bytes[part]), at: upTo(bytes.count))
            case 6: bytes.removeSubrange(place...)
            default:
                let other = good[upTo(good.count - 1)]
                bytes.replaceSubrange(place..., with: other.suffix(upTo(other.count)))
            }
        }
    }
}
