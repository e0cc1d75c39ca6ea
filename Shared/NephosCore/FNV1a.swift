/// FNV-1a (Fowler, Noll, Vo) of 64 bits: spreads short names the same in every language, and tells damage. It keeps
/// nobody out.
public enum FNV1a {
    public static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        return hash
    }

    public static func hash(_ text: String) -> UInt64 {
        text.withUTF8Bytes { hash($0) }
    }
}
