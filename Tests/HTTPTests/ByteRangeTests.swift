import Testing

@testable import NephosHTTP

@Suite struct ByteRangeTests {
    @Test(
        arguments: [
            ("bytes=0-0", .part(0..<1)), ("bytes=2-5", .part(2..<6)), ("bytes=2-", .part(2..<10)),
            ("bytes=-3", .part(7..<10)), ("bytes=-99", .part(0..<10)), ("bytes=9-99", .part(9..<10)),
            ("BYTES= 2 - 5 ", .part(2..<6)), ("bytes=10-", .unsatisfiable), ("bytes=-0", .unsatisfiable),
            ("bytes=18446744073709551615-", .unsatisfiable), ("bytes=0-18446744073709551615", .part(0..<10)),
            ("bytes=0-99999999999999999999999", .part(0..<10)), ("bytes=99999999999999999999999-", .unsatisfiable),
            ("bytes=5-2", .whole), ("bytes=-", .whole), ("bytes=", .whole), ("bytes=0-1,3-4", .whole),
            ("bytes=a-b", .whole),
            ("bytes=--1", .whole), ("bytes=+1-2", .whole), ("items=0-1", .whole), ("", .whole), ("=", .whole),
            ("bytes=\u{661}-", .whole),
        ] as [(String, ByteRange)]) func aRangeIsUnderstoodOrLeftOut(_ header: String, _ range: ByteRange)
    {
        #expect(ByteRange(header, of: 10) == range)
    }

    @Test func anEmptyBodyHasNoPart() {
        #expect(ByteRange("bytes=0-", of: 0) == .unsatisfiable)
        #expect(ByteRange("bytes=-1", of: 0) == .unsatisfiable)
        #expect(ByteRange(nil, of: 0) == .whole)
    }

    @Test func anAddressIsWhatOneSubscriberHas() {
        #expect(Address(ip: "2001:db8::1") == Address(ip: "2001:db8:0:0:ffff::2"))
        #expect(Address(ip: "2001:db8::1") != Address(ip: "2001:db8:0:1::1"))
        #expect(Address(ip: "::ffff:192.0.2.1") == Address(ip: "192.0.2.1"))
        #expect(Address(ip: "192.0.2.1") != Address(ip: "192.0.2.2"))
        #expect(Address(ip: "fe80::1%eth0") == Address(ip: "fe80::2"))
    }
}
