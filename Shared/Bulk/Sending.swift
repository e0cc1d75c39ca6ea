internal import Bus
internal import Core

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

    private struct State {
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

        var isReady: Bool { !isBusy && !requests.isEmpty && credit > sent && tooLittle != credit }
    }

    private let loop: any BusLoop
    private let work: ChunkWork
    private let send: (Frame, Peer) -> SendResult
    private var lines: [Line: State] = [:]
    /// On which each ticket is used, the oldest first.
    private var connections: [BulkTicket: [UInt64]] = [:]
    private var turns = Turns<AccountID, Line>()
    private var running = 0
    private var requestCount = 0
    private var accounts: [AccountID: Int] = [:]

    init(loop: any BusLoop, work: ChunkWork, send: @escaping (Frame, Peer) -> SendResult) {
        self.loop = loop
        self.work = work
        self.send = send
    }

    /// Notes that the ticket is used on the connection, so that its end is told there.
    func note(_ ticket: Ticket, on peer: Peer) {
        let line = Line(connection: peer.connection, ticket: ticket.id)
        guard lines[line] == nil else { return }
        lines[line] = State(peer: peer, ticket: ticket)
        connections[ticket.id, default: []].append(peer.connection)
        // Nobody tells that a connection is over.
        guard let all = connections[ticket.id], all.count > Self.connectionsMax else { return }
        remove(Line(connection: all[0], ticket: ticket.id))
    }

    /// - Parameter total: Bytes since the connection was made; a total that goes back changes nothing.
    func addCredit(_ total: UInt64, _ ticket: Ticket, of peer: Peer) {
        let line = Line(connection: peer.connection, ticket: ticket.id)
        guard let known = lines[line]?.credit, total > known else { return }
        lines[line]?.credit = total
        queue(line)
    }

    /// - Returns: Why the request is not taken; nil: it is, and will be answered.
    func take(_ request: ChunkRequest, of peer: Peer) -> CloudError? {
        let line = Line(connection: peer.connection, ticket: request.ticket.id)
        let own = lines[line]?.requests.count ?? 0
        let account = request.ticket.account
        guard own < Self.requestsMax, accounts[account, default: 0] < Self.requestsOfAccountMax,
            own < Self.fewRequests || requestCount < Self.requestsInAllMax
        else {
            return CloudError(
                .serviceBusy, "Too many requests for chunks wait. Ask again when some are answered.",
                details: ["maximum": "\(Self.requestsMax)"], retryAfter: .milliseconds(50))
        }
        lines[line]?.requests.append(request)
        count(1, of: account)
        queue(line)
        return nil
    }

    private func count(_ requests: Int, of account: AccountID) {
        requestCount += requests
        let own = accounts[account, default: 0] + requests
        accounts[account] = own > 0 ? own : nil
    }

    /// Forgets what was asked for under the ticket.
    ///
    /// - Returns: On which connections it was used.
    func end(_ ticket: Ticket) -> [Peer] {
        let over = (connections[ticket.id] ?? []).map { Line(connection: $0, ticket: ticket.id) }
        let peers = over.compactMap { lines[$0]?.peer }
        for line in over { remove(line) }
        return peers
    }

    private func remove(_ line: Line) {
        if let state = lines.removeValue(forKey: line) { count(-state.requests.count, of: state.ticket.account) }
        connections[line.ticket]?.removeAll { $0 == line.connection }
        if connections[line.ticket]?.isEmpty == true { connections[line.ticket] = nil }
    }

    // MARK: Turns

    private func queue(_ line: Line) {
        guard let state = lines[line], state.isReady else { return }
        lines[line]?.isBusy = true
        turns.add(line, of: state.ticket.account)
    }

    /// Begins what can be begun, when a batch of messages has been looked at.
    func goOn() {
        while running < Self.runningMax {
            guard let line = turns.next() else { return }
            read(line)
        }
    }

    private func read(_ line: Line) {
        // It may have ended while it waited.
        guard let state = lines[line] else { return }
        let allowance = Int(clamping: min(state.credit - state.sent, UInt64(Self.turnBytes)))
        // As many as there could be of the smallest.
        let requests = Array(state.requests.prefix(max(1, allowance / BulkLimits.chunkBytesMin)))
        running += 1
        loop.offload(to: .content) { [work] in
            work.fetch(requests, bytesMax: allowance)
        } then: { [weak self] result in
            guard let self else { return }
            running -= 1
            deliver(result, to: line, readAt: state.credit)
            goOn()
        }
    }

    /// - Parameters:
    ///   - result: The answers to the line's first requests; or the pool was full.
    ///   - credit: What the line had when they were read.
    private func deliver(_ result: Result<[ChunkWork.Fetched], any Error>, to line: Line, readAt credit: UInt64) {
        guard var state = lines[line] else { return }
        state.isBusy = false
        var isStuck = false
        switch result {
        case .failure: isStuck = true
        case .success(let answers):
            if answers.isEmpty { state.tooLittle = credit }
            var done = 0
            sending: for answer in answers {
                switch send(answer.frame, state.peer) {
                case .sent: state.sent += UInt64(answer.counted)
                case .gone: return remove(line)
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
        state.isBusy = isStuck
        lines[line] = state
        if isStuck { leaveAlone(line, state.pauses) } else { queue(line) }
    }

    /// What was read for it is let go: whoever does not read holds nothing here but requests.
    private func leaveAlone(_ line: Line, _ pauses: Int) {
        loop.schedule(after: Self.pause * min(100, 1 << min(pauses, 7))) { [weak self] in
            guard let self, lines[line] != nil else { return }
            lines[line]?.isBusy = false
            queue(line)
            goOn()
        }
    }
}
