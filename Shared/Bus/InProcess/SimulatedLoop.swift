internal import Core

/// One loop of a simulation.
final class SimulatedLoop: BusLoop {
    let name: String
    let network: SimulatedNetwork
    let clock: SimulatedClock
    private(set) lazy var mailbox = SimulatedMailbox(loop: self)
    private var sockets: [any SimulatedSocket] = []
    private(set) var isAlive = true

    init(name: String, network: SimulatedNetwork) {
        self.name = name
        self.network = network
        clock = SimulatedClock(network: network)
    }

    var handle: any LoopHandle { mailbox }
    var monotonicNow: Duration { network.now }
    var wallClock: any WallClock { clock }

    @discardableResult
    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        let timer = SimulatedTimer(action)
        network.schedule(after: delay) { [weak self] in
            guard let self, isAlive else { return }
            timer.fire()
        }
        return timer
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        schedule(after: network.offloadTime ?? network.latency()) { completion(Result { try work() }) }
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
// Unchecked: on the simulation's one thread.
final class SimulatedClock: WallClock, @unchecked Sendable {
    private unowned let network: SimulatedNetwork
    var offset: Duration = .zero

    init(network: SimulatedNetwork) { self.network = network }

    var now: Timestamp { SimulatedNetwork.epoch.advanced(by: network.now + offset) }
}

// Unchecked: on the simulation's one thread.
final class SimulatedMailbox: LoopHandle, @unchecked Sendable {
    private weak var loop: SimulatedLoop?

    init(loop: SimulatedLoop) { self.loop = loop }

    func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
        guard let loop else { return }
        loop.schedule(after: .zero) { [weak loop] in
            if let loop { work(loop) }
        }
    }

    func stop() {
        guard let loop else { return }
        loop.network.crash(loop.name)
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
