internal import Crypto

/// All that a device needs to find and trust a deployment: where identity answers, and its public key.
///
/// `nephos://host:port/key`, the key in base 58 with two bytes of its SHA-256 behind it, so that a text which was cut off
/// or mistyped is refused. The port is left out where it is 7400. A shell needs no quotes around it.
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
        !host.isEmpty && !host.utf8.contains { $0 <= 32 || "/?#@[];".utf8.contains($0) || $0 >= 127 }
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
            separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let (host, port) = Self.split(parts[0], defaultPort: Self.standardPort),
            let bytes = Base58.decode(parts[1], charactersMax: 64)
        else { throw Self.malformed }
        guard let key = PublicKey(bytes: bytes.prefix(32)), bytes.dropFirst(32).elementsEqual(Self.check(of: key))
        else {
            throw CloudError(
                .invalidArguments,
                "The connection string was cut off or mistyped. Copy all of what nephos status --connection prints.")
        }
        try self.init(host: host, port: port, key: key)
    }

    /// The connection string to a service at a transport's endpoint, such as `tcp://127.0.0.1:7410`.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` if the endpoint is not one of TCP.
    public init(endpoint: String, key: PublicKey) throws(CloudError) {
        guard endpoint.hasPrefix("tcp://"), let (host, port) = Self.split(endpoint.dropFirst(6), defaultPort: nil)
        else {
            throw Self.malformed
        }
        try self.init(host: host, port: port, key: key)
    }

    /// Where to connect.
    public var endpoint: String { "tcp://\(address)" }

    public var description: String {
        let place = port == Self.standardPort ? String(address.dropLast(":\(port)".count)) : address
        return "nephos://\(place)/\(Base58.encode(key.bytes + Self.check(of: key)))"
    }

    private static func check(of key: PublicKey) -> [UInt8] { Array(SHA256.hash(data: key.bytes).prefix(2)) }

    /// The port of identity where a connection string names none.
    public static let standardPort = 7400

    private var address: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    private static let malformed = CloudError(
        .invalidArguments,
        "This is not a connection string. It looks like nephos://host:port/KEY; nephos status --connection prints it.")

    /// `host:port`, or `[address]:port`; without a port, the default one.
    private static func split(_ text: some StringProtocol, defaultPort: Int?) -> (String, Int)? {
        var host = String(text)
        var port = defaultPort
        if let colon = host.lastIndex(of: ":"), !host.hasSuffix("]") {
            let digits = host[host.index(after: colon)...]
            port = digits.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ? Int(digits) : nil
            host = String(host[..<colon])
        }
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
        } else if host.contains(":") {
            return nil
        }
        return port.map { (host, $0) }
    }
}
