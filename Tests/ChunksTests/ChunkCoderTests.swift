import CZstd
import NephosCore
import Testing

@testable import NephosChunks

@Suite struct ChunkCoderTests {
    let coder = ChunkCoder()

    func encoded(_ chunk: [UInt8]) throws -> [UInt8] { try chunk.withUnsafeBytes { try coder.encode($0) } }
    func decoded(_ coded: [UInt8]) throws -> [UInt8] { try coded.withUnsafeBytes { try coder.decode($0) } }
    func refusal(_ coded: [UInt8]) -> CloudError.Code? { code { _ = try decoded(coded) } }

    /// A frame of Zstandard as another program may make it.
    func frame(_ bytes: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: ZSTD_compressBound(bytes.count)) { output, count in
            count = ZSTD_compress(output.baseAddress, output.count, bytes, bytes.count, 3)
        }
    }

    @Test(arguments: [1, 7, 8, 100, 65_536, 1 << 20])
    func aChunkComesBack(count: Int) throws {
        let text = [UInt8]((0..<count).map { UInt8($0 / 7 % 50) })
        for chunk in [text, content(3, count: count), [UInt8](repeating: 0, count: count)] {
            let coded = try encoded(chunk)
            #expect(coded.count <= count + ChunkCoder.overhead)
            #expect(try coded.withUnsafeBytes { try ChunkCoder.decodedLength(of: $0) } == count)
            #expect(try decoded(coded) == chunk)
        }
    }

    @Test func whatDoesNotGetAnEighthSmallerStaysAsItIs() throws {
        // So many bytes that do not compress, and zeros.
        func coding(random: Int) throws -> UInt8? {
            try encoded(content(1, count: random) + [UInt8](repeating: 0, count: 100_000 - random)).first
        }
        #expect(try coding(random: 100_000) == 0)
        #expect(try coding(random: 90_000) == 0)
        #expect(try coding(random: 80_000) == 1)
        let coded = try encoded([UInt8](repeating: 0, count: 1 << 20))
        #expect(coded.first == 1)
        #expect(coded.count < 200)
    }

    @Test func noChunkHasNoByteOrMoreThanAMebibyte() {
        #expect(code { _ = try encoded([]) } == .invalidArguments)
        #expect(code { _ = try encoded([UInt8](repeating: 0, count: 1 << 20 + 1)) } == .invalidArguments)
        #expect(refusal([]) == .invalidArguments)
        #expect(refusal([0]) == .invalidArguments)
        #expect(refusal([1]) == .invalidArguments)
        #expect(refusal([0] + [UInt8](repeating: 0, count: 1 << 20 + 1)) == .invalidArguments)
        #expect(refusal([1] + frame([])) == .invalidArguments)
    }

    @Test func anUnknownCodingIsRefused() {
        for coding in 2...255 as ClosedRange<UInt8> { #expect(refusal([coding, 1, 2]) == .incompatibleVersion) }
    }

    @Test func bombsAreRefusedByTheirFirstBytes() throws {
        // 1 GiB of zeros in 33 KB, and a byte more than a chunk may have.
        for size in [1 << 30, 1 << 20 + 1] {
            let bomb = [1] + frame([UInt8](repeating: 0, count: size))
            #expect(code { _ = try bomb.withUnsafeBytes { try ChunkCoder.decodedLength(of: $0) } } == .invalidArguments)
            #expect(refusal(bomb) == .invalidArguments)
        }
        #expect(try decoded([1] + frame([UInt8](repeating: 0, count: 1 << 20))).count == 1 << 20)
    }

    @Test func whatSaysAnotherSizeThanItHasIsRefused() throws {
        // The size is in the two bytes behind magic and descriptor, less 256.
        let zeros = frame([UInt8](repeating: 0, count: 10_000))
        try #require(Int(zeros[5]) + Int(zeros[6]) << 8 == 10_000 - 256)
        for size in [9_999, 10_001, 256, 60_000] {
            var changed = zeros
            changed[5] = UInt8((size - 256) & 0xff)
            changed[6] = UInt8((size - 256) >> 8)
            #expect(refusal([1] + changed) == .invalidArguments, "\(size)")
        }
        #expect(try decoded([1] + zeros).count == 10_000)
        // The room is not as long as the chunk.
        for length in [9_999, 10_001] {
            var room = [UInt8](repeating: 0, count: length)
            let end = code {
                try room.withUnsafeMutableBytes { room in
                    try ([1] + zeros).withUnsafeBytes { try coder.decode($0, into: room) }
                }
            }
            #expect(end == .invalidArguments)
        }
    }

    @Test func nothingMayStandBehindTheFrame() {
        let good = frame([UInt8](repeating: 9, count: 5000))
        #expect(refusal([1] + good) == nil)
        #expect(refusal([1] + good + [0]) == .invalidArguments)
        // What the library passes over by itself: an empty frame, and one to be skipped.
        #expect(refusal([1] + good + frame([])) == .invalidArguments)
        #expect(refusal([1] + good + [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]) == .invalidArguments)
        #expect(refusal([1] + [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0] + good) == .invalidArguments)
    }

    @Test func aFrameThatDoesNotTellItsSizeIsRefused() throws {
        let context = try #require(ZSTD_createCCtx())
        defer { ZSTD_freeCCtx(context) }
        ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0)
        let bytes = [UInt8](repeating: 9, count: 5000)
        let untold = [UInt8](unsafeUninitializedCapacity: ZSTD_compressBound(bytes.count)) { output, count in
            count = ZSTD_compress2(context, output.baseAddress, output.count, bytes, bytes.count)
        }
        #expect(refusal([1] + untold) == .invalidArguments)
    }

    @Test func damageIsRefusedOrDecodesToAsManyBytes() throws {
        let text = [UInt8]((0..<3000).map { UInt8($0 * $0 % 97) })
        let coded = try encoded(text)
        try #require(coded.first == 1)
        for place in coded.indices {
            for bit in 0..<8 {
                var damaged = coded
                damaged[place] ^= 1 << UInt8(bit)
                guard let result = try? decoded(damaged) else { continue }
                #expect(result.count <= 1 << 20)
            }
        }
        for count in 0..<coded.count { #expect(refusal(Array(coded[..<count])) == .invalidArguments) }
        // The same coder is as good as before.
        #expect(try decoded(coded) == text)
    }
}
