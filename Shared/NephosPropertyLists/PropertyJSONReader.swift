internal import Foundation
public import NephosCore

/// How JSON is read.
public enum PropertyJSONForm: Sendable {
    /// `{"$date": ...}`, `{"$data": ...}`, `{"$real": ...}` and `{"$dictionary": ...}` stand for what JSON lacks.
    case typed
    /// The same, and only if each number comes out as it is written.
    case exact
    /// An object is a dictionary, whatever it looks like.
    case plain
}

extension PropertyValue {
    /// The value of this JSON text (RFC 8259).
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, with the place and the reason in its details, if it is none, or
    ///   has what no store holds: a null, a key twice, a number that has no place in 64 bits.
    public init(json text: String, form: PropertyJSONForm = .typed) throws(CloudError) {
        var reader = PropertyJSONReader(text, form: form)
        self = try reader.document()
    }
}

private struct PropertyJSONReader {
    private let bytes: [UInt8]
    private var position = 0
    private let form: PropertyJSONForm
    private var place = ValuePlace()

    init(_ text: String, form: PropertyJSONForm) {
        bytes = Array(text.utf8)
        self.form = form
    }

    mutating func document() throws(CloudError) -> PropertyValue {
        let value = try value(isPlain: form == .plain)
        skipSpace()
        guard position == bytes.count else { throw notJSON }
        return value
    }

    private var notJSON: CloudError { place.failure("It is no JSON.") }

    /// - Parameter isPlain: An object is a dictionary, whatever it looks like.
    private mutating func value(isPlain: Bool) throws(CloudError) -> PropertyValue {
        skipSpace()
        try place.count()
        guard position < bytes.count else { throw notJSON }
        switch bytes[position] {
        case UInt8(ascii: "{"): return try object(isPlain: isPlain)
        case UInt8(ascii: "["): return .array(try array())
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t") where take("true"): return .boolean(true)
        case UInt8(ascii: "f") where take("false"): return .boolean(false)
        case UInt8(ascii: "n") where take("null"): throw place.failure("A store holds no null.")
        default: return try number()
        }
    }

    private mutating func object(isPlain: Bool) throws(CloudError) -> PropertyValue {
        var entries: [ItemName: PropertyValue] = [:]
        position += 1
        skipSpace()
        if take("}") { return .dictionary([:]) }
        while true {
            skipSpace()
            let key = try string()
            try place.enter(key: key)
            skipSpace()
            guard take(":") else { throw notJSON }
            // What `$dictionary` wraps is what it looks like; what is in that is read as ever.
            let wraps = form != .plain && !isPlain && ItemName(key) == "$dictionary"
            let value = try value(isPlain: form == .plain || wraps)
            guard entries.updateValue(value, forKey: ItemName(key)) == nil else {
                throw place.failure("The key is there twice.")
            }
            place.leave()
            skipSpace()
            if take("}") { return isPlain ? .dictionary(entries) : try special(entries) }
            guard take(",") else { throw notJSON }
        }
    }

    /// What stands for a type that JSON lacks.
    private func special(_ entries: [ItemName: PropertyValue]) throws(CloudError) -> PropertyValue {
        guard entries.count == 1, let entry = entries.first else { return .dictionary(entries) }
        switch (entry.key, entry.value) {
        case ("$dictionary", .dictionary(let inner)): return .dictionary(inner)
        case ("$date", .string(let text)):
            if let date = PropertyDate.date(text) { return .date(date) }
            throw place.failure("{\"$date\": ...} has no date in it: \(PropertyDate.form).")
        case ("$data", .string(let text)):
            if let data = Data(base64Encoded: text) { return .data(data) }
            throw place.failure("{\"$data\": ...} has no base64 in it.")
        case ("$real", .string(let text)):
            if let real = Double(text) { return .real(real) }
            throw place.failure("{\"$real\": ...} has no number in it.")
        case ("$date", _), ("$data", _), ("$real", _), ("$dictionary", _):
            throw place.failure(
                "The key stands for a type, and has another in it. A dictionary of such a key: {\"$dictionary\": ...}.")
        default: return .dictionary(entries)
        }
    }

    private mutating func array() throws(CloudError) -> [PropertyValue] {
        var values: [PropertyValue] = []
        position += 1
        skipSpace()
        if take("]") { return [] }
        while true {
            try place.enter(index: values.count)
            values.append(try value(isPlain: form == .plain))
            place.leave()
            skipSpace()
            if take("]") { return values }
            guard take(",") else { throw notJSON }
        }
    }

    private mutating func string() throws(CloudError) -> String {
        guard take("\"") else { throw notJSON }
        var units: [UInt8] = []
        while position < bytes.count {
            let byte = bytes[position]
            position += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let text = String(validating: units, as: UTF8.self) else { throw notJSON }
                return text
            case UInt8(ascii: "\\"): guard escape(into: &units) else { throw notJSON }
            case ..<0x20: throw notJSON
            default: units.append(byte)
            }
        }
        throw notJSON
    }

    private mutating func escape(into units: inout [UInt8]) -> Bool {
        guard position < bytes.count else { return false }
        let byte = bytes[position]
        position += 1
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
        guard position + 4 <= bytes.count else { return nil }
        let digits = bytes[position..<position + 4]
        guard digits.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || 0x41...0x46 ~= $0 & 0xdf }) else {
            return nil
        }
        position += 4
        return UInt32(String(decoding: digits, as: UTF8.self), radix: 16)
    }

    private mutating func number() throws(CloudError) -> PropertyValue {
        let start = position
        while position < bytes.count, "+-.0123456789eE".utf8.contains(bytes[position]) { position += 1 }
        let text = String(decoding: bytes[start..<position], as: UTF8.self)
        let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
        // No leading zeros, and digits on both sides of a point.
        guard let first = digits.utf8.first, UInt8(ascii: "0")...UInt8(ascii: "9") ~= first,
            !(first == UInt8(ascii: "0") && digits.utf8.count > 1
                && UInt8(ascii: "0")...UInt8(ascii: "9") ~= digits.utf8[digits.utf8.index(after: digits.startIndex)]),
            digits.utf8.last != UInt8(ascii: "."), !digits.contains(".e"), !digits.contains(".E")
        else { throw notJSON }
        if !digits.utf8.contains(where: { ".eE".utf8.contains($0) }) {
            if let value = Int64(text), form != .exact || String(value) == text { return .integer(value) }
            guard digits.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) else { throw notJSON }
            throw place.failure("An integer has no place in 64 bits.")
        }
        guard let value = Double(text), form != .exact || value.description == text else { throw notJSON }
        guard value.isFinite else { throw place.failure("A number is too large.") }
        return .real(value)
    }

    private mutating func skipSpace() {
        while position < bytes.count, " \t\n\r".utf8.contains(bytes[position]) { position += 1 }
    }

    private mutating func take(_ text: StaticString) -> Bool {
        let count = text.utf8CodeUnitCount
        guard bytes.count - position >= count,
            bytes[position..<position + count].elementsEqual(
                UnsafeBufferPointer(start: text.utf8Start, count: count))
        else { return false }
        position += count
        return true
    }
}
