internal import NephosCore

protocol SimulatedSocket: AnyObject {
    func close()
}

/// A bound socket, as lines connect to it.
protocol SimulatedDoor: AnyObject {
    var loopName: String { get }
    /// Whether it tells everybody what happens, and answers nobody.
    var isPublisher: Bool { get }
    /// What it proves to be.
    var publicKey: PublicKey { get }
    func admits(_ key: PublicKey) -> Bool
    func accept(_ line: SimulatedLine)
    func drop(_ line: SimulatedLine)
    /// A message of the line's client has arrived.
    func arrived(_ message: Message, on line: SimulatedLine)
}

/// A connection from one client socket to one endpoint, which comes back by itself.
final class SimulatedLine {
    let endpoint: String
    let publicKey: PublicKey
    /// Only a server with this key is talked to.
    let serverKey: PublicKey
    let clientName: String
    private let network: SimulatedNetwork
    private let onMessage: (Message) -> Void
    private(set) var door: (any SimulatedDoor)?
    /// New with every connection.
    private(set) var id: UInt64 = 0
    private(set) var isWanted = true
    var isUp: Bool { door != nil }
    private var arrivals: (toServer: Duration, toClient: Duration) = (.zero, .zero)
    /// Messages on their way, for the high-water mark.
    private(set) var inFlight: (toServer: Int, toClient: Int) = (0, 0)

    init(
        loop: SimulatedLoop, endpoint: String, publicKey: PublicKey, serverKey: PublicKey,
        onMessage: @escaping (Message) -> Void
    ) {
        self.endpoint = endpoint
        self.serverKey = serverKey
        self.publicKey = publicKey
        clientName = loop.name
        network = loop.network
        self.onMessage = onMessage
        network.connect(self)
    }

    func connected(to door: any SimulatedDoor) {
        id = network.makeID()
        arrivals = (network.now, network.now)
        inFlight = (0, 0)
        self.door = door
        door.accept(self)
    }

    /// The server's end is gone: connect again.
    func broken() {
        guard door != nil else { return }
        door = nil
        if isWanted { network.connect(self) }
    }

    /// It breaks, and nobody has meant it to.
    private func interrupted() {
        door?.drop(self)
        broken()
    }

    /// Nil: it is lost without a sign.
    private static func fate(_ fates: [Fate]) -> (isBroken: Bool, delay: Duration)? {
        var whole = (isBroken: false, delay: Duration.zero)
        for fate in fates {
            switch fate {
            case .passes: break
            case .lost: return nil
            case .late(let delay): whole.delay += delay
            case .breaks: whole.isBroken = true
            }
        }
        return whole
    }

    func close() {
        isWanted = false
        door?.drop(self)
        door = nil
    }

    func sendToServer(_ message: Message) {
        inFlight.toServer += 1
        let connection = id
        travel(\.toServer, from: clientName, to: door?.loopName ?? "") { [weak self] isLast in
            guard let self, id == connection, let door else { return }
            if isLast { inFlight.toServer -= 1 }
            door.arrived(message, on: self)
        } lost: { [weak self] in
            if let self, id == connection { inFlight.toServer -= 1 }
        }
    }

    func sendToClient(_ message: Message) {
        inFlight.toClient += 1
        let connection = id
        travel(\.toClient, from: door?.loopName ?? "", to: clientName) { [weak self] isLast in
            guard let self, id == connection, isWanted else { return }
            if isLast { inFlight.toClient -= 1 }
            onMessage(message)
        } lost: { [weak self] in
            if let self, id == connection { inFlight.toClient -= 1 }
        }
    }

    /// Delivers after the latency, in order, unless a fault says otherwise.
    private func travel(
        _ direction: WritableKeyPath<(toServer: Duration, toClient: Duration), Duration>, from: String, to: String,
        _ deliver: @escaping (_ isLast: Bool) -> Void, lost: @escaping () -> Void
    ) {
        let faults = network.faults
        let cut = door.map { network.isCut(clientName, $0.loopName) } ?? true
        if cut || network.chance(faults.loss) {
            network.finish(after: network.latency(), lost)
            return
        }
        var time = network.now + network.latency() + network.holdUp(of: from)
        if let judge = network.judge {
            let fates = [judge(from, door?.isPublisher == true ? .publish : .send), judge(to, .receive)]
            if let (isBroken, delay) = Self.fate(fates) {
                time += delay
                if isBroken {
                    let connection = id
                    network.finish(after: time - network.now) { [weak self] in
                        lost()
                        if let self, id == connection { interrupted() }
                    }
                    return
                }
            } else {
                network.finish(after: time - network.now, lost)
                return
            }
        }
        if network.chance(faults.reordering) {
            time += network.latency() * 5
        } else {
            time = max(time, arrivals[keyPath: direction])
            arrivals[keyPath: direction] = time
        }
        let copies = network.chance(faults.duplication) ? 2 : 1
        for copy in 1...copies {
            network.finish(after: time - network.now + (copy == 1 ? .zero : network.latency())) {
                deliver(copy == 1)
            }
        }
    }
}

/// Messages that wait for their loop, handed over together: while one batch is
/// handled, the next gathers.
private final class Inbox<Item> {
    private let loop: SimulatedLoop
    private let batchMax: Int
    private let handler: ([Item]) -> Void
    private var items: [Item] = []
    private var isScheduled = false
    private var busyUntil: Duration = .zero

    init(loop: SimulatedLoop, batchMax: Int, handler: @escaping ([Item]) -> Void) {
        self.loop = loop
        self.batchMax = batchMax
        self.handler = handler
    }

    func add(_ item: Item) {
        items.append(item)
        schedule()
    }

    private func schedule() {
        guard !isScheduled else { return }
        isScheduled = true
        loop.take(after: max(.zero, busyUntil - loop.monotonicNow)) { [weak self] in self?.hand() }
    }

    private func hand() {
        isScheduled = false
        let batch = Array(items.prefix(batchMax))
        items.removeFirst(batch.count)
        busyUntil = loop.monotonicNow + loop.network.handlingTime * batch.count
        handler(batch)
        if !items.isEmpty { schedule() }
    }
}

final class SimulatedRouter: ReplySocket, SimulatedSocket, SimulatedDoor {
    private let loop: SimulatedLoop
    let options: ReplySocketOptions
    private var inbox: Inbox<Incoming>?
    private var lines: [UInt64: SimulatedLine] = [:]
    private(set) var identified: Set<PublicKey> = []
    let endpoint: String
    var loopName: String { loop.name }
    var isPublisher: Bool { false }
    var publicKey: PublicKey { options.keys.publicKey }

    init(loop: SimulatedLoop, _ options: ReplySocketOptions, _ handler: @escaping ([Incoming]) -> Void) throws {
        self.loop = loop
        self.options = options
        endpoint = options.endpoint.replacing("*", with: "\(loop.network.makeID())")
        inbox = Inbox(loop: loop, batchMax: options.batchMax, handler: handler)
        try loop.network.bind(self, at: endpoint)
    }

    func admits(_ key: PublicKey) -> Bool { options.admission.admits(key) }

    func accept(_ line: SimulatedLine) {
        lines[line.id] = line
        arrived([Frame([])], on: line)
    }

    func drop(_ line: SimulatedLine) { lines[line.id] = nil }

    func arrived(_ message: Message, on line: SimulatedLine) {
        guard message.count == 1, message[0].count <= options.frameBytesMax else {
            drop(line)
            return line.broken()
        }
        inbox?.add(Incoming(peer: Peer(connection: line.id, publicKey: line.publicKey), message: message))
    }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        guard let line = lines[peer.connection] else { return .gone }
        guard line.inFlight.toClient < loop.network.sendQueueMax ?? options.sendQueueMax else { return .full }
        line.sendToClient(message)
        return .sent
    }

    func isGone(_ peer: Peer) -> Bool { lines[peer.connection] == nil }

    func noteIdentified(_ peer: Peer) { identified.insert(peer.publicKey) }

    func address(of peer: Peer) -> String? { lines[peer.connection]?.clientName }

    func close() {
        guard inbox != nil else { return }
        inbox = nil
        loop.network.doors[endpoint] = nil
        for line in lines.values.sorted(by: { $0.id < $1.id }) { line.broken() }
        lines = [:]
    }
}

final class SimulatedDealer: RequestSocket, SimulatedSocket {
    private var lines: [SimulatedLine] = []
    private let sendQueueMax: Int
    private var turn = 0

    init(loop: SimulatedLoop, _ options: RequestSocketOptions, _ handler: @escaping ([Message]) -> Void) {
        sendQueueMax = options.sendQueueMax
        let inbox = Inbox(loop: loop, batchMax: 512, handler: handler)
        lines = options.endpoints.map {
            SimulatedLine(loop: loop, endpoint: $0, publicKey: options.keys.publicKey, serverKey: options.serverKey) {
                inbox.add($0)
            }
        }
    }

    func send(_ message: Message) -> SendResult {
        for _ in lines {
            turn += 1
            let line = lines[turn % lines.count]
            if line.isUp, line.inFlight.toServer < sendQueueMax {
                line.sendToServer(message)
                return .sent
            }
        }
        return lines.isEmpty ? .gone : .full
    }

    func close() {
        for line in lines { line.close() }
        lines = []
    }
}

final class SimulatedPublisher: PublishSocket, SimulatedSocket, SimulatedDoor {
    private let loop: SimulatedLoop
    let options: PublishSocketOptions
    private var lines: [SimulatedLine] = []
    private var isOpen = true
    let endpoint: String
    var loopName: String { loop.name }
    var isPublisher: Bool { true }
    var publicKey: PublicKey { options.keys.publicKey }

    init(loop: SimulatedLoop, _ options: PublishSocketOptions) throws {
        self.loop = loop
        self.options = options
        endpoint = options.endpoint.replacing("*", with: "\(loop.network.makeID())")
        try loop.network.bind(self, at: endpoint)
    }

    func admits(_ key: PublicKey) -> Bool { options.admission.admits(key) }
    func accept(_ line: SimulatedLine) { lines.append(line) }
    func drop(_ line: SimulatedLine) { lines.removeAll { $0 === line } }
    func arrived(_ message: Message, on line: SimulatedLine) {}

    func publish(_ message: Message) {
        for line in lines where line.inFlight.toClient < options.sendQueueMax { line.sendToClient(message) }
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        loop.network.doors[endpoint] = nil
        for line in lines { line.broken() }
        lines = []
    }
}

final class SimulatedSubscriber: SubscribeSocket, SimulatedSocket {
    private var lines: [SimulatedLine] = []

    init(loop: SimulatedLoop, _ options: SubscribeSocketOptions, _ handler: @escaping ([Message]) -> Void) {
        let inbox = Inbox(loop: loop, batchMax: 1024, handler: handler)
        let topics = options.topics.map { Array($0.utf8) }
        lines = options.endpoints.map {
            SimulatedLine(loop: loop, endpoint: $0, publicKey: options.keys.publicKey, serverKey: options.serverKey) {
                message in
                guard let topic = message.first?.bytes, topics.contains(where: topic.starts) else { return }
                inbox.add(message)
            }
        }
    }

    func close() {
        for line in lines { line.close() }
        lines = []
    }
}

extension Admission {
    func admits(_ key: PublicKey) -> Bool {
        switch self {
        case .anyone: true
        case .roster(let keys): keys.contains(key)
        }
    }
}
