internal import Foundation
package import NephosCore

/// Reads a property-list value as whatever is `Decodable`: the other half of ``PropertyEncoder``.
///
/// Numbers become another type of number where that changes nothing (2.0 is 2, as other languages and JSON write it),
/// and else nothing becomes anything.
struct PropertyDecoder: Decoder {
    fileprivate let value: PropertyValue
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    /// - Throws: ``CloudError`` `.invalidArguments` when the value is none of the type; the details name the path, and
    ///   the reason.
    static func decode<T: Decodable>(_ type: T.Type, _ value: PropertyValue) throws(CloudError) -> T {
        do { return try decode(type, value, []) } catch { throw CodingFailure.mismatch(error) }
    }

    fileprivate static func decode<T: Decodable>(
        _ type: T.Type, _ value: PropertyValue, _ path: [any CodingKey]
    ) throws -> T {
        if type == Date.self {
            guard case .date(let date) = value, let result = date as? T else { throw mismatch(type, path) }
            return result
        }
        if type == Data.self {
            guard case .data(let data) = value, let result = data as? T else { throw mismatch(type, path) }
            return result
        }
        return try T(from: PropertyDecoder(value: value, codingPath: path))
    }

    fileprivate static func mismatch(_ type: Any.Type, _ path: [any CodingKey]) -> DecodingError {
        DecodingError.typeMismatch(
            type, DecodingError.Context(codingPath: path, debugDescription: "A value of another type is there."))
    }

    fileprivate static func absent(_ type: Any.Type, _ path: [any CodingKey]) -> DecodingError {
        DecodingError.valueNotFound(
            type, DecodingError.Context(codingPath: path, debugDescription: "Nothing is there."))
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .dictionary(let entries) = value, value != .null else {
            throw Self.mismatch([String: PropertyValue].self, codingPath)
        }
        return KeyedDecodingContainer(
            StoredEntries<Key>(entries: PropertyValue.unescapingNull(entries), codingPath: codingPath))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard case .array(let elements) = value else { throw Self.mismatch([PropertyValue].self, codingPath) }
        return StoredElements(elements: elements, codingPath: codingPath)
    }

    func singleValueContainer() -> any SingleValueDecodingContainer {
        StoredValue(value: value, codingPath: codingPath)
    }
}

extension PropertyValue {
    /// The number, if it is one of this type; nil: it is none, or not exactly.
    package func integer<T: FixedWidthInteger>(as type: T.Type = T.self) -> T? {
        switch self {
        case .integer(let value): T(exactly: value)
        case .real(let value): T(exactly: value)
        default: nil
        }
    }

    /// The number; nil: it is none, or a `Double` has no place for it.
    var exactReal: Double? {
        switch self {
        case .real(let value): value
        case .integer(let value): Double(exactly: value)
        default: nil
        }
    }

    fileprivate var isNumber: Bool {
        switch self {
        case .integer, .real: true
        default: false
        }
    }
}

private struct StoredValue: SingleValueDecodingContainer {
    let value: PropertyValue
    let codingPath: [any CodingKey]

    private func corrupted() -> DecodingError {
        DecodingError.dataCorrupted(
            DecodingError.Context(codingPath: codingPath, debugDescription: "The number has no place in the type."))
    }

    private func integer<T: FixedWidthInteger>(_ type: T.Type) throws -> T {
        if let integer = value.integer(as: type) { return integer }
        throw value.isNumber ? corrupted() : PropertyDecoder.mismatch(type, codingPath)
    }

    func decodeNil() -> Bool { value == .null }

    func decode(_ type: Bool.Type) throws -> Bool {
        guard case .boolean(let value) = value else { throw PropertyDecoder.mismatch(type, codingPath) }
        return value
    }

    func decode(_ type: String.Type) throws -> String {
        guard case .string(let value) = value else { throw PropertyDecoder.mismatch(type, codingPath) }
        return value
    }

    func decode(_ type: Double.Type) throws -> Double {
        if let real = value.exactReal { return real }
        throw value.isNumber ? corrupted() : PropertyDecoder.mismatch(type, codingPath)
    }

    /// To the nearest: whoever asks for one knows that it is short.
    func decode(_ type: Float.Type) throws -> Float {
        let real = try decode(Double.self)
        let short = Float(real)
        guard short.isFinite || !real.isFinite else { throw corrupted() }
        return short
    }

    func decode(_ type: Int.Type) throws -> Int { try integer(type) }
    func decode(_ type: Int8.Type) throws -> Int8 { try integer(type) }
    func decode(_ type: Int16.Type) throws -> Int16 { try integer(type) }
    func decode(_ type: Int32.Type) throws -> Int32 { try integer(type) }
    func decode(_ type: Int64.Type) throws -> Int64 { try integer(type) }
    func decode(_ type: Int128.Type) throws -> Int128 { try integer(type) }
    func decode(_ type: UInt.Type) throws -> UInt { try integer(type) }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try integer(type) }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try integer(type) }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try integer(type) }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try integer(type) }
    func decode(_ type: UInt128.Type) throws -> UInt128 { try integer(type) }
    func decode<T: Decodable>(_ type: T.Type) throws -> T { try PropertyDecoder.decode(type, value, codingPath) }
}

private struct StoredEntries<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let entries: [ItemName: PropertyValue]
    let codingPath: [any CodingKey]

    var allKeys: [Key] { entries.keys.sorted().compactMap { Key(stringValue: $0.rawValue) } }
    func contains(_ key: Key) -> Bool { entries[ItemName(key.stringValue)] != nil }

    private func value(_ key: Key) throws -> PropertyValue {
        guard let value = entries[ItemName(key.stringValue)] else {
            throw DecodingError.keyNotFound(
                key, DecodingError.Context(codingPath: codingPath, debugDescription: "Nothing is there."))
        }
        return value
    }

    private func single(_ key: Key) throws -> StoredValue {
        StoredValue(value: try value(key), codingPath: codingPath + [key])
    }

    func decodeNil(forKey key: Key) throws -> Bool { try single(key).decodeNil() }
    func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try single(key).decode(type) }
    func decode(_ type: String.Type, forKey key: Key) throws -> String { try single(key).decode(type) }
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try single(key).decode(type) }
    func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try single(key).decode(type) }
    func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try single(key).decode(type) }
    func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try single(key).decode(type) }
    func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try single(key).decode(type) }
    func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try single(key).decode(type) }
    func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try single(key).decode(type) }
    func decode(_ type: Int128.Type, forKey key: Key) throws -> Int128 { try single(key).decode(type) }
    func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try single(key).decode(type) }
    func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try single(key).decode(type) }
    func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try single(key).decode(type) }
    func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try single(key).decode(type) }
    func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try single(key).decode(type) }
    func decode(_ type: UInt128.Type, forKey key: Key) throws -> UInt128 { try single(key).decode(type) }
    func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T { try single(key).decode(type) }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> {
        try PropertyDecoder(value: value(key), codingPath: codingPath + [key]).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try PropertyDecoder(value: value(key), codingPath: codingPath + [key]).unkeyedContainer()
    }

    func superDecoder() -> any Decoder { superDecoder(of: PlainKey.ofSuper) }
    func superDecoder(forKey key: Key) -> any Decoder { superDecoder(of: key) }

    /// A superclass that has encoded nothing may have left nothing.
    private func superDecoder(of key: any CodingKey) -> any Decoder {
        PropertyDecoder(value: entries[ItemName(key.stringValue)] ?? .null, codingPath: codingPath + [key])
    }
}

private struct StoredElements: UnkeyedDecodingContainer {
    let elements: [PropertyValue]
    let codingPath: [any CodingKey]
    private(set) var currentIndex = 0

    init(elements: [PropertyValue], codingPath: [any CodingKey]) {
        self.elements = elements
        self.codingPath = codingPath
    }

    var count: Int? { elements.count }
    var isAtEnd: Bool { currentIndex >= elements.count }
    private var path: [any CodingKey] { codingPath + [PlainKey(index: currentIndex)] }

    /// Moves on when the body has not failed.
    private mutating func next<T>(_ type: Any.Type, _ body: (StoredValue) throws -> T) throws -> T {
        guard !isAtEnd else { throw PropertyDecoder.absent(type, path) }
        let result = try body(StoredValue(value: elements[currentIndex], codingPath: path))
        currentIndex += 1
        return result
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd else { throw PropertyDecoder.absent(Never?.self, path) }
        guard elements[currentIndex] == .null else { return false }
        currentIndex += 1
        return true
    }

    mutating func decode(_ type: Bool.Type) throws -> Bool { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: String.Type) throws -> String { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Double.Type) throws -> Double { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Float.Type) throws -> Float { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int.Type) throws -> Int { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int8.Type) throws -> Int8 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int16.Type) throws -> Int16 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int32.Type) throws -> Int32 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int64.Type) throws -> Int64 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: Int128.Type) throws -> Int128 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt.Type) throws -> UInt { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt8.Type) throws -> UInt8 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt16.Type) throws -> UInt16 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt32.Type) throws -> UInt32 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt64.Type) throws -> UInt64 { try next(type) { try $0.decode(type) } }
    mutating func decode(_ type: UInt128.Type) throws -> UInt128 { try next(type) { try $0.decode(type) } }
    mutating func decode<T: Decodable>(_ type: T.Type) throws -> T { try next(type) { try $0.decode(type) } }

    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type
    ) throws -> KeyedDecodingContainer<Nested> {
        try next(type) { try PropertyDecoder(value: $0.value, codingPath: $0.codingPath).container(keyedBy: type) }
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
        try next([PropertyValue].self) {
            try PropertyDecoder(value: $0.value, codingPath: $0.codingPath).unkeyedContainer()
        }
    }

    mutating func superDecoder() throws -> any Decoder {
        try next((any Decoder).self) { PropertyDecoder(value: $0.value, codingPath: $0.codingPath) }
    }
}
