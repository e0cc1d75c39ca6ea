import NephosCore
import Testing

@Suite struct SipHashTests {
    /// Of the bytes 0 to 31, under the key of the bytes 0 to 15.
    @Test func agreesWithTheReference() throws {
        let hash = try #require(SipHash(key: Array(0..<16)))
        func word(_ first: UInt64) -> UInt64 { (0..<8).reversed().reduce(0) { $0 << 8 | (first + $1) } }
        #expect(hash.hash(word(0), word(8), word(16), word(24)) == 0x7127_512f_72f2_7cce)
        #expect(hash.hash(Array(0..<32)) == 0x7127_512f_72f2_7cce)
        #expect(hash.hash(Array(0..<15)) == 0xa129_ca61_49be_45e5)
        #expect(SipHash(key: Array(0..<15)) == nil)
    }
}
