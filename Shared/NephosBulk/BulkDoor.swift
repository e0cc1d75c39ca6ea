internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit

/// The socket that content comes to and goes from: looks at frames, knows tickets, and hands on.
///
/// On a loop of its own, so that a gigabyte never stands before a small request. It asks nobody who may what: a ticket
/// says all, and whoever let the device in ends it.
final class BulkDoor {
    private let loop: any BusLoop
    private var socket: (any ReplySocket)?
    private var tickets = TicketTable()
    private lazy var receiving = Receiving(
        loop: loop, work: work, room: room, commit: commit,
        answer: { [unowned self] in answer($0, $1) })
    private lazy var sending = Sending(
        loop: loop, work: work, send: { [unowned self] in send($0, to: $1) }, found: found)
    private let work: ChunkWork
    private let room: Room
    private let commit: Receiving.Commit
    private let found: Sending.Found
    private static let sweepInterval: Duration = .seconds(10)

    /// Frames under tickets that are not known. They are looked at once more: a ticket is told to this loop before
    /// whoever asked for it, but a frame may be taken from the socket before that was heard.
    private var early: [Incoming] = []
    private static let earlyMax = 8192
    /// Of one key: as many as a device's credit lets it send before it has an answer, and nobody's room but its own.
    private static let earlyOfKeyMax = BulkLimits.creditBytes / BulkLimits.chunkBytesMin
    private var earlyOfKeys: [PublicKey: Int] = [:]

    /// Frames of a key that are refused as soon as they are looked at: beyond it they are not answered. A device whose
    /// ticket has ended sends no more of them at once than its credit and its requests are.
    private var refusals = StrangerBudget(BudgetConfiguration.Limit(capacity: 4000, refillPerSecond: 400))

    /// - Parameter room: For content that was sent and is not stored yet.
    /// - Throws: ``CloudError`` `.configurationInvalid` for an address that cannot be bound.
    init(
        loop: any BusLoop, endpoint: String, keys: KeyPair, work: ChunkWork, room: Room,
        commit: @escaping Receiving.Commit, found: @escaping Sending.Found = { _ in }
    ) throws {
        self.loop = loop
        self.work = work
        self.room = room
        self.commit = commit
        self.found = found
        let options = ReplySocketOptions(
            endpoint: endpoint, keys: keys, frameBytesMax: BulkFrame.headerBytes + BulkLimits.chunkBytesMax)
        socket = try loop.makeReplySocket(options) { [unowned self] in receive($0) }
        sweep()
    }

    /// Where it is bound, with the port that was chosen.
    var endpoint: String { socket?.endpoint ?? "" }
    /// Bytes of content that were sent and are not answered yet.
    var heldBytes: Int { receiving.heldBytes }
    /// Uploads, and their accounts, of which it knows how full they are.
    var knownCount: Int { receiving.knownCount }

    /// For the table of metrics.
    var figures: [String: Int] {
        [
            "content.sent.bytes": sending.sentBytes, "content.sent.chunks": sending.sentChunks,
            "content.held.bytes": heldBytes, "content.unsent.bytes": socket?.unsentBytes ?? 0,
        ]
    }

    func close() {
        socket?.close()
        socket = nil
    }

    // MARK: Tickets

    /// Lets the bearer of the ticket in. If there are too many of others, it is as if it had ended at once.
    ///
    /// - Parameters:
    ///   - standing: Of its upload, if it has one.
    ///   - writing: Of its account then.
    func add(_ ticket: Ticket, _ standing: Upload.Standing?, _ writing: Writing?) {
        guard let over = tickets.add(ticket, now: loop.monotonicNow) else { return }
        tellWhoWaits(under: over)
        if let upload = ticket.upload, let standing { receiving.note(standing, of: upload, in: ticket.turn) }
        if let writing { receiving.note(writing, of: ticket.turn) }
    }

    /// Ends tickets, and tells it where they were used.
    func endTickets(because error: CloudError, where isOver: (Ticket) -> Bool) {
        for ticket in tickets.removeAll(where: { ticket, _ in isOver(ticket) }) {
            for (peer, _) in sending.end(ticket) { tell(peer, that: ticket, endedBecause: error) }
        }
    }

    /// Of tickets that end by themselves the others hear when they use them.
    private func tellWhoWaits(under over: [Ticket]) {
        for ticket in over {
            for (peer, waits) in sending.end(ticket) where waits {
                tell(peer, that: ticket, endedBecause: Self.noTicket)
            }
        }
    }

    private func tell(_ peer: Peer, that ticket: Ticket, endedBecause error: CloudError) {
        _ = send(BulkFrame.refused(ticket.id, number: 0, chunk: .none, error), to: peer)
    }

    private func sweep() {
        loop.schedule(after: Self.sweepInterval) { [weak self] in
            guard let self, let socket else { return }
            let now = loop.monotonicNow
            tellWhoWaits(under: tickets.removeAll { $1 <= now })
            sending.forget { socket.isGone($0) }
            receiving.keep(tickets.uploads)
            sweep()
        }
    }

    // MARK: Frames

    private func receive(_ incoming: [Incoming]) {
        let now = loop.monotonicNow
        for one in incoming {
            guard !one.isProbe else {
                _ = send(BulkFrame.control(.greeting, .none), to: one.peer)
                continue
            }
            take(one, now: now)
        }
        goOn()
    }

    private func goOn() {
        receiving.goOn()
        sending.goOn()
    }

    private func take(_ one: Incoming, now: Duration, mayBeEarly: Bool = true) {
        let frame = BulkFrame(one.message[0])
        do throws(CloudError) {
            let kind = try frame.kind(contentBytesMax: BulkLimits.chunkBytesMax)
            guard let ticket = tickets.find(frame.ticket, of: one.peer.publicKey, now: now) else {
                if mayBeEarly, hasRoomForEarly(of: one.peer) { return wait(with: one) }
                throw Self.noTicket
            }
            if ticket.appToken == nil { socket?.noteIdentified(one.peer) }
            try take(frame, kind, under: ticket, of: one.peer)
        } catch {
            let key = one.peer.publicKey
            guard (try? refusals.check(key, now: now)) != nil else { return }
            refusals.take(key, now: now)
            refuse(frame, of: one.peer, error)
        }
    }

    private func hasRoomForEarly(of peer: Peer) -> Bool {
        early.count < Self.earlyMax && earlyOfKeys[peer.publicKey, default: 0] < Self.earlyOfKeyMax
    }

    private func wait(with one: Incoming) {
        early.append(one)
        earlyOfKeys[one.peer.publicKey, default: 0] += 1
        guard early.count == 1 else { return }
        // After everything that was given to the loop until now.
        let door = LoopBound(self, to: loop)
        loop.handle.execute { loop in door.withValue(on: loop) { $0.takeEarly() } }
    }

    private func takeEarly() {
        let frames = early
        early = []
        earlyOfKeys = [:]
        let now = loop.monotonicNow
        for one in frames { take(one, now: now, mayBeEarly: false) }
        goOn()
    }

    private func take(
        _ frame: BulkFrame, _ kind: BulkFrame.Kind, under ticket: Ticket, of peer: Peer
    ) throws(CloudError) {
        sending.note(ticket, on: peer)
        var refusal: CloudError?
        switch kind {
        case .chunk: refusal = receiving.take(frame, ticket, of: peer)
        case .get:
            refusal = sending.take(
                ChunkRequest(ticket: ticket, number: frame.number, chunk: frame.chunk, accepts: frame.encoding),
                of: peer)
        case .credit: sending.addCredit(frame.number, ticket, of: peer)
        case .stored, .refused, .greeting:
            refusal = CloudError(.malformedRequest, "A device sends no such frames.")
        }
        if let refusal { throw refusal }
    }

    private static let noTicket = CloudError(
        .tokenExpired, "There is no such ticket for this device, or not any more. Open the transfer again.")

    private func answer(_ chunk: IncomingChunk, _ error: CloudError?) {
        if let error { return refuse(chunk.frame, of: chunk.peer, error) }
        let frame = chunk.frame
        _ = send(BulkFrame.control(.stored, frame.ticket, number: frame.number, chunk: frame.chunk), to: chunk.peer)
    }

    private func refuse(_ frame: BulkFrame, of peer: Peer, _ error: CloudError) {
        _ = send(
            BulkFrame.refused(frame.ticket, number: frame.number, chunk: frame.chunk, error), to: peer)
    }

    /// What finds no room is dropped: whoever does not read its answers asks again when it does.
    private func send(_ frame: Frame, to peer: Peer) -> SendResult { socket?.send([frame], to: peer) ?? .gone }
}
