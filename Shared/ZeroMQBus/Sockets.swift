internal import Bus
internal import CZeroMQ
internal import Core
internal import Foundation

/// A socket as its loop sees it.
protocol LoopSocket: AnyObject {
    var pointer: UnsafeMutableRawPointer { get }
    /// Whether messages can arrive at it.
    var receives: Bool { get }
    /// Handles what is ready, at most one batch; false when there was nothing.
    func receiveReady() -> Bool
    func close()
}

/// What all four kinds share: options, receiving, sending, closing.
final class SocketCore {
    private static let linger: Int32 = 500

    let pointer: UnsafeMutableRawPointer
    private var encoder = FrameEncoder()
    private(set) var isOpen = true

    init(_ context: ZeroMQContext, type: Int32) throws {
        guard let pointer = zmq_socket(context.pointer, type) else {
            throw ZeroMQFailure.last("A socket could not be opened.")
        }
        self.pointer = pointer
        set(ZMQ_LINGER, Self.linger)
        // A dead peer is noticed within 15 seconds, whatever TCP thinks.
        set(ZMQ_HEARTBEAT_IVL, Int32(5_000))
        set(ZMQ_HEARTBEAT_TIMEOUT, Int32(15_000))
        set(ZMQ_HANDSHAKE_IVL, Int32(10_000))
        set(ZMQ_RECONNECT_IVL, Int32(50))
        set(ZMQ_RECONNECT_IVL_MAX, Int32(2_000))
        set(ZMQ_TCP_KEEPALIVE, Int32(1))
        set(ZMQ_BACKLOG, Int32(1024))
    }

    deinit { close() }

    func close() {
        guard isOpen else { return }
        isOpen = false
        zmq_close(pointer)
    }

    func set(_ option: Int32, _ value: Int32) {
        var value = value
        zmq_setsockopt(pointer, option, &value, MemoryLayout<Int32>.size)
    }

    func set(_ option: Int32, _ value: Int64) {
        var value = value
        zmq_setsockopt(pointer, option, &value, MemoryLayout<Int64>.size)
    }

    func set(_ option: Int32, _ bytes: [UInt8]) {
        zmq_setsockopt(pointer, option, bytes, bytes.count)
    }

    func beCurveServer(_ keys: KeyPair, domain: String) {
        set(ZMQ_CURVE_SERVER, Int32(1))
        set(ZMQ_CURVE_SECRETKEY, keys.secretKey.bytes)
        set(ZMQ_ZAP_DOMAIN, Array(domain.utf8))
    }

    func beCurveClient(_ keys: KeyPair, of server: PublicKey) {
        set(ZMQ_CURVE_SERVERKEY, server.bytes)
        set(ZMQ_CURVE_PUBLICKEY, keys.publicKey.bytes)
        set(ZMQ_CURVE_SECRETKEY, keys.secretKey.bytes)
    }

    func bind(_ endpoint: String) throws -> String {
        guard zmq_bind(pointer, endpoint) == 0 else {
            throw ZeroMQFailure.last("The address cannot be bound. Is it in use?", ["endpoint": endpoint])
        }
        var text = [CChar](repeating: 0, count: 256)
        var size = text.count
        zmq_getsockopt(pointer, ZMQ_LAST_ENDPOINT, &text, &size)
        return text.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } } ?? endpoint
    }

    func connect(_ endpoints: [String]) throws {
        for endpoint in endpoints {
            guard zmq_connect(pointer, endpoint) == 0 else {
                throw ZeroMQFailure.last("The address cannot be connected to.", ["endpoint": endpoint])
            }
        }
    }

    /// Receives the next message without waiting; nil when there is none.
    /// `first` sees the first frame's message of libzmq.
    func receive(first: (UnsafeMutablePointer<zmq_msg_t>) -> Void = { _ in }) -> Message? {
        guard isOpen else { return nil }
        var message = zmq_msg_t()
        var frames: Message = []
        while true {
            zmq_msg_init(&message)
            guard zmq_msg_recv(&message, pointer, ZMQ_DONTWAIT) >= 0 else {
                zmq_msg_close(&message)
                return nil
            }
            if frames.isEmpty { first(&message) }
            let more = zmq_msg_more(&message) != 0
            frames.append(Frame(storage: ReceivedFrame(taking: &message)))
            zmq_msg_close(&message)
            if !more { return frames }
        }
    }

    /// Sends the frames after an optional prefix, all or none, without waiting.
    func send(prefix: [UInt8]? = nil, _ message: Message) -> SendResult {
        guard isOpen, !message.isEmpty else { return .gone }
        if let prefix {
            // With ROUTER_MANDATORY the first part decides; the others follow it into the same queue.
            guard zmq_send(pointer, prefix, prefix.count, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 else { return failure }
        }
        for (index, frame) in message.enumerated() {
            var part = zmq_msg_t()
            encoder.encode(frame, into: &part)
            let flags = ZMQ_DONTWAIT | (index == message.count - 1 ? 0 : ZMQ_SNDMORE)
            guard zmq_msg_send(&part, pointer, flags) >= 0 else {
                zmq_msg_close(&part)
                return failure
            }
        }
        return .sent
    }

    private var failure: SendResult { zmq_errno() == EAGAIN ? .full : .gone }
}

/// A ROUTER. Knows each peer by the routing id that libzmq gave it, and by its key.
final class RouterSocket: ReplySocket, LoopSocket {
    /// Beyond it the table is emptied and learned anew from the messages.
    private static let knownPeersMax = 65_536

    private let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private let options: ReplySocketOptions
    private let handler: ([Incoming]) -> Void
    private let domain: String
    private var keys: [UInt64: PublicKey] = [:]
    let endpoint: String

    var pointer: UnsafeMutableRawPointer { core.pointer }
    var receives: Bool { true }

    init(loop: ZeroMQLoop, _ options: ReplySocketOptions, _ handler: @escaping ([Incoming]) -> Void) throws {
        self.loop = loop
        self.options = options
        self.handler = handler
        domain = loop.context.addDomain(options.admission)
        core = try SocketCore(loop.context, type: ZMQ_ROUTER)
        core.beCurveServer(options.keys, domain: domain)
        core.set(ZMQ_ROUTER_MANDATORY, Int32(1))
        core.set(ZMQ_SNDHWM, Int32(clamping: options.sendQueueMax))
        core.set(ZMQ_RCVHWM, Int32(10_000))
        core.set(ZMQ_MAXMSGSIZE, Int64(options.frameBytesMax))
        endpoint = try core.bind(options.endpoint)
    }

    func receiveReady() -> Bool {
        var batch: [Incoming] = []
        while batch.count < options.batchMax {
            var user: String?
            guard let message = core.receive(first: { [keys] in user = Self.user($0, unlessIn: keys) }) else { break }
            if let incoming = incoming(message, user: user) { batch.append(incoming) }
        }
        guard !batch.isEmpty else { return false }
        handler(batch)
        return true
    }

    /// The key that the peer proved, as the admission wrote it down, unless it is known already.
    private static func user(
        _ message: UnsafeMutablePointer<zmq_msg_t>, unlessIn keys: [UInt64: PublicKey]
    ) -> String? {
        let id = UnsafeRawBufferPointer(start: zmq_msg_data(message), count: zmq_msg_size(message))
        guard let connection = connection(id), keys[connection] == nil, let text = zmq_msg_gets(message, "User-Id")
        else { return nil }
        return String(cString: text)
    }

    /// The number in a routing id that libzmq made: a zero byte, and four of a counter.
    /// Nil for one that the client chose, which could be another's.
    private static func connection(_ id: UnsafeRawBufferPointer) -> UInt64? {
        guard id.count == 5, id[0] == 0 else { return nil }
        return UInt64(id.loadUnaligned(fromByteOffset: 1, as: UInt32.self))
    }

    private func incoming(_ message: Message, user: String?) -> Incoming? {
        guard message.count > 1, let connection = message[0].withUnsafeBytes(Self.connection) else { return nil }
        if let user, let key = PublicKey(z85: user) {
            if keys.count >= Self.knownPeersMax { keys = [:] }
            keys[connection] = key
        }
        guard let key = keys[connection] else { return nil }
        return Incoming(peer: Peer(connection: connection, publicKey: key), message: Array(message.dropFirst()))
    }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        let id = [0] + withUnsafeBytes(of: UInt32(truncatingIfNeeded: peer.connection)) { [UInt8]($0) }
        let result = core.send(prefix: id, message)
        if result == .gone { keys[peer.connection] = nil }
        return result
    }

    func close() {
        core.close()
        loop.context.removeDomain(domain)
        loop.remove(self)
    }
}

/// A DEALER.
final class DealerSocket: RequestSocket, LoopSocket {
    private static let batchMax = 512

    private let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private let handler: ([Message]) -> Void

    var pointer: UnsafeMutableRawPointer { core.pointer }
    var receives: Bool { true }

    init(loop: ZeroMQLoop, _ options: RequestSocketOptions, _ handler: @escaping ([Message]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        core = try SocketCore(loop.context, type: ZMQ_DEALER)
        core.beCurveClient(options.keys, of: options.serverKey)
        // Together they make every connection known to the server.
        core.set(ZMQ_PROBE_ROUTER, Int32(1))
        core.set(ZMQ_IMMEDIATE, Int32(1))
        core.set(ZMQ_SNDHWM, Int32(clamping: options.sendQueueMax))
        core.set(ZMQ_RCVHWM, Int32(10_000))
        core.set(ZMQ_MAXMSGSIZE, Int64(options.frameBytesMax))
        try core.connect(options.endpoints)
    }

    func receiveReady() -> Bool {
        var batch: [Message] = []
        while batch.count < Self.batchMax, let message = core.receive() { batch.append(message) }
        guard !batch.isEmpty else { return false }
        handler(batch)
        return true
    }

    func send(_ message: Message) -> SendResult { core.send(message) }

    func close() {
        core.close()
        loop.remove(self)
    }
}

/// A PUB.
final class PubSocket: PublishSocket, LoopSocket {
    private let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private let domain: String
    let endpoint: String

    var pointer: UnsafeMutableRawPointer { core.pointer }
    var receives: Bool { false }

    init(loop: ZeroMQLoop, _ options: PublishSocketOptions) throws {
        self.loop = loop
        domain = loop.context.addDomain(options.admission)
        core = try SocketCore(loop.context, type: ZMQ_PUB)
        core.beCurveServer(options.keys, domain: domain)
        core.set(ZMQ_SNDHWM, Int32(clamping: options.sendQueueMax))
        endpoint = try core.bind(options.endpoint)
    }

    func receiveReady() -> Bool { false }
    func publish(_ message: Message) { _ = core.send(message) }

    func close() {
        core.close()
        loop.context.removeDomain(domain)
        loop.remove(self)
    }
}

/// A SUB.
final class SubSocket: SubscribeSocket, LoopSocket {
    private static let batchMax = 1024

    private let core: SocketCore
    private unowned let loop: ZeroMQLoop
    private let handler: ([Message]) -> Void

    var pointer: UnsafeMutableRawPointer { core.pointer }
    var receives: Bool { true }

    init(loop: ZeroMQLoop, _ options: SubscribeSocketOptions, _ handler: @escaping ([Message]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        core = try SocketCore(loop.context, type: ZMQ_SUB)
        core.beCurveClient(options.keys, of: options.serverKey)
        core.set(ZMQ_RCVHWM, Int32(clamping: options.receiveQueueMax))
        for topic in options.topics { core.set(ZMQ_SUBSCRIBE, Array(topic.utf8)) }
        try core.connect(options.endpoints)
    }

    func receiveReady() -> Bool {
        var batch: [Message] = []
        while batch.count < Self.batchMax, let message = core.receive() { batch.append(message) }
        guard !batch.isEmpty else { return false }
        handler(batch)
        return true
    }

    func close() {
        core.close()
        loop.remove(self)
    }
}
