public import struct Foundation.Data
public import struct Foundation.Date

/// A property-list value: what a key-value store holds.
///
/// The types are those of Apple's property lists (and so of
/// `NSUbiquitousKeyValueStore`); an integer is one of 64 bits.
public enum PropertyValue: Hashable, Sendable {
    case boolean(Bool)
    case integer(Int64)
    case real(Double)
    case string(String)
    /// Kept to the microsecond.
    case date(Date)
    case data(Data)
    case array([PropertyValue])
    case dictionary([String: PropertyValue])
}

extension PropertyValue {
    /// How deep arrays and dictionaries may nest (Protocol Buffers decoders stop at
    /// 100 messages, and a dictionary takes three). Deeper values are refused, so
    /// that no reader's stack depends on a writer.
    public static let depthMax = 24

    /// The depth of nesting: 0 for a plain value.
    public var depth: Int {
        switch self {
        case .array(let values): 1 + (values.map(\.depth).max() ?? 0)
        case .dictionary(let values): 1 + (values.values.map(\.depth).max() ?? 0)
        default: 0
        }
    }

    /// The name of the type, as the command line and `--json` print it.
    public var typeName: String {
        switch self {
        case .boolean: "boolean"
        case .integer: "integer"
        case .real: "real"
        case .string: "string"
        case .date: "date"
        case .data: "data"
        case .array: "array"
        case .dictionary: "dictionary"
        }
    }
}

extension PropertyValue: ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByStringLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(booleanLiteral value: Bool) { self = .boolean(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .real(value) }
    public init(stringLiteral value: String) { self = .string(value) }
    public init(arrayLiteral elements: PropertyValue...) { self = .array(elements) }
    public init(dictionaryLiteral elements: (String, PropertyValue)...) {
        self = .dictionary(Dictionary(elements) { $1 })
    }
}
