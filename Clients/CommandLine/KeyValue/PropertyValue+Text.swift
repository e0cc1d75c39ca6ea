import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosPropertyLists

/// The type of a value given on the command line.
enum ValueType: String, CaseIterable, ExpressibleByArgument {
    case auto, boolean, integer, real, string, date, data, json

    /// How much is read for a value of this type. Nobody holds more than a value may have, in a form that is sixteen
    /// times as long at most.
    var inputBytesMax: Int {
        let valueMax = KeyValueLimits.standard.valueBytesMax
        return switch self {
        case .string, .data: valueMax
        default: valueMax * 16
        }
    }
}

extension PropertyValue {
    /// The value that this text means.
    ///
    /// `auto` takes `true` and `false`, numbers, JSON arrays and objects for what
    /// they look like, if they come out as they were typed (01234, 1.10 and +49
    /// do not), and everything else for a string.
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
            guard let value = Double(text), value.isFinite else { throw Self.notA(type) }
            self = .real(value)
        case .string: self = .string(text)
        case .date:
            guard let value = PropertyDate.date(text) else {
                throw CloudError(
                    .invalidArguments, "There is no such date, or it cannot be kept.",
                    details: ["type": type.rawValue, "form": PropertyDate.form])
            }
            self = .date(value)
        case .data:
            guard let value = Data(base64Encoded: text) else { throw Self.notA(type) }
            self = .data(value)
        case .json:
            self = try PropertyValue(json: text)
        }
    }

    /// What prints back as it was typed; anything else is a text, and stays one.
    private static func guess(_ text: String) -> PropertyValue {
        if text == "true" || text == "false" { return .boolean(text == "true") }
        if let value = Int64(text), String(value) == text { return .integer(value) }
        if let value = Double(text), value.isFinite, value.description == text { return .real(value) }
        if let first = text.utf8.first, first == UInt8(ascii: "[") || first == UInt8(ascii: "{"),
            let value = try? PropertyValue(json: text, form: .exact)
        {
            return value
        }
        return .string(text)
    }

    private static func notA(_ type: ValueType) -> CloudError {
        CloudError(
            .invalidArguments, "The value is not of the type that --type says.",
            details: ["type": type.rawValue])
    }

    /// One line of JSON with its types, as a terminal may have it.
    var json: String { printableJSON(typedJSON) }

    /// The value as a person reads it: strings as they are, the rest as JSON.
    var text: String { if case .string(let text) = self { text } else { json } }
}
