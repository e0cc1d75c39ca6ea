import Core
import Foundation

// Values as JSON, there and back with their types: a real always has a point or
// an exponent, an integer never. `JSONEncoder` and `JSONDecoder` know neither,
// and take keys that look alike for one.

extension PropertyValue {
    /// One line of JSON, keys in the order of their bytes.
    ///
    /// What JSON lacks is an object with one key: `{"$date": "2026-01-31T12:00:00.000Z"}` (to the millisecond),
    /// `{"$data": base64}`, `{"$real": "inf"}`. A dictionary that looks like one of these goes into `{"$dictionary": ...}`.
    var json: String {
        var text = ""
        write(to: &text)
        return printableJSON(text)
    }

    private func write(to text: inout String) {
        switch self {
        case .boolean(let value): text += value ? "true" : "false"
        case .integer(let value): text += String(value)
        case .real(let value): text += value.isFinite ? value.description : "{\"$real\":\"\(value)\"}"
        case .string(let value): Self.quote(value, to: &text)
        case .date(let value): text += "{\"$date\":\"\(JSONDate.text(of: value))\"}"
        case .data(let value): text += "{\"$data\":\"\(value.base64EncodedString())\"}"
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .dictionary(let values):
            let isAmbiguous = values.count == 1 && values.first?.key.rawValue.hasPrefix("$") == true
            if isAmbiguous { text += "{\"$dictionary\":" }
            text += "{"
            for (index, entry) in values.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { text += "," }
                Self.quote(entry.key.rawValue, to: &text)
                text += ":"
                entry.value.write(to: &text)
            }
            text += isAmbiguous ? "}}" : "}"
        }
    }

    private static func quote(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\t": text += "\\t"
            default: text.unicodeScalars.append(scalar)
            }
        }
        text += "\""
    }

    /// The value of this JSON text; nil if it is none, has a null or the same key twice, or a number that has no place
    /// in 64 bits.
    ///
    /// - Parameter exactly: Only if each number comes out as it is written.
    init?(json text: String, exactly: Bool = false) {
        var reader = PropertyJSONReader(text, isExact: exactly)
        guard let value = reader.document() else { return nil }
        self = value
    }
}

/// Dates as JSON has them.
enum JSONDate {
    /// In the years 1 to 9999 as ISO 8601 has them, to the millisecond; else microseconds since 1970.
    static func text(of date: Date) -> String {
        let milliseconds = (date.timeIntervalSince1970 * 1000).rounded()
        guard milliseconds > -62_135_596_800_000, milliseconds < 253_402_300_800_000 else {
            return String(Int64(exactly: (date.timeIntervalSince1970 * 1_000_000).rounded()) ?? .max)
        }
        let whole = (milliseconds / 1000).rounded(.down)
        let rest = Int(milliseconds - whole * 1000)
        let seconds = Date(timeIntervalSince1970: whole).formatted(.iso8601).dropLast()
        return "\(seconds).\(String(1000 + rest).dropFirst())Z"
    }

    static func date(_ text: String) -> Date? {
        if let microseconds = Int64(text) { return Date(timeIntervalSince1970: Double(microseconds) / 1_000_000) }
        if let point = text.firstIndex(of: "."), text.hasSuffix("Z") {
            let fraction = text[text.index(after: point)...].dropLast()
            guard fraction.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
                let part = Double("0." + fraction), let whole = try? Date(text[..<point] + "Z", strategy: .iso8601)
            else { return nil }
            // By way of whole microseconds, so that it is the date that was written and not its neighbour.
            return Date(
                timeIntervalSince1970: (whole.timeIntervalSince1970 * 1_000_000 + (part * 1_000_000).rounded())
                    / 1_000_000)
        }
        return try? Date(text, strategy: .iso8601)
    }
}

/// Reads JSON (RFC 8259) into values.
private struct PropertyJSONReader {
    private let bytes: [UInt8]
    private var place = 0
    private let isExact: Bool

    init(_ text: String, isExact: Bool) {
        bytes = Array(text.utf8)
        self.isExact = isExact
    }

    mutating func document() -> PropertyValue? {
        guard let value = value(depthLeft: PropertyValue.depthMax * 2) else { return nil }
        skipSpace()
        return place == bytes.count ? value : nil
    }

    /// - Parameter isPlain: An object is a dictionary, whatever it looks like.
    private mutating func value(depthLeft: Int, isPlain: Bool = false) -> PropertyValue? {
        skipSpace()
        guard depthLeft > 0, place < bytes.count else { return nil }
        switch bytes[place] {
        case UInt8(ascii: "{"): return object(depthLeft: depthLeft, isPlain: isPlain)
        case UInt8(ascii: "["): return array(depthLeft: depthLeft)
        case UInt8(ascii: "\""): return string().map { .string($0) }
        case UInt8(ascii: "t"): return take("true") ? .boolean(true) : nil
        case UInt8(ascii: "f"): return take("false") ? .boolean(false) : nil
        default: return number()
        }
    }

    private mutating func object(depthLeft: Int, isPlain: Bool) -> PropertyValue? {
        var entries: [ItemName: PropertyValue] = [:]
        place += 1
        skipSpace()
        if take("}") { return .dictionary([:]) }
        while true {
            skipSpace()
            guard let key = string() else { return nil }
            skipSpace()
            guard take(":"),
                let value = value(depthLeft: depthLeft - 1, isPlain: !isPlain && ItemName(key) == "$dictionary"),
                entries.updateValue(value, forKey: ItemName(key)) == nil
            else { return nil }
            skipSpace()
            if take("}") { return isPlain ? .dictionary(entries) : Self.special(entries) }
            guard take(",") else { return nil }
        }
    }

    /// What stands for a type that JSON lacks.
    private static func special(_ entries: [ItemName: PropertyValue]) -> PropertyValue? {
        guard entries.count == 1, let entry = entries.first else { return .dictionary(entries) }
        switch (entry.key, entry.value) {
        case ("$date", .string(let text)): return JSONDate.date(text).map { .date($0) } ?? .dictionary(entries)
        case ("$data", .string(let text)):
            return Data(base64Encoded: text).map { .data($0) } ?? .dictionary(entries)
        case ("$real", .string(let text)): return Double(text).map { .real($0) } ?? .dictionary(entries)
        case ("$dictionary", .dictionary(let inner)): return .dictionary(inner)
        default: return .dictionary(entries)
        }
    }

    private mutating func array(depthLeft: Int) -> PropertyValue? {
        var values: [PropertyValue] = []
        place += 1
        skipSpace()
        if take("]") { return .array([]) }
        while true {
            guard let value = value(depthLeft: depthLeft - 1) else { return nil }
            values.append(value)
            skipSpace()
            if take("]") { return .array(values) }
            guard take(",") else { return nil }
        }
    }

    private mutating func string() -> String? {
        guard take("\"") else { return nil }
        var units: [UInt8] = []
        while place < bytes.count {
            let byte = bytes[place]
            place += 1
            switch byte {
            case UInt8(ascii: "\""): return String(validating: units, as: UTF8.self)
            case UInt8(ascii: "\\"): guard escape(into: &units) else { return nil }
            case ..<0x20: return nil
            default: units.append(byte)
            }
        }
        return nil
    }

    private mutating func escape(into units: inout [UInt8]) -> Bool {
        guard place < bytes.count else { return false }
        let byte = bytes[place]
        place += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): units.append(byte)
        case UInt8(ascii: "b"): units.append(0x08)
        case UInt8(ascii: "f"): units.append(0x0c)
        case UInt8(ascii: "n"): units.append(0x0a)
        case UInt8(ascii: "r"): units.append(0x0d)
        case UInt8(ascii: "t"): units.append(0x09)
        case UInt8(ascii: "u"):
            guard var code = hexadecimal() else { return false }
            if code & 0xfc00 == 0xd800 {
                guard take("\\u"), let low = hexadecimal(), low & 0xfc00 == 0xdc00 else { return false }
                code = 0x10000 + (code & 0x3ff) << 10 + (low & 0x3ff)
            }
            guard let scalar = Unicode.Scalar(code) else { return false }
            units.append(contentsOf: String(scalar).utf8)
        default: return false
        }
        return true
    }

    private mutating func hexadecimal() -> UInt32? {
        guard place + 4 <= bytes.count else { return nil }
        let digits = bytes[place..<place + 4]
        guard digits.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || 0x41...0x46 ~= $0 & 0xdf }) else {
            return nil
        }
        place += 4
        return UInt32(String(decoding: digits, as: UTF8.self), radix: 16)
    }

    private mutating func number() -> PropertyValue? {
        let start = place
        while place < bytes.count, "+-.0123456789eE".utf8.contains(bytes[place]) { place += 1 }
        let text = String(decoding: bytes[start..<place], as: UTF8.self)
        let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
        // No leading zeros, and digits on both sides of a point.
        guard let first = digits.utf8.first, UInt8(ascii: "0")...UInt8(ascii: "9") ~= first,
            !(first == UInt8(ascii: "0") && digits.utf8.count > 1
                && UInt8(ascii: "0")...UInt8(ascii: "9") ~= digits.utf8[digits.utf8.index(after: digits.startIndex)]),
            digits.utf8.last != UInt8(ascii: "."), !digits.contains(".e"), !digits.contains(".E")
        else { return nil }
        if !digits.utf8.contains(where: { ".eE".utf8.contains($0) }) {
            guard let value = Int64(text), !isExact || String(value) == text else { return nil }
            return .integer(value)
        }
        guard let value = Double(text), value.isFinite, !isExact || value.description == text else { return nil }
        return .real(value)
    }

    private mutating func skipSpace() {
        while place < bytes.count, " \t\n\r".utf8.contains(bytes[place]) { place += 1 }
    }

    private mutating func take(_ text: String) -> Bool {
        guard bytes[place...].starts(with: text.utf8) else { return false }
        place += text.utf8.count
        return true
    }
}
