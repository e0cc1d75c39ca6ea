public import Foundation
public import NephosCore

extension SplitMix64 {
    /// Bytes of no pattern, which do not compress; the first ones are the same whatever their number.
    public static func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(count: (count + 7) / 8 * 8)
        data.withUnsafeMutableBytes { bytes in
            let words = bytes.bindMemory(to: UInt64.self)
            for place in words.indices { words[place] = random.next() }
        }
        return data.prefix(count)
    }
}
