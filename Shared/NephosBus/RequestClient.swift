public import NephosCore

/// Calls one service: several requests in flight, each repeated under its own
/// operation id until an answer arrives or its caller's time is up.
///
/// On its loop only. A repeat is harmless, since a service answers a known
/// operation id with its first reply.
public final class RequestClient {
    /// How long to wait and how much to hold.
    public struct Policy: Sendable {
        /// Calls in flight before ``CloudError/Code/serviceBusy``.
        public var pendingMax = 10_000
        /// How long the first attempt may take; doubled with each further one.
        public var attemptTimeout: Duration = .seconds(2)
        /// The longest that one attempt may take.
        public var attemptTimeoutMax: Duration = .seconds(15)
        /// The first pause after a failure that a repeat can cure; doubled with each further one.
        public var backoff: Duration = .milliseconds(50)
        public var backoffMax: Duration = .seconds(5)
        /// A longer wait that the server asks for is told to the caller at once, and not waited for.
        public var waitMax: Duration = .seconds(1)
        /// How long a call may take where its caller does not say.
        public var timeout: Duration = .seconds(30)
        /// A server that is not at its address for this long is taken to be away; one that is started again is back
        /// sooner.
        public var refusalPatience: Duration = .milliseconds(700)

        public init() {}
    }

    /// Gets what the server sends by itself: replies without an id.
    public var onDelivery: (ReplyEnvelope) -> Void = { _ in }
    /// Told when calls wait and the server has not been at its address for ``Policy/refusalPatience``, and again as
    /// long as it is not.
    public var onRefused: ((CloudError) -> Void)?
    /// When the server last said something, by the loop's clock; nil: not yet.
    public private(set) var lastHeard: Duration?
    /// Calls without an answer yet.
    public var pendingCount: Int { pending.count }

    private struct Call {
        var request: RequestEnvelope
        var deadline: Duration
        /// When the next attempt is made (or the call given up).
        var due: Duration
        var attempts = 0
        /// The last thing that went wrong, which the caller gets when time is up.
        var lastError: CloudError?
        /// Whether an attempt may have reached the server.
        var wasSent = false
        /// Whether it fails as soon as the server is known not to be at its address.
        var endsWhenRefused = false
        /// Several, when the call was made again while it waited.
        var completions: [(ReplyEnvelope) -> Void]

        func complete(_ reply: ReplyEnvelope) { for completion in completions { completion(reply) } }
    }

    // A due call waits in the bucket of its time slice; one timer serves all.
    private static let slice: Duration = .milliseconds(10)
    private var pending: [OperationID: Call] = [:]
    private var buckets: [Int64: [OperationID]] = [:]
    private var timer: (any LoopTimer)?
    private var timerSlice = Int64.max

    private var isProbing = false
    /// Since when nobody, or somebody else, was at the address each time, by the loop's clock.
    private var refusedSince: Duration?
    private static let probePause: Duration = .milliseconds(100)

    /// As many connections are made without any having been lost.
    private let endpoints: [String]
    private let serverKeys: [PublicKey]
    private var greetings = 0

    /// Tokens that the connection has carried, and that were accepted there.
    private var carriedTokens: [String: TokenDigest] = [:]
    private static let carriedTokensMax = 4

    private let loop: any BusLoop
    private let policy: Policy
    private var generator: any RandomNumberGenerator
    /// One, or a second for the key that the service is about to have; empty once closed.
    private var sockets: [any RequestSocket] = []

    /// Connects to the service.
    ///
    /// - Parameters:
    ///   - nextServerKey: The key that the service will have after the next rotation; whichever it has, it is found.
    ///   - generator: Where jitter and operation ids come from; seeded in simulations.
    /// - Throws: ``CloudError`` `.configurationInvalid` for an endpoint that the transport does not understand.
    public init(
        loop: any BusLoop, socket options: RequestSocketOptions, nextServerKey: PublicKey? = nil,
        policy: Policy = Policy(),
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator()
    ) throws {
        self.loop = loop
        self.policy = policy
        self.generator = generator
        endpoints = options.endpoints
        serverKeys = [options.serverKey, nextServerKey].compactMap { $0 }
        for key in serverKeys {
            var options = options
            options.serverKey = key
            sockets.append(try loop.makeRequestSocket(options) { [weak self] messages in self?.receive(messages) })
        }
    }

    /// Calls a method. The completion runs on the loop, exactly once, and never
    /// before this returns.
    ///
    /// Failures that a short pause can cure are retried until the time is up; then the
    /// caller gets the last one, or `.serverResponseLost` if no answer came
    /// (whether the call took effect is unknown: repeat it under the same id),
    /// or `.networkFailure` if it was never sent. `.tokenExpired` goes to the
    /// caller at once.
    ///
    /// - Parameters:
    ///   - timeout: How long the caller waits in all.
    ///   - id: The operation id; pass the first call's to repeat it. While that one waits, both get its answer.
    ///   - endsWhenRefused: Whether it fails with `.networkUnavailable` as soon as the server is known not to be at
    ///     its address, and does not wait until it is.
    @discardableResult
    public func call(
        _ method: String, body: Frame, accessToken: String = "", timeout: Duration? = nil, id: OperationID? = nil,
        endsWhenRefused: Bool = false, causeID: OperationID? = nil,
        completion: @escaping (ReplyEnvelope) -> Void
    ) -> OperationID {
        let id = id ?? OperationID(at: loop.wallClock.now, using: &generator)
        func refuse(_ error: CloudError) -> OperationID {
            loop.schedule(after: .zero) { completion(ReplyEnvelope(id: id, result: .failure(error))) }
            return id
        }
        guard !sockets.isEmpty else { return refuse(Self.closed) }
        guard pending.count < policy.pendingMax else {
            return refuse(CloudError(.serviceBusy, "Too many calls wait for an answer. Try again later."))
        }
        if pending[id] != nil {
            pending[id]?.completions.append(completion)
            return id
        }
        let now = loop.monotonicNow
        let request = RequestEnvelope(
            method: method, id: id, accessToken: accessToken, causeID: causeID, body: body)
        var call = Call(
            request: request, deadline: now + (timeout ?? policy.timeout), due: now,
            endsWhenRefused: endsWhenRefused, completions: [completion])
        attempt(&call, now: now)
        pending[id] = call
        enqueue(id, due: call.due)
        return id
    }

    /// Gives a call up: its completion is not run. What it did on the server stays done.
    public func cancel(_ id: OperationID) { pending[id] = nil }

    /// Closes the connection. Calls in flight fail with `.networkFailure`.
    public func close() {
        for socket in sockets { socket.close() }
        sockets = []
        timer?.cancel()
        timer = nil
        let calls = pending.sorted { $0.key < $1.key }.map(\.value)
        pending = [:]
        buckets = [:]
        for call in calls {
            call.complete(ReplyEnvelope(id: call.request.id, result: .failure(Self.closed)))
        }
    }

    private static let closed = CloudError(.networkFailure, "The connection is closed.")

    // MARK: Attempts

    private func attempt(_ call: inout Call, now: Duration) {
        call.request.timeout = call.deadline - now
        call.request.accessTokenDigest = carriedTokens[call.request.accessToken]
        let message = call.request.encoded()
        let sent = sockets.contains { $0.send(message) == .sent }
        if sent {
            call.wasSent = true
            call.lastError = nil
        } else if call.endsWhenRefused || onRefused != nil {
            probe()
        }
        let first = sent ? policy.attemptTimeout : policy.backoff
        let longest = sent ? policy.attemptTimeoutMax : policy.backoffMax
        call.due = min(call.deadline, now + pause(first, longest, attempts: call.attempts))
        call.attempts += 1
    }

    // MARK: Refused connections

    /// A call could not be sent: is nobody there, or is the connection only not made yet?
    private func probe() {
        // Several endpoints are instances of one service: nothing is known while one of them may be there.
        guard !isProbing, endpoints.count == 1, let endpoint = endpoints.first, !sockets.isEmpty else { return }
        isProbing = true
        let greetings = greetings
        loop.schedule(after: Self.probePause) { [weak self] in
            guard let self, greetings == self.greetings else {
                self?.isProbing = false
                return
            }
            loop.probe(endpoint, serverKeys: serverKeys) { [weak self] presence in
                guard let self else { return }
                isProbing = false
                probed(greetings == self.greetings ? presence : .server)
            }
        }
    }

    private func probed(_ presence: Presence) {
        let error: CloudError
        switch presence {
        case .server:
            refusedSince = nil
            return
        case .nobody: error = Self.refused
        case .stranger: error = Self.strange
        }
        let now = loop.monotonicNow
        let since = refusedSince ?? now
        refusedSince = since
        guard now - since >= policy.refusalPatience else { return probe() }
        guard !pending.isEmpty else { return }
        onRefused?(error)
        for (id, call) in pending.sorted(by: { $0.key < $1.key }) where call.endsWhenRefused {
            guard pending.removeValue(forKey: id) != nil else { continue }
            call.complete(
                ReplyEnvelope(id: id, result: .failure(call.wasSent ? Self.lost(call) : error)))
        }
    }

    private static let refused = CloudError(
        .networkUnavailable, "The server cannot be reached: nothing answers at its address.")
    private static let strange = CloudError(
        .networkUnavailable,
        "What answers at the server's address does not have the server's key. If the operator has replaced the keys, "
            + "sign in again with the new connection string; what is on this device stays.",
        details: ["reason": "server_key"])

    /// Exponential, with half of it random, so that callers who failed together do not return together.
    private func pause(_ first: Duration, _ longest: Duration, attempts: Int) -> Duration {
        let full = min(longest, first * (1 << min(attempts, 16)))
        guard attempts > 0 else { return full }
        return full / 2 + full / 2 * Double.random(in: 0..<1, using: &generator)
    }

    private func enqueue(_ id: OperationID, due: Duration) {
        let slice = due.nanoseconds / Self.slice.nanoseconds + 1
        buckets[slice, default: []].append(id)
        if slice < timerSlice { schedule(slice) }
    }

    private func schedule(_ slice: Int64) {
        timer?.cancel()
        timerSlice = slice
        let time = Duration.nanoseconds(slice * Self.slice.nanoseconds)
        timer = loop.schedule(after: max(.zero, time - loop.monotonicNow)) { [weak self] in self?.tick() }
    }

    private func tick() {
        let now = loop.monotonicNow
        timer = nil
        timerSlice = .max
        let current = now.nanoseconds / Self.slice.nanoseconds
        for slice in buckets.keys.filter({ $0 <= current }).sorted() {
            for id in buckets.removeValue(forKey: slice) ?? [] {
                // Answered, cancelled, or put off in the meantime.
                guard var call = pending[id], call.due <= now else { continue }
                if call.deadline <= now {
                    pending[id] = nil
                    call.complete(ReplyEnvelope(id: id, result: .failure(call.lastError ?? Self.lost(call))))
                } else {
                    attempt(&call, now: now)
                    pending[id] = call
                    enqueue(id, due: call.due)
                }
            }
        }
        if let next = buckets.keys.min(), next < timerSlice { schedule(next) }
    }

    private static func lost(_ call: Call) -> CloudError {
        call.wasSent
            ? CloudError(.serverResponseLost, "No answer came in time. Repeat the call under the same operation id.")
            : CloudError(.networkFailure, "The service could not be reached. Check its address and the network.")
    }

    // MARK: Replies

    private func receive(_ messages: [Message]) {
        for message in messages {
            // Bytes that are no reply can only come from a faulty server; the call is repeated in time.
            guard let reply = try? ReplyEnvelope(decoding: message) else { continue }
            lastHeard = loop.monotonicNow
            guard let id = reply.id else {
                if reply.isGreeting { greeted() } else { onDelivery(reply) }
                continue
            }
            // An answer to a call that was answered before (it had been repeated) or given up.
            guard let call = pending[id] else { continue }
            if case .failure(let error) = reply.result {
                if error.code == .accessTokenUnknown {
                    sendToken(of: call)
                    continue
                }
                if putOff(id, call, error) { continue }
            } else {
                noteCarried(call.request)
            }
            pending[id] = nil
            call.complete(reply)
        }
    }

    /// A connection was made. If it replaces one that was lost, what waits for
    /// an answer may have been lost with it: it is repeated at once, and not
    /// only when its time is up.
    private func greeted() {
        greetings += 1
        refusedSince = nil
        carriedTokens = [:]
        guard greetings > endpoints.count else { return }
        let now = loop.monotonicNow
        for id in pending.keys.sorted() {
            guard var call = pending[id], call.wasSent, call.lastError == nil else { continue }
            attempt(&call, now: now)
            pending[id] = call
            enqueue(id, due: call.due)
        }
    }

    /// With several endpoints nobody knows which of the connections carried it.
    private func noteCarried(_ request: RequestEnvelope) {
        let token = request.accessToken
        guard endpoints.count == 1, !token.isEmpty, carriedTokens[token] == nil else { return }
        if carriedTokens.count >= Self.carriedTokensMax { carriedTokens = [:] }
        carriedTokens[token] = TokenDigest(of: token)
    }

    /// The service has forgotten the token, or this is another connection: the call goes out again with the token.
    private func sendToken(of call: Call) {
        // Otherwise it has, and this answers an earlier attempt.
        guard call.request.accessTokenDigest != nil else { return }
        carriedTokens = [:]
        var call = call
        attempt(&call, now: loop.monotonicNow)
        pending[call.request.id] = call
        enqueue(call.request.id, due: call.due)
    }

    /// Whether the call is to be tried again after this failure.
    private func putOff(_ id: OperationID, _ call: Call, _ error: CloudError) -> Bool {
        guard error.code.retry == .afterBackoff, error.retryAfter ?? .zero < policy.waitMax else { return false }
        let now = loop.monotonicNow
        let wait = max(
            error.retryAfter ?? .zero, pause(policy.backoff, policy.backoffMax, attempts: max(1, call.attempts)))
        guard now + wait < call.deadline else { return false }
        var call = call
        call.lastError = error
        call.due = now + wait
        pending[id] = call
        enqueue(id, due: call.due)
        return true
    }
}
