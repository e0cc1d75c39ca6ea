public import Core
public import Foundation

extension PropertyValue {
    /// The value in a property list, XML or binary.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when the bytes are none.
    public init(propertyList data: Data) throws(CloudError) {
        guard let object = try? PropertyListSerialization.propertyList(from: data, format: nil),
            let value = DefaultsFile.property(object)
        else { throw CloudError(.invalidArguments, "The bytes are not a property list.") }
        self = value
    }
}

/// The two forms of a file of defaults.
enum DefaultsFile {
    static func decode(_ data: Data, json: Bool) throws -> [String: PropertyValue] {
        if data.isEmpty { return [:] }
        let object =
            json
            ? try JSONSerialization.jsonObject(with: data)
            : try PropertyListSerialization.propertyList(from: data, format: nil)
        guard let dictionary = object as? [String: Any] else {
            throw CloudError(.invalidArguments, "A file of defaults holds one dictionary; this one does not.")
        }
        var values: [String: PropertyValue] = [:]
        // What no property list can hold (a JSON null) counts as absent.
        for (key, value) in dictionary { values[key] = property(value) }
        return values
    }

    static func encode(_ values: [String: PropertyValue], json: Bool) throws -> Data {
        let object = values.mapValues(foundation)
        return json
            ? try JSONSerialization.data(withJSONObject: object, options: [.prettyPrinted, .sortedKeys])
            : try PropertyListSerialization.data(fromPropertyList: object, format: .xml, options: 0)
    }

    /// Whether JSON can hold the value.
    static func isJSON(_ value: PropertyValue) -> Bool {
        switch value {
        case .date, .data: false
        case .real(let value): value.isFinite
        case .array(let values): values.allSatisfy(isJSON)
        case .dictionary(let values): values.values.allSatisfy(isJSON)
        case .boolean, .integer, .string: true
        }
    }

    fileprivate static func property(_ value: Any) -> PropertyValue? {
        switch value {
        case let value as String: .string(value)
        case let value as Date: .date(value)
        case let value as Data: .data(value)
        case let value as [Any]: .array(value.compactMap(property))
        case let value as [String: Any]:
            .dictionary(
                Dictionary(value.compactMap { key, value in property(value).map { (ItemName(key), $0) } }) { $1 })
        case let value as NSNumber: number(value)
        case let value as Bool: .boolean(value)
        case let value as Int: .integer(Int64(value))
        case let value as Double: .real(value)
        default: nil
        }
    }

    private static func number(_ value: NSNumber) -> PropertyValue {
        switch UInt8(bitPattern: value.objCType.pointee) {
        // Booleans are numbers of the C type char.
        case UInt8(ascii: "c"), UInt8(ascii: "B"): .boolean(value.boolValue)
        case UInt8(ascii: "d"), UInt8(ascii: "f"):
            // A JSON reader may make a real of a whole number that was written without a point.
            .real(value.doubleValue)
        case UInt8(ascii: "Q"): Int64(exactly: value.uint64Value).map { .integer($0) } ?? .real(value.doubleValue)
        default: .integer(value.int64Value)
        }
    }

    private static func foundation(_ value: PropertyValue) -> Any {
        switch value {
        case .boolean(let value): NSNumber(value: value)
        case .integer(let value): NSNumber(value: value)
        case .real(let value): NSNumber(value: value)
        case .string(let value): value
        case .date(let value): value
        case .data(let value): value
        case .array(let values): values.map(foundation)
        case .dictionary(let values):
            Dictionary(values.map { ($0.key.rawValue, foundation($0.value)) }) { first, _ in first }
        }
    }
}
