/// What others may take of an ``HTTPServer``. All of it is in force whoever they are.
public struct HTTPLimits: Hashable, Sendable {
    /// Connections at one time. For a further one the connection is closed that has waited longest for a request, so
    /// idle connections keep nobody out. While all are being answered, the further one is closed.
    public var connectionsMax = 256
    /// The same of one address; of IPv6, of one network of 64 bits, which a subscriber has as a whole. Behind a proxy
    /// everybody comes from its address: there it has to be as much as ``connectionsMax``.
    public var connectionsOfAddressMax = 32
    /// Requests of one address, as above, at once, and as many more each second: beyond that they are answered with 429.
    public var requestsOfAddressMax = 1000
    public var requestsOfAddressPerSecond = 100
    /// Bytes of a request's line and headers. Of requests that come before the answer to an earlier one, twice as many
    /// are kept: with more the connection is closed. Whoever closes their side is gone: they are answered nothing more.
    public var headerBytesMax = 16 << 10
    /// Header lines of a request.
    public var headerCountMax = 64
    /// From the connection, and from the end of an answer, to the end of the next request. Whoever sends slowly has no
    /// longer.
    public var headerTime: Duration = .seconds(10)
    /// The same after an answer: a client may have been told to keep the connection.
    public var idleTime: Duration = .seconds(30)
    /// Bytes of a request's body; 0: requests have none.
    public var bodyBytesMax: UInt64 = 0
    /// Bytes of a body that have to come in a second on average, after ``stallTime``.
    public var bodyBytesPerSecondMin: UInt64 = 1 << 10
    /// Bytes of an unwanted body that are still read, so that the client sees the answer.
    public var drainBytesMax: UInt64 = 1 << 20
    /// For the handler to answer or to ask for more of the request's body, and for each piece of a body to come from it.
    public var answerTime: Duration = .seconds(30)
    /// For the other end to take ``sliceBytes``, and to send a piece of a body.
    public var stallTime: Duration = .seconds(30)
    /// A request in all, its answer with it.
    public var requestTime: Duration = .seconds(6 * 3600)
    /// Requests of one connection. The last is told that the connection closes.
    public var requestsMax = 1000
    /// For what is being answered when the server is stopped.
    public var graceTime: Duration = .seconds(5)

    /// Bytes of a body that are given to the socket at a time: what waits there for each connection.
    public static let sliceBytes = 64 << 10

    /// The limits of a server that strangers may reach.
    public init() {}
}
