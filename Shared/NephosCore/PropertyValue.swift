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
    /// By name: two keys that look alike and have other bytes are two.
    case dictionary([ItemName: PropertyValue])
}

extension PropertyValue {
    /// Whether both are the same content: texts with the same bytes, reals with the same bits. What
    /// only looks alike is another value to whoever reads its bytes.
    public static func == (left: PropertyValue, right: PropertyValue) -> Bool {
        switch (left, right) {
        case (.boolean(let left), .boolean(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.real(let left), .real(let right)): left.bitPattern == right.bitPattern
        case (.string(let left), .string(let right)): left.hasSameBytes(as: right)
        case (.date(let left), .date(let right)): left == right
        case (.data(let left), .data(let right)): left == right
        case (.array(let left), .array(let right)): left == right
        case (.dictionary(let left), .dictionary(let right)): left == right
        default: false
        }
    }

    public func hash(into hasher: inout Hasher) {
        switch self {
        case .boolean(let value): hasher.combine(value)
        case .integer(let value): hasher.combine(value)
        case .real(let value): hasher.combine(value.bitPattern)
        case .string(let value): value.hashBytes(into: &hasher)
        case .date(let value): hasher.combine(value)
        case .data(let value): hasher.combine(value)
        case .array(let values): hasher.combine(values)
        case .dictionary(let values): hasher.combine(values)
        }
    }

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
    public init(dictionaryLiteral elements: (ItemName, PropertyValue)...) {
        self = .dictionary(Dictionary(elements) { $1 })
    }
}
