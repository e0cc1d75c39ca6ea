public import NephosCore
private import Synchronization

/// What may go wrong between two loops.
/// Messages fare alike on every line.
public struct Faults: Sendable {
    /// How long a message travels.
    public var latency: ClosedRange<Duration>
    /// Chances, from 0 to 1, of a message being lost, delivered twice, or overtaken by later ones.
    ///
    /// TCP does none of this to a living connection; the protocol has to bear it all the same.
    public var loss: Double
    public var duplication: Double
    public var reordering: Double

    public init(
        latency: ClosedRange<Duration> = .microseconds(200)...(.milliseconds(2)), loss: Double = 0,
        duplication: Double = 0, reordering: Double = 0
    ) {
        self.latency = latency
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
    }

    /// Nothing goes wrong.
    public static let none = Faults()
}

/// Where a message is.
package enum Passage: Hashable, Sendable {
    case send, publish, receive
}

/// What becomes of a message.
package enum Fate: Hashable, Sendable {
    case passes
    /// Without a sign.
    case lost
    /// Later than it would, and everything behind it with it.
    case late(Duration)
    /// It is lost half-way: the connection breaks, and is made again.
    case breaks
}

/// Every loop of a simulation, the lines between them, and the time.
///
/// A discrete-event simulation: whatever happens is an event at a virtual
/// time, and events run one after the other. The same seed gives the same
/// history. Time passes only in ``run(for:)`` and ``run(within:until:)``.
// Unchecked: a simulation runs on one thread, the one that calls `run`; it is
// made, used and dropped there.
public final class SimulatedNetwork: @unchecked Sendable {
    /// When every simulation begins: 2026-01-01 00:00 UTC.
    public static let epoch = Timestamp(milliseconds: 1_767_225_600_000)

    public var faults: Faults
    /// Virtual time since the beginning.
    public private(set) var now: Duration = .zero {
        didSet { nanoseconds.store(now.nanoseconds, ordering: .relaxed) }
    }
    /// The same, for those who ask on other threads what time it is.
    private let nanoseconds = Atomic<Int64>(0)
    var timeAnywhere: Duration { .nanoseconds(nanoseconds.load(ordering: .relaxed)) }
    /// Messages on their way or waiting to be handled, and work beside the loops: what happens without anybody's timer.
    package var unfinished: Int { underWay.count }
    /// How much of that there ever was: the number of the newest.
    package private(set) var begun: UInt64 = 0
    private var underWay: Set<UInt64> = []
    /// Whether all of it that had begun by then has ended.
    package func isFinished(upTo number: UInt64) -> Bool { !underWay.contains { $0 <= number } }
    /// Asked of each message where it is sent and where it arrives, on whose loop; nil: they all pass.
    package var judge: ((_ loop: String, _ passage: Passage) -> Fate)?
    /// Events that have happened.
    public private(set) var eventCount = 0

    /// How long work beside a loop takes; nil: as long as a message travels.
    public var offloadTime: Duration?
    /// How long a loop takes for a message.
    package var handlingTime: Duration = .microseconds(20)
    /// So many messages a queue takes; nil: as many as its socket says.
    package var sendQueueMax: Int?

    var generator: SplitMix64
    private var queue = EventQueue()
    private var loops: [String: SimulatedLoop] = [:]
    private var cutOff: Set<String> = []
    /// Those that cannot reach each other, both ways.
    private var partitions: [(Set<String>, Set<String>)] = []
    private var nextID: UInt64 = 0
    var doors: [String: any SimulatedDoor] = [:]
    private var waiting: [String: [SimulatedLine]] = [:]

    public init(seed: UInt64, faults: Faults = .none) {
        generator = SplitMix64(seed: seed)
        self.faults = faults
    }

    // MARK: Time

    /// Lets this much time pass.
    public func run(for duration: Duration) {
        let end = now + duration
        while let next = queue.next, next <= end { step() }
        now = end
    }

    /// Lets time pass until the condition holds, which is asked after every event.
    ///
    /// - Returns: Whether it held within the time.
    @discardableResult
    public func run(within limit: Duration, until condition: () -> Bool) -> Bool {
        let end = now + limit
        while !condition() {
            guard let next = queue.next, next <= end else {
                now = end
                return condition()
            }
            step()
        }
        return true
    }

    private func step() {
        guard let event = queue.removeFirst() else { return }
        now = max(now, event.time)
        eventCount += 1
        event.action()
    }

    func schedule(after delay: Duration, _ action: @escaping () -> Void) {
        queue.add(at: now + max(.zero, delay), action)
    }

    /// The same, for what is ``unfinished`` until then.
    func finish(after delay: Duration, _ action: @escaping () -> Void) {
        begun += 1
        let number = begun
        underWay.insert(number)
        schedule(after: delay) { [unowned self] in
            underWay.remove(number)
            action()
        }
    }

    /// Lets exactly one thing happen, if there is any.
    package func runNext() -> Bool {
        guard queue.next != nil else { return false }
        step()
        return true
    }

    /// Runs something that belongs to no loop.
    package func later(_ delay: Duration, _ action: @escaping () -> Void) { schedule(after: delay, action) }

    func makeID() -> UInt64 {
        nextID += 1
        return nextID
    }

    // MARK: Loops

    /// A loop whose work a test does itself, between what happens: on the simulation's one thread.
    package func makeLoop(named name: String) -> any BusLoop {
        let loop = SimulatedLoop(name: name, network: self)
        add(loop)
        return loop
    }

    func add(_ loop: SimulatedLoop) {
        loops[loop.name]?.end()
        loops[loop.name] = loop
    }

    /// Ends a loop as kill -9 does: what it had queued is gone, its connections break.
    public func crash(_ name: String) { loops.removeValue(forKey: name)?.end() }

    /// Ends this loop, and not another that has its name by now.
    func end(_ loop: SimulatedLoop) {
        if loops[loop.name] === loop { loops[loop.name] = nil }
        loop.end()
    }

    /// Cuts a loop off from all others, or lets it back. While cut off, messages
    /// to and from it are lost without a sign.
    public func setOffline(_ name: String, _ offline: Bool) {
        if offline { cutOff.insert(name) } else { cutOff.remove(name) }
    }

    /// Lets no message pass between the ones and the others, or, with nothing named, all of them again.
    package func setPartitions(_ partitions: [(Set<String>, Set<String>)]) { self.partitions = partitions }

    /// What servers' sockets were opened with.
    package var replySockets: [ReplySocketOptions] {
        doors.values.compactMap { ($0 as? SimulatedRouter)?.options }.sorted { $0.endpoint < $1.endpoint }
    }

    /// Whose connections a server's socket keeps before strangers', by its endpoint.
    package func identifiedKeys(at endpoint: String) -> Set<PublicKey> {
        (doors[endpoint] as? SimulatedRouter)?.identified ?? []
    }

    /// The same of those that tell events.
    package var publishSockets: [PublishSocketOptions] {
        doors.values.compactMap { ($0 as? SimulatedPublisher)?.options }.sorted { $0.endpoint < $1.endpoint }
    }

    /// Holds a loop up from now on, as a slow disk does: what it would do next it does when this is over.
    package func stall(_ name: String, for duration: Duration) { loops[name]?.stall(for: duration) }

    /// Those that are held up now.
    package var stalled: [String] { loops.values.filter { $0.holdUp > .zero }.map(\.name).sorted() }

    /// What is sent from there is held up as well.
    func holdUp(of name: String) -> Duration { loops[name]?.holdUp ?? .zero }

    /// Sets how far the loop's wall clock is ahead of the true time.
    public func setClockOffset(_ name: String, _ offset: Duration) { loops[name]?.clock.offset = offset }

    /// Lets so much time pass for one loop, in which nothing happens: its wall clock and what it counts of time both move
    /// on, as they do not where the clock is only set.
    public func skip(_ duration: Duration, of name: String) { loops[name]?.clock.skip(duration) }

    /// Ends all loops. A simulation that is not closed keeps itself alive.
    public func close() {
        for loop in loops.values { loop.end() }
        loops = [:]
        queue = EventQueue()
        underWay = []
        waiting = [:]
        judge = nil
    }

    func isCut(_ one: String, _ other: String) -> Bool {
        cutOff.contains(one) || cutOff.contains(other)
            || partitions.contains {
                $0.contains(one) && $1.contains(other) || $0.contains(other) && $1.contains(one)
            }
    }

    // MARK: Lines

    /// Connects the line to its endpoint now, if something is bound there, or as soon as something is.
    func connect(_ line: SimulatedLine) {
        let delay = latency()
        schedule(after: delay) { [self] in
            guard line.isWanted, !line.isUp else { return }
            guard let door = doors[line.endpoint] else {
                waiting[line.endpoint, default: []].append(line)
                return
            }
            guard !isCut(line.clientName, door.loopName), door.admits(line.publicKey),
                door.publicKey == line.serverKey
            else {
                schedule(after: .milliseconds(100)) { [self] in connect(line) }
                return
            }
            line.connected(to: door)
        }
    }

    func bind(_ door: any SimulatedDoor, at endpoint: String) throws {
        guard doors[endpoint] == nil else {
            throw CloudError(
                .configurationInvalid, "The address cannot be bound. Is it in use?", details: ["endpoint": endpoint])
        }
        doors[endpoint] = door
        for line in waiting.removeValue(forKey: endpoint) ?? [] { connect(line) }
    }

    func latency() -> Duration {
        let low = faults.latency.lowerBound.nanoseconds
        let high = faults.latency.upperBound.nanoseconds
        return .nanoseconds(Int64.random(in: low...max(low, high), using: &generator))
    }

    func chance(_ probability: Double) -> Bool {
        probability > 0 && Double.random(in: 0..<1, using: &generator) < probability
    }
}

/// The bus inside one process, with faults, and a clock to turn.
public struct InProcessTransport: Transport {
    public let network: SimulatedNetwork

    public init(_ network: SimulatedNetwork) { self.network = network }

    public func startLoop(
        named name: String, for _: LoopWork, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        let loop = SimulatedLoop(name: name, network: network)
        network.add(loop)
        do {
            try setUp(loop)
        } catch {
            network.crash(name)
            throw error
        }
        return loop.mailbox
    }

    public func makeKeyPair() throws -> KeyPair {
        func bytes() -> [UInt8] { (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &network.generator) } }
        guard let publicKey = PublicKey(bytes: bytes()), let secretKey = SecretKey(bytes: bytes()) else {
            throw CloudError(.internalError, "A key has 32 bytes.")
        }
        return KeyPair(publicKey: publicKey, secretKey: secretKey)
    }
}
