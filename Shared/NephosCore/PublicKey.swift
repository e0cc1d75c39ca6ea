/// A CURVE public key: 32 bytes, the identity of a device or a service on the bus.
public struct PublicKey: Hashable, Sendable, CustomStringConvertible {
    public let bytes: [UInt8]

    /// The key in these bytes, or nil if there are not 32.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == 32 else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// The key written in Z85 (ZeroMQ RFC 32, 40 characters), or nil if the text is not one.
    public init?(z85 text: String) {
        guard let bytes = Z85.decode(text) else { return nil }
        self.init(bytes: bytes)
    }

    /// The key in Z85, as configuration files have it.
    public var z85: String { Z85.encode(bytes) }
    public var description: String { z85 }
}

/// A CURVE secret key. Its description never shows it.
public struct SecretKey: Hashable, Sendable, CustomStringConvertible {
    public let bytes: [UInt8]

    /// The key in these bytes, or nil if there are not 32.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == 32 else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// The key written in Z85, or nil if the text is not one.
    public init?(z85 text: String) {
        guard let bytes = Z85.decode(text) else { return nil }
        self.init(bytes: bytes)
    }

    /// The key in Z85, as a secret file has it.
    public var z85: String { Z85.encode(bytes) }
    public var description: String { "(secret key)" }
}

/// A CURVE key pair.
public struct KeyPair: Hashable, Sendable {
    public var publicKey: PublicKey
    public var secretKey: SecretKey

    public init(publicKey: PublicKey, secretKey: SecretKey) {
        self.publicKey = publicKey
        self.secretKey = secretKey
    }
}

/// ZeroMQ's text form of binary keys (RFC 32): five characters for four bytes.
public enum Z85 {
    private static let alphabet = Array(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#".utf8)

    /// The text of these bytes. The count must be a multiple of four.
    public static func encode(_ bytes: [UInt8]) -> String {
        precondition(bytes.count % 4 == 0, "Z85 encodes groups of four bytes")
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 4) {
            var value = bytes[start..<start + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            var group = [UInt8](repeating: 0, count: 5)
            for index in (0..<5).reversed() {
                group[index] = alphabet[Int(value % 85)]
                value /= 85
            }
            text += group
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// The bytes of this text, or nil if it is not Z85.
    public static func decode(_ text: String) -> [UInt8]? {
        let characters = Array(text.utf8)
        guard characters.count % 5 == 0 else { return nil }
        var bytes: [UInt8] = []
        for start in stride(from: 0, to: characters.count, by: 5) {
            var value: UInt64 = 0
            for character in characters[start..<start + 5] {
                guard let digit = alphabet.firstIndex(of: character) else { return nil }
                value = value * 85 + UInt64(digit)
            }
            guard value <= UInt64(UInt32.max) else { return nil }
            bytes += withUnsafeBytes(of: UInt32(value).bigEndian) { [UInt8]($0) }
        }
        return bytes
    }
}
