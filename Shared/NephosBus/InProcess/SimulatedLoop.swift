internal import NephosCore
internal import Synchronization

/// One loop of a simulation.
final class SimulatedLoop: BusLoop {
    let name: String
    let network: SimulatedNetwork
    let clock: SimulatedClock
    private(set) lazy var mailbox = SimulatedMailbox(loop: self)
    private var sockets: [any SimulatedSocket] = []
    private(set) var isAlive = true
    /// It is held up until then.
    private var heldUntil: Duration = .zero

    init(name: String, network: SimulatedNetwork) {
        self.name = name
        self.network = network
        clock = SimulatedClock(network: network)
    }

    var handle: any LoopHandle { mailbox }
    var monotonicNow: Duration { max(network.now, heldUntil) }
    /// For how long from now.
    var holdUp: Duration { max(.zero, heldUntil - network.now) }

    func stall(for duration: Duration) { heldUntil = monotonicNow + duration }
    var wallClock: any WallClock { clock }

    @discardableResult
    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        let timer = SimulatedTimer(action)
        network.schedule(after: delay + holdUp) { [weak self] in self?.fire(timer) }
        return timer
    }

    /// The same, for what does not wait for a time, but for its turn.
    func take(after delay: Duration, _ action: @escaping () -> Void) {
        network.finish(after: delay + holdUp) { [weak self] in self?.fire(SimulatedTimer(action)) }
    }

    private func fire(_ timer: SimulatedTimer) {
        guard isAlive else { return }
        // Something has held it up meanwhile.
        guard holdUp == .zero else { return network.finish(after: holdUp) { [weak self] in self?.fire(timer) } }
        timer.fire()
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        take(after: network.offloadTime ?? network.latency()) { [weak self] in
            let result = Result { try work() }
            // What is done may have ended the process; then nobody hears of it.
            if self?.isAlive == true { completion(result) }
        }
    }

    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void) {
        // Without a random number, so that a history is the same whether or not somebody asks.
        schedule(after: network.faults.latency.lowerBound) { [network] in
            guard let door = network.doors[endpoint] else { return completion(.nobody) }
            completion(serverKeys.contains(door.publicKey) ? .server : .stranger)
        }
    }

    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket {
        try add(SimulatedRouter(loop: self, options, handler))
    }

    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket {
        add(SimulatedDealer(loop: self, options, handler))
    }

    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket {
        try add(SimulatedPublisher(loop: self, options))
    }

    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket {
        add(SimulatedSubscriber(loop: self, options, handler))
    }

    private func add<Socket: SimulatedSocket>(_ socket: Socket) -> Socket {
        sockets.append(socket)
        return socket
    }

    func end() {
        guard isAlive else { return }
        isAlive = false
        for socket in sockets { socket.close() }
        sockets = []
    }
}

/// A loop's wall clock: the simulation's, and how wrong it is.
// Unchecked: the network's time and the offset can be read on any thread.
final class SimulatedClock: WallClock, @unchecked Sendable {
    private let network: SimulatedNetwork
    /// Those who write off the loop ask the time on threads of their own.
    private let nanoseconds = Atomic<Int64>(0)
    private let skipped = Atomic<Int64>(0)

    var offset: Duration {
        get { .nanoseconds(nanoseconds.load(ordering: .relaxed)) }
        set { nanoseconds.store(newValue.nanoseconds, ordering: .relaxed) }
    }

    init(network: SimulatedNetwork) { self.network = network }

    var now: Timestamp { SimulatedNetwork.epoch.advanced(by: network.timeAnywhere + offset) }
    var timePassed: Duration { network.timeAnywhere + .nanoseconds(skipped.load(ordering: .relaxed)) }

    /// So much time has passed here in which nothing happened: unlike by ``offset`` alone, the clock is as right as before.
    func skip(_ duration: Duration) {
        offset += duration
        skipped.add(duration.nanoseconds, ordering: .relaxed)
    }
}

// Unchecked: on the simulation's one thread.
final class SimulatedMailbox: LoopHandle, @unchecked Sendable {
    private weak var loop: SimulatedLoop?

    init(loop: SimulatedLoop) { self.loop = loop }

    func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
        guard let loop else { return }
        loop.take(after: .zero) { [weak loop] in
            if let loop { work(loop) }
        }
    }

    func stop() {
        guard let loop else { return }
        loop.network.end(loop)
    }
}

final class SimulatedTimer: LoopTimer {
    private var action: (() -> Void)?

    init(_ action: @escaping () -> Void) { self.action = action }

    func fire() {
        let action = action
        self.action = nil
        action?()
    }

    func cancel() { action = nil }
}
