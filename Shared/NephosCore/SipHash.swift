/// SipHash-2-4 of a few 64-bit words under a key of 128 bits: a short keyed
/// check that nobody without the key can make (Aumasson and Bernstein, 2012).
/// About 20 ns, without allocation.
public struct SipHash: Sendable {
    /// Bytes of a key.
    public static let keyByteCount = 16

    private let key: (UInt64, UInt64)

    /// - Returns: Nil if there are not 16 bytes.
    public init?(key: some Collection<UInt8>) {
        guard key.count == Self.keyByteCount else { return nil }
        func word(_ bytes: some Collection<UInt8>) -> UInt64 {
            bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
        }
        self.key = (word(key.prefix(8)), word(key.dropFirst(8)))
    }

    /// Under the key that is all zeros, where there is nothing to keep secret.
    public init() { key = (0, 0) }

    /// The hash of four words, each as its eight bytes, least significant first.
    public func hash(_ first: UInt64, _ second: UInt64, _ third: UInt64, _ fourth: UInt64) -> UInt64 {
        var state = State(key)
        state.take(first)
        state.take(second)
        state.take(third)
        state.take(fourth)
        // The last word says how many bytes there were.
        state.take(32 << 56)
        return state.finish()
    }

    /// The hash of bytes.
    public func hash(_ bytes: [UInt8]) -> UInt64 {
        var state = State(key)
        var word: UInt64 = 0
        for (place, byte) in bytes.enumerated() {
            word |= UInt64(byte) << UInt64(place % 8 * 8)
            guard place % 8 == 7 else { continue }
            state.take(word)
            word = 0
        }
        state.take(word | UInt64(truncatingIfNeeded: bytes.count) << 56)
        return state.finish()
    }

    private struct State {
        var a, b, c, d: UInt64

        init(_ key: (UInt64, UInt64)) {
            a = key.0 ^ 0x736f_6d65_7073_6575
            b = key.1 ^ 0x646f_7261_6e64_6f6d
            c = key.0 ^ 0x6c79_6765_6e65_7261
            d = key.1 ^ 0x7465_6462_7974_6573
        }

        mutating func take(_ word: UInt64) {
            d ^= word
            round()
            round()
            a ^= word
        }

        mutating func finish() -> UInt64 {
            c ^= 0xff
            for _ in 0..<4 { round() }
            return a ^ b ^ c ^ d
        }

        private mutating func round() {
            a &+= b
            b = (b << 13 | b >> 51) ^ a
            a = a << 32 | a >> 32
            c &+= d
            d = (d << 16 | d >> 48) ^ c
            a &+= d
            d = (d << 21 | d >> 43) ^ a
            c &+= b
            b = (b << 17 | b >> 47) ^ c
            c = c << 32 | c >> 32
        }
    }
}
