internal import NIOCore
internal import NIOHTTP1

/// One connection: takes a request, has it answered, writes the answer as fast as the other end takes it, and waits
/// for the next. At each moment one timer says until when it may take what it does.
///
/// On its loop only.
final class HTTPConnection: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private enum State {
        /// For a request, or the rest of one.
        case waiting
        /// The handler has it; or its body is being written.
        case answering(HTTPRequest.Method)
        /// The end of the answer is being written.
        case ending
    }

    private enum Incoming {
        case part(HTTPServerRequestPart)
        case error(any Error)

        /// About as many as it came in.
        var bytes: Int {
            switch self {
            case .part(.head(let head)): head.bytes
            case .part(.body(let bytes)): bytes.readableBytes
            case .part(.end), .error: 0
            }
        }
    }

    private let limits: HTTPLimits
    private let handler: HTTPHandler
    private let rates: RequestRates
    private let connections: ConnectionTable
    private let address: Address
    private var context: ChannelHandlerContext?
    private var state = State.waiting {
        didSet {
            guard let context else { return }
            if case .waiting = state {
                connections.note(context.channel, isWaiting: true)
            } else if case .waiting = oldValue {
                connections.note(context.channel, isWaiting: false)
            }
        }
    }
    private var request: HTTPRequest?
    /// What came with an earlier request. Nothing more is asked for while one is answered; but what the socket has when
    /// the other end closes it comes all the same.
    private var pending: [Incoming] = []
    private var pendingBytes = 0
    private var keepsAlive = true
    /// Which request of the connection it is: what is said of an earlier one comes too late.
    private var number = 0
    private var hasWrittenHead = false
    /// Bytes of the body that are not written yet.
    private var rest: UInt64 = 0
    /// What the body comes from.
    private var source: (any HTTPBodySource)?
    private var step: Scheduled<Void>?
    private var whole: Scheduled<Void>?

    /// - Parameter address: Where it comes from.
    init(
        _ limits: HTTPLimits, _ rates: RequestRates, _ connections: ConnectionTable, of address: Address,
        _ handler: @escaping HTTPHandler
    ) {
        self.limits = limits
        self.rates = rates
        self.connections = connections
        self.address = address
        self.handler = handler
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        within(limits.headerTime) { $0.close() }
    }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        context.read()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    private func end() {
        step?.cancel()
        whole?.cancel()
        source?.cancel()
        (step, whole, context, source, pending) = (nil, nil, nil, nil, [])
        number += 1
    }

    private func close() { context?.close(promise: nil) }

    // MARK: Time

    /// - Parameter late: What is done if nothing else has happened by then.
    private func within(_ time: Duration, _ late: @escaping (HTTPConnection) -> Void) {
        step?.cancel()
        step = schedule(time, late)
    }

    private func schedule(_ time: Duration, _ late: @escaping (HTTPConnection) -> Void) -> Scheduled<Void>? {
        context?.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(time)) { [weak self] in
            if let self { late(self) }
        }
    }

    // MARK: Requests

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { take(.part(unwrapInboundIn(data))) }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.fireChannelReadComplete()
        if case .waiting = state { context.read() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { take(.error(error)) }

    private func take(_ incoming: Incoming) {
        guard case .waiting = state, pending.isEmpty else { return keep(incoming) }
        handle(incoming)
    }

    private func keep(_ incoming: Incoming) {
        pending.append(incoming)
        pendingBytes += incoming.bytes
        if pendingBytes > 2 * limits.headerBytesMax { close() }
    }

    /// Goes on with what has come meanwhile, until there is something to answer.
    private func takePending() {
        while case .waiting = state, !pending.isEmpty {
            let next = pending.removeFirst()
            pendingBytes -= next.bytes
            handle(next)
        }
        if case .waiting = state { context?.read() }
    }

    private func handle(_ incoming: Incoming) {
        switch incoming {
        case .part(.head(let head)): begin(head)
        case .part(.body): refuse(413, "Requests have no body.")
        case .part(.end): answer()
        case .error(is HeadersTooLong): refuse(431, "The request's headers are too long.")
        case .error(is HTTPParserError): refuse(400, "The request is malformed.")
        case .error: close()
        }
    }

    private func begin(_ head: HTTPRequestHead) {
        number += 1
        hasWrittenHead = false
        keepsAlive = head.isKeepAlive && number < limits.requestsMax
        guard head.bytes <= limits.headerBytesMax, head.headers.count <= limits.headerCountMax else {
            return refuse(431, "The request's headers are too long.")
        }
        guard let method = HTTPRequest.Method(rawValue: head.method.rawValue) else {
            return refuse(405, "Only GET and HEAD are answered.", [(name: "Allow", value: "GET, HEAD")])
        }
        guard head.uri.utf8.first == UInt8(ascii: "/") else { return refuse(400, "The request is malformed.") }
        let path = head.uri.utf8.prefix { $0 != UInt8(ascii: "?") }
        request = HTTPRequest(
            method, String(Substring(path)), headers: head.headers.map { (name: $0.name, value: $0.value) })
    }

    private func answer() {
        guard let request, let context else { return }
        self.request = nil
        state = .answering(request.method)
        within(limits.answerTime) { $0.isLate() }
        whole = schedule(limits.requestTime) { $0.close() }
        if let wait = rates.wait(of: address) {
            return write(
                HTTPResponse(
                    429, text: "Too many requests. Try again later.", headers: [(name: "Retry-After", value: "\(wait)")]
                ))
        }
        let own = NIOLoopBound(self, eventLoop: context.eventLoop)
        let number = number
        handler(request) { response in
            own.eventLoop.execute {
                guard own.value.number == number else { return }
                own.value.write(response)
            }
        }
    }

    private func isLate() {
        guard !hasWrittenHead else { return close() }
        keepsAlive = false
        write(
            HTTPResponse(
                503, text: "The server is busy. Try again later.", headers: [(name: "Retry-After", value: "30")]))
    }

    /// Answers what is no request, or one that nobody answers, and ends the connection.
    private func refuse(_ status: Int, _ text: String, _ headers: [(name: String, value: String)] = []) {
        state = .answering(.get)
        keepsAlive = false
        hasWrittenHead = false
        number += 1
        within(limits.stallTime) { $0.close() }
        write(HTTPResponse(status, text: text, headers: headers))
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event is ServerStops else { return context.fireUserInboundEventTriggered(event) }
        keepsAlive = false
        if case .waiting = state { close() }
    }

    // MARK: The answer

    private func write(_ response: HTTPResponse) {
        guard case .answering(let method) = state, let context, !hasWrittenHead else { return }
        hasWrittenHead = true
        var headers = HTTPHeaders(response.allHeaders.map { ($0.name, $0.value) })
        // What is not modified has no length of its own.
        if response.status != 304 { headers.replaceOrAdd(name: "Content-Length", value: "\(response.body.length)") }
        if !keepsAlive { headers.replaceOrAdd(name: "Connection", value: "close") }
        let head = HTTPResponseHead(
            version: .http1_1, status: HTTPResponseStatus(statusCode: response.status), headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        guard method == .get, response.status != 304 else { return finish() }
        rest = response.body.length
        switch response.body {
        case .bytes(let bytes): write(bytes[...], of: nil)
        case .source(let source, _):
            self.source = source
            ask(source)
        }
    }

    private func ask(_ source: any HTTPBodySource) {
        guard rest > 0 else { return finish() }
        guard let context else { return }
        within(limits.answerTime) { $0.close() }
        let own = NIOLoopBound(self, eventLoop: context.eventLoop)
        let number = number
        source.next { result in
            own.eventLoop.execute {
                guard own.value.number == number else { return }
                guard let bytes = try? result.get(), !bytes.isEmpty, UInt64(bytes.count) <= own.value.rest else {
                    // Who waits for the rest sees that it does not come.
                    return own.value.close()
                }
                own.value.write(bytes[...], of: source)
            }
        }
    }

    /// Writes a piece, a slice at a time, and asks for the next when it has gone.
    private func write(_ piece: ArraySlice<UInt8>, of source: (any HTTPBodySource)?) {
        guard let context else { return }
        guard !piece.isEmpty else { return source.map(ask) ?? finish() }
        let slice = piece.prefix(HTTPLimits.sliceBytes)
        rest -= UInt64(slice.count)
        within(limits.stallTime) { $0.close() }
        let number = number
        let buffer = context.channel.allocator.buffer(bytes: slice)
        context.writeAndFlush(wrapOutboundOut(.body(.byteBuffer(buffer)))).assumeIsolated().whenComplete {
            [weak self] result in
            guard let self, self.number == number else { return }
            guard case .success = result else { return close() }
            write(piece.dropFirst(slice.count), of: source)
        }
    }

    private func finish() {
        guard let context else { return }
        whole?.cancel()
        (whole, source) = (nil, nil)
        within(limits.stallTime) { $0.close() }
        state = .ending
        let number = number
        context.writeAndFlush(wrapOutboundOut(.end(nil))).assumeIsolated().whenComplete { [weak self] result in
            guard let self, self.number == number else { return }
            // It may have been stopped meanwhile.
            guard case .success = result, keepsAlive else { return close() }
            state = .waiting
            within(limits.idleTime) { $0.close() }
            takePending()
        }
    }
}

extension HTTPRequestHead {
    /// Of its path and headers.
    fileprivate var bytes: Int {
        headers.reduce(uri.utf8.count) { $0 + $1.name.utf8.count + $1.value.utf8.count + 4 }
    }
}
