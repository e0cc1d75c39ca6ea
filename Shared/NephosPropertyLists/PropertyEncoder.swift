internal import Foundation
internal import NephosCore

/// Makes a property-list value of whatever is `Encodable`.
///
/// Dates, data, integers up to 64 bits, reals, texts and booleans are the store's own. A property list has no nil: an
/// optional member that is nil is left out, as the compiler's own code does, and where something has to stand (an
/// element of an array) the dictionary ``null`` stands for it.
struct PropertyEncoder: Encoder {
    /// Calls of `encode(to:)` inside one another: a value that holds itself never ends.
    private static let callsMax = 128

    fileprivate let node: EncodedNode
    fileprivate let calls: Int
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    /// The value; nil for an optional that is nil.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`; the details name the path, and the reason.
    static func encode(_ value: some Encodable) throws(CloudError) -> PropertyValue? {
        let root = EncodedNode(depth: 0, failure: FirstFailure())
        do {
            try encode(value, into: root, path: [], calls: 0)
        } catch let error as CloudError {
            throw error
        } catch let error as EncodingError {
            guard case .invalidValue(_, let context) = error else { throw CodingFailure.refused([]) }
            throw CodingFailure.refused(context.codingPath)
        } catch { throw CodingFailure.refused([], by: error) }
        if let error = root.failure.first { throw error }
        if case .null = root.content { return nil }
        return root.value
    }

    fileprivate static func encode(
        _ value: some Encodable, into node: EncodedNode, path: [any CodingKey], calls: Int
    ) throws {
        switch value {
        case let date as Date:
            guard date.isStorable else { throw CodingFailure.error("A date is too far from now to be kept.", path) }
            node.content = .value(.date(date))
        case let data as Data: node.content = .value(.data(data))
        default:
            // Whoever has gone too deep need not go on.
            if let error = node.failure.first { throw error }
            guard calls < callsMax else { throw CodingFailure.tooDeep(path) }
            try value.encode(to: PropertyEncoder(node: node, calls: calls + 1, codingPath: path))
        }
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        KeyedEncodingContainer(KeyedValues<Key>(node: node.asDictionary(codingPath), calls: calls, codingPath))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        UnkeyedValues(node: node.asArray(codingPath), calls: calls, codingPath)
    }

    func singleValueContainer() -> any SingleValueEncodingContainer {
        SingleValue(node: node, calls: calls, codingPath: codingPath)
    }
}

// MARK: What has been encoded so far

/// The first thing that went wrong where nothing can be thrown.
private final class FirstFailure {
    var first: CloudError?
}

/// A value that is being made. Encoders may be kept and used later (`superEncoder()` is made for that), so all of it
/// stays open until the end.
private final class EncodedNode {
    enum Content {
        case nothing
        case null
        case value(PropertyValue)
        case array([EncodedNode])
        case dictionary([ItemName: EncodedNode])
    }

    var content = Content.nothing
    /// Arrays and dictionaries around it.
    let depth: Int
    let failure: FirstFailure

    init(depth: Int, failure: FirstFailure) {
        self.depth = depth
        self.failure = failure
    }

    /// One inside it. Below what a value may have nothing is kept, so that what is endless stays small.
    func child() -> EncodedNode { EncodedNode(depth: depth + 1, failure: failure) }

    func asDictionary(_ path: [any CodingKey]) -> EncodedNode {
        switch content {
        case .dictionary: return self
        case .nothing: content = .dictionary([:])
        default: note(CodingFailure.error("It is encoded as two kinds of value at once.", path))
        }
        checkDepth(path)
        return self
    }

    func asArray(_ path: [any CodingKey]) -> EncodedNode {
        switch content {
        case .array: return self
        case .nothing: content = .array([])
        default: note(CodingFailure.error("It is encoded as two kinds of value at once.", path))
        }
        checkDepth(path)
        return self
    }

    private func checkDepth(_ path: [any CodingKey]) {
        if depth >= PropertyValue.depthMax { note(CodingFailure.tooDeep(path)) }
    }

    private func note(_ error: CloudError) {
        if failure.first == nil { failure.first = error }
    }

    func add(_ node: EncodedNode, for key: any CodingKey) {
        guard failure.first == nil, case .dictionary(var entries) = content else { return }
        // Taken out meanwhile, so that it is changed in place.
        content = .nothing
        entries[ItemName(key.stringValue)] = node
        content = .dictionary(entries)
    }

    func entry(_ key: any CodingKey) -> EncodedNode? {
        if case .dictionary(let entries) = content { entries[ItemName(key.stringValue)] } else { nil }
    }

    func add(_ node: EncodedNode) {
        guard failure.first == nil, case .array(var elements) = content else { return }
        content = .nothing
        elements.append(node)
        content = .array(elements)
    }

    var count: Int { if case .array(let elements) = content { elements.count } else { 0 } }

    var value: PropertyValue {
        switch content {
        // As of a type without members.
        case .nothing: .dictionary([:])
        case .null: PropertyValue.null
        case .value(let value): value
        case .array(let elements): .array(elements.map(\.value))
        case .dictionary(let entries): .dictionary(PropertyValue.escapingNull(entries.mapValues(\.value)))
        }
    }
}

// MARK: What stands for nil

extension PropertyValue {
    private static let nullName = "$null"

    /// Stands for nil where something has to stand.
    static var null: PropertyValue { .dictionary([ItemName(nullName): .boolean(true)]) }

    /// A dictionary that looks like ``null``, or like this, gets one `$` more.
    fileprivate static func escapingNull(_ entries: [ItemName: PropertyValue]) -> [ItemName: PropertyValue] {
        guard entries.count == 1, let entry = entries.first, isNullName(entry.key) else { return entries }
        return [ItemName("$" + entry.key.rawValue): entry.value]
    }

    /// The entries as they were encoded.
    static func unescapingNull(_ entries: [ItemName: PropertyValue]) -> [ItemName: PropertyValue] {
        guard entries.count == 1, let entry = entries.first, isNullName(entry.key), entry.key != ItemName(nullName)
        else { return entries }
        return [ItemName(String(entry.key.rawValue.dropFirst())): entry.value]
    }

    private static func isNullName(_ name: ItemName) -> Bool {
        let text = name.rawValue
        return text.hasSuffix(nullName) && text.dropLast(nullName.count).allSatisfy { $0 == "$" }
    }
}

// MARK: Containers

/// What all three containers do alike: a plain value at a place.
private protocol PlainValues {
    var node: EncodedNode { get }
    var calls: Int { get }
    var codingPath: [any CodingKey] { get }
}

extension PlainValues {
    /// Where something inside is. What goes on without end after it has failed does not make it longer.
    func path(to key: any CodingKey) -> [any CodingKey] {
        node.failure.first == nil ? codingPath + [key] : codingPath
    }

    func fill(_ node: EncodedNode, _ value: some Encodable, _ path: [any CodingKey]) throws {
        try PropertyEncoder.encode(value, into: node, path: path, calls: calls)
    }

    func integer(_ value: some BinaryInteger, _ path: [any CodingKey]) throws -> PropertyValue {
        guard let value = Int64(exactly: value) else {
            throw CodingFailure.error("An integer has no place in 64 bits.", path)
        }
        return .integer(value)
    }
}

private struct SingleValue: SingleValueEncodingContainer, PlainValues {
    let node: EncodedNode
    let calls: Int
    let codingPath: [any CodingKey]

    private func put(_ value: PropertyValue) { node.content = .value(value) }

    func encodeNil() { node.content = .null }
    func encode(_ value: Bool) { put(.boolean(value)) }
    func encode(_ value: String) { put(.string(value)) }
    func encode(_ value: Double) { put(.real(value)) }
    func encode(_ value: Float) { put(.real(Double(value))) }
    func encode(_ value: Int) throws { put(try integer(value, codingPath)) }
    func encode(_ value: Int8) throws { put(try integer(value, codingPath)) }
    func encode(_ value: Int16) throws { put(try integer(value, codingPath)) }
    func encode(_ value: Int32) throws { put(try integer(value, codingPath)) }
    func encode(_ value: Int64) throws { put(try integer(value, codingPath)) }
    func encode(_ value: Int128) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt8) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt16) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt32) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt64) throws { put(try integer(value, codingPath)) }
    func encode(_ value: UInt128) throws { put(try integer(value, codingPath)) }
    func encode<T: Encodable>(_ value: T) throws { try fill(node, value, codingPath) }
}

private struct KeyedValues<Key: CodingKey>: KeyedEncodingContainerProtocol, PlainValues {
    let node: EncodedNode
    let calls: Int
    let codingPath: [any CodingKey]

    init(node: EncodedNode, calls: Int, _ path: [any CodingKey]) {
        self.node = node
        self.calls = calls
        codingPath = path
    }

    private func open(_ key: any CodingKey) -> EncodedNode {
        let child = node.child()
        node.add(child, for: key)
        return child
    }

    private func single(_ key: Key) -> SingleValue {
        SingleValue(node: open(key), calls: calls, codingPath: path(to: key))
    }

    func encodeNil(forKey key: Key) { single(key).encodeNil() }
    func encode(_ value: Bool, forKey key: Key) { single(key).encode(value) }
    func encode(_ value: String, forKey key: Key) { single(key).encode(value) }
    func encode(_ value: Double, forKey key: Key) { single(key).encode(value) }
    func encode(_ value: Float, forKey key: Key) { single(key).encode(value) }
    func encode(_ value: Int, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: Int8, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: Int16, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: Int32, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: Int64, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: Int128, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt8, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt16, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt32, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt64, forKey key: Key) throws { try single(key).encode(value) }
    func encode(_ value: UInt128, forKey key: Key) throws { try single(key).encode(value) }
    func encode<T: Encodable>(_ value: T, forKey key: Key) throws { try single(key).encode(value) }

    /// One that was opened before goes on.
    private func reopen(_ key: any CodingKey) -> EncodedNode { node.entry(key) ?? open(key) }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) -> KeyedEncodingContainer<Nested> {
        let path = path(to: key)
        return KeyedEncodingContainer(
            KeyedValues<Nested>(node: reopen(key).asDictionary(path), calls: calls, path))
    }

    func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
        let path = path(to: key)
        return UnkeyedValues(node: reopen(key).asArray(path), calls: calls, path)
    }

    func superEncoder() -> any Encoder { superEncoder(of: PlainKey.ofSuper) }
    func superEncoder(forKey key: Key) -> any Encoder { superEncoder(of: key) }

    private func superEncoder(of key: any CodingKey) -> any Encoder {
        PropertyEncoder(node: open(key), calls: calls, codingPath: path(to: key))
    }
}

private struct UnkeyedValues: UnkeyedEncodingContainer, PlainValues {
    let node: EncodedNode
    let calls: Int
    let codingPath: [any CodingKey]

    init(node: EncodedNode, calls: Int, _ path: [any CodingKey]) {
        self.node = node
        self.calls = calls
        codingPath = path
    }

    var count: Int { node.count }
    private var nextPath: [any CodingKey] { path(to: PlainKey(index: node.count)) }

    private func single() -> SingleValue {
        let path = nextPath
        let child = node.child()
        node.add(child)
        return SingleValue(node: child, calls: calls, codingPath: path)
    }

    func encodeNil() { single().encodeNil() }
    func encode(_ value: Bool) { single().encode(value) }
    func encode(_ value: String) { single().encode(value) }
    func encode(_ value: Double) { single().encode(value) }
    func encode(_ value: Float) { single().encode(value) }
    func encode(_ value: Int) throws { try single().encode(value) }
    func encode(_ value: Int8) throws { try single().encode(value) }
    func encode(_ value: Int16) throws { try single().encode(value) }
    func encode(_ value: Int32) throws { try single().encode(value) }
    func encode(_ value: Int64) throws { try single().encode(value) }
    func encode(_ value: Int128) throws { try single().encode(value) }
    func encode(_ value: UInt) throws { try single().encode(value) }
    func encode(_ value: UInt8) throws { try single().encode(value) }
    func encode(_ value: UInt16) throws { try single().encode(value) }
    func encode(_ value: UInt32) throws { try single().encode(value) }
    func encode(_ value: UInt64) throws { try single().encode(value) }
    func encode(_ value: UInt128) throws { try single().encode(value) }
    func encode<T: Encodable>(_ value: T) throws { try single().encode(value) }

    func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedEncodingContainer<Nested> {
        let nested = single()
        return KeyedEncodingContainer(
            KeyedValues<Nested>(node: nested.node.asDictionary(nested.codingPath), calls: calls, nested.codingPath))
    }

    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
        let nested = single()
        return UnkeyedValues(node: nested.node.asArray(nested.codingPath), calls: calls, nested.codingPath)
    }

    func superEncoder() -> any Encoder {
        let nested = single()
        return PropertyEncoder(node: nested.node, calls: calls, codingPath: nested.codingPath)
    }
}
