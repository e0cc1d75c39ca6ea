/// XXH64 (Collet, 2012): tells whether bytes are what they were, at the speed of memory.
///
/// It needs no key, so that whoever keeps the files can check them; and it proves nothing against somebody who
/// changes them on purpose. That is for the seal to do.
enum Checksum {
    private static let prime1: UInt64 = 0x9E37_79B1_85EB_CA87
    private static let prime2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
    private static let prime3: UInt64 = 0x1656_67B1_9E37_79F9
    private static let prime4: UInt64 = 0x85EB_CA77_C2B2_AE63
    private static let prime5: UInt64 = 0x27D4_EB2F_1656_67C5

    static func of(_ bytes: UnsafeRawBufferPointer, seed: UInt64 = 0) -> UInt64 {
        var hash: UInt64
        var place = 0
        let count = bytes.count
        if count >= 32 {
            var a = seed &+ prime1 &+ prime2
            var b = seed &+ prime2
            var c = seed
            var d = seed &- prime1
            while place <= count - 32 {
                a = round(a, word(bytes, place))
                b = round(b, word(bytes, place + 8))
                c = round(c, word(bytes, place + 16))
                d = round(d, word(bytes, place + 24))
                place += 32
            }
            hash = turned(a, 1) &+ turned(b, 7) &+ turned(c, 12) &+ turned(d, 18)
            for lane in [a, b, c, d] { hash = (hash ^ round(0, lane)) &* prime1 &+ prime4 }
        } else {
            hash = seed &+ prime5
        }
        hash = hash &+ UInt64(count)
        while place <= count - 8 {
            hash = turned(hash ^ round(0, word(bytes, place)), 27) &* prime1 &+ prime4
            place += 8
        }
        if place <= count - 4 {
            let half = UInt64(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: place, as: UInt32.self)))
            hash = turned(hash ^ (half &* prime1), 23) &* prime2 &+ prime3
            place += 4
        }
        while place < count {
            hash = turned(hash ^ (UInt64(bytes[place]) &* prime5), 11) &* prime1
            place += 1
        }
        hash = (hash ^ (hash >> 33)) &* prime2
        hash = (hash ^ (hash >> 29)) &* prime3
        return hash ^ (hash >> 32)
    }

    @inline(__always)
    private static func word(_ bytes: UnsafeRawBufferPointer, _ place: Int) -> UInt64 {
        UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self))
    }

    @inline(__always)
    private static func round(_ lane: UInt64, _ word: UInt64) -> UInt64 {
        turned(lane &+ word &* prime2, 31) &* prime1
    }

    @inline(__always)
    private static func turned(_ word: UInt64, _ bits: UInt64) -> UInt64 { word << bits | word >> (64 - bits) }
}
