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
            guard let value = PropertyValue(json: text) else { throw Self.notA(type) }
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
            let value = PropertyValue(json: text)
        {
            return value
        }
        return .string(text)
    }

    fileprivate static func date(_ text: String) -> Date? {
        (try? Date(text, strategy: .iso8601))
            ?? (try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: true)))
    }

    private static func notA(_ type: ValueType) -> CloudError {
        CloudError(
            .invalidArguments, "The value is not of the type that --type says.",
            details: ["type": type.rawValue])
    }

    /// The value of this JSON text; nil if it is none, or has a null, which property lists do not have.
    ///
    /// An object `{"$date": "..."}` or `{"$data": "..."}` stands for the type that JSON lacks.
    init?(json text: String) {
        guard let decoded = try? JSONDecoder().decode(JSONValue.self, from: Data(text.utf8)) else { return nil }
        self = decoded.value
    }

    /// The value as one line of text: strings as they are, the rest as JSON.
    var text: String {
        if case .string(let text) = self { return text }
        return (try? OutputOptions.encode(JSONValue(self))) ?? ""
    }
}

/// A value as `--json` prints it; reads back with `--type json`.
struct JSONValue: Codable {
    let value: PropertyValue

    init(_ value: PropertyValue) { self.value = value }

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let boolean = try? container.decode(Bool.self) {
            value = .boolean(boolean)
        } else if let integer = try? container.decode(Int64.self) {
            value = .integer(integer)
        } else if let real = try? container.decode(Double.self) {
            value = .real(real)
        } else if let text = try? container.decode(String.self) {
            value = .string(text)
        } else if let array = try? container.decode([JSONValue].self) {
            value = .array(array.map(\.value))
        } else {
            let decoded = try container.decode([String: JSONValue].self)
            let entries = Dictionary(decoded.map { (ItemName($0.key), $0.value.value) }) { $1 }
            if entries.count == 1, case .string(let text) = entries["$date"], let date = PropertyValue.date(text) {
                value = .date(date)
            } else if entries.count == 1, case .string(let text) = entries["$data"],
                let data = Data(base64Encoded: text)
            {
                value = .data(data)
            } else {
                value = .dictionary(entries)
            }
        }
    }

    func encode(to encoder: any Encoder) throws {
        switch value {
        case .dictionary(let values):
            // A dictionary of Swift's, so that the encoder leaves its keys as they are.
            var container = encoder.singleValueContainer()
            try container.encode(
                Dictionary(values.map { ($0.key.rawValue, JSONValue($0.value)) }) { first, _ in first })
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
