internal import Foundation
public import NephosCore
internal import NephosPropertyLists

extension Record {
    /// A new record with the fields of whatever is `Encodable`: each of its members is one.
    ///
    /// A member is a text, a number, a boolean (kept as 0 or 1), a date, data, ``RecordLocation``, ``RecordReference``, an
    /// array of such, or an enumeration over one. One that is nil has no field.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`; the details name the member, and the reason.
    public init(
        _ id: RecordID = .unique(), type: String, encoding value: some Encodable, parent: String? = nil
    ) throws(CloudError) {
        self.init(id, type: type, parent: parent)
        try encode(value)
    }

    /// Sets the fields of whatever is `Encodable`, and leaves the others as they are. To remove one whose member is nil,
    /// set it to nil.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`; the details name the member, and the reason. Nothing was set then.
    public mutating func encode(_ value: some Encodable) throws(CloudError) {
        let encoder = RecordEncoder()
        do { try value.encode(to: encoder) } catch let error as CloudError { throw error } catch {
            throw CodingFailure.refused([], by: error)
        }
        if let failure = encoder.fields.failure { throw failure }
        fields.merge(encoder.fields.values) { $1 }
    }

    /// The fields as whatever is `Decodable`.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when the fields are none of the type; the details name the member, and
    ///   the reason.
    public func decode<Value: Decodable>(_ type: Value.Type = Value.self) throws(CloudError) -> Value {
        do { return try Value(from: RecordDecoder(fields: fields)) } catch { throw CodingFailure.mismatch(error) }
    }
}

// MARK: Encoding

/// What has been encoded so far.
private final class EncodedFields {
    var values: [String: RecordValue] = [:]
    /// The first thing that went wrong where nothing can be thrown.
    var failure: CloudError?
}

private enum RecordCoding {
    static let nested = "A field of a record holds no members of its own."

    /// - Returns: Nil: it encodes itself.
    static func value(_ value: some Encodable, _ path: [any CodingKey]) throws -> RecordValue? {
        switch value {
        case let value as any RecordValueConvertible: return value.recordValue
        case let value as any FixedWidthInteger:
            guard let integer = Int64(exactly: value) else {
                throw CodingFailure.error("An integer has no place in 64 bits.", path)
            }
            return .integer(integer)
        case let value as Float: return .real(Double(value))
        default: return nil
        }
    }

    static func encode(_ value: some Encodable, _ path: [any CodingKey]) throws -> RecordValue? {
        if let plain = try self.value(value, path) { return plain }
        let encoder = FieldEncoder(codingPath: path, node: FieldNode())
        try value.encode(to: encoder)
        return try encoder.node.result(path)
    }
}

private struct RecordEncoder: Encoder {
    let fields: EncodedFields
    let codingPath: [any CodingKey] = []
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        KeyedEncodingContainer(EncodedMembers<Key>(fields: fields))
    }
    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        fields.failure = CodingFailure.error("A record has members.", [])
        return FieldNode().elements([])
    }
    func singleValueContainer() -> any SingleValueEncodingContainer {
        fields.failure = CodingFailure.error("A record has members.", [])
        return FieldEncoder(codingPath: [], node: FieldNode())
    }
}

private struct EncodedMembers<Key: CodingKey>: KeyedEncodingContainerProtocol {
    let fields: EncodedFields
    let codingPath: [any CodingKey] = []

    mutating func encodeNil(forKey key: Key) {}
    mutating func encode<T: Encodable>(_ value: T, forKey key: Key) throws {
        fields.values[key.stringValue] = try RecordCoding.encode(value, [key])
    }
    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy _: Nested.Type, forKey key: Key
    ) -> KeyedEncodingContainer<Nested> {
        fields.failure = CodingFailure.error(RecordCoding.nested, [key])
        return KeyedEncodingContainer(EncodedMembers<Nested>(fields: EncodedFields()))
    }
    mutating func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
        fields.failure = CodingFailure.error(RecordCoding.nested, [key])
        return FieldNode().elements([key])
    }
    /// A superclass's members are the record's too.
    mutating func superEncoder() -> any Encoder { RecordEncoder(sharing: fields) }
    mutating func superEncoder(forKey key: Key) -> any Encoder { RecordEncoder(sharing: fields) }
}

extension RecordEncoder {
    init(sharing fields: EncodedFields) { self.fields = fields }
    init() { self.fields = EncodedFields() }
}

/// One field that encodes itself: a value, or an array of values.
private final class FieldNode {
    var value: RecordValue?
    var list: [RecordValue]?
    var failure: CloudError?

    func elements(_ path: [any CodingKey]) -> EncodedElements {
        list = list ?? []
        return EncodedElements(node: self, codingPath: path)
    }

    func result(_ path: [any CodingKey]) throws -> RecordValue? {
        if let failure { throw failure }
        guard let list else { return value }
        guard let made = RecordValue(list: list) else {
            throw CodingFailure.error(
                list.isEmpty
                    ? "An empty list has to be an array of a type that a field holds."
                    : "A list has elements of one type.", path)
        }
        return made
    }
}

private struct FieldEncoder: Encoder, SingleValueEncodingContainer {
    let codingPath: [any CodingKey]
    let node: FieldNode
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        node.failure = CodingFailure.error(RecordCoding.nested, codingPath)
        return KeyedEncodingContainer(EncodedMembers<Key>(fields: EncodedFields()))
    }
    func unkeyedContainer() -> any UnkeyedEncodingContainer { node.elements(codingPath) }
    func singleValueContainer() -> any SingleValueEncodingContainer { self }

    func encodeNil() {}
    func encode<T: Encodable>(_ value: T) throws { node.value = try RecordCoding.encode(value, codingPath) }
}

private struct EncodedElements: UnkeyedEncodingContainer {
    let node: FieldNode
    let codingPath: [any CodingKey]
    var count: Int { node.list?.count ?? 0 }

    func encodeNil() throws { throw CodingFailure.error("A list holds no nil.", codingPath) }
    func encode<T: Encodable>(_ value: T) throws {
        guard let element = try RecordCoding.encode(value, codingPath) else { return try encodeNil() }
        node.list?.append(element)
    }
    func nestedContainer<Nested: CodingKey>(keyedBy _: Nested.Type) -> KeyedEncodingContainer<Nested> {
        node.failure = CodingFailure.error(RecordCoding.nested, codingPath)
        return KeyedEncodingContainer(EncodedMembers<Nested>(fields: EncodedFields()))
    }
    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
        node.failure = CodingFailure.error("A list holds no lists.", codingPath)
        return FieldNode().elements(codingPath)
    }
    func superEncoder() -> any Encoder { FieldEncoder(codingPath: codingPath, node: FieldNode()) }
}

// MARK: Decoding

private struct RecordDecoder: Decoder {
    let fields: [String: RecordValue]
    let codingPath: [any CodingKey] = []
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        KeyedDecodingContainer(StoredMembers<Key>(fields: fields))
    }
    func unkeyedContainer() throws -> any UnkeyedDecodingContainer { throw FieldDecoder.mismatch([]) }
    func singleValueContainer() throws -> any SingleValueDecodingContainer { throw FieldDecoder.mismatch([]) }
}

private struct StoredMembers<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let fields: [String: RecordValue]
    let codingPath: [any CodingKey] = []
    var allKeys: [Key] { fields.keys.sorted().compactMap { Key(stringValue: $0) } }

    func contains(_ key: Key) -> Bool { fields[key.stringValue] != nil }
    func decodeNil(forKey key: Key) -> Bool { !contains(key) }
    func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T {
        guard let value = fields[key.stringValue] else {
            throw DecodingError.keyNotFound(
                key, DecodingError.Context(codingPath: [], debugDescription: "The record has no such field."))
        }
        return try FieldDecoder.decode(type, value, [key])
    }
    func nestedContainer<Nested: CodingKey>(
        keyedBy _: Nested.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> { throw FieldDecoder.mismatch([key]) }
    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        guard let value = fields[key.stringValue] else { throw FieldDecoder.mismatch([key]) }
        return try FieldDecoder(value: value, codingPath: [key]).unkeyedContainer()
    }
    func superDecoder() -> any Decoder { RecordDecoder(fields: fields) }
    func superDecoder(forKey key: Key) -> any Decoder { RecordDecoder(fields: fields) }
}

private struct FieldDecoder: Decoder, SingleValueDecodingContainer {
    let value: RecordValue
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    static func mismatch(_ path: [any CodingKey]) -> DecodingError {
        DecodingError.typeMismatch(
            RecordValue.self,
            DecodingError.Context(codingPath: path, debugDescription: "A value of another type is there."))
    }

    static func decode<T: Decodable>(_ type: T.Type, _ value: RecordValue, _ path: [any CodingKey]) throws -> T {
        if let plain = type as? any RecordValueConvertible.Type {
            guard let result = plain.init(recordValue: value) as? T else { throw mismatch(path) }
            return result
        }
        if let whole = type as? any FixedWidthInteger.Type {
            guard case .integer(let integer) = value, let result = exact(integer, whole) as? T else {
                throw mismatch(path)
            }
            return result
        }
        if type == Float.self {
            guard let real = Double(recordValue: value), let result = Float(real) as? T else { throw mismatch(path) }
            return result
        }
        return try T(from: FieldDecoder(value: value, codingPath: path))
    }

    private static func exact<Whole: FixedWidthInteger>(_ integer: Int64, _: Whole.Type) -> Whole? {
        Whole(exactly: integer)
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        throw Self.mismatch(codingPath)
    }
    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard let elements = value.elements else { throw Self.mismatch(codingPath) }
        return StoredElements(elements: elements, codingPath: codingPath)
    }
    func singleValueContainer() -> any SingleValueDecodingContainer { self }

    func decodeNil() -> Bool { false }
    func decode<T: Decodable>(_ type: T.Type) throws -> T { try Self.decode(type, value, codingPath) }
}

private struct StoredElements: UnkeyedDecodingContainer {
    let elements: [RecordValue]
    let codingPath: [any CodingKey]
    var currentIndex = 0
    var count: Int? { elements.count }
    var isAtEnd: Bool { currentIndex >= elements.count }

    init(elements: [RecordValue], codingPath: [any CodingKey]) {
        self.elements = elements
        self.codingPath = codingPath
    }

    mutating func decodeNil() -> Bool { false }
    mutating func decode<T: Decodable>(_ type: T.Type) throws -> T {
        guard !isAtEnd else { throw FieldDecoder.mismatch(codingPath) }
        defer { currentIndex += 1 }
        return try FieldDecoder.decode(type, elements[currentIndex], codingPath)
    }
    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy _: Nested.Type
    ) throws -> KeyedDecodingContainer<Nested> { throw FieldDecoder.mismatch(codingPath) }
    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
        throw FieldDecoder.mismatch(codingPath)
    }
    mutating func superDecoder() throws -> any Decoder { throw FieldDecoder.mismatch(codingPath) }
}
