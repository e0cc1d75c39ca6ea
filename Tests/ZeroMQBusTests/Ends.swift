import Foundation
import NephosBus
import NephosCore
import Synchronization
import Testing

/// Waits until the condition holds; fails after two minutes, which no busy machine takes, or so long.
func eventually(
    within time: Duration = .seconds(120), sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + time
    while try !condition() {
        try #require(ContinuousClock.now < deadline, "not within \(time)", sourceLocation: sourceLocation)
        usleep(2000)
    }
}

/// What a loop has seen, for other threads to read.
final class Log<Element: Sendable>: Sendable {
    private let elements = Mutex<[Element]>([])

    var all: [Element] { elements.withLock { $0 } }
    func add(_ element: Element) { elements.withLock { $0.append(element) } }
}

/// Runs something on a loop and waits for its result.
func onLoop<Result: Sendable>(_ handle: any LoopHandle, _ body: @escaping @Sendable (any BusLoop) -> Result) -> Result {
    let result = Mutex<Result?>(nil)
    let done = DispatchSemaphore(value: 0)
    handle.execute { loop in
        let value = body(loop)
        result.withLock { $0 = value }
        done.signal()
    }
    while true {
        done.wait()
        if let value = result.withLock({ $0 }) { return value }
    }
}

/// Starts a loop whose set-up makes one value, which stays on it.
func startLoop<Value>(
    _ transport: any Transport, _ name: String, _ make: @escaping @Sendable (any BusLoop) throws -> Value
) throws -> (any LoopHandle, LoopBound<Value>) {
    let made = Mutex<LoopBound<Value>?>(nil)
    let handle = try transport.startLoop(named: name) { loop in
        let bound = LoopBound(try make(loop), to: loop)
        made.withLock { $0 = bound }
    }
    return (handle, try #require(made.withLock { $0 }))
}

/// Sends every request back.
final class EchoServer: Sendable {
    let handle: any LoopHandle
    let endpoint: String
    let keys: KeyPair
    private let socket: LoopBound<any ReplySocket>
    private let incoming: Log<Incoming>

    init(
        _ transport: any Transport, _ endpoint: String, keys: KeyPair? = nil, admission: Admission = .anyone,
        _ adjust: @escaping @Sendable (inout ReplySocketOptions) -> Void = { _ in }
    ) throws {
        let keys = try keys ?? transport.makeKeyPair()
        let incoming = Log<Incoming>()
        (handle, socket) = try Self.start(transport) { loop in
            let reply = Unset<any ReplySocket>()
            var options = ReplySocketOptions(endpoint: endpoint, keys: keys, admission: admission)
            adjust(&options)
            let socket = try loop.makeReplySocket(options) { batch in
                for one in batch {
                    incoming.add(one)
                    if !one.isProbe { _ = reply.value?.send(one.message, to: one.peer) }
                }
            }
            reply.value = socket
            return socket
        }
        self.keys = keys
        self.incoming = incoming
        let socket = socket
        self.endpoint = onLoop(handle) { socket.withValue(on: $0) { $0.endpoint } }
    }

    private static func start(
        _ transport: any Transport, _ make: @escaping @Sendable (any BusLoop) throws -> any ReplySocket
    ) throws -> (any LoopHandle, LoopBound<any ReplySocket>) {
        try startLoop(transport, "server", make)
    }

    var probes: [Peer] { incoming.all.filter(\.isProbe).map(\.peer) }
    var requests: [Incoming] { incoming.all.filter { !$0.isProbe } }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        onLoop(handle) { [socket] in socket.withValue(on: $0) { $0.send(message, to: peer) } }
    }

    func identify(_ peer: Peer) { onLoop(handle) { [socket] in socket.withValue(on: $0) { $0.noteIdentified(peer) } } }

    func isGone(_ peer: Peer) -> Bool {
        onLoop(handle) { [socket] in socket.withValue(on: $0) { $0.isGone(peer) } }
    }

    func broadcast(_ message: Message) -> [SendResult] {
        let peers = probes
        return onLoop(handle) { [socket] in
            socket.withValue(on: $0) { socket in peers.map { socket.send(message, to: $0) } }
        }
    }
}

/// A variable that a handler reads before it can be captured.
final class Unset<Value> { var value: Value? }

/// One request socket and what it has received.
final class Client: Sendable {
    let handle: any LoopHandle
    let keys: KeyPair
    private let socket: LoopBound<any RequestSocket>
    private let replies: Log<[[UInt8]]>

    /// - Parameter endpoint: Of a relay to the server, instead of the server's own.
    init(
        _ transport: any Transport, _ server: EchoServer, keys: KeyPair? = nil, endpoint: String? = nil,
        _ adjust: (inout RequestSocketOptions) -> Void = { _ in }
    ) throws {
        let keys = try keys ?? transport.makeKeyPair()
        let replies = Log<[[UInt8]]>()
        var options = RequestSocketOptions(
            endpoints: [endpoint ?? server.endpoint], serverKey: server.keys.publicKey, keys: keys)
        adjust(&options)
        (handle, socket) = try startLoop(transport, "client") { [options] loop in
            try loop.makeRequestSocket(options) { batch in
                for message in batch { replies.add(message.map(\.bytes)) }
            }
        }
        self.keys = keys
        self.replies = replies
    }

    var received: [[[UInt8]]] { replies.all }

    func trySend(_ message: Message) -> SendResult {
        onLoop(handle) { [socket] in socket.withValue(on: $0) { $0.send(message) } }
    }

    func send(_ message: Message) throws {
        try eventually { trySend(message) == .sent }
    }
}

final class Publisher: Sendable {
    let handle: any LoopHandle
    let endpoint: String
    let keys: KeyPair
    private let socket: LoopBound<any PublishSocket>

    init(
        _ transport: any Transport, _ endpoint: String, admission: Admission = .anyone, lagBytesMax: Int = 32 << 20
    ) throws {
        let keys = try transport.makeKeyPair()
        (handle, socket) = try startLoop(transport, "publisher") { loop in
            try loop.makePublishSocket(
                PublishSocketOptions(
                    endpoint: endpoint, keys: keys, admission: admission, lagBytesMax: lagBytesMax))
        }
        self.keys = keys
        let socket = socket
        self.endpoint = onLoop(handle) { socket.withValue(on: $0) { $0.endpoint } }
    }

    func publish(_ message: Message) {
        onLoop(handle) { [socket] in socket.withValue(on: $0) { $0.publish(message) } }
    }
}

final class Subscriber: Sendable {
    let handle: any LoopHandle
    private let socket: LoopBound<any SubscribeSocket>
    private let events = Log<[[UInt8]]>()

    init(
        _ transport: any Transport, _ publisher: Publisher, topics: [String], keys: KeyPair? = nil,
        endpoint: String? = nil, _ adjust: (inout SubscribeSocketOptions) -> Void = { _ in }
    ) throws {
        var options = SubscribeSocketOptions(
            endpoints: [endpoint ?? publisher.endpoint], serverKey: publisher.keys.publicKey,
            keys: try keys ?? transport.makeKeyPair(), topics: topics)
        adjust(&options)
        let events = events
        (handle, socket) = try startLoop(transport, "subscriber") { [options] loop in
            try loop.makeSubscribeSocket(options) { batch in
                for message in batch { events.add(message.map(\.bytes)) }
            }
        }
    }

    var received: [[[UInt8]]] { events.all }
}
