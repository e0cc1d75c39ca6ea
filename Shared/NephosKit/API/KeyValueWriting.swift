public import NephosCore
internal import NephosPropertyLists

public import struct Foundation.Data
public import struct Foundation.Date

/// Values that are written by key: those of a ``KeyValueStore``, where each call is its own transaction, and of a
/// ``KeyValueTransaction``.
public protocol KeyValueWriting: KeyValueReading, ~Copyable {
    /// Stores a value; nil deletes the key.
    ///
    /// - Throws: ``CloudError``: nothing is stored, and the previous value stays.
    func set(_ value: PropertyValue?, forKey key: String) throws(CloudError)
}

// Each throws as ``KeyValueStore/set(_:forKey:)`` does; in a transaction, what has to do with the whole store is thrown
// at its end.
extension KeyValueWriting where Self: ~Copyable {
    /// Stores a text.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded`, `.invalidArguments`, `.serviceBusy`, `.storageFailure`: nothing is
    ///   stored.
    public func set(_ value: String, forKey key: String) throws(CloudError) { try set(.string(value), forKey: key) }

    /// Stores a boolean.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: Bool, forKey key: String) throws(CloudError) { try set(.boolean(value), forKey: key) }

    /// Stores an integer.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: Int, forKey key: String) throws(CloudError) {
        try set(.integer(Int64(value)), forKey: key)
    }

    /// Stores an integer.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: Int64, forKey key: String) throws(CloudError) { try set(.integer(value), forKey: key) }

    /// Stores a real, bit by bit: infinities and what is not a number are property-list values too.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: Double, forKey key: String) throws(CloudError) { try set(.real(value), forKey: key) }

    /// Stores bytes.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: Data, forKey key: String) throws(CloudError) { try set(.data(value), forKey: key) }

    /// Stores a date, to the microsecond (before 1865 and after 2105 to what a `Date` has room for).
    ///
    /// - Throws: ``CloudError`` as for a text; `.invalidArguments` for one that is more than 292,000 years from now, or
    ///   no number.
    public func set(_ value: Date, forKey key: String) throws(CloudError) { try set(.date(value), forKey: key) }

    /// Stores values of any types, in order.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: [PropertyValue], forKey key: String) throws(CloudError) {
        try set(.array(value), forKey: key)
    }

    /// Stores values of any types, by name.
    ///
    /// - Throws: ``CloudError`` as for a text.
    public func set(_ value: [String: PropertyValue], forKey key: String) throws(CloudError) {
        try set(.dictionary(Dictionary(value.map { (ItemName($0.key), $0.value) }) { first, _ in first }), forKey: key)
    }

    /// Stores anything that can be encoded: arrays and dictionaries of plain values, and types of your own. Nil deletes
    /// the key.
    ///
    /// ``KeyValueReading/value(_:forKey:)`` returns a value equal to the stored one: 64 bits of an integer, every bit
    /// of a real, a date to the microsecond. A property list has no nil: an optional member that is nil is left out,
    /// and an element that is nil is stored as the dictionary `{"$null": true}`.
    ///
    /// - Throws: ``CloudError`` as for a text; `.invalidArguments` when the value does not fit: an integer beyond 64
    ///   bits, more than 24 arrays and dictionaries inside one another, what the type itself refuses. The details name
    ///   the key, the path in the value (`list[2].name`), and the reason.
    public func set<Value: Encodable>(_ value: Value?, forKey key: String) throws(CloudError) {
        let property: PropertyValue?
        do throws(CloudError) { property = try PropertyCoding.encode(value) } catch { throw error.naming(key) }
        try set(property, forKey: key)
    }
}

extension PropertyValue {
    /// Anything that can be encoded, as it is stored.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when it does not fit, or is nil; the details name the path, and the
    ///   reason.
    public init(encoding value: some Encodable) throws(CloudError) {
        guard let property = try PropertyCoding.encode(value) else {
            throw CodingFailure.error("A store holds no nil.", [])
        }
        self = property
    }
}
