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
        /// The rest of an unwanted body is read, before the connection is closed.
        case draining
    }

    /// A request's body, as far as it has come.
    private struct Body {
        /// Pieces that the handler has not asked for yet.
        var parts: [ByteBuffer] = []
        var isWhole = false
        /// It is longer than allowed, and is not read further.
        var isTooLong = false
        /// Waits for the next piece.
        var reader: HTTPRequestBody.Completion?
        /// The client waits for `100 Continue` before it sends the body.
        var awaitsContinue: Bool
        var count: UInt64 = 0
        /// When the next piece was asked for, and how long pieces were waited for in all.
        var asked = ContinuousClock.now
        var waited = Duration.zero
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
    private let methods: Set<HTTPRequest.Method>
    private let handler: HTTPHandler
    private let rates: RequestRates
    private let connections: ConnectionTable
    private let address: Address
    private let addressText: String
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
    /// Of the request that is being answered; nil: it has none.
    private var body: Body?
    /// What came with an earlier request. Nothing more is asked for while one is answered; but what the socket has when
    /// the other end closes it comes all the same.
    private var pending: [Incoming] = []
    private var pendingBytes = 0
    private var keepsAlive = true
    /// Which request of the connection it is: what is said of an earlier one comes too late.
    private var number = 0
    private var hasWrittenHead = false
    /// Bytes of the answer's body that are not written yet; nil: its source knows.
    private var rest: UInt64?
    /// What the body comes from.
    private var source: (any HTTPBodySource)?
    private var step: Scheduled<Void>?
    private var whole: Scheduled<Void>?

    /// - Parameter address: Where it comes from.
    init(
        _ limits: HTTPLimits, _ methods: Set<HTTPRequest.Method>, _ rates: RequestRates,
        _ connections: ConnectionTable, of address: SocketAddress?, _ handler: @escaping HTTPHandler
    ) {
        self.limits = limits
        self.methods = methods
        self.rates = rates
        self.connections = connections
        self.address = Address(address)
        addressText = address?.ipAddress ?? ""
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
        let reader = body?.reader
        (step, whole, context, source, pending, body) = (nil, nil, nil, nil, [], nil)
        number += 1
        reader?(.failure(HTTPRequestBody.Ended()))
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
        switch state {
        case .waiting, .draining: context.read()
        case .answering: if body?.reader != nil { context.read() }
        case .ending: break
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { take(.error(error)) }

    private func take(_ incoming: Incoming) {
        if let body, !body.isWhole { return receive(incoming) }
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
        while !pending.isEmpty {
            let isBody = body.map { !$0.isWhole } ?? false
            if !isBody { guard case .waiting = state else { break } }
            let next = pending.removeFirst()
            pendingBytes -= next.bytes
            if isBody { receive(next) } else { handle(next) }
        }
        if case .waiting = state { context?.read() }
    }

    private func handle(_ incoming: Incoming) {
        switch incoming {
        case .part(.head(let head)): begin(head)
        // Of a request that was refused.
        case .part(.body): break
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
        let lengths = head.headers["Content-Length"]
        let length = lengths.first.flatMap { UInt64($0) }
        let hasBody = length ?? 0 > 0 || !head.headers["Transfer-Encoding"].isEmpty
        body =
            hasBody ? Body(awaitsContinue: head.headers["Expect"].contains { $0.lowercased() == "100-continue" }) : nil
        guard head.bytes <= limits.headerBytesMax, head.headers.count <= limits.headerCountMax else {
            return refuse(431, "The request's headers are too long.")
        }
        let method = HTTPRequest.Method(rawValue: head.method.rawValue)
        guard methods.contains(method) else {
            let allowed = methods.map(\.rawValue).sorted().joined(separator: ", ")
            return refuse(405, "Only these methods are answered: \(allowed).", [(name: "Allow", value: allowed)])
        }
        guard head.uri.utf8.first == UInt8(ascii: "/") else { return refuse(400, "The request is malformed.") }
        let path = head.uri.utf8.prefix { $0 != UInt8(ascii: "?") }
        var request = HTTPRequest(
            method, String(Substring(path)), headers: head.headers.map { (name: $0.name, value: $0.value) })
        request.query = String(Substring(head.uri.utf8.dropFirst(path.count + 1)))
        request.address = addressText
        self.request = request
        guard lengths.isEmpty || length != nil else { return refuse(400, "The request is malformed.") }
        guard hasBody else { return }
        guard limits.bodyBytesMax > 0 else { return refuse(413, "Requests have no body.") }
        guard length ?? 0 <= limits.bodyBytesMax else { return refuse(413, "The request's body is too long.") }
        beginBody(length)
    }

    // MARK: The request's body

    private func beginBody(_ length: UInt64?) {
        guard let context else { return }
        let own = NIOLoopBound(self, eventLoop: context.eventLoop)
        let number = number
        request?.body = HTTPRequestBody(length: length) { completion in
            own.eventLoop.execute {
                guard own.value.number == number else { return completion(.failure(HTTPRequestBody.Ended())) }
                own.value.readBody(completion)
            }
        }
        answer()
    }

    private func readBody(_ completion: @escaping HTTPRequestBody.Completion) {
        guard case .answering = state, let body, body.reader == nil, !hasWrittenHead, let context else {
            return completion(.failure(HTTPRequestBody.Ended()))
        }
        self.body?.reader = completion
        guard body.parts.isEmpty, !body.isWhole, !body.isTooLong else { return givePiece() }
        self.body?.asked = .now
        within(limits.stallTime) { $0.close() }
        if body.awaitsContinue {
            self.body?.awaitsContinue = false
            let head = HTTPResponseHead(version: .http1_1, status: .continue)
            context.writeAndFlush(wrapOutboundOut(.head(head)), promise: nil)
        }
        context.read()
    }

    private func receive(_ incoming: Incoming) {
        switch incoming {
        case .part(.body(let bytes)):
            body?.count += UInt64(bytes.readableBytes)
            guard let body else { return }
            if case .answering = state, !hasWrittenHead {
                guard !isTooSlow() else { return close() }
                if body.count > limits.bodyBytesMax {
                    self.body?.isTooLong = true
                    self.body?.parts = []
                } else {
                    self.body?.parts.append(bytes)
                }
            } else if body.count > limits.drainBytesMax {
                return close()
            }
        case .part(.end): body?.isWhole = true
        case .part(.head), .error: return close()
        }
        givePiece()
        if case .draining = state, body?.isWhole ?? true { close() }
    }

    /// Whether less comes than has to, on average.
    private func isTooSlow() -> Bool {
        guard var body, body.reader != nil else { return false }
        let now = ContinuousClock.now
        body.waited += now - body.asked
        body.asked = now
        self.body = body
        return body.waited > limits.stallTime + .seconds(1) * Int(clamping: body.count / limits.bodyBytesPerSecondMin)
    }

    private func givePiece() {
        guard let body, let reader = body.reader, !body.parts.isEmpty || body.isWhole || body.isTooLong else { return }
        self.body?.reader = nil
        within(limits.answerTime) { $0.isLate() }
        guard !body.isTooLong else { return reader(.failure(HTTPRequestBody.Ended(isTooLong: true))) }
        guard !body.parts.isEmpty else { return reader(.success([])) }
        self.body?.parts = []
        reader(.success(body.parts.flatMap { Array($0.readableBytesView) }))
    }

    /// Reads the rest of an unwanted body, so that the client gets to read the answer.
    private func drain() {
        guard let context else { return }
        state = .draining
        within(limits.graceTime) { $0.close() }
        context.read()
    }

    // MARK: Answering

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
        // Answers 304 and 204 have no length.
        if response.status != 304, response.status != 204, let length = response.body.length {
            headers.replaceOrAdd(name: "Content-Length", value: "\(length)")
        }
        if body.map({ !$0.isWhole }) ?? false { keepsAlive = false }
        if !keepsAlive { headers.replaceOrAdd(name: "Connection", value: "close") }
        let head = HTTPResponseHead(
            version: .http1_1, status: HTTPResponseStatus(statusCode: response.status), headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        guard method != .head, response.status != 304, response.status != 204 else { return finish() }
        rest = response.body.length
        switch response.body {
        case .bytes(let bytes): write(bytes[...], of: nil)
        case .source(let source, _), .stream(let source):
            self.source = source
            ask(source)
        }
    }

    private func ask(_ source: any HTTPBodySource) {
        guard rest != 0 else { return finish() }
        guard let context else { return }
        within(limits.answerTime) { $0.close() }
        let own = NIOLoopBound(self, eventLoop: context.eventLoop)
        let number = number
        source.next { result in
            own.eventLoop.execute {
                guard own.value.number == number else { return }
                let rest = own.value.rest
                guard let bytes = try? result.get(), rest.map({ !bytes.isEmpty && UInt64(bytes.count) <= $0 }) ?? true
                else {
                    // Who waits for the rest sees that it does not come.
                    return own.value.close()
                }
                if bytes.isEmpty { return own.value.finish() }
                own.value.write(bytes[...], of: source)
            }
        }
    }

    /// Writes a piece, a slice at a time, and asks for the next when it has gone.
    private func write(_ piece: ArraySlice<UInt8>, of source: (any HTTPBodySource)?) {
        guard let context else { return }
        guard !piece.isEmpty else { return source.map(ask) ?? finish() }
        let slice = piece.prefix(HTTPLimits.sliceBytes)
        rest = rest.map { $0 - UInt64(slice.count) }
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
            if case .success = result, let body, !body.isWhole, !body.awaitsContinue { return drain() }
            // It may have been stopped meanwhile.
            guard case .success = result, keepsAlive else { return close() }
            body = nil
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
