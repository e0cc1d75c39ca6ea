public import NephosCore
private import SwiftProtobuf

public import struct Foundation.Data
public import struct Foundation.Date

extension WirePropertyValue {
    /// The value in its canonical form: dictionary entries sorted by their keys' UTF-8 bytes.
    public init(_ value: PropertyValue) {
        self.init()
        switch value {
        case .boolean(let value): boolean = value
        case .integer(let value): integer = value
        case .real(let value): real = value
        case .string(let value): string = value
        case .date(let value): date = PropertyValue.microseconds(of: value)
        case .data(let value): data = value
        case .array(let values):
            array.values = values.map(WirePropertyValue.init)
        case .dictionary(let values):
            dictionary.entries = values.sorted { $0.key < $1.key }.map {
                var entry = WirePropertyDictionary.Entry()
                entry.key = $0.key.rawValue
                entry.value = WirePropertyValue($0.value)
                return entry
            }
        }
    }
}

extension PropertyValue {
    /// Microseconds since 1970 that are this date to everybody who decodes and encodes them again.
    ///
    /// A `Date` counts seconds since 2001, its text and its encoding since 1970: each way rounds anew, so that before
    /// 1865 and after 2105, where a `Double` has no place for every microsecond, what is written may be read as the
    /// next one, that again as the next, and so on for a few steps.
    public static func microseconds(of date: Date) -> Int64 {
        var number = nearestMicrosecond(to: date)
        // Five steps are the most that was seen.
        for _ in 0..<64 {
            let again = nearestMicrosecond(to: Date(timeIntervalSince1970: Double(number) / 1_000_000))
            if again == number { break }
            number = again
        }
        return number
    }

    /// Dates beyond the range of microseconds (about 292,000 years) stop at its ends.
    private static func nearestMicrosecond(to date: Date) -> Int64 {
        Int64(exactly: (date.timeIntervalSince1970 * 1_000_000).rounded())
            ?? (date.timeIntervalSince1970 < 0 ? .min : .max)
    }
}

extension PropertyValue {
    /// The value that these bytes hold.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when it has no type, nests
    ///   deeper than ``depthMax``, or has a dictionary key twice.
    public init(_ wire: WirePropertyValue) throws(CloudError) {
        try self.init(wire, depthLeft: Self.depthMax)
    }

    private init(_ wire: WirePropertyValue, depthLeft: Int) throws(CloudError) {
        switch wire.value {
        case .boolean(let value): self = .boolean(value)
        case .integer(let value): self = .integer(value)
        case .real(let value): self = .real(value)
        case .string(let value): self = .string(value)
        case .date(let value): self = .date(Date(timeIntervalSince1970: Double(value) / 1_000_000))
        case .data(let value): self = .data(value)
        case .array(let array):
            guard depthLeft > 0 else { throw Self.tooDeep }
            var values: [PropertyValue] = []
            values.reserveCapacity(array.values.count)
            for value in array.values { values.append(try PropertyValue(value, depthLeft: depthLeft - 1)) }
            self = .array(values)
        case .dictionary(let dictionary):
            guard depthLeft > 0 else { throw Self.tooDeep }
            var values: [ItemName: PropertyValue] = [:]
            for entry in dictionary.entries {
                let value = try PropertyValue(entry.value, depthLeft: depthLeft - 1)
                guard values.updateValue(value, forKey: ItemName(entry.key)) == nil else {
                    throw CloudError(.invalidArguments, "A dictionary has the same key twice.")
                }
            }
            self = .dictionary(values)
        case nil:
            throw CloudError(.invalidArguments, "A value has no type that this version knows.")
        }
    }

    private static var tooDeep: CloudError {
        CloudError(
            .invalidArguments, "The value nests arrays and dictionaries too deeply.",
            details: ["depth_max": "\(depthMax)"])
    }

    /// The canonical encoding: what counts toward limits and goes into digests.
    public var canonicalBytes: [UInt8] {
        // Encoding a message without required fields cannot fail.
        (try? WirePropertyValue(self).serializedBytes()) ?? []
    }

    /// The value with this encoding.
    ///
    /// - Throws: ``CloudError`` `.malformedRequest` when the bytes are not a `PropertyValue`.
    public init(canonicalBytes: [UInt8]) throws(CloudError) {
        let wire: WirePropertyValue
        do { wire = try WirePropertyValue(serializedBytes: canonicalBytes) } catch {
            throw CloudError(.malformedRequest, "The bytes are not a property-list value.")
        }
        try self.init(wire)
    }
}
