/// How large a predicate may be. A text beyond a limit is refused with its place, so that no text takes long to read
/// or to test, and none overflows a stack.
public enum PredicateLimits {
    /// Bytes of a text, and of the canonical form of what it says.
    public static let textBytesMax = 16_384
    /// Parentheses and `NOT` within one another.
    public static let nestingMax = 32
    /// Comparisons, `AND`, `OR` and `NOT` together.
    public static let nodesMax = 1_000
    /// Values between the braces of one `IN`.
    public static let listMax = 1_000
    /// Bytes of a field's name with its dots.
    public static let fieldBytesMax = 255
    /// Bytes of a pattern of `LIKE`.
    public static let patternBytesMax = 1_024
    /// Code points of a piece between two `*` of a pattern that has a `?`: the bits of one word, by which such a piece
    /// is found in one pass.
    public static let patternPieceMax = 64
    /// Words of one `self CONTAINS`.
    public static let wordsMax = 32
}
