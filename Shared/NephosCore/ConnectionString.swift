/// All that a device needs to find and trust a deployment: where identity
/// answers, and its public key. `nephos://host:port?key=...`, the key in Z85
/// and percent-encoded.
public struct ConnectionString: Hashable, Sendable, CustomStringConvertible {
    /// A name or an address; one of IP version 6 without its brackets.
    public var host: String
    public var port: Int
    /// Identity's CURVE key.
    public var key: PublicKey

    /// - Throws: ``CloudError`` `.invalidArguments` for a host or port that cannot be one.
    public init(host: String, port: Int, key: PublicKey) throws(CloudError) {
        guard Self.isHost(host), (1...65_535).contains(port) else { throw Self.malformed }
        self.host = host
        self.port = port
        self.key = key
    }

    /// Whether this can be a host: a name or an address, without a port or brackets.
    public static func isHost(_ host: String) -> Bool {
        !host.isEmpty && !host.utf8.contains { $0 <= 32 || "/?#@[]".utf8.contains($0) || $0 >= 127 }
    }

    /// The connection string in this text; spaces around it are ignored.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`.
    public init(_ text: String) throws(CloudError) {
        let prefix = "nephos://"
        let trimmed = text.drop(while: \.isWhitespace).reversed().drop(while: \.isWhitespace).reversed()
        let characters = String(trimmed)
        guard characters.utf8.count <= 1024, characters.lowercased().hasPrefix(prefix) else { throw Self.malformed }
        let parts = characters.dropFirst(prefix.count).split(
            separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let (host, port) = Self.split(parts[0]) else { throw Self.malformed }
        // Parameters that this version does not know are left to later ones.
        let values = parts[1].split(separator: "&").filter { $0.hasPrefix("key=") }
        guard values.count == 1, let key = Self.percentDecoded(values[0].dropFirst(4)).flatMap(PublicKey.init(z85:))
        else { throw Self.malformed }
        try self.init(host: host, port: port, key: key)
    }

    /// The connection string to a service at a transport's endpoint, such as `tcp://127.0.0.1:7410`.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` if the endpoint is not one of TCP.
    public init(endpoint: String, key: PublicKey) throws(CloudError) {
        guard endpoint.hasPrefix("tcp://"), let (host, port) = Self.split(endpoint.dropFirst(6)) else {
            throw Self.malformed
        }
        try self.init(host: host, port: port, key: key)
    }

    /// Where to connect.
    public var endpoint: String { "tcp://\(address)" }

    public var description: String { "nephos://\(address)?key=\(Self.percentEncoded(key.z85))" }

    private var address: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    private static let malformed = CloudError(
        .invalidArguments, "This is not a connection string. It looks like nephos://host:port?key=...")

    /// `host:port`, or `[address]:port`.
    private static func split(_ text: some StringProtocol) -> (String, Int)? {
        guard let colon = text.lastIndex(of: ":"), let port = Int(text[text.index(after: colon)...]) else { return nil }
        var host = String(text[..<colon])
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
        } else if host.contains(":") {
            return nil
        }
        return (host, port)
    }

    private static func percentEncoded(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
                result.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let digits = String(byte, radix: 16, uppercase: true)
                result += "%" + (digits.count == 1 ? "0" : "") + digits
            }
        }
        return result
    }

    private static func percentDecoded(_ text: some StringProtocol) -> String? {
        var bytes: [UInt8] = []
        var rest = Substring(text).utf8
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            let digits = rest.prefix(2)
            guard digits.count == 2, let value = UInt8(Substring(digits), radix: 16) else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
