public import NephosCore

/// Who is found at an endpoint.
public enum Presence: Sendable {
    /// Nothing listens there, no way leads there, or the name is not known.
    case nobody
    /// Something listens, but it has none of the keys that were expected, or does not speak the protocol.
    case stranger
    /// The server, as far as is known: no answer in time proves nothing.
    case server
}

/// How messages travel: `NephosZeroMQ` between processes, ``InProcessTransport``
/// inside one.
///
/// Everything on the bus lives on a ``BusLoop``: one thread that owns a
/// process's sockets and runs all their handlers, one after another.
public protocol Transport: Sendable {
    /// Starts a loop and runs `setUp` on it before anything else.
    ///
    /// Returns when `setUp` has returned; what `setUp` throws (an address in
    /// use, a malformed key) is thrown here, and the loop is gone.
    func startLoop(
        named name: String, for work: LoopWork,
        _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle

    /// A fresh CURVE key pair.
    func makeKeyPair() throws -> KeyPair
}

extension Transport {
    /// A loop of small messages.
    public func startLoop(
        named name: String, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle { try startLoop(named: name, for: .requests, setUp) }
}

/// What a loop moves, and so whom its threads give way to.
public enum LoopWork: Sendable {
    /// Small messages, for which somebody waits.
    case requests
    /// Content by the megabyte: it gives way to whoever has a small message.
    case content
}

/// A loop as other threads see it.
public protocol LoopHandle: Sendable {
    /// Runs the closure on the loop, after what was given to it before. Does
    /// nothing once the loop has stopped.
    func execute(_ work: @escaping @Sendable (any BusLoop) -> Void)

    /// Somebody off the loop waits for what was just given to it. A loop whose time is simulated may let it pass until
    /// ``waiterLeft()`` was called as often.
    func waiterCame()
    func waiterLeft()

    /// Stops the loop after what it is doing: sends what is queued, within the
    /// linger time of half a second, closes the sockets and runs no more
    /// handlers. Must not be called on the loop. Returns when it is done.
    func stop()
}

extension LoopHandle {
    public func waiterCame() {}
    public func waiterLeft() {}
}

/// Threads beside the loop, by what they do, so that one kind of work never waits for another.
public enum WorkPool: CaseIterable, Sendable {
    /// Derives keys from passwords, and whatever else keeps a processor busy for a tenth of a second.
    case computing
    /// Reads snapshots of the database.
    case reading
    /// Hashes, seals, writes and reads content. What waits for it is bounded in bytes by whoever gives it work.
    case content
}

/// A loop as its own handlers see it. Not `Sendable`: everything that hangs
/// on it stays on its thread.
public protocol BusLoop: AnyObject {
    /// The way back to this loop from other threads.
    var handle: any LoopHandle { get }

    /// Time since some fixed point; never goes back.
    var monotonicNow: Duration { get }

    /// The wall-clock time.
    var wallClock: any WallClock { get }

    /// Runs the action once after the delay, unless the timer is cancelled.
    @discardableResult
    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer

    /// Runs long work elsewhere, and then `completion` here. The pool is
    /// bounded: when it is full, the completion gets `.serviceBusy` at once.
    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    )

    /// Finds out who is at an endpoint, where no connection comes about.
    ///
    /// - Parameter serverKeys: The keys of which the server is expected to have one.
    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void)

    /// Opens a ROUTER that answers requests.
    ///
    /// `handler` gets everything that is ready at once, so that a service can
    /// commit it as one group.
    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket

    /// Opens a DEALER that talks to one service.
    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket

    /// Opens a PUB.
    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket

    /// Opens a SUB.
    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket
}

/// A scheduled action. On the loop only.
public protocol LoopTimer: AnyObject {
    func cancel()
}

/// The other end of a connection, as the transport has proved it.
public struct Peer: Hashable, Sendable {
    /// Names the connection for as long as it lives; never reused within a loop.
    public var connection: UInt64
    /// The CURVE key that the other end proved to hold.
    public var publicKey: PublicKey

    public init(connection: UInt64, publicKey: PublicKey) {
        self.connection = connection
        self.publicKey = publicKey
    }
}

/// A message that arrived at a ``ReplySocket``: one frame. A connection that sends more in one is cut.
public struct Incoming: Sendable {
    public var peer: Peer
    /// Empty (one frame of no bytes): the peer has just connected or
    /// reconnected. Everything that the server knew of an earlier connection
    /// of this key is gone.
    public var message: Message

    public init(peer: Peer, message: Message) {
        self.peer = peer
        self.message = message
    }

    /// Whether this only announces a new connection.
    public var isProbe: Bool { message.count == 1 && message[0].isEmpty }
}

/// What became of a message given to a socket.
public enum SendResult: Hashable, Sendable {
    /// Queued; the transport delivers it as long as the connection lives.
    case sent
    /// As much waits for the peer, or for all, as may. Not queued.
    case full
    /// The connection does not exist any more. Not queued.
    case gone
}

/// A ROUTER: receives from many peers and sends to each by name.
public protocol ReplySocket: AnyObject {
    /// Where it is bound, with the port that was chosen if the options said `*`.
    var endpoint: String { get }
    /// Sends without ever waiting.
    func send(_ message: Message, to peer: Peer) -> SendResult
    /// Whether the peer's connection is known to be over, so that what is kept for it can go. It is known some time
    /// after the end; nobody says so.
    func isGone(_ peer: Peer) -> Bool
    /// Where the peer's connection comes from, without its port; nil: that is not known.
    func address(of peer: Peer) -> String?
    /// Bytes that were sent and that the peers have not taken yet, as far as is known.
    var unsentBytes: Int { get }
    /// Notes that the peer has proved whose it is: its connection does not make room for strangers' connections.
    func noteIdentified(_ peer: Peer)
    /// Cuts no connection by itself; forgets what is kept for the peer.
    func close()
}

extension ReplySocket {
    public func address(of peer: Peer) -> String? { nil }
    public var unsentBytes: Int { 0 }
    public func noteIdentified(_ peer: Peer) {}
}

/// A DEALER: talks to one service at one or several endpoints. Reconnects by
/// itself, and probes on every connection, so that the server knows of it.
public protocol RequestSocket: AnyObject {
    /// Sends without ever waiting; `.full` when no endpoint can take it now.
    func send(_ message: Message) -> SendResult
    func close()
}

/// A PUB: sends to every subscriber that asked for the topic, and drops what a
/// slow one cannot take.
public protocol PublishSocket: AnyObject {
    var endpoint: String { get }
    /// The first frame is the topic.
    func publish(_ message: Message)
    func close()
}

/// A SUB.
public protocol SubscribeSocket: AnyObject {
    func close()
}

/// Which peers a server socket lets in.
public enum Admission: Sendable {
    /// Any that completes the CURVE handshake; requests prove the rest.
    case anyone
    /// Only these keys.
    case roster(Set<PublicKey>)

    package var isRoster: Bool { if case .roster = self { true } else { false } }
}

public struct ReplySocketOptions: Sendable {
    /// Such as `tcp://0.0.0.0:7411`; `tcp://127.0.0.1:*` chooses a port.
    public var endpoint: String
    public var keys: KeyPair
    public var admission: Admission
    /// Bytes of one frame; a connection that sends a larger one is cut.
    public var frameBytesMax: Int
    /// Bytes that one connection has sent and that were not handed to the
    /// handler yet; one with more is cut.
    public var unreadBytesPerConnectionMax: Int
    /// The same of all connections; beyond it, those that have not finished
    /// what they began are cut, the oldest first.
    public var unreadBytesMax: Int
    /// Messages waiting for one connection before ``SendResult/full``.
    public var sendQueueMax: Int
    /// Bytes sent on one connection that its peer has not acknowledged, before
    /// ``SendResult/full``; four times that for all connections of one key.
    public var unsentBytesPerConnectionMax: Int
    /// The same of all connections. Beyond it, whoever holds less than an equal
    /// share (and anyone up to 64 KiB) is still sent to.
    public var unsentBytesMax: Int
    /// Messages handed to the handler at once.
    public var batchMax: Int

    public init(
        endpoint: String, keys: KeyPair, admission: Admission = .anyone, frameBytesMax: Int = 4 << 20,
        unreadBytesPerConnectionMax: Int = 16 << 20, unreadBytesMax: Int = 128 << 20,
        sendQueueMax: Int = 10_000, unsentBytesPerConnectionMax: Int = 8 << 20, unsentBytesMax: Int = 128 << 20,
        batchMax: Int = 512
    ) {
        self.endpoint = endpoint
        self.keys = keys
        self.admission = admission
        self.frameBytesMax = frameBytesMax
        self.unreadBytesPerConnectionMax = unreadBytesPerConnectionMax
        self.unreadBytesMax = unreadBytesMax
        self.sendQueueMax = sendQueueMax
        self.unsentBytesPerConnectionMax = unsentBytesPerConnectionMax
        self.unsentBytesMax = unsentBytesMax
        self.batchMax = batchMax
    }
}

public struct RequestSocketOptions: Sendable {
    /// Several endpoints are instances of one service; the socket connects to all.
    public var endpoints: [String]
    public var serverKey: PublicKey
    public var keys: KeyPair
    public var frameBytesMax: Int
    /// Messages waiting to be sent before ``SendResult/full``.
    public var sendQueueMax: Int
    /// Bytes that a server has sent and that were not handed to the handler
    /// yet; a connection with more is cut, and made again.
    public var unreadBytesMax: Int

    public init(
        endpoints: [String], serverKey: PublicKey, keys: KeyPair, frameBytesMax: Int = 4 << 20,
        sendQueueMax: Int = 10_000, unreadBytesMax: Int = 64 << 20
    ) {
        self.endpoints = endpoints
        self.serverKey = serverKey
        self.keys = keys
        self.frameBytesMax = frameBytesMax
        self.sendQueueMax = sendQueueMax
        self.unreadBytesMax = unreadBytesMax
    }
}

public struct PublishSocketOptions: Sendable {
    public var endpoint: String
    public var keys: KeyPair
    public var admission: Admission
    /// Events waiting for one subscriber before it loses some (it finds out by
    /// itself and fetches them).
    public var sendQueueMax: Int
    /// Bytes that one subscriber may be behind before it is cut; four times that for all together.
    public var lagBytesMax: Int

    public init(
        endpoint: String, keys: KeyPair, admission: Admission, sendQueueMax: Int = 50_000,
        lagBytesMax: Int = 32 << 20
    ) {
        self.endpoint = endpoint
        self.keys = keys
        self.admission = admission
        self.sendQueueMax = sendQueueMax
        self.lagBytesMax = lagBytesMax
    }
}

public struct SubscribeSocketOptions: Sendable {
    public var endpoints: [String]
    public var serverKey: PublicKey
    public var keys: KeyPair
    /// Prefixes of topics; an empty one is all.
    public var topics: [String]
    /// Bytes that a publisher has sent and that were not handed to the handler
    /// yet; a connection with more is cut, and made again.
    public var unreadBytesMax: Int

    public init(
        endpoints: [String], serverKey: PublicKey, keys: KeyPair, topics: [String] = [""],
        unreadBytesMax: Int = 64 << 20
    ) {
        self.endpoints = endpoints
        self.serverKey = serverKey
        self.keys = keys
        self.topics = topics
        self.unreadBytesMax = unreadBytesMax
    }
}

/// Carries a value that belongs to a loop through code that runs elsewhere.
///
/// The value can only be reached again on the loop: the way is
/// `handle.execute { loop in bound.withValue(on: loop) { ... } }`.
// Unchecked: the value is only handed out against the loop it belongs to, which
// exists on its own thread alone.
public final class LoopBound<Value>: @unchecked Sendable {
    private let value: Value
    private let owner: ObjectIdentifier

    public init(_ value: Value, to loop: any BusLoop) {
        self.value = value
        owner = ObjectIdentifier(loop)
    }

    public func withValue<Result>(on loop: any BusLoop, _ body: (Value) throws -> Result) rethrows -> Result {
        precondition(ObjectIdentifier(loop) == owner, "a value must be used on the loop that it belongs to")
        return try body(value)
    }
}
