internal import NephosBus
internal import NephosContent
internal import NephosCore

/// Chunks on their way out: what devices have asked for, read on a work pool and sent as far as they have given credit
/// and the socket takes it. Accounts take turns.
///
/// On the loop of content only.
final class Sending {
    /// Requests that wait on one connection for one ticket.
    static let requestsMax = 1024
    /// The same of an account, 64 bytes each.
    static let requestsOfAccountMax = 1 << 13
    /// The same of all; beyond it only whoever has few is still let in.
    static let requestsInAllMax = 1 << 18
    private static let fewRequests = 16
    /// Of one ticket; the oldest makes room.
    private static let connectionsMax = 8
    /// Bytes that are read in one turn, and turns at one time: what fetching takes of memory beside the socket's own.
    private static let turnBytes = 2 << 20
    private static let runningMax = 2
    /// How long whoever does not read what it asked for is left alone; doubled each time, up to a hundred times that.
    private static let pause: Duration = .milliseconds(5)

    /// One ticket on one connection.
    struct Line: Hashable {
        var connection: UInt64
        var ticket: BulkTicket
    }

    // An object: what is under way for one that is forgotten must not be taken for the same line's when it is used
    // anew.
    private final class State {
        let line: Line
        let peer: Peer
        let ticket: Ticket
        var requests: [ChunkRequest] = []
        /// Bytes that the device takes in all, and that were sent.
        var credit: UInt64 = 0
        var sent: UInt64 = 0
        /// The credit at which the next chunk did not fit.
        var tooLittle: UInt64?
        /// Queued for its turn, being read, or left alone for a while.
        var isBusy = false
        var pauses = 0

        init(_ line: Line, _ peer: Peer, _ ticket: Ticket) {
            self.line = line
            self.peer = peer
            self.ticket = ticket
        }

        var isReady: Bool { !isBusy && !requests.isEmpty && credit > sent && tooLittle != credit }
    }

    /// Called with what is to be noted of chunks that were asked for.
    typealias Found = @Sendable ([ChunkFinding]) -> Void

    private let loop: any BusLoop
    private let work: ChunkWork
    private let send: (Frame, Peer) -> SendResult
    private let found: Found
    private var lines: [Line: State] = [:]
    /// On which each ticket is used, the oldest first.
    private var connections: [BulkTicket: [UInt64]] = [:]
    private var turns = Turns<AccountID, State>()
    private var running = 0
    private var requestCount = 0
    private var accounts: [AccountID: Int] = [:]
    /// Since the start.
    private(set) var sentBytes = 0
    private(set) var sentChunks = 0

    init(loop: any BusLoop, work: ChunkWork, send: @escaping (Frame, Peer) -> SendResult, found: @escaping Found) {
        self.loop = loop
        self.work = work
        self.send = send
        self.found = found
    }

    /// Notes that the ticket is used on the connection, so that its end is told there.
    func note(_ ticket: Ticket, on peer: Peer) {
        let line = Line(connection: peer.connection, ticket: ticket.id)
        guard lines[line] == nil else { return }
        lines[line] = State(line, peer, ticket)
        connections[ticket.id, default: []].append(peer.connection)
        // Nobody tells at once that a connection is over.
        guard let all = connections[ticket.id], all.count > Self.connectionsMax else { return }
        remove(Line(connection: all[0], ticket: ticket.id))
    }

    /// - Parameter total: Bytes since the connection was made; a total that goes back changes nothing.
    func addCredit(_ total: UInt64, _ ticket: Ticket, of peer: Peer) {
        guard let state = lines[Line(connection: peer.connection, ticket: ticket.id)], total > state.credit else {
            return
        }
        state.credit = total
        queue(state)
    }

    /// - Returns: Why the request is not taken; nil: it is, and will be answered.
    func take(_ request: ChunkRequest, of peer: Peer) -> CloudError? {
        let account = request.ticket.account
        guard let state = lines[Line(connection: peer.connection, ticket: request.ticket.id)],
            state.requests.count < Self.requestsMax, accounts[account, default: 0] < Self.requestsOfAccountMax,
            state.requests.count < Self.fewRequests || requestCount < Self.requestsInAllMax
        else {
            return CloudError(
                .serviceBusy, "Too many requests for chunks wait. Ask again when some are answered.",
                details: ["maximum": "\(Self.requestsMax)"], retryAfter: .milliseconds(50))
        }
        state.requests.append(request)
        count(1, of: account)
        queue(state)
        return nil
    }

    private func count(_ requests: Int, of account: AccountID) {
        requestCount += requests
        let own = accounts[account, default: 0] + requests
        accounts[account] = own > 0 ? own : nil
    }

    /// Forgets what was asked for under the ticket.
    ///
    /// - Returns: On which connections it was used, and whether something waits there that is not answered any more.
    func end(_ ticket: Ticket) -> [(peer: Peer, waits: Bool)] {
        let over = (connections[ticket.id] ?? []).map { Line(connection: $0, ticket: ticket.id) }
        let peers = over.compactMap { lines[$0].map { (peer: $0.peer, waits: !$0.requests.isEmpty) } }
        for line in over { remove(line) }
        return peers
    }

    /// Forgets what was asked for on connections that are over: whoever lost one asks again on another, and must not
    /// find the account's share taken by what nobody waits for.
    func forget(where isGone: (Peer) -> Bool) {
        for state in lines.values where isGone(state.peer) { remove(state.line) }
    }

    private func remove(_ line: Line) {
        if let state = lines.removeValue(forKey: line) {
            count(-state.requests.count, of: state.ticket.account)
            // It may still be queued.
            state.requests = []
        }
        connections[line.ticket]?.removeAll { $0 == line.connection }
        if connections[line.ticket]?.isEmpty == true { connections[line.ticket] = nil }
    }

    // MARK: Turns

    private func queue(_ state: State) {
        guard state.isReady else { return }
        state.isBusy = true
        turns.add(state, of: state.ticket.account)
    }

    private func isForgotten(_ state: State) -> Bool { lines[state.line] !== state }

    /// Begins what can be begun, when a batch of messages has been looked at.
    func goOn() {
        while running < Self.runningMax {
            guard let state = turns.next() else { return }
            read(state)
        }
    }

    private func read(_ state: State) {
        // It may have ended while it waited.
        guard !isForgotten(state) else { return }
        let credit = state.credit
        let allowance = Int(clamping: min(credit - state.sent, UInt64(Self.turnBytes)))
        // As many as there could be of the smallest.
        let requests = Array(state.requests.prefix(max(1, allowance / BulkLimits.chunkBytesMin)))
        running += 1
        loop.offload(to: .content) { [work] in
            work.fetch(requests, bytesMax: allowance)
        } then: { [weak self] result in
            guard let self else { return }
            running -= 1
            let findings = ((try? result.get()) ?? []).compactMap(\.finding)
            if !findings.isEmpty { found(findings) }
            deliver(result, to: state, readAt: credit)
            goOn()
        }
    }

    /// - Parameters:
    ///   - result: The answers to the line's first requests; or the pool was full.
    ///   - credit: What the line had when they were read.
    private func deliver(_ result: Result<[ChunkWork.Fetched], any Error>, to state: State, readAt credit: UInt64) {
        guard !isForgotten(state) else { return }
        state.isBusy = false
        var isStuck = false
        switch result {
        case .failure: isStuck = true
        case .success(let answers):
            if answers.isEmpty { state.tooLittle = credit }
            var done = 0
            sending: for answer in answers {
                switch send(answer.frame, state.peer) {
                case .sent:
                    state.sent += UInt64(answer.counted)
                    sentBytes += answer.counted
                    if answer.counted > 0 { sentChunks += 1 }
                case .gone: return remove(state.line)
                case .full:
                    isStuck = true
                    break sending
                }
                done += 1
            }
            state.requests.removeFirst(done)
            count(-done, of: state.ticket.account)
        }
        state.pauses = isStuck ? state.pauses + 1 : 0
        if isStuck { leaveAlone(state) } else { queue(state) }
    }

    /// What was read for it is let go: whoever does not read holds nothing here but requests.
    private func leaveAlone(_ state: State) {
        state.isBusy = true
        loop.schedule(after: Self.pause * min(100, 1 << min(state.pauses, 7))) { [weak self] in
            guard let self, !isForgotten(state) else { return }
            state.isBusy = false
            queue(state)
            goOn()
        }
    }
}
