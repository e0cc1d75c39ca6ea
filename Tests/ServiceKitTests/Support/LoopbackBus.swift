import NephosBus
import NephosCore
import Synchronization

/// A bus of one thread without a network: messages move when the test says so,
/// and time stands still until the test advances it.
final class LoopbackBus: BusLoop {
    final class Clock: WallClock {
        private let time = Mutex(Timestamp(milliseconds: 1_800_000_000_000))
        var now: Timestamp { time.withLock { $0 } }
        func advance(by duration: Duration) { time.withLock { $0 = $0.advanced(by: duration) } }
    }

    struct NoHandle: LoopHandle {
        func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {}
        func stop() {}
    }

    final class Timer: LoopTimer {
        let due: Duration
        let order: Int
        var action: (() -> Void)?

        init(due: Duration, order: Int, action: @escaping () -> Void) {
            self.due = due
            self.order = order
            self.action = action
        }

        func cancel() { action = nil }
    }

    let clock = Clock()
    var wallClock: any WallClock { clock }
    var handle: any LoopHandle { NoHandle() }
    private(set) var monotonicNow = Duration.seconds(1)
    /// Events that are published while this is set are lost.
    var losesEvents = false
    /// Replies that a peer's queue takes; nil: all.
    var replyQueueMax: Int?
    /// Replies are lost on the way while this is set.
    var losesReplies = false

    private var timers: [Timer] = []
    private var order = 0
    private var connections: UInt64 = 0
    private var servers: [String: Server] = [:]
    private var clients: [UInt64: Client] = [:]
    private var publishers: [String: Publisher] = [:]
    private var subscribers: [Subscriber] = []

    // MARK: Time

    @discardableResult
    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        order += 1
        let timer = Timer(due: monotonicNow + max(.zero, delay), order: order, action: action)
        timers.append(timer)
        return timer
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        schedule(after: .zero) { completion(Result { try work() }) }
    }

    /// Delivers what is ready and runs what is due, until there is nothing more.
    func settle() {
        while deliver() || fire() {}
    }

    /// Lets this much time pass, with everything that happens in it.
    func run(for duration: Duration) {
        settle()
        let end = monotonicNow + duration
        while let next = timers.filter({ $0.action != nil && $0.due <= end }).map(\.due).min() {
            advance(to: max(next, monotonicNow))
            settle()
        }
        advance(to: end)
        settle()
    }

    private func advance(to time: Duration) {
        clock.advance(by: time - monotonicNow)
        monotonicNow = time
    }

    private func fire() -> Bool {
        timers.removeAll { $0.action == nil }
        let due = timers.filter { $0.due <= monotonicNow }
            .min { ($0.due, $0.order) < ($1.due, $1.order) }
        guard let due, let action = due.action else { return false }
        due.action = nil
        action()
        return true
    }

    private func deliver() -> Bool {
        var delivered = false
        for server in servers.values where !server.inbox.isEmpty {
            let messages = server.inbox
            server.inbox = []
            server.handler(messages)
            delivered = true
        }
        for client in clients.values where !client.inbox.isEmpty {
            let messages = client.inbox
            client.inbox = []
            client.handler(messages)
            delivered = true
        }
        for subscriber in subscribers where !subscriber.inbox.isEmpty {
            let messages = subscriber.inbox
            subscriber.inbox = []
            subscriber.handler(messages)
            delivered = true
        }
        return delivered
    }

    // MARK: Sockets

    final class Server: ReplySocket {
        let endpoint: String
        let handler: ([Incoming]) -> Void
        unowned let bus: LoopbackBus
        var inbox: [Incoming] = []

        init(_ options: ReplySocketOptions, _ bus: LoopbackBus, _ handler: @escaping ([Incoming]) -> Void) {
            endpoint = options.endpoint
            self.bus = bus
            self.handler = handler
        }

        func send(_ message: Message, to peer: Peer) -> SendResult {
            guard let client = bus.clients[peer.connection] else { return .gone }
            if let most = bus.replyQueueMax, client.inbox.count >= most { return .full }
            if !bus.losesReplies { client.inbox.append(message) }
            return .sent
        }

        func isGone(_ peer: Peer) -> Bool { bus.clients[peer.connection] == nil }

        func close() { bus.servers[endpoint] = nil }
    }

    final class Client: RequestSocket {
        let options: RequestSocketOptions
        let peer: Peer
        let handler: ([Message]) -> Void
        unowned let bus: LoopbackBus
        var inbox: [Message] = []

        init(_ options: RequestSocketOptions, _ bus: LoopbackBus, _ handler: @escaping ([Message]) -> Void) {
            self.options = options
            self.bus = bus
            self.handler = handler
            bus.connections += 1
            peer = Peer(connection: bus.connections, publicKey: options.keys.publicKey)
        }

        func send(_ message: Message) -> SendResult {
            guard let server = bus.servers[options.endpoints[0]] else { return .full }
            server.inbox.append(Incoming(peer: peer, message: message))
            return .sent
        }

        func close() { bus.clients[peer.connection] = nil }
    }

    final class Publisher: PublishSocket {
        let endpoint: String
        unowned let bus: LoopbackBus

        init(_ endpoint: String, _ bus: LoopbackBus) {
            self.endpoint = endpoint
            self.bus = bus
        }

        func publish(_ message: Message) {
            guard !bus.losesEvents else { return }
            for subscriber in bus.subscribers where subscriber.options.endpoints.contains(endpoint) {
                subscriber.inbox.append(message)
            }
        }

        func close() { bus.publishers[endpoint] = nil }
    }

    final class Subscriber: SubscribeSocket {
        let options: SubscribeSocketOptions
        let handler: ([Message]) -> Void
        unowned let bus: LoopbackBus
        var inbox: [Message] = []

        init(_ options: SubscribeSocketOptions, _ bus: LoopbackBus, _ handler: @escaping ([Message]) -> Void) {
            self.options = options
            self.bus = bus
            self.handler = handler
        }

        func close() { bus.subscribers.removeAll { $0 === self } }
    }

    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void) {
        schedule(after: .zero) { completion(.server) }
    }

    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket {
        let server = Server(options, self, handler)
        servers[options.endpoint] = server
        return server
    }

    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket {
        let client = Client(options, self, handler)
        clients[client.peer.connection] = client
        return client
    }

    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket {
        let publisher = Publisher(options.endpoint, self)
        publishers[options.endpoint] = publisher
        return publisher
    }

    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket {
        let subscriber = Subscriber(options, self, handler)
        subscribers.append(subscriber)
        return subscriber
    }
}
