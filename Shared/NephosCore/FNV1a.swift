/// FNV-1a (Fowler, Noll, Vo) of 64 bits: spreads short names the same in every language, and tells damage. It keeps
/// nobody out.
public enum FNV1a {
    @inlinable public static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01b3 }
    }
}
