private import Foundation
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
public import NephosCore

/// A small HTTP/1.1 server: bodies piece by piece, both ways, and bounds on all that somebody can take of it.
///
///     let server = try HTTPServer(host: "127.0.0.1", port: 8080) { request, answer in
///         answer(HTTPResponse(200, text: "Hello."))
///     }
///
/// With a certificate it speaks TLS 1.2 and 1.3 alone; without, it is for behind a proxy that has one, or for this machine.
/// Runs on a thread of its own.
public final class HTTPServer: Sendable {
    /// Where it listens; chosen by the system if the port was 0.
    public let port: Int
    private let group: MultiThreadedEventLoopGroup
    private let listener: any Channel
    private let connections: ConnectionTable
    private let graceTime: Duration

    /// Begins to answer.
    ///
    /// - Parameter certificate: Nil: without TLS. The limits hold for its handshake too: it has to end within
    ///   ``HTTPLimits/headerTime``.
    /// - Parameter methods: Requests with others are refused.
    /// - Throws: ``CloudError`` `.configurationInvalid` where it cannot listen there.
    public init(
        host: String, port: Int, limits: HTTPLimits = HTTPLimits(), certificate: HTTPCertificate? = nil,
        methods: Set<HTTPRequest.Method> = [.get, .head], handler: @escaping HTTPHandler
    ) throws(CloudError) {
        let connections = ConnectionTable(limits)
        let rates = RequestRates(limits)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let bootstrap = ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 128)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelInitializer { channel in channel.eventLoop.makeCompletedFuture { try channel.closesOnExec() }
            }
            .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: limits.readBytes))
            .childChannelOption(.maxMessagesPerRead, value: 1)
            // Nothing is read while a request is answered.
            .childChannelOption(.autoRead, value: false)
            .childChannelInitializer { channel in
                guard connections.enter(channel) else {
                    return channel.eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
                }
                return channel.eventLoop.makeCompletedFuture {
                    try channel.closesOnExec()
                    if let certificate {
                        try channel.pipeline.syncOperations.addHandler(
                            NIOSSLServerHandler(context: certificate.context))
                    }
                    try channel.pipeline.syncOperations.addHandlers(
                        Self.handlers(limits, methods, rates, connections, channel.remoteAddress, handler))
                }
            }
        do {
            listener = try bootstrap.bind(host: host, port: port).wait()
        } catch {
            group.shutdownGracefully { _ in }
            throw CloudError(
                .configurationInvalid,
                "The HTTP server cannot listen there. Choose an address of this machine and a free port.",
                details: ["host": host, "port": "\(port)"])
        }
        self.port = listener.localAddress?.port ?? port
        self.group = group
        self.connections = connections
        graceTime = limits.graceTime
    }

    private static func handlers(
        _ limits: HTTPLimits, _ methods: Set<HTTPRequest.Method>, _ rates: RequestRates,
        _ connections: ConnectionTable, _ address: SocketAddress?, _ handler: @escaping HTTPHandler
    ) -> [any ChannelHandler] {
        let count = HeaderCount()
        return [
            HeaderBound(count, bytesMax: limits.headerBytesMax),
            HTTPResponseEncoder(),
            ByteToMessageHandler(HTTPRequestDecoder(leftOverBytesStrategy: .dropBytes)),
            HeaderEnd(count),
            NIOHTTPResponseHeadersValidator(),
            HTTPConnection(limits, methods, rates, connections, of: address, handler),
        ]
    }

    /// Connections at this moment.
    public var connectionCount: Int { connections.count }

    /// Takes no further request, answers those that it has, for ``HTTPLimits/graceTime`` at most, and ends.
    ///
    /// - Parameter completion: Called once all of that is done, on any thread.
    public func stop(then completion: @escaping @Sendable () -> Void = {}) {
        listener.close(promise: nil)
        let open = connections.stop()
        for channel in open { channel.pipeline.fireUserInboundEventTriggered(ServerStops()) }
        let loop = listener.eventLoop
        let cut = loop.scheduleTask(in: TimeAmount(graceTime)) {
            for channel in open { channel.cut() }
        }
        EventLoopFuture.andAllComplete(open.map(\.closeFuture) + [listener.closeFuture], on: loop).whenComplete {
            [group] _ in
            cut.cancel()
            group.shutdownGracefully { _ in completion() }
        }
    }
}

extension Channel {
    /// Keeps its socket from programs that this one starts: one that has it too keeps a connection open that was closed
    /// here, and a port taken. On its loop only.
    fileprivate func closesOnExec() throws {
        try pipeline.syncOperations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) {
            _ = fcntl($0, F_SETFD, FD_CLOEXEC)
        }
    }
}

/// Told to each connection when the server is stopped.
struct ServerStops {}

extension HTTPLimits {
    /// Bytes that are read from a connection at a time: no more than a request may have, or a page.
    var readBytes: Int { bodyBytesMax > 0 ? 64 << 10 : min(max(headerBytesMax, 1024), 16 << 10) }
}

extension TimeAmount {
    init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        // A century is long enough.
        self = .nanoseconds(min(seconds, 100 * 365 * 86_400) * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
}
