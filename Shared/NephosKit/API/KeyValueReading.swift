public import NephosCore
internal import NephosPropertyLists

public import struct Foundation.Data
public import struct Foundation.Date

/// Values that are read by key: those of a ``KeyValueStore``, and of a transaction.
///
/// A stored value may have another type than the one asked for, since any device and any language may have written it.
/// Then the answer is that of Apple's `NSUbiquitousKeyValueStore`, where that has the call
/// (developer.apple.com/documentation/foundation/nsubiquitouskeyvaluestore): nil where it gives an object (`string`,
/// `data`, `array`, `dictionary`), false or 0 where it gives a number (`bool`, `longLong`, `double`); booleans,
/// integers and reals are converted into one another. Not so texts: by Apple's present pages the text "123" is the
/// number 123, and the other way round, by its older ones it is none ("nil if the key was not found or its value is not
/// an NSArray object"). Here it is none, so that what is wrong shows, and no "007" becomes a 7.
///
/// Calls that only this SDK has (``integer(forKey:)``, ``date(forKey:)``, ``value(_:forKey:)``) return nil for a
/// missing key, so that a key that is missing, or not downloaded yet, does not look like a 0.
public protocol KeyValueReading: ~Copyable {
    /// The value; nil: the key is missing, is not downloaded yet, or could not be read.
    func object(forKey key: String) -> PropertyValue?
    /// The state of a key: a value, absent, or not downloaded yet.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: this device's database cannot be read; the message says what to do.
    func read(_ key: String) throws(CloudError) -> ReadResult
}

extension KeyValueReading where Self: ~Copyable {
    /// The text; nil: the key is missing, or has another type.
    public func string(forKey key: String) -> String? {
        if case .string(let value) = object(forKey: key) { value } else { nil }
    }

    /// The integer; nil: the key is missing, or has another type.
    ///
    /// A real counts if it is a whole number (2.0 is 2, as other languages and JSON write it) with a place in an `Int`;
    /// nothing is cut off. A boolean is no number. So do Foundation's decoders. Apple's store has
    /// ``longLong(forKey:)`` only, and `UserDefaults.integer(forKey:)` gives 0 where there is nothing.
    public func integer(forKey key: String) -> Int? { object(forKey: key)?.integer() }

    /// The boolean, or whether a number is not 0; false where there is neither, as Apple's gives.
    ///
    /// `try value(Bool.self, forKey:)` gives nil where there is nothing.
    public func bool(forKey key: String) -> Bool {
        switch object(forKey: key) {
        case .boolean(let value): value
        case .integer(let value): value != 0
        case .real(let value): value != 0
        default: false
        }
    }

    /// The integer, a real without its fraction (2.67 is 2, and -2.67 is -2), or 1 for true; 0 where there is no
    /// number, as Apple's gives, and for a real that has no place in 64 bits.
    ///
    /// ``integer(forKey:)`` gives nil where there is nothing.
    public func longLong(forKey key: String) -> Int64 {
        switch object(forKey: key) {
        case .integer(let value): value
        case .real(let value): Int64(exactly: value.rounded(.towardZero)) ?? 0
        case .boolean(let value): value ? 1 : 0
        default: 0
        }
    }

    /// The real, the real that is nearest to an integer, or 1 for true; 0 where there is no number, as Apple's gives.
    ///
    /// `try value(Double.self, forKey:)` gives nil where there is nothing.
    public func double(forKey key: String) -> Double {
        switch object(forKey: key) {
        case .real(let value): value
        case .integer(let value): Double(value)
        case .boolean(let value): value ? 1 : 0
        default: 0
        }
    }

    /// The bytes; nil: the key is missing, or has another type.
    public func data(forKey key: String) -> Data? {
        if case .data(let value) = object(forKey: key) { value } else { nil }
    }

    /// The date, to the microsecond; nil: the key is missing, or has another type.
    public func date(forKey key: String) -> Date? {
        if case .date(let value) = object(forKey: key) { value } else { nil }
    }

    /// The elements; nil: there is no array. `try value([Int].self, forKey:)` gives them as plain values.
    public func array(forKey key: String) -> [PropertyValue]? {
        if case .array(let value) = object(forKey: key) { value } else { nil }
    }

    /// The entries; nil: there is no dictionary. `try value([String: Int].self, forKey:)` gives them as plain values.
    ///
    /// By Swift's own strings. Of names that those take for one, the first in the order of bytes stands for all;
    /// ``object(forKey:)`` has them all.
    public func dictionary(forKey key: String) -> [String: PropertyValue]? {
        guard case .dictionary(let value) = object(forKey: key) else { return nil }
        return Dictionary(value.sorted { $0.key < $1.key }.map { ($0.key.rawValue, $0.value) }) { first, _ in first }
    }

    /// The value as the type that was stored, or one that reads the same property list.
    ///
    /// A number converts to another number type if its value stays the same; nothing else converts.
    ///
    ///     let settings = try store.value(Settings.self, forKey: "settings")
    ///
    /// - Returns: Nil: there is none, or none has been downloaded yet (``read(_:)`` tells which).
    /// - Throws: ``CloudError`` `.invalidArguments` when what is stored is not of the type; the details name the key,
    ///   the path in the value, and the reason. `.storageFailure` when it cannot be read.
    public func value<Value: Decodable>(
        _ type: Value.Type = Value.self, forKey key: String
    ) throws(CloudError) -> Value? {
        guard let value = try read(key).value else { return nil }
        do throws(CloudError) { return try value.decoded(as: type) } catch { throw error.naming(key) }
    }
}

extension PropertyValue {
    /// The value as any type that can be decoded from it; what ``KeyValueReading/value(_:forKey:)`` does.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when it is not of the type; the details name the path, and the
    ///   reason.
    public func decoded<Value: Decodable>(as type: Value.Type = Value.self) throws(CloudError) -> Value {
        try PropertyCoding.decode(type, self)
    }
}

extension CloudError {
    /// Says which key is meant.
    func naming(_ key: String) -> CloudError {
        var error = self
        error.details["key"] = key
        return error
    }
}
