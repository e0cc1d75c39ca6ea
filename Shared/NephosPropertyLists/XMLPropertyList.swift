package import Foundation
package import NephosCore

/// Reads and writes property lists in XML.
///
/// Foundation's reader changes what it has no type for, and takes keys that look alike for one.
package struct XMLPropertyList {
    private let bytes: [UInt8]
    private var position = 0
    private var place = ValuePlace()

    package static func value(in data: Data) throws(CloudError) -> PropertyValue {
        guard String(validating: data, as: UTF8.self) != nil else {
            throw ValuePlace().failure("It is not text in UTF-8.")
        }
        var reader = XMLPropertyList(bytes: [UInt8](data.starts(with: [0xef, 0xbb, 0xbf]) ? data.dropFirst(3) : data))
        return try reader.document()
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private var damaged: CloudError { place.failure("It is no property list, or a damaged one.") }

    private mutating func document() throws(CloudError) -> PropertyValue {
        let tag = try openTag()
        guard tag.name == "plist" else {
            let value = try value(tag)
            return try end(value)
        }
        guard !tag.isEmpty else { throw damaged }
        let value = try value(openTag())
        try closeTag("plist")
        return try end(value)
    }

    private mutating func end(_ value: PropertyValue) throws(CloudError) -> PropertyValue {
        try skipMisc()
        guard position == bytes.count else { throw damaged }
        return value
    }

    // MARK: Values

    private mutating func value(_ tag: Tag) throws(CloudError) -> PropertyValue {
        try place.count()
        switch tag.name {
        case "true", "false":
            if !tag.isEmpty { try closeTag(tag.name) }
            return .boolean(tag.name == "true")
        case "string": return .string(try text(tag))
        case "integer": return .integer(try integer(text(tag)))
        case "real": return .real(try real(text(tag)))
        case "date":
            let text = try text(tag).trimmingCharacters(in: .whitespacesAndNewlines)
            guard Int64(text) == nil, let date = PropertyDate.date(text) else {
                throw place.failure("A date is none of the calendar's: \(PropertyDate.form).")
            }
            return .date(date)
        case "data":
            let digits = try text(tag).utf8.filter { !Self.isSpace($0) }
            guard let data = Data(base64Encoded: Data(digits)) else { throw place.failure("Data is not base64.") }
            return .data(data)
        case "array": return .array(try array(tag))
        case "dict": return .dictionary(try dictionary(tag))
        default: throw damaged
        }
    }

    private func integer(_ text: String) throws(CloudError) -> Int64 {
        let text = text.trimmingCharacters(in: .whitespacesAndNewlines)
        let isNegative = text.hasPrefix("-")
        let digits = isNegative || text.hasPrefix("+") ? text.dropFirst() : text[...]
        let isHexadecimal = digits.hasPrefix("0x") || digits.hasPrefix("0X")
        let rest = isHexadecimal ? digits.dropFirst(2) : digits
        guard !rest.isEmpty, rest.allSatisfy({ $0.isASCII && (isHexadecimal ? $0.isHexDigit : $0.isNumber) }) else {
            throw place.failure("An integer has no number in it.")
        }
        guard let value = Int64((isNegative ? "-" : "") + rest, radix: isHexadecimal ? 16 : 10) else {
            throw place.failure("An integer has no place in 64 bits.")
        }
        return value
    }

    private func real(_ text: String) throws(CloudError) -> Double {
        let text = text.trimmingCharacters(in: .whitespacesAndNewlines)
        guard let value = Double(text) else { throw place.failure("A real has no number in it.") }
        let mantissa = text.prefix { $0 != "e" && $0 != "E" }
        guard value.isFinite || !text.contains(where: \.isNumber) else { throw place.failure("A real is too large.") }
        guard value != 0 || !mantissa.contains(where: { "123456789".contains($0) }) else {
            throw place.failure("A real is too small.")
        }
        return value
    }

    private mutating func array(_ tag: Tag) throws(CloudError) -> [PropertyValue] {
        var values: [PropertyValue] = []
        while !tag.isEmpty, try !isAtClose() {
            try place.enter(index: values.count)
            values.append(try value(openTag()))
            place.leave()
        }
        if !tag.isEmpty { try closeTag("array") }
        return values
    }

    private mutating func dictionary(_ tag: Tag) throws(CloudError) -> [ItemName: PropertyValue] {
        var entries: [ItemName: PropertyValue] = [:]
        while !tag.isEmpty, try !isAtClose() {
            let keyTag = try openTag()
            guard keyTag.name == "key" else { throw damaged }
            let key = try text(keyTag)
            try place.enter(key: key)
            guard entries.updateValue(try value(openTag()), forKey: ItemName(key)) == nil else {
                throw place.failure("The key is there twice.")
            }
            place.leave()
        }
        if !tag.isEmpty { try closeTag("dict") }
        // As archives write it.
        if entries.count == 1, case .integer = entries["CF$UID"] { throw place.failure("A store holds no UID.") }
        return entries
    }

    // MARK: XML

    private struct Tag {
        var name: String
        /// `<name/>`
        var isEmpty: Bool
    }

    private static func isSpace(_ byte: UInt8) -> Bool { " \t\n\r".utf8.contains(byte) }

    private func isAt(_ text: StaticString) -> Bool {
        let count = text.utf8CodeUnitCount
        return bytes.count - position >= count
            && bytes[position..<position + count].elementsEqual(
                UnsafeBufferPointer(start: text.utf8Start, count: count))
    }

    /// Skips what begins here, up to the end of what ends it.
    private mutating func skip(past end: StaticString) throws(CloudError) {
        while position < bytes.count {
            if isAt(end) {
                position += end.utf8CodeUnitCount
                return
            }
            position += 1
        }
        throw damaged
    }

    /// Skips space, comments, declarations.
    private mutating func skipMisc() throws(CloudError) {
        while position < bytes.count {
            if Self.isSpace(bytes[position]) {
                position += 1
            } else if isAt("<!--") {
                try skip(past: "-->")
            } else if isAt("<?") {
                try skip(past: "?>")
            } else if isAt("<!DOCTYPE") {
                let start = position
                try skip(past: ">")
                // What it would define nobody here knows.
                guard !bytes[start..<position].contains(UInt8(ascii: "[")) else { throw damaged }
            } else {
                return
            }
        }
    }

    private mutating func isAtClose() throws(CloudError) -> Bool {
        try skipMisc()
        return isAt("</")
    }

    private mutating func openTag() throws(CloudError) -> Tag {
        try skipMisc()
        guard isAt("<"), !isAt("</") else { throw damaged }
        let start = position + 1
        try skip(past: ">")
        var inside = bytes[start..<position - 1]
        let isEmpty = inside.last == UInt8(ascii: "/")
        if isEmpty { inside = inside.dropLast() }
        return Tag(name: String(decoding: inside.prefix { !Self.isSpace($0) }, as: UTF8.self), isEmpty: isEmpty)
    }

    private mutating func closeTag(_ name: String) throws(CloudError) {
        try skipMisc()
        guard isAt("</") else { throw damaged }
        let start = position + 2
        try skip(past: ">")
        guard bytes[start..<position - 1].filter({ !Self.isSpace($0) }).elementsEqual(name.utf8) else { throw damaged }
    }

    /// What is between the tag and its end.
    private mutating func text(_ tag: Tag) throws(CloudError) -> String {
        if tag.isEmpty { return "" }
        var units: [UInt8] = []
        while position < bytes.count, !isAt("</") {
            if isAt("<![CDATA[") {
                let start = position + 9
                try skip(past: "]]>")
                guard start <= position - 3 else { throw damaged }
                units += bytes[start..<position - 3]
            } else if isAt("<!--") {
                try skip(past: "-->")
            } else if bytes[position] == UInt8(ascii: "<") {
                throw damaged
            } else if bytes[position] == UInt8(ascii: "&") {
                units += try reference()
            } else {
                units.append(bytes[position])
                position += 1
            }
        }
        try closeTag(tag.name)
        try place.count(bytes: units.count)
        guard let text = String(validating: units, as: UTF8.self) else { throw damaged }
        return text
    }

    private mutating func reference() throws(CloudError) -> String.UTF8View {
        let start = position + 1
        try skip(past: ";")
        let name = String(decoding: bytes[start..<position - 1], as: UTF8.self)
        switch name {
        case "lt": return "<".utf8
        case "gt": return ">".utf8
        case "amp": return "&".utf8
        case "quot": return "\"".utf8
        case "apos": return "'".utf8
        default:
            let number =
                name.hasPrefix("#x")
                ? UInt32(name.dropFirst(2), radix: 16)
                : name.hasPrefix("#") ? UInt32(name.dropFirst()) : nil
            guard let scalar = number.flatMap(Unicode.Scalar.init) else { throw damaged }
            return String(scalar).utf8
        }
    }
}

// Writing.
extension XMLPropertyList {
    /// Whether XML can hold the value: it has no way to write some characters, and no date beyond the year 9999.
    package static func holds(_ value: PropertyValue) -> Bool {
        switch value {
        case .string(let text): holds(text)
        case .date(let date): PropertyDate.wholeSeconds(of: date) != nil
        case .array(let values): values.allSatisfy(holds)
        case .dictionary(let values): values.allSatisfy { holds($0.key.rawValue) && holds($0.value) }
        case .boolean, .integer, .real, .data: true
        }
    }

    package static func holds(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { scalar in
            scalar.value >= 0x20 && scalar.value & 0xfffe != 0xfffe || ["\t", "\n", "\r"].contains(scalar)
        }
    }

    package static func data(_ values: [ItemName: PropertyValue]) -> Data {
        var text = """
            <?xml version="1.0" encoding="UTF-8"?>
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
            <plist version="1.0">

            """
        write(.dictionary(values), indent: "", to: &text)
        text += "</plist>\n"
        return Data(text.utf8)
    }

    private static func write(_ value: PropertyValue, indent: String, to text: inout String) {
        switch value {
        case .boolean(let value): text += "\(indent)<\(value)/>\n"
        case .integer(let value): text += "\(indent)<integer>\(value)</integer>\n"
        case .real(let value):
            let number = value.isInfinite ? (value < 0 ? "-infinity" : "+infinity") : "\(value)"
            text += "\(indent)<real>\(number)</real>\n"
        case .string(let value): text += "\(indent)<string>\(escaped(value))</string>\n"
        case .date(let value): text += "\(indent)<date>\(PropertyDate.wholeSeconds(of: value) ?? "")</date>\n"
        case .data(let value): text += "\(indent)<data>\(value.base64EncodedString())</data>\n"
        case .array(let values):
            text += values.isEmpty ? "\(indent)<array/>\n" : "\(indent)<array>\n"
            for value in values { write(value, indent: indent + "\t", to: &text) }
            if !values.isEmpty { text += "\(indent)</array>\n" }
        case .dictionary(let values):
            text += values.isEmpty ? "\(indent)<dict/>\n" : "\(indent)<dict>\n"
            for (key, value) in values.sorted(by: { $0.key < $1.key }) {
                text += "\(indent)\t<key>\(escaped(key.rawValue))</key>\n"
                write(value, indent: indent + "\t", to: &text)
            }
            if !values.isEmpty { text += "\(indent)</dict>\n" }
        }
    }

    private static func escaped(_ text: String) -> String {
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar {
            case "<": result.append(contentsOf: "&lt;".unicodeScalars)
            case ">": result.append(contentsOf: "&gt;".unicodeScalars)
            case "&": result.append(contentsOf: "&amp;".unicodeScalars)
            // Readers may take it for a line's end.
            case "\r": result.append(contentsOf: "&#13;".unicodeScalars)
            default: result.append(scalar)
            }
        }
        return String(result)
    }
}
