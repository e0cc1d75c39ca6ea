/// Base58, the text form of keys in connection strings: letters and digits without the similar 0, O, I and l, so that a
/// shell needs no quotes and a double click selects all of it. (The alphabet is Bitcoin's.)
enum Base58 {
    private static let alphabet = Array("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz".utf8)

    /// The text of these bytes; each leading zero byte is a leading "1".
    static func encode(_ bytes: [UInt8]) -> String {
        // The number in base 58, least digit first.
        var digits: [UInt8] = []
        for byte in bytes {
            var carry = Int(byte)
            for index in digits.indices {
                carry += Int(digits[index]) << 8
                digits[index] = UInt8(carry % 58)
                carry /= 58
            }
            while carry > 0 {
                digits.append(UInt8(carry % 58))
                carry /= 58
            }
        }
        let zeros = bytes.prefix { $0 == 0 }.map { _ in alphabet[0] }
        return String(decoding: zeros + digits.reversed().map { alphabet[Int($0)] }, as: UTF8.self)
    }

    /// The bytes of a text, or nil for characters outside of the alphabet and for more than `charactersMax` of them.
    static func decode(_ text: some StringProtocol, charactersMax: Int) -> [UInt8]? {
        guard text.utf8.count <= charactersMax else { return nil }
        var bytes: [UInt8] = []
        for character in text.utf8 {
            guard var carry = alphabet.firstIndex(of: character) else { return nil }
            for index in bytes.indices {
                carry += Int(bytes[index]) * 58
                bytes[index] = UInt8(carry & 0xff)
                carry >>= 8
            }
            while carry > 0 {
                bytes.append(UInt8(carry & 0xff))
                carry >>= 8
            }
        }
        return text.utf8.prefix { $0 == alphabet[0] }.map { _ in 0 } + bytes.reversed()
    }
}
