/// A request.
public struct HTTPRequest: Sendable {
    /// A method; a server answers those that it was made for.
    public struct Method: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        public static let get = Method(rawValue: "GET")
        /// As GET, and only the answer's status and headers are sent.
        public static let head = Method(rawValue: "HEAD")
        public static let put = Method(rawValue: "PUT")
        public static let post = Method(rawValue: "POST")
        public static let delete = Method(rawValue: "DELETE")
        public static let options = Method(rawValue: "OPTIONS")
    }

    public var method: Method
    /// As it came, percent-encoded, without the query.
    public var path: String
    /// As it came, percent-encoded, without the question mark.
    public var query = ""
    /// Names and values as they came, in their order.
    public var headers: [(name: String, value: String)]
    /// Nil: it has none.
    public var body: HTTPRequestBody?
    /// The address of the other end of the connection, such as `127.0.0.1`.
    public var address = ""

    public init(
        _ method: Method = .get, _ path: String, headers: [(name: String, value: String)] = [],
        body: HTTPRequestBody? = nil
    ) {
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
    }

    /// The header's value.
    ///
    /// - Returns: Nil if there is none, or if there are several: nobody knows which was meant.
    public func header(_ name: String) -> String? {
        let values = values(of: name)
        return values.count == 1 ? values[0] : nil
    }

    /// The elements of a list header, from all its lines (RFC 9110, 5.3), separated by commas. Nil without the header.
    public func list(_ name: String) -> String? {
        let values = values(of: name)
        return values.isEmpty ? nil : values.joined(separator: ", ")
    }

    /// All values of the header, in their order.
    public func values(of name: String) -> [String] {
        headers.filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }
}

/// The answer to an ``HTTPRequest``.
public struct HTTPResponse: Sendable {
    public enum Body: Sendable {
        case bytes([UInt8])
        /// So many bytes, piece by piece.
        case source(any HTTPBodySource, length: UInt64)
        /// Piece by piece, up to an empty one.
        case stream(any HTTPBodySource)

        /// Nil: unknown.
        var length: UInt64? {
            switch self {
            case .bytes(let bytes): UInt64(bytes.count)
            case .source(_, let length): length
            case .stream: nil
            }
        }
    }

    /// The number, such as 200.
    public var status: Int
    /// Besides ``defaultHeaders``, of which they replace those of the same name, and what says how long the body is.
    public var headers: [(name: String, value: String)]
    public var body: Body

    public init(_ status: Int, headers: [(name: String, value: String)] = [], _ body: Body = .bytes([])) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// An answer in words.
    public init(_ status: Int, text: String, headers: [(name: String, value: String)] = []) {
        self.init(
            status, headers: [(name: "Content-Type", value: "text/plain; charset=utf-8")] + headers,
            .bytes([UInt8]((text + "\n").utf8)))
    }

    /// What every answer says, unless it says otherwise: it is what it is called, runs nothing, is kept by nobody, and
    /// where somebody goes from it the address is not told.
    public static let defaultHeaders: [(name: String, value: String)] = [
        (name: "X-Content-Type-Options", value: "nosniff"),
        (name: "Content-Security-Policy", value: "sandbox; default-src 'none'"),
        (name: "Referrer-Policy", value: "no-referrer"),
        (name: "Cache-Control", value: "private, no-store"),
        (name: "X-Robots-Tag", value: "noindex"),
    ]

    var allHeaders: [(name: String, value: String)] {
        let own = Set(headers.map { $0.name.lowercased() })
        return Self.defaultHeaders.filter { !own.contains($0.name.lowercased()) } + headers
    }
}

/// A body that is not in memory.
public protocol HTTPBodySource: Sendable {
    /// Gives the next piece. Asked again only when the last one was taken by the socket.
    ///
    /// - Parameter completion: Called once, on any thread. No bytes: the body ends. If its length was said and this is
    ///   early, that cuts the connection, as an error does, so that nobody takes a part for the whole.
    func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void)

    /// Nobody takes any more of it: the connection is over. What was asked for last need not come. Called at most once.
    func cancel()
}

extension HTTPBodySource {
    public func cancel() {}
}

/// Answers requests.
///
/// Called on the server's own thread: it must not wait there. It calls its last argument once, on any thread.
public typealias HTTPHandler = @Sendable (HTTPRequest, @escaping @Sendable (HTTPResponse) -> Void) -> Void
