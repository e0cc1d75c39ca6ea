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
        let bytes = content(seed, count: 8 << 20)
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
        // The first chunk's end is met with 0 to 7 bytes of a piece before it, and after it.
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
        // As many as have three levels of nodes.
        let many = list(12, count: 30_000)
        let (oldTree, newTree) = (try Tree(many), try Tree(Array(new.prefix(1)) + many.dropFirst()))
        #expect(oldTree.root.depth == 3)
        #expect(Set(newTree.nodes.keys).subtracting(oldTree.nodes.keys).count == 3)
    }
}
