public import Foundation
public import NephosCore
internal import NephosPropertyLists

extension PropertyValue {
    /// The value in a property list, XML or binary.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, with the place and the reason in its details, when the bytes are
    ///   none, or have in them what no store holds: an integer beyond 64 bits, a UID, a null, a key twice.
    public init(propertyList data: Data) throws(CloudError) {
        self =
            try data.starts(with: Data("bplist".utf8))
            ? BinaryPropertyList.value(in: data) : XMLPropertyList.value(in: data)
    }
}

/// The two forms of a file of defaults.
enum DefaultsFile {
    /// - Throws: ``CloudError`` `.invalidArguments` when the file is not in the form, or has something in it that no
    ///   store holds; the details say where and why.
    static func decode(_ data: Data, json: Bool) throws(CloudError) -> [ItemName: PropertyValue] {
        if data.isEmpty { return [:] }
        let value: PropertyValue
        if json {
            guard let text = String(validating: data, as: UTF8.self) else {
                throw CloudError(.invalidArguments, "The file is not text in UTF-8.")
            }
            value = try PropertyValue(json: text, form: .plain)
        } else {
            value = try PropertyValue(propertyList: data)
        }
        guard case .dictionary(let values) = value else {
            throw CloudError(.invalidArguments, "A file of defaults holds one dictionary; this one does not.")
        }
        return values
    }

    static func encode(_ values: [ItemName: PropertyValue], json: Bool) -> Data {
        guard json else { return XMLPropertyList.data(values) }
        var text = ""
        writeJSON(.dictionary(values), indent: "", to: &text)
        return Data((text + "\n").utf8)
    }

    /// Whether the form can hold the value.
    static func holds(_ name: ItemName, _ value: PropertyValue, json: Bool) -> Bool {
        json ? isJSON(value) : XMLPropertyList.holds(name.rawValue) && XMLPropertyList.holds(value)
    }

    private static func isJSON(_ value: PropertyValue) -> Bool {
        switch value {
        case .date, .data: false
        case .real(let value): value.isFinite
        case .array(let values): values.allSatisfy(isJSON)
        case .dictionary(let values): values.values.allSatisfy(isJSON)
        case .boolean, .integer, .string: true
        }
    }

    /// As people read it: an entry a line, in order.
    private static func writeJSON(_ value: PropertyValue, indent: String, to text: inout String) {
        let inner = indent + "  "
        switch value {
        case .boolean(let value): text += "\(value)"
        case .integer(let value): text += "\(value)"
        case .real(let value):
            // As programs write it for which all numbers are one type, so that such a one changes nothing.
            let isMinusZero = value == 0 && value.sign == .minus
            let whole = abs(value) < 0x1p53 && !isMinusZero ? Int64(exactly: value) : nil
            text += whole.map { "\($0)" } ?? "\(value)"
        case .string(let value): JSONText.write(value, to: &text)
        case .date, .data: text += "null"
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                text += (index > 0 ? "," : "") + "\n" + inner
                writeJSON(value, indent: inner, to: &text)
            }
            text += values.isEmpty ? "]" : "\n\(indent)]"
        case .dictionary(let values):
            text += "{"
            for (index, entry) in values.sorted(by: { $0.key < $1.key }).enumerated() {
                text += (index > 0 ? "," : "") + "\n" + inner
                JSONText.write(entry.key.rawValue, to: &text)
                text += " : "
                writeJSON(entry.value, indent: inner, to: &text)
            }
            text += values.isEmpty ? "}" : "\n\(indent)}"
        }
    }
}
