import Foundation
import NephosCore
import NephosKit

/// What a value is made of.
enum ValueInput {
    case text(String)
    /// The bytes of a file or of standard input.
    case bytes(Data)
}

extension PropertyValue {
    /// - Throws: ``CloudError`` `.invalidArguments` when the input is not of the type, or not text where text is
    ///   needed.
    init(_ input: ValueInput, type: ValueType) throws(CloudError) {
        switch input {
        case .text(let text): try self.init(text: text, type: type)
        case .bytes(let data) where type == .data: self = .data(data)
        case .bytes(let data):
            guard let text = String(validating: data, as: UTF8.self) else {
                throw CloudError(.invalidArguments, "The value is not text in UTF-8. Use: --type data")
            }
            try self.init(text: text, type: type)
        }
    }

    /// The content of a file to import.
    static func dictionary(inFile data: Data) throws(CloudError) -> [ItemName: PropertyValue] {
        let data = data.starts(with: [0xef, 0xbb, 0xbf]) ? data.dropFirst(3) : data
        let value: PropertyValue
        // Binary, or XML: no JSON begins so.
        if data.starts(with: Data("bplist".utf8)) || data.first(where: { $0 > 0x20 }) == UInt8(ascii: "<") {
            value = try PropertyValue(propertyList: data)
        } else if let text = String(validating: data, as: UTF8.self) {
            value = try PropertyValue(json: text)
        } else {
            throw CloudError(.invalidArguments, "The file is neither a property list nor JSON in UTF-8.")
        }
        // A dictionary of one key that begins with a dollar sign is wrapped when it is exported.
        guard case .dictionary(let values) = value else {
            throw CloudError(.invalidArguments, "The file is not one dictionary, or JSON object.")
        }
        return values
    }

    /// A string's or data's own bytes.
    var rawBytes: Data {
        get throws(CloudError) {
            switch self {
            case .string(let text): return Data(text.utf8)
            case .data(let data): return data
            default:
                throw CloudError(
                    .invalidArguments, "Only strings and data have raw bytes.", details: ["type": typeName])
            }
        }
    }
}
