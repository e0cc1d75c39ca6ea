import NephosBus
import NephosCore
import Synchronization

/// A loop whose time only moves when a test says so, with sockets that lead to
/// a ``ScriptedCloud``.
final class ManualLoop: BusLoop {
    let clock = ManualClock()
    let cloud: ScriptedCloud
    private var now: Duration = .seconds(1000)
    private var timers: [ManualTimer] = []
    private var count = 0

    init(cloud: ScriptedCloud) { self.cloud = cloud }

    var handle: any LoopHandle { NoHandle() }
    var monotonicNow: Duration { now }
    var wallClock: any WallClock { clock }

    @discardableResult
    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        count += 1
        let timer = ManualTimer(due: now + max(.zero, delay), order: count, action: action)
        timers.append(timer)
        return timer
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        let result = Result { try work() }
        schedule(after: .zero) { completion(result) }
    }

    /// Runs everything that becomes due within this time.
    func advance(_ duration: Duration) {
        let end = now + duration
        while let next = timers.filter({ !$0.cancelled && $0.due <= end }).min(by: {
            ($0.due, $0.order) < ($1.due, $1.order)
        }) {
            timers.removeAll { $0 === next || $0.cancelled }
            if next.due > now {
                clock.advance(next.due - now)
                now = next.due
            }
            next.action()
        }
        clock.advance(end - now)
        now = end
    }

    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket {
        ScriptedSocket(loop: self, endpoint: options.endpoints[0], handler: handler)
    }

    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void) {
        schedule(after: .zero) { completion(.server) }
    }

    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket { throw CloudError(.internalError, "A device has no such socket.") }

    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket {
        throw CloudError(.internalError, "A device has no such socket.")
    }

    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket { throw CloudError(.internalError, "A device has no such socket.") }
}

private struct NoHandle: LoopHandle {
    func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {}
    func stop() {}
}

final class ManualTimer: LoopTimer {
    let due: Duration
    let order: Int
    let action: () -> Void
    var cancelled = false

    init(due: Duration, order: Int, action: @escaping () -> Void) {
        self.due = due
        self.order = order
        self.action = action
    }

    func cancel() { cancelled = true }
}

final class ManualClock: WallClock {
    private let time = Mutex(Timestamp(milliseconds: 1_800_000_000_000))
    private let rest = Mutex(Duration.zero)

    var now: Timestamp { time.withLock { $0 } }

    func advance(_ duration: Duration) {
        let whole = rest.withLock { rest in
            rest += duration
            let whole = Duration.milliseconds(rest.milliseconds)
            rest -= whole
            return whole
        }
        time.withLock { $0 = $0.advanced(by: whole) }
    }
}

/// A DEALER to the scripted cloud, which greets it as services do; each way takes a millisecond.
final class ScriptedSocket: RequestSocket {
    private let loop: ManualLoop
    let endpoint: String
    private let handler: ([Message]) -> Void
    private var closed = false

    init(loop: ManualLoop, endpoint: String, handler: @escaping ([Message]) -> Void) {
        self.loop = loop
        self.endpoint = endpoint
        self.handler = handler
        loop.cloud.sockets.append(self)
        deliver(.greeting)
    }

    /// As a service remembers them for each connection.
    private var carriedTokens: [TokenDigest: String] = [:]

    func send(_ message: Message) -> SendResult {
        guard !closed else { return .gone }
        guard loop.cloud.online else { return .full }
        guard var request = try? RequestEnvelope(decoding: message) else { return .sent }
        if let digest = request.accessTokenDigest {
            request.accessToken = carriedTokens[digest] ?? ""
        } else {
            carriedTokens[TokenDigest(of: request.accessToken)] = request.accessToken
        }
        loop.schedule(after: loop.cloud.latency) { [weak self, request] in
            guard let self, self.loop.cloud.online else { return }
            self.loop.cloud.answer(request, on: self)
        }
        return .sent
    }

    func deliver(_ reply: ReplyEnvelope) {
        loop.schedule(after: loop.cloud.latency) { [weak self] in
            guard let self, !self.closed, self.loop.cloud.online else { return }
            self.handler([reply.encoded()])
        }
    }

    func close() { closed = true }
    var isOpen: Bool { !closed }
}
