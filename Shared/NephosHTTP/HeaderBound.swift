internal import NIOCore
internal import NIOHTTP1

/// Bytes that have come since the last request's headers were whole.
///
/// On the connection's loop only.
final class HeaderCount {
    var bytes = 0
    /// Whether a request's body is being received.
    var isInBody = false
}

/// There is too much of a request before its headers end.
struct HeadersTooLong: Error {}

/// Counts what comes, before anybody looks at it, and complains where a request's headers do not end in time.
final class HeaderBound: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let count: HeaderCount
    private let bytesMax: Int

    init(_ count: HeaderCount, bytesMax: Int) {
        self.count = count
        self.bytesMax = bytesMax
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if !count.isInBody { count.bytes += unwrapInboundIn(data).readableBytes }
        context.fireChannelRead(data)
        // What was whole by now is not counted any more.
        if count.bytes > bytesMax { context.fireErrorCaught(HeadersTooLong()) }
    }
}

/// Notes that a request's headers are whole.
final class HeaderEnd: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart

    private let count: HeaderCount

    init(_ count: HeaderCount) { self.count = count }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head: (count.bytes, count.isInBody) = (0, true)
        case .end: count.isInBody = false
        case .body: break
        }
        context.fireChannelRead(data)
    }
}
