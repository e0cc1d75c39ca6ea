internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// A socket at which a service is asked: whoever may ask is let in through the
/// gate, and what comes of it goes out as replies.
///
/// A reply that finds no room is dropped: whoever does not read its replies
/// asks for this one again, under the same id, when it does. On the loop only.
final class Door {
    private let gate: Gate
    private let methods: [String: Router.Method]
    private let counters: Counters
    private let logger: Logger
    private let loop: any BusLoop
    /// What asked for no method that there is.
    private let others = MethodFigures()
    private(set) var socket: (any ReplySocket)?

    /// - Parameters:
    ///   - welcome: Called with each connection that is new.
    ///   - take: Called with what was let in of each batch, but for what is answered without storage.
    init(
        _ options: ReplySocketOptions, _ methods: [String: Router.Method], gate: Gate, loop: any BusLoop,
        counters: Counters, logger: Logger, welcome: @escaping (Door, Peer) -> Void,
        take: @escaping ([GroupItem]) -> Void
    ) throws {
        self.gate = gate
        self.methods = methods
        self.counters = counters
        self.logger = logger
        self.loop = loop
        socket = try loop.makeReplySocket(options) { self.receive($0, welcome, take) }
    }

    /// What became of its requests, by method; those of none that there is, as `other`.
    var figures: [MethodFigures.Copy] {
        methods.map { $1.figures.copy(named: $0) } + [others.copy(named: "other")]
    }

    func close() {
        socket?.close()
        socket = nil
    }

    private func receive(
        _ incoming: [Incoming], _ welcome: (Door, Peer) -> Void, _ take: ([GroupItem]) -> Void
    ) {
        guard socket != nil else { return }
        let now = loop.monotonicNow
        let time = loop.wallClock.now
        var items: [GroupItem] = []
        items.reserveCapacity(incoming.count)
        var requests = 0
        for one in incoming {
            guard !one.isProbe else {
                welcome(self, one.peer)
                continue
            }
            requests += 1
            counters.requestBytes &+= one.byteCount
            switch gate.admit(one, to: methods, now: now, time: time) {
            case .request(let item):
                if gate.isIdentified(item.context) { socket?.noteIdentified(one.peer) }
                if !answerDirectly(item) { items.append(item) }
            case .refused(let refusal): refuse(one.peer, refusal, since: now, at: now)
            case .ignored: break
            }
        }
        counters.add("requests", by: requests)
        take(items)
    }

    /// - Returns: False when it needs storage.
    private func answerDirectly(_ item: GroupItem) -> Bool {
        guard let method = item.method, method.isDirect, case .direct(let direct) = method.way,
            case .request(_, let body) = item.work
        else { return false }
        do {
            try direct(body, item.context) { [weak self] result, rows in
                item.cost.rows += rows
                switch result {
                case .success(let reply): item.outcome = .success(reply)
                case .failure(let error): item.outcome = .failure(error)
                }
                self?.answer(item)
            }
        } catch {
            item.outcome = .failure(CloudError(wrapping: error))
            answer(item)
        }
        return true
    }

    /// Sends what the request has come to.
    func answer(_ item: GroupItem) {
        defer { gate.noteAnswered(item) }
        let now = loop.monotonicNow
        switch item.outcome {
        case .success(let body):
            gate.charge(item, replyBytes: body.count, now: now)
            let isOfService =
                item.context.caller == nil && (item.method?.access == .service || item.method?.access == .reader)
            item.method?.figures.note(nil, isOfService ? nil : now - item.arrived)
            send(
                ReplyEnvelope(id: item.context.id, result: .success(body), budget: item.budget), to: item.context.peer)
        case .failure(let error):
            gate.charge(item, replyBytes: 0, now: now)
            refuse(
                item.context.peer,
                Gate.Refusal(
                    error: error, id: item.context.id, causeID: item.context.causeID, budget: item.budget,
                    method: item.method?.name),
                since: item.arrived, at: now)
        case .pending, .toPrepare, .toRead:
            break
        }
    }

    private func refuse(_ peer: Peer, _ refusal: Gate.Refusal, since arrived: Duration, at now: Duration) {
        let error = refusal.error
        counters.note(error)
        (refusal.method.flatMap { methods[$0]?.figures } ?? others).note(error.code, now - arrived)
        let level: Logger.Level =
            error.code == .internalError || error.code == .storageFailure ? .error : .debug
        logger.log(
            level: level, "A request failed",
            metadata: RequestTrace.metadata(refusal.id, causedBy: refusal.causeID).merging([
                "code": "\(error.code)", "method": "\(refusal.method ?? "other")", "details": "\(error.loggedDetails)",
            ]) { $1 })
        send(ReplyEnvelope(id: refusal.id, result: .failure(error), budget: refusal.budget), to: peer)
    }

    func send(_ reply: ReplyEnvelope, to peer: Peer) {
        let message = reply.encoded()
        switch socket?.send(message, to: peer) {
        case .sent: counters.replyBytes &+= message.byteCount
        case nil: return
        case .gone: counters.add("replies.gone")
        case .full: counters.add("replies.dropped")
        }
    }
}

extension Message {
    fileprivate var byteCount: UInt64 { reduce(0) { $0 + UInt64($1.count) } }
}

extension Incoming {
    fileprivate var byteCount: UInt64 { message.byteCount }
}
