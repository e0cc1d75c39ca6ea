import NephosCore
import Testing

@testable import NephosChunks

@Suite struct ChunkerTests {
    @Test func theGearTableIsTheOneOfTheProtocol() {
        #expect(Chunker.gear.count == 256)
        #expect(Array(Chunker.gear[..<3]) == [0xcbcb_f6b1_f156_b4b2, 0xbe27_4f83_6ea1_5c9b, 0x086d_ee32_8fb8_1471])
    }

    @Test func chunksEndWhereTheProtocolSays() {
        let lengths = [254_619, 291_737, 301_023, 502_748, 177_384, 439_535, 130_106]
        #expect(chunkLengths(content(5, count: 2 << 20)) == lengths)
    }

    /// Of so many zeros and SplitMix64's bytes behind them, together 1 MiB: the last byte that may not end a chunk would
    /// end one, the first that may does; the last before the normal size has a hash that is enough from then on, and
    /// so has the first from there.
    @Test(
        arguments: [
            (65_472, 149_940, [219_974, 339_900, 316_525, 172_177]),
            (65_472, 493_623, [65_537, 234_392, 199_124, 211_917, 238_474, 99_132]),
            (196_544, 29_585, [252_326, 293_864, 198_353, 214_927, 89_106]),
            (196_544, 231_061, [196_609, 206_142, 224_981, 324_861, 95_983]),
        ] as [(Int, UInt64, [Int])])
    func theBordersAreThoseOfTheProtocol(zeros: Int, seed: UInt64, lengths: [Int]) {
        let bytes = [UInt8](repeating: 0, count: zeros) + content(seed, count: 1 << 20 - zeros)
        #expect(chunkLengths(bytes) == lengths)
    }

    /// The straightforward reading of the protocol, a byte at a time.
    func plainLengths(_ bytes: [UInt8]) -> [Int] {
        var lengths: [Int] = []
        var offset = 0
        var hash: UInt64 = 0
        for byte in bytes {
            if offset >= 65_536 - 64 { hash = hash << 1 &+ Chunker.gear[Int(byte)] }
            offset += 1
            let limit: UInt64 = offset <= 196_608 ? 1 << 44 : 1 << 48
            if offset == 1 << 20 || offset > 65_536 && hash < limit {
                lengths.append(offset)
                offset = 0
                hash = 0
            }
        }
        return offset == 0 ? lengths : lengths + [offset]
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func fourBytesAStepAreAsOneByOne(seed: UInt64) {
        let bytes = content(seed, count: 4 << 20)
        #expect(chunkLengths(bytes) == plainLengths(bytes))
    }

    @Test(arguments: 1...6 as ClosedRange<UInt64>)
    func itDoesNotMatterHowTheStreamIsDivided(seed: UInt64) {
        let bytes = content(seed, count: 4 << 20) + [UInt8](repeating: 0, count: 3 << 20) + content(9, count: 100_001)
        let whole = chunkLengths(bytes)
        var random = SplitMix64(seed: seed)
        let most: UInt64 = [3, 61, 1000, 65_536, 100_000, 2 << 20][Int(seed - 1)]
        #expect(chunkLengths(bytes) { 1 + Int(random.next() % most) } == whole)
        #expect(whole.reduce(0, +) == bytes.count)
        for length in whole.dropLast() { #expect(length > Chunker.minimum && length <= Chunker.maximum) }
    }

    @Test func aCutAtEachPlaceOfThePiecesIsFound() {
        // The first chunk ends in the first piece, with it, or behind it.
        let bytes = content(5, count: 300_000)
        for piece in 254_610...254_625 {
            var first = true
            let lengths = chunkLengths(bytes) {
                defer { first = false }
                return first ? piece : .max
            }
            #expect(lengths.first == 254_619, "piece \(piece)")
        }
    }

    @Test func withoutAnyCutChunksAreAMebibyte() {
        #expect(chunkLengths([UInt8](repeating: 0, count: 3 << 20)) == [1 << 20, 1 << 20, 1 << 20])
        #expect(chunkLengths([UInt8](repeating: 0, count: 1 << 20 | 1)) == [1 << 20, 1])
        #expect(chunkLengths([]) == [])
        #expect(chunkLengths([1]) == [1])
    }

    @Test func aByteInFrontChangesTheFirstChunkAndOneNodeOfEachLevel() throws {
        let before = content(11, count: 16 << 20)
        let old = chunks(of: before)
        let new = chunks(of: [7] + before)
        #expect(Set(new.map(\.id)).subtracting(old.map(\.id)).count <= 2)
        let nodes = try (Set(Tree(old).nodes.keys), Set(Tree(new).nodes.keys))
        #expect(nodes.1.subtracting(nodes.0).count <= 2)
        // So many chunks have three levels of nodes. One is put in before them, and then takes the place of the first.
        let many = list(12, count: 30_000)
        let tree = try Tree(many)
        #expect(tree.root.depth == 3)
        for other in [try Tree(new[..<1] + many), try Tree(new[..<1] + many[1...])] {
            #expect(Set(other.nodes.keys).subtracting(tree.nodes.keys).count == 3)
        }
    }
}
