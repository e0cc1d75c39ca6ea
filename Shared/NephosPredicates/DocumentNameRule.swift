public import NephosCore

/// How names of a container clash. It is fixed for ever when the container is first written to, and stored with it.
public enum DocumentNameRule: UInt8, Sendable {
    /// Equal bytes.
    case bytes = 1
    /// Equal after Unicode's canonical composition and without capitals, by version 1 of the folding table.
    case folded = 2

    /// The bytes that two names share if they clash.
    public func key(of name: [UInt8]) -> [UInt8] {
        switch self {
        case .bytes: return name
        case .folded:
            // Bytes that are no text are compared as they are.
            guard let text = String(validating: name, as: UTF8.self) else { return name }
            return [UInt8](FoldingRule.v1.fold(text, .caseInsensitive).utf8)
        }
    }

    /// - Throws: ``CloudError`` `.invalidArguments`.
    public static func check(_ name: [UInt8]) throws(CloudError) {
        guard DocumentLimits.isName(name) else {
            throw CloudError(
                .invalidArguments,
                "A name has 1 to 255 bytes without '/' and NUL, and is not '.' or '..'. Choose another.",
                details: ["argument": "name", "bytes_max": "\(DocumentLimits.nameBytesMax)"])
        }
    }

    /// What a numbered name is without its number: of `a 2.txt` it is `a.txt` and 2; nil: it has none from 2 to 999.
    public static func unnumbered(_ name: [UInt8]) -> (name: [UInt8], number: Int)? {
        let dot = name.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > name.startIndex ? $0 : nil } ?? name.endIndex
        let digits = name[..<dot].reversed().prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }.count
        let start = dot - digits
        guard 1...3 ~= digits, start > 1, name[start - 1] == UInt8(ascii: " "), name[start] != UInt8(ascii: "0"),
            let number = Int(String(decoding: name[start..<dot], as: UTF8.self)), number >= 2
        else { return nil }
        return (Array(name[..<(start - 1)] + name[dot...]), number)
    }

    /// The name with a number before its extension: `a.txt`, `a 2.txt`, `a 3.txt`.
    ///
    /// - Parameter number: 2 or more.
    public static func numbered(_ name: [UInt8], _ number: Int) -> [UInt8] {
        let mark = [UInt8](" \(number)".utf8)
        // A name that begins with its only dot has no extension.
        let dot = name.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > name.startIndex ? $0 : nil } ?? name.endIndex
        var stem = Array(name[..<dot])
        let rest = name[dot...].count <= 32 ? Array(name[dot...]) : []
        if rest.isEmpty { stem = name }
        // What does not fit is cut before a character.
        let room = DocumentLimits.nameBytesMax - mark.count - rest.count
        if stem.count > room {
            var end = room
            while end > 0, stem[end] & 0xc0 == 0x80 { end -= 1 }
            stem.removeSubrange(end...)
        }
        return stem + mark + rest
    }
}
