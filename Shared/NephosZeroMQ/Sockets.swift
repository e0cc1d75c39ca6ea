internal import CNephosZeroMQ
internal import Foundation
package import NephosBus
package import NephosCore

/// A socket as its loop sees it. For the package: what plays thousands of devices for load tests is one as well.
package protocol LoopSocket: AnyObject {
    var core: SocketCore { get }
    /// Handles what is ready, at most one batch; false, having cleared
    /// ``SocketCore/mayHaveMore``, when there was nothing.
    func receiveReady() -> Bool
    func close()
}

/// What all kinds share: options, receiving, sending, closing.
package final class SocketCore {
    /// Milliseconds for which a peer may leave bytes unacknowledged, also by not reading, before it is cut.
    private static let unacknowledgedMax: Int32 = 15_000
    static let handshakeTime: Duration = .seconds(5)
    /// Keeps one batch of large messages from filling the memory.
    package static let batchBytesMax = 16 << 20
    /// A topic and a batch of events; requests and replies have one frame.
    static let framesMax = 2

    let pointer: UnsafeMutableRawPointer
    /// Readable when libzmq has news for this socket. Any call on the socket may
    /// take the news away, so each one sets ``mayHaveMore``.
    let descriptor: Int32
    /// The loop must not sleep before ``receive()`` has found nothing.
    package var mayHaveMore = true
    private(set) var isOpen = true
    /// Of the message that was received last: its bytes on the wire, dropped frames included.
    package private(set) var wireBytes = 0
    private var spare: ReceivedFrame?
    /// Of the message that was received last, where peers are not told apart.
    private var connection: Connection?
    private unowned let loop: ZeroMQLoop

    /// For kinds that other modules of the package have. ``add(_:)`` makes the loop look at the socket.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when the loop is not one of ``ZeroMQTransport``'s;
    ///   `.configurationInvalid` when libzmq cannot open a socket.
    package convenience init(on loop: any BusLoop, type: Int32) throws {
        guard let loop = loop as? ZeroMQLoop else {
            throw CloudError(.invalidArguments, "The socket needs a loop of the ZeroMQ transport.")
        }
        try self.init(loop, type: type)
    }

    package func add(_ socket: some LoopSocket) { _ = loop.add(socket) }

    package func remove(_ socket: some LoopSocket) { loop.remove(socket) }

    init(_ loop: ZeroMQLoop, type: Int32) throws {
        guard let pointer = zmq_socket(loop.context.pointer, type) else {
            throw ZeroMQFailure.last("A socket could not be opened.")
        }
        self.pointer = pointer
        self.loop = loop
        var descriptor: Int32 = -1
        var size = MemoryLayout<Int32>.size
        zmq_getsockopt(pointer, ZMQ_FD, &descriptor, &size)
        self.descriptor = descriptor
        try set(ZMQ_LINGER, loop.context.linger)
        try set(ZMQ_RECONNECT_IVL, Int32(50))
        try set(ZMQ_RECONNECT_IVL_MAX, Int32(2_000))
        try set(ZMQ_BACKLOG, Int32(1024))
        try noticeDeadPeers()
    }

    /// Lets the kernel find out that the other end is gone: within 15 seconds
    /// when something is under way to it, within 25 when nothing is.
    ///
    /// Never ZMTP heartbeats: their timer ends the process (`Assertion failed:
    /// !_io_error`) when it meets a connection whose input had stopped because
    /// a queue was full. Whoever connects could bring that about.
    private func noticeDeadPeers() throws {
        try set(ZMQ_HEARTBEAT_IVL, Int32(0))
        try set(ZMQ_HANDSHAKE_IVL, Int32(Self.handshakeTime.milliseconds))
        try set(ZMQ_CONNECT_TIMEOUT, Int32(5_000))
        try set(ZMQ_TCP_MAXRT, Self.unacknowledgedMax)
        try set(ZMQ_TCP_KEEPALIVE, Int32(1))
        try set(ZMQ_TCP_KEEPALIVE_IDLE, Int32(10))
        try set(ZMQ_TCP_KEEPALIVE_INTVL, Int32(5))
        try set(ZMQ_TCP_KEEPALIVE_CNT, Int32(3))
    }

    deinit { close() }

    package func close() {
        guard isOpen else { return }
        isOpen = false
        zmq_close(pointer)
    }

    package func set(_ option: Int32, _ value: Int32) throws {
        var value = value
        try set(option, &value, MemoryLayout<Int32>.size)
    }

    func set(_ option: Int32, _ value: Int64) throws {
        var value = value
        try set(option, &value, MemoryLayout<Int64>.size)
    }

    package func set(_ option: Int32, _ bytes: [UInt8]) throws {
        try set(option, bytes, bytes.count)
    }

    // A failure must not pass: a socket without its CURVE options would be open to all.
    private func set(_ option: Int32, _ value: UnsafeRawPointer, _ size: Int) throws {
        guard zmq_setsockopt(pointer, option, value, size) == 0 else {
            throw ZeroMQFailure.last("libzmq does not take an option.", ["option": "\(option)"])
        }
    }

    /// Messages that may wait for one peer, the bytes of a frame, and what connections may make the process hold.
    ///
    /// What is received is bounded in bytes alone (``ConnectionWatch``), and
    /// never in messages: at such a mark libzmq stops reading the connection,
    /// and a PING among the last bytes it had read then ends the process
    /// (`Assertion failed: !_io_error`) once the connection is gone.
    package func setLimits(sending: Int, frameBytesMax: Int, _ limits: ConnectionLimits) throws {
        try set(ZMQ_SNDHWM, Int32(clamping: max(1, sending)))
        try set(ZMQ_RCVHWM, Int32(0))
        // libzmq looks at the frame as it is sealed.
        try set(ZMQ_MAXMSGSIZE, Int64(frameBytesMax + Connection.sealBytes))
        try loop.context.watch(pointer, under: limits)
    }

    func beCurveServer(_ keys: KeyPair, domain: String) throws {
        try set(ZMQ_CURVE_SERVER, Int32(1))
        try set(ZMQ_CURVE_SECRETKEY, keys.secretKey.bytes)
        try set(ZMQ_ZAP_DOMAIN, Array(domain.utf8))
    }

    package func beCurveClient(_ keys: KeyPair, of server: PublicKey) throws {
        try set(ZMQ_CURVE_SERVERKEY, server.bytes)
        try set(ZMQ_CURVE_PUBLICKEY, keys.publicKey.bytes)
        try set(ZMQ_CURVE_SECRETKEY, keys.secretKey.bytes)
    }

    /// libzmq knows addresses of IP version 6 only where it is told to.
    private func allow(_ endpoint: String) throws {
        if endpoint.contains("[") { try set(ZMQ_IPV6, Int32(1)) }
    }

    func bind(_ endpoint: String) throws -> String {
        try allow(endpoint)
        guard zmq_bind(pointer, endpoint) == 0 else {
            throw ZeroMQFailure.last("The address cannot be bound. Is it in use?", ["endpoint": endpoint])
        }
        var text = [CChar](repeating: 0, count: 256)
        var size = text.count
        zmq_getsockopt(pointer, ZMQ_LAST_ENDPOINT, &text, &size)
        return text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } } ?? endpoint
    }

    package func connect(_ endpoints: [String]) throws {
        for endpoint in endpoints {
            try allow(endpoint)
            guard zmq_connect(pointer, endpoint) == 0 else {
                throw ZeroMQFailure.last("The address cannot be connected to.", ["endpoint": endpoint])
            }
        }
    }

    /// Receives the next message without waiting; nil when there is none.
    ///
    /// Of one with more than ``framesMax`` frames the excess is dropped, but
    /// for one frame by which the caller sees it.
    ///
    /// - Parameter id: Gets the first frame, which is left out of the message.
    package func receive(after id: ReceivedFrame? = nil) -> Message? {
        guard isOpen else { return nil }
        wireBytes = 0
        if let id {
            switch id.receive(from: pointer) {
            case .nothing: return nothing
            case .last: return []
            case .partial: break
            }
        }
        var frames: Message = []
        frames.reserveCapacity(1)
        while true {
            let frame = spare ?? ReceivedFrame()
            spare = nil
            let reception = frame.receive(from: pointer)
            guard reception != .nothing else {
                spare = frame
                return nothing
            }
            wireBytes += Connection.wireBytes(frame.count)
            if frames.count <= Self.framesMax { frames.append(Frame(storage: frame)) }
            if reception == .last { return frames }
        }
    }

    private var nothing: Message? {
        mayHaveMore = false
        return nil
    }

    /// Receives what is ready, up to about this many messages and
    /// ``batchBytesMax``, from a server: messages of so many frames.
    func receiveBatch(max: Int, frames: Int) -> [Message] {
        var batch: [Message] = []
        var received = 0
        var byteCount = 0
        while received < max, byteCount < Self.batchBytesMax, let message = receive() {
            received += 1
            byteCount += wireBytes
            noteTaken(message)
            if message.count == frames { batch.append(message) }
        }
        return batch
    }

    /// Counts the message for the connection that it came on.
    private func noteTaken(_ message: Message) {
        guard let descriptor = (message.first?.storage as? ReceivedFrame)?.descriptor else { return }
        if connection?.descriptor != descriptor || connection?.isClosed == true {
            connection = loop.context.connections[descriptor]
        }
        connection?.noteTaken(wireBytes)
    }

    /// Lets libzmq take in news of which no message comes: subscriptions, peers that leave.
    func takeNews() {
        mayHaveMore = false
        var events: Int32 = 0
        var size = MemoryLayout<Int32>.size
        zmq_getsockopt(pointer, ZMQ_EVENTS, &events, &size)
    }

    /// Sends the frames after an optional prefix, all or none, without waiting.
    package func send(prefix: UnsafeRawBufferPointer? = nil, _ message: Message) -> SendResult {
        guard isOpen, !message.isEmpty else { return .gone }
        mayHaveMore = true
        if let prefix {
            // With ROUTER_MANDATORY the first part decides; the others follow it into the same queue.
            while zmq_send(pointer, prefix.baseAddress, prefix.count, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 {
                guard zmq_errno() == EINTR else { return failure }
            }
        }
        var result = SendResult.sent
        for (index, frame) in message.enumerated() {
            let isLast = index == message.count - 1
            guard !send(frame, at: index, isLast ? 0 : ZMQ_SNDMORE) else { continue }
            result = failure
            // A connection that ends in the middle takes the first frames with it;
            // libzmq drops the rest, and wants to see all of it to know the end.
            if prefix == nil, index == 0 { return result }
        }
        return result
    }

    private func send(_ frame: Frame, at place: Int, _ flags: Int32) -> Bool {
        var part = zmq_msg_t()
        loop.encoder.encode(frame, at: place, into: &part)
        while zmq_msg_send(&part, pointer, ZMQ_DONTWAIT | flags) < 0 {
            let number = zmq_errno()
            guard number != EINTR else { continue }
            zmq_msg_close(&part)
            errno = number
            return false
        }
        return true
    }

    private var failure: SendResult { zmq_errno() == EAGAIN ? .full : .gone }
}

/// A DEALER.
final class DealerSocket: RequestSocket, LoopSocket {
    private static let batchMax = 512

    let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private var handler: (([Message]) -> Void)?

    init(loop: ZeroMQLoop, _ options: RequestSocketOptions, _ handler: @escaping ([Message]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        core = try SocketCore(loop, type: ZMQ_DEALER)
        try core.beCurveClient(options.keys, of: options.serverKey)
        // Together they make every connection known to the server.
        try core.set(ZMQ_PROBE_ROUTER, Int32(1))
        try core.set(ZMQ_IMMEDIATE, Int32(1))
        try core.setLimits(
            sending: options.sendQueueMax, frameBytesMax: options.frameBytesMax,
            ConnectionLimits(
                unreadPerConnectionMax: options.unreadBytesMax, unreadMax: options.unreadBytesMax))
        try core.connect(options.endpoints)
    }

    func receiveReady() -> Bool {
        let batch = core.receiveBatch(max: Self.batchMax, frames: 1)
        guard !batch.isEmpty else { return false }
        handler?(batch)
        return true
    }

    func send(_ message: Message) -> SendResult { core.send(message) }

    func close() {
        core.close()
        // It usually holds what holds this socket.
        handler = nil
        loop.remove(self)
    }
}

/// A PUB.
///
/// libzmq drops what a subscriber's queue does not take, and tells nobody. So
/// that the queues cannot grow to that mark with large messages, a subscriber
/// that is too many bytes behind is cut: it notices, and reads the feed.
final class PubSocket: PublishSocket, LoopSocket {
    /// What subscribers send are prefixes of topics: bytes of one since it connected.
    private static let topicBytesMax = 1 << 20
    /// So often, in bytes published, subscribers are looked at.
    private static let bytesBetweenLooks = 1 << 20

    /// A subscriber as it was when it was last known to have everything.
    private struct Subscriber {
        var connection: Connection
        var published: Int
        var acknowledged: UInt64
    }

    let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private let domain: String
    private let lagBytesMax: Int
    private let limits: ConnectionLimits
    let endpoint: String
    private var published = 0
    private var nextLook = PubSocket.bytesBetweenLooks
    private var subscribers: [Int32: Subscriber] = [:]

    init(loop: ZeroMQLoop, _ options: PublishSocketOptions) throws {
        self.loop = loop
        lagBytesMax = options.lagBytesMax
        domain = loop.context.addDomain(options.admission)
        core = try SocketCore(loop, type: ZMQ_PUB)
        try core.beCurveServer(options.keys, domain: domain)
        limits = ConnectionLimits(
            unreadPerConnectionMax: Self.topicBytesMax, unreadMax: Self.topicBytesMax * 64,
            admitsRosterAlone: options.admission.isRoster)
        try core.setLimits(sending: options.sendQueueMax, frameBytesMax: 4096, limits)
        endpoint = try core.bind(options.endpoint)
    }

    func receiveReady() -> Bool {
        core.takeNews()
        return false
    }

    func publish(_ message: Message) {
        _ = core.send(message)
        published += message.reduce(0) { $0 + Connection.wireBytes($1.count) }
        if published >= nextLook { cutLaggards() }
    }

    /// Every subscriber takes all that a service publishes, so what was published
    /// and not acknowledged is what libzmq and the kernel hold for it.
    private func cutLaggards() {
        nextLook = published + Self.bytesBetweenLooks
        var current: [Int32: Subscriber] = [:]
        var lags: [(bytes: Int, connection: Connection)] = []
        for connection in loop.context.connections.all(under: limits) {
            guard let counters = connection.counters() else { continue }
            let known = subscribers[connection.descriptor].flatMap { $0.connection === connection ? $0 : nil }
            // New; or perhaps with topics that leave something out, and with nothing under way.
            guard let known, !connection.hasSentAll else {
                current[connection.descriptor] = Subscriber(
                    connection: connection, published: published, acknowledged: counters.acknowledged)
                continue
            }
            current[connection.descriptor] = known
            let taken = Int(clamping: counters.acknowledged - min(known.acknowledged, counters.acknowledged))
            lags.append((published - known.published - taken, connection))
        }
        subscribers = current
        var total = lags.reduce(0) { $0 + max(0, $1.bytes) }
        for (bytes, connection) in lags.sorted(by: { $0.bytes > $1.bytes })
        where bytes > lagBytesMax || total > lagBytesMax * 4 {
            connection.cut()
            total -= bytes
        }
    }

    func close() {
        core.close()
        loop.context.removeDomain(domain)
        loop.remove(self)
    }
}

/// A SUB.
final class SubSocket: SubscribeSocket, LoopSocket {
    private static let batchMax = 1024

    let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private var handler: (([Message]) -> Void)?

    init(loop: ZeroMQLoop, _ options: SubscribeSocketOptions, _ handler: @escaping ([Message]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        core = try SocketCore(loop, type: ZMQ_SUB)
        try core.beCurveClient(options.keys, of: options.serverKey)
        try core.setLimits(
            sending: 1000, frameBytesMax: SocketCore.batchBytesMax,
            ConnectionLimits(
                unreadPerConnectionMax: options.unreadBytesMax, unreadMax: options.unreadBytesMax))
        for topic in options.topics { try core.set(ZMQ_SUBSCRIBE, Array(topic.utf8)) }
        try core.connect(options.endpoints)
    }

    func receiveReady() -> Bool {
        let batch = core.receiveBatch(max: Self.batchMax, frames: 2)
        guard !batch.isEmpty else { return false }
        handler?(batch)
        return true
    }

    func close() {
        core.close()
        // It usually holds what holds this socket.
        handler = nil
        loop.remove(self)
    }
}
