public import Foundation
public import NephosCore

extension SplitMix64 {
    /// Bytes of no pattern, which do not compress; the first ones are the same whatever their number.
    public static func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(count: (count + 7) / 8 * 8)
        data.withUnsafeMutableBytes { bytes in
            guard var word = bytes.bindMemory(to: UInt64.self).baseAddress else { return }
            let end = word + (count + 7) / 8
            // A build for debugging takes far less time for this than for a loop over a range.
            while word < end {
                word.pointee = random.next()
                word += 1
            }
        }
        return data.prefix(count)
    }

    /// The same of a few bytes, so that they compress.
    package static func bytes(_ count: Int, seed: UInt64, of range: ClosedRange<UInt8>) -> Data {
        var data = bytes(count, seed: seed)
        let (first, number) = (range.lowerBound, range.upperBound - range.lowerBound)
        guard number < .max else { return data }
        data.withUnsafeMutableBytes { bytes in
            guard var byte = bytes.bindMemory(to: UInt8.self).baseAddress else { return }
            let end = byte + bytes.count
            while byte < end {
                byte.pointee = first + byte.pointee % (number + 1)
                byte += 1
            }
        }
        return data
    }
}
