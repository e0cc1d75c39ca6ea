/// The name of a field in a predicate, as `name` or `owner.name`: parts of ASCII letters, digits and `_`, none of
/// which begins with a digit, joined by dots.
public struct FieldName: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let rawValue: String

    /// Nil for what cannot be the name of a field, or is longer than `PredicateLimits.fieldBytesMax`.
    public init?(_ rawValue: String) {
        guard rawValue.utf8.count <= PredicateLimits.fieldBytesMax else { return nil }
        var startsPart = true
        for byte in rawValue.utf8 {
            if startsPart {
                guard byte.startsName else { return nil }
                startsPart = false
            } else if byte == UInt8(ascii: ".") {
                startsPart = true
            } else if !byte.continuesName {
                return nil
            }
        }
        guard !startsPart else { return nil }
        self.rawValue = rawValue
    }

    public var description: String { rawValue }

    public static func < (left: FieldName, right: FieldName) -> Bool { left.rawValue < right.rawValue }
}

extension UInt8 {
    var startsName: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"): true
        default: false
        }
    }

    var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }

    var continuesName: Bool { startsName || isDigit }

    var isSpace: Bool { self == 0x20 || (0x09...0x0d).contains(self) }
}
