internal import Crypto

private import struct Foundation.Data

/// What a link to a published content is opened with: its address has it, and who has it gets the content.
///
/// The device that publishes makes it. The service keeps its hash alone.
public struct LinkSecret: Sendable {
    /// The beginning of a link's path on the web. The secret follows, then `/` and the file's name.
    public static let path = "/p/"

    /// Random bytes of a secret that is made.
    static let randomBytes = 20

    /// Characters of base64url, as in the address.
    public let text: String

    /// - Returns: Nil if it cannot be one: it has not 22 to 64 characters of base64url.
    public init?(_ text: some StringProtocol) {
        guard (22...64).contains(text.utf8.count), text.utf8.allSatisfy(Self.isCharacter) else { return nil }
        self.text = String(text)
    }

    private init(unchecked text: String) { self.text = text }

    private static func isCharacter(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }

    public static func random(using generator: inout some RandomNumberGenerator) -> LinkSecret {
        let bytes = (0..<randomBytes).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        let text = Data(bytes).base64EncodedString()
        return LinkSecret(unchecked: text.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: ""))
    }

    /// From the system's random numbers.
    public static func random() -> LinkSecret {
        var generator = SystemRandomNumberGenerator()
        return random(using: &generator)
    }

    /// SHA-256 of the text: 32 bytes.
    public var hash: [UInt8] { Array(SHA256.hash(data: [UInt8](text.utf8))) }

    /// Bytes of a ``hash``.
    public static let hashBytes = 32
}
