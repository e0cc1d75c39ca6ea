import ArgumentParser
import Core
import Foundation

/// The type of a value given on the command line.
enum ValueType: String, CaseIterable, ExpressibleByArgument {
    case auto, boolean, integer, real, string, date, data, json
}

extension PropertyValue {
    /// The value that this text means.
    ///
    /// `auto` takes `true` and `false`, integers, reals, JSON arrays and
    /// objects for what they look like, and everything else for a string.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when the text is not of the type.
    init(text: String, type: ValueType) throws(CloudError) {
        switch type {
        case .auto: self = Self.guess(text)
        case .boolean:
            switch text.lowercased() {
            case "true", "yes", "1": self = .boolean(true)
            case "false", "no", "0": self = .boolean(false)
            default: throw Self.notA(type)
            }
        case .integer:
            guard let value = Int64(text) else { throw Self.notA(type) }
            self = .integer(value)
        case .real:
            guard let value = Double(text) else { throw Self.notA(type) }
            self = .real(value)
        case .string: self = .string(text)
        case .date:
            guard let value = Self.date(text) else { throw Self.notA(type) }
            self = .date(value)
        case .data:
            guard let value = Data(base64Encoded: text) else { throw Self.notA(type) }
            self = .data(value)
        case .json:
            guard let object = try? JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed),
                let value = PropertyValue(json: object)
            else { throw Self.notA(type) }
            self = value
        }
    }

    private static func guess(_ text: String) -> PropertyValue {
        if text == "true" || text == "false" { return .boolean(text == "true") }
        if let value = Int64(text) { return .integer(value) }
        if let first = text.first, first.isNumber || first == "-", let value = Double(text), value.isFinite {
            return .real(value)
        }
        if let first = text.first, first == "[" || first == "{",
            let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)),
            let value = PropertyValue(json: object)
        {
            return value
        }
        return .string(text)
    }

    private static func date(_ text: String) -> Date? {
        (try? Date(text, strategy: .iso8601))
            ?? (try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: true)))
    }

    private static func notA(_ type: ValueType) -> CloudError {
        CloudError(
            .invalidArguments, "The value is not of the type that --type says.",
            details: ["type": type.rawValue])
    }

    /// A value from parsed JSON; nil for null, which property lists do not have.
    ///
    /// An object `{"$date": "..."}` or `{"$data": "..."}` stands for the type that JSON lacks.
    init?(json object: Any) {
        switch object {
        case let text as String: self = .string(text)
        case let number as NSNumber:
            if CFGetTypeID(number) == CFBooleanGetTypeID() {
                self = .boolean(number.boolValue)
            } else if let integer = Int64(exactly: number), !"\(number)".contains(".") {
                self = .integer(integer)
            } else {
                self = .real(number.doubleValue)
            }
        case let array as [Any]:
            var values: [PropertyValue] = []
            for element in array {
                guard let value = PropertyValue(json: element) else { return nil }
                values.append(value)
            }
            self = .array(values)
        case let dictionary as [String: Any]:
            if dictionary.count == 1, let text = dictionary["$date"] as? String, let date = Self.date(text) {
                self = .date(date)
            } else if dictionary.count == 1, let text = dictionary["$data"] as? String,
                let data = Data(base64Encoded: text)
            {
                self = .data(data)
            } else {
                var values: [String: PropertyValue] = [:]
                for (key, element) in dictionary {
                    guard let value = PropertyValue(json: element) else { return nil }
                    values[key] = value
                }
                self = .dictionary(values)
            }
        default: return nil
        }
    }

    /// The value as one line of text: strings as they are, the rest as JSON.
    var text: String {
        if case .string(let text) = self { return text }
        return (try? OutputOptions.encode(JSONValue(self))) ?? ""
    }
}

/// A value as `--json` prints it; reads back with `--type json`.
struct JSONValue: Encodable {
    let value: PropertyValue

    init(_ value: PropertyValue) { self.value = value }

    private struct Key: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    func encode(to encoder: any Encoder) throws {
        switch value {
        case .dictionary(let values):
            // A dictionary of Swift's, so that the encoder leaves its keys as they are.
            var container = encoder.singleValueContainer()
            try container.encode(values.mapValues(JSONValue.init))
        case .date(let date):
            var container = encoder.singleValueContainer()
            try container.encode(["$date": date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))])
        case .data(let data):
            var container = encoder.singleValueContainer()
            try container.encode(["$data": data.base64EncodedString()])
        case .boolean(let value):
            var container = encoder.singleValueContainer()
            try container.encode(value)
        case .integer(let value):
            var container = encoder.singleValueContainer()
            try container.encode(value)
        case .real(let value):
            var container = encoder.singleValueContainer()
            try container.encode(value)
        case .string(let value):
            var container = encoder.singleValueContainer()
            try container.encode(value)
        case .array(let values):
            var container = encoder.singleValueContainer()
            try container.encode(values.map(JSONValue.init))
        }
    }
}
