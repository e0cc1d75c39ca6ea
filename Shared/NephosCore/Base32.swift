/// Crockford's base 32: no I, L, O and U, so that what was written down by hand is read as it was meant.
package enum Base32 {
    private static let alphabet = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)

    /// Five bits a character; what is missing of the last one is zero.
    package static func text(_ bytes: [UInt8]) -> String {
        var characters: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            count += 8
            while count >= 5 {
                count -= 5
                characters.append(alphabet[Int(bits >> UInt32(count)) & 31])
            }
            bits &= 1 << UInt32(count) - 1
        }
        if count > 0 { characters.append(alphabet[Int(bits << UInt32(5 - count)) & 31]) }
        return String(decoding: characters, as: UTF8.self)
    }

    /// The bytes; small letters, O for 0, I and L for 1, hyphens and blanks are taken as they were meant.
    ///
    /// - Returns: Nil where a character is none of these. Bits that make no byte are left out.
    package static func bytes(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        for character in text.utf8 where !separators.contains(character) {
            guard let value = value(of: character) else { return nil }
            bits = bits << 5 | value
            count += 5
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
            bits &= 1 << UInt32(count) - 1
        }
        return bytes
    }

    /// The same characters as ``text(_:)`` writes them; nil where one is none.
    package static func canonical(_ text: String) -> String? {
        var characters: [UInt8] = []
        for character in text.utf8 where !separators.contains(character) {
            guard let value = value(of: character) else { return nil }
            characters.append(alphabet[Int(value)])
        }
        return String(decoding: characters, as: UTF8.self)
    }

    private static let separators: Set<UInt8> = [UInt8(ascii: "-"), UInt8(ascii: " "), UInt8(ascii: "\t")]

    private static func value(of character: UInt8) -> UInt32? {
        var character = character
        if (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(character) { character -= 32 }
        switch character {
        case UInt8(ascii: "O"): character = UInt8(ascii: "0")
        case UInt8(ascii: "I"), UInt8(ascii: "L"): character = UInt8(ascii: "1")
        default: break
        }
        return alphabet.firstIndex(of: character).map { UInt32($0) }
    }

    /// The characters in groups, as they are written down.
    package static func grouped(_ text: String, by size: Int) -> String {
        var groups: [Substring] = []
        var rest = Substring(text)
        while !rest.isEmpty {
            groups.append(rest.prefix(size))
            rest = rest.dropFirst(size)
        }
        return groups.joined(separator: "-")
    }
}
