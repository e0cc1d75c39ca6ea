import CNephosZstd
import NephosCore
import Testing

@testable import NephosChunks

@Suite struct ChunkCoderTests {
    let coder = ChunkCoder()

    /// Nil: it stays as it is.
    func compressed(_ chunk: [UInt8]) -> [UInt8]? {
        chunk.withUnsafeBytes { coder.withCompressed($0) { [UInt8]($0) } }
    }

    func decoded(_ bytes: [UInt8], _ encoding: ChunkEncoding = .zstandard) throws -> [UInt8] {
        let length = try bytes.withUnsafeBytes { try ChunkCoder.length(ofEncoded: $0, encoding) }
        let chunk = try bytes.withUnsafeBytes { try coder.withDecoded($0, encoding) { [UInt8]($0) } }
        #expect(chunk.count == length)
        return chunk
    }

    func refusal(_ bytes: [UInt8], _ encoding: ChunkEncoding = .zstandard) -> CloudError.Code? {
        code { _ = try decoded(bytes, encoding) }
    }

    /// A frame of Zstandard as another program may make it.
    func frame(_ bytes: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: ZSTD_compressBound(bytes.count)) { output, count in
            count = ZSTD_compress(output.baseAddress, output.count, bytes, bytes.count, 3)
        }
    }

    /// Digits, of which three bytes have as much as one.
    func digits(_ number: UInt64, count: Int) -> [UInt8] { content(number, count: count).map { 48 + $0 % 10 } }

    @Test(arguments: [100, 32_768, 32_769, 65_536, 1 << 20])
    func aChunkComesBack(count: Int) throws {
        for chunk in [digits(3, count: count), [UInt8](repeating: 0, count: count)] {
            let frame = try #require(compressed(chunk))
            #expect(frame.count <= count - count / 8)
            #expect(try decoded(frame) == chunk)
        }
        #expect(compressed(content(3, count: count)) == nil)
        #expect(try decoded(content(3, count: count), .plain) == content(3, count: count))
    }

    @Test func theFrameOfTheProtocolIsRead() throws {
        let frame: [UInt8] = [
            0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x70, 0xad, 0, 0, 0x70, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x2c, 0x20, 0x6e, 0x65,
            0x70, 0x68, 0x6f, 0x73, 0x0a, 1, 0, 0x1f, 0xd3, 0x54, 2,
        ]
        let text = Array("hello, nephos\n".utf8)
        #expect(try decoded(frame) == [[UInt8]](repeating: text, count: 8).flatMap { $0 })
        #expect(compressed(text) == nil)
    }

    @Test func whatDoesNotGetAnEighthSmallerStaysAsItIs() throws {
        // So many bytes that do not compress, and zeros.
        func isCompressed(random: Int) -> Bool {
            compressed(content(1, count: random) + [UInt8](repeating: 0, count: 100_000 - random)) != nil
        }
        #expect(!isCompressed(random: 100_000))
        #expect(!isCompressed(random: 90_000))
        #expect(isCompressed(random: 80_000))
        #expect(try #require(compressed([UInt8](repeating: 0, count: 1 << 20))).count < 200)
        for length in 1..<8 { #expect(compressed([UInt8](repeating: 0, count: length)) == nil) }
    }

    /// One place that compresses is enough to try it, wherever it is.
    @Test(arguments: [0, 1, 2, 3])
    func aChunkThatCompressesInOnePlaceIsTried(quarter: Int) {
        var chunk = content(1, count: 400_000)
        chunk.replaceSubrange(quarter * 100_000..<(quarter + 1) * 100_000, with: [UInt8](repeating: 7, count: 100_000))
        #expect(compressed(chunk) != nil)
    }

    @Test func noChunkHasNoByteOrMoreThanAMebibyte() {
        #expect(compressed([]) == nil)
        #expect(compressed([UInt8](repeating: 0, count: 1 << 20 + 1)) == nil)
        #expect(refusal([]) == .invalidArguments)
        #expect(refusal([], .plain) == .invalidArguments)
        #expect(refusal([UInt8](repeating: 0, count: 1 << 20 + 1), .plain) == .invalidArguments)
        #expect(refusal(frame([])) == .invalidArguments)
    }

    /// It would take more room than it counts.
    @Test func aFrameThatIsNotShorterThanItsChunkIsRefused() throws {
        #expect(refusal(frame(content(1, count: 5000))) == .invalidArguments)
        // A byte, in blocks of which all but the last are empty.
        let padded: [UInt8] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 1] + (0..<1000).flatMap { _ in [0, 0, 0] as [UInt8] }
        #expect(refusal(padded + [9, 0, 0, 7]) == .invalidArguments)
        // The library takes it.
        var room: UInt8 = 0
        try #require(ZSTD_decompress(&room, 1, padded + [9, 0, 0, 7], padded.count + 4) == 1)
    }

    /// Whoever takes it piece by piece would need so much memory.
    @Test func aFrameWithALargerWindowThanAChunkIsRefused() throws {
        let zeros = [UInt8](repeating: 0, count: 100_000)
        func frame(window: Int32) throws -> [UInt8] {
            let context = try #require(ZSTD_createCCtx())
            defer { ZSTD_freeCCtx(context) }
            ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window)
            // As one that does not know the length yet: it keeps the window.
            return [UInt8](unsafeUninitializedCapacity: 200_000) { output, count in
                zeros.withUnsafeBytes { bytes in
                    var input = ZSTD_inBuffer(src: bytes.baseAddress, size: bytes.count / 2, pos: 0)
                    var out = ZSTD_outBuffer(dst: output.baseAddress, size: 200_000, pos: 0)
                    ZSTD_compressStream2(context, &out, &input, ZSTD_e_flush)
                    input = ZSTD_inBuffer(src: bytes.baseAddress, size: bytes.count, pos: bytes.count / 2)
                    ZSTD_compressStream2(context, &out, &input, ZSTD_e_end)
                    count = out.pos
                }
            }
        }
        // It does not tell its length: another header is put before its blocks.
        func told(_ frame: [UInt8]) -> [UInt8] {
            Array(frame[..<4]) + [0x80, frame[5]] + [0xa0, 0x86, 1, 0] + Array(frame[6...])
        }
        #expect(try decoded(told(frame(window: 20))) == zeros)
        #expect(refusal(try told(frame(window: 21))) == .invalidArguments)
        #expect(refusal(try told(frame(window: 27))) == .invalidArguments)
    }

    @Test func bombsAreRefusedByTheirFirstBytes() throws {
        // 1 GiB of zeros in 33 KB, and a byte more than a chunk may have.
        for size in [1 << 30, 1 << 20 + 1] {
            let bomb = frame([UInt8](repeating: 0, count: size))
            let length = { try bomb.withUnsafeBytes { try ChunkCoder.length(ofEncoded: $0, .zstandard) } }
            #expect(code { _ = try length() } == .invalidArguments)
            #expect(refusal(bomb) == .invalidArguments)
        }
        #expect(try decoded(frame([UInt8](repeating: 0, count: 1 << 20))).count == 1 << 20)
    }

    @Test func whatSaysAnotherSizeThanItHasIsRefused() throws {
        // The size is in the two bytes behind magic and descriptor, less 256.
        let zeros = frame([UInt8](repeating: 0, count: 10_000))
        try #require(Int(zeros[5]) + Int(zeros[6]) << 8 == 10_000 - 256)
        for size in [9_999, 10_001, 256, 60_000] {
            var changed = zeros
            changed[5] = UInt8((size - 256) & 0xff)
            changed[6] = UInt8((size - 256) >> 8)
            #expect(refusal(changed) == .invalidArguments, "\(size)")
        }
        #expect(try decoded(zeros).count == 10_000)
    }

    @Test(arguments: [0, 9_999, 10_001, 20_000])
    func theRoomIsAsLongAsTheChunk(length: Int) {
        let zeros = [UInt8](repeating: 0, count: 10_000)
        for (bytes, encoding) in [(zeros, ChunkEncoding.plain), (frame(zeros), .zstandard)] {
            var room = [UInt8](repeating: 0, count: length)
            let end = code {
                try room.withUnsafeMutableBytes { room in
                    try bytes.withUnsafeBytes { try coder.decode($0, encoding, into: room) }
                }
            }
            #expect(end == .invalidArguments)
        }
    }

    @Test func aFrameFromBeforeTheStandardIsRefused() {
        // Version 0.7: the library may know it, and other programs do not.
        let old: [UInt8] = [0x27, 0xb5, 0x2f, 0xfd, 0x20, 5, 0x40, 0, 5, 1, 2, 3, 4, 5, 0xc0, 0, 0]
        #expect(refusal(old) == .invalidArguments)
    }

    @Test func nothingMayStandBehindTheFrame() {
        let good = frame([UInt8](repeating: 9, count: 5000))
        #expect(refusal(good) == nil)
        #expect(refusal(good + [0]) == .invalidArguments)
        // What the library passes over by itself: an empty frame, and one to be skipped.
        #expect(refusal(good + frame([])) == .invalidArguments)
        #expect(refusal(good + [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]) == .invalidArguments)
        #expect(refusal([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0] + good) == .invalidArguments)
    }

    @Test func aFrameThatDoesNotTellItsSizeIsRefused() throws {
        let context = try #require(ZSTD_createCCtx())
        defer { ZSTD_freeCCtx(context) }
        ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0)
        let bytes = [UInt8](repeating: 9, count: 5000)
        let untold = [UInt8](unsafeUninitializedCapacity: ZSTD_compressBound(bytes.count)) { output, count in
            count = ZSTD_compress2(context, output.baseAddress, output.count, bytes, bytes.count)
        }
        #expect(refusal(untold) == .invalidArguments)
    }

    @Test func damageIsRefusedOrDecodesToAsManyBytes() throws {
        let text = [UInt8]((0..<3000).map { UInt8($0 * $0 % 97) })
        let coded = try #require(compressed(text))
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
