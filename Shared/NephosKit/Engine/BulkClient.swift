public import Bus
public import Core
internal import Wire

/// Moves content to and from one service: stores chunks as far as the service gives credit, and fetches them as far as
/// it gives credit itself.
///
/// Asks for a ticket when it has none or it has ended, and sends again what was not answered when the connection was
/// made anew or nothing is heard; a chunk that comes twice is stored once. On its loop only.
public final class BulkClient {
    /// What a transfer is for, as `OpenTransfer` says it.
    public struct Purpose: Sendable {
        /// Names the upload, 16 bytes, kept for as long as it is not done; nil: nothing is stored.
        public var upload: [UInt8]?
        /// Room that the upload needs in all (``BulkLimits/counted(_:)`` of each chunk).
        public var uploadBytes: UInt64

        public init(upload: [UInt8]? = nil, uploadBytes: UInt64 = 0) {
            self.upload = upload
            self.uploadBytes = uploadBytes
        }
    }

    /// Leave to move content.
    public struct Pass: Sendable {
        public var ticket: BulkTicket
        public var creditBytes: Int

        public init(ticket: BulkTicket, creditBytes: Int) {
            self.ticket = ticket
            self.creditBytes = creditBytes
        }
    }

    /// Asks the service's `requests` for leave, and calls back once, on the loop and not before it returns.
    public typealias Open = (Purpose, @escaping (Result<Pass, CloudError>) -> Void) -> Void

    /// How long nothing may be heard while something waits for an answer, before that is sent again.
    private static let patience: Duration = .seconds(5)
    private static let pause: Duration = .milliseconds(50)
    /// The longest pause, when a chunk is refused again and again, or a ticket.
    private static let chunkPauseMax: Duration = .seconds(2)
    private static let ticketPauseMax: Duration = .seconds(30)

    struct Pending {
        var frame: Frame
        var counted: Int
        var isSent = false
        /// How often it was refused for the moment.
        var refusals = 0
        var completion: (Result<Void, CloudError>) -> Void
    }

    /// Called when there is room for more chunks.
    public var onRoom: () -> Void = {}

    let loop: any BusLoop
    private let purpose: Purpose
    private let open: Open
    private var socket: (any RequestSocket)?
    private(set) var pass: Pass?
    private(set) var isConnected = false
    private var isOpening = false
    /// Tickets that were refused one after the other, before anything was moved under them.
    private var ticketsRefused = 0
    /// Why nothing more can be moved.
    private(set) var ended: CloudError?
    private var watchdog: (any LoopTimer)?
    private var retry: (any LoopTimer)?
    private var lastHeard: Duration
    private var pending: [UInt64: Pending] = [:]
    /// Chunks that wait to be sent, in order.
    private var waiting: [UInt64] = []
    private var inFlightBytes = 0
    private var waitingBytes = 0
    private var lastNumber: UInt64 = 0
    lazy var fetching = BulkFetching(self)

    /// - Parameters:
    ///   - options: Of the service's `bulk` endpoints.
    ///   - open: Kept until ``close()``.
    /// - Throws: ``CloudError`` `.configurationInvalid` for an endpoint that the transport does not understand.
    public init(
        loop: any BusLoop, socket options: RequestSocketOptions, purpose: Purpose, open: @escaping Open
    ) throws {
        self.loop = loop
        self.purpose = purpose
        self.open = open
        lastHeard = loop.monotonicNow
        socket = try loop.makeRequestSocket(options) { [weak self] in self?.receive($0) }
        watch()
        openAgain()
    }

    /// Ends it. What is not answered fails with `.networkFailure`.
    public func close() {
        socket?.close()
        socket = nil
        end(because: ended ?? CloudError(.networkFailure, "The connection is closed."))
        watchdog?.cancel()
        retry?.cancel()
    }

    // MARK: Storing

    /// Bytes that may be stored now without waiting in this device's memory.
    public var room: Int { max(0, (pass?.creditBytes ?? 0) - inFlightBytes - waitingBytes) }

    /// Stores a chunk. The completion runs on the loop, once, when the chunk survives a crash of the service.
    ///
    /// - Parameters:
    ///   - bytes: Of content; 1 to ``BulkLimits/chunkBytesMax``.
    ///   - write: Writes the content where it will be sent from, and returns its hash.
    /// - Returns: The hash.
    @discardableResult
    public func store(
        bytes: Int, _ write: (UnsafeMutableRawBufferPointer) throws -> ChunkID,
        then completion: @escaping (Result<Void, CloudError>) -> Void
    ) rethrows -> ChunkID {
        if let ended {
            loop.schedule(after: .zero) { completion(.failure(ended)) }
            return .none
        }
        let number = nextNumber()
        let frame = try BulkFrame.chunk(pass?.ticket ?? .none, number: number, contentBytes: bytes, write)
        pending[number] = Pending(frame: frame, counted: BulkLimits.counted(bytes), completion: completion)
        waiting.append(number)
        waitingBytes += BulkLimits.counted(bytes)
        goOn()
        return BulkFrame(frame).chunk
    }

    func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Sends what may be sent.
    func goOn() {
        guard isConnected, let pass else { return }
        var sent = 0
        for number in waiting {
            guard let chunk = pending[number] else { continue }
            // One goes in any case.
            guard inFlightBytes == 0 || inFlightBytes + chunk.counted <= pass.creditBytes else { break }
            guard send(chunk.frame, as: pass.ticket) else { break }
            pending[number]?.isSent = true
            inFlightBytes += chunk.counted
            waitingBytes -= chunk.counted
            sent += 1
        }
        waiting.removeFirst(sent)
        fetching.goOn(pass)
    }

    /// - Returns: False: it cannot be sent now, and is tried again soon.
    func send(_ frame: Frame, as ticket: BulkTicket) -> Bool {
        let bulk = BulkFrame(frame)
        // Of a chunk that was made under an earlier ticket.
        let frame =
            bulk.ticket == ticket
            ? frame
            : BulkFrame.chunk(ticket, number: bulk.number, contentBytes: bulk.contentBytes) { room in
                bulk.withContent { room.copyMemory(from: $0) }
                return bulk.chunk
            }
        if socket?.send([frame]) == .sent { return true }
        if retry == nil {
            retry = loop.schedule(after: Self.pause) { [weak self] in
                self?.retry = nil
                self?.goOn()
            }
        }
        return false
    }

    private func sendAgain(_ number: UInt64) {
        guard let chunk = pending[number], chunk.isSent else { return }
        pending[number]?.isSent = false
        inFlightBytes -= chunk.counted
        waitingBytes += chunk.counted
        waiting.append(number)
    }

    private func end(_ number: UInt64, _ result: Result<Void, CloudError>) {
        guard let chunk = pending.removeValue(forKey: number) else { return }
        if chunk.isSent {
            inFlightBytes -= chunk.counted
        } else {
            // The answer to an earlier sending.
            waitingBytes -= chunk.counted
            waiting.removeAll { $0 == number }
        }
        chunk.completion(result)
    }

    /// Nothing more can be moved: the device or its account has ended, or the upload, or there is no room for it. Make
    /// another client once that is cured.
    private func end(because error: CloudError) {
        ended = error
        pass = nil
        failAll(error)
    }

    private func failAll(_ error: CloudError) {
        for number in pending.keys.sorted() { end(number, .failure(error)) }
        fetching.failAll(error)
    }

    // MARK: Connection and ticket

    private func openAgain() {
        guard !isOpening, socket != nil else { return }
        isOpening = true
        pass = nil
        open(purpose) { [weak self] result in
            guard let self, socket != nil else { return }
            isOpening = false
            switch result {
            case .success(let pass):
                self.pass = pass
                sendAllAgain(isNew: true)
            case .failure(let error): end(because: error)
            }
        }
    }

    /// The ticket is none, or not any more. The first time that says nothing; if the next ones are none either, something
    /// is wrong that asking does not cure.
    private func openAgainSoon() {
        ticketsRefused += 1
        guard ticketsRefused > 1 else { return openAgain() }
        pass = nil
        loop.schedule(after: min(Self.pause(ticketsRefused - 2), Self.ticketPauseMax)) { [weak self] in
            guard let self, ended == nil else { return }
            openAgain()
        }
    }

    /// - Parameter isNew: Whether the service knows nothing of the connection or the ticket yet.
    private func sendAllAgain(isNew: Bool) {
        lastHeard = loop.monotonicNow
        for number in pending.keys.sorted() { sendAgain(number) }
        waiting.sort()
        fetching.restart(isNew: isNew)
        goOn()
        onRoom()
    }

    private func watch() {
        watchdog = loop.schedule(after: Self.patience / 5) { [weak self] in
            guard let self, socket != nil else { return }
            let isWaiting = inFlightBytes > 0 || fetching.isWaiting
            if isConnected, pass != nil, isWaiting, loop.monotonicNow - lastHeard > Self.patience {
                sendAllAgain(isNew: false)
            }
            watch()
        }
    }

    private func receive(_ messages: [Message]) {
        lastHeard = loop.monotonicNow
        for message in messages where message.count == 1 {
            let frame = BulkFrame(message[0])
            // Bytes that are no frame can only come from a faulty server; what waits is sent again in time.
            guard let kind = try? frame.kind(contentBytesMax: BulkLimits.chunkBytesMax) else { continue }
            switch kind {
            case .greeting:
                isConnected = true
                if pass != nil { sendAllAgain(isNew: true) }
            case .stored:
                ticketsRefused = 0
                end(frame.number, .success(()))
            case .chunk:
                ticketsRefused = 0
                fetching.take(frame)
            case .refused: refused(frame)
            case .get, .credit: break
            }
        }
        guard socket != nil else { return }
        goOn()
        if room > 0 { onRoom() }
    }

    private func refused(_ frame: BulkFrame) {
        let error = frame.failure
        // An answer to what went out under an earlier ticket says nothing of this one.
        if error.code == .tokenExpired || frame.chunk == .none {
            guard frame.ticket == pass?.ticket else { return }
            return error.code == .tokenExpired ? openAgainSoon() : end(because: error)
        }
        guard Self.passes(error) else {
            end(frame.number, .failure(error))
            return fetching.end(frame.number, .failure(error))
        }
        let refusals = pending[frame.number]?.refusals ?? 0
        pending[frame.number]?.refusals = refusals + 1
        loop.schedule(after: max(error.retryAfter ?? .zero, min(Self.pause(refusals), Self.chunkPauseMax))) {
            [weak self] in
            self?.sendAgain(frame.number)
            self?.fetching.askAgain(frame.number)
            self?.goOn()
        }
    }

    /// Whether the same may be taken in a moment. That there is no credit is so too: what was sent before the connection
    /// was made anew still counts until it is stored, and so does what other clients of this device send.
    private static func passes(_ error: CloudError) -> Bool {
        error.code == .serviceBusy || error.code == .limitExceeded && error.details["credit_bytes"] != nil
    }

    private static func pause(_ refusals: Int) -> Duration { pause * (1 << min(refusals, 10)) }
}
