package import NephosBus
internal import NephosChunks
package import NephosCore
internal import NephosWire

/// Moves content to and from one service: stores chunks as far as the service gives credit, and fetches them as far as
/// it gives credit itself.
///
/// Asks for a ticket when it has none or it has ended, and sends again what was not answered when the connection was
/// made anew or nothing is heard; a chunk that comes twice is stored once. It goes on by itself, with pauses that grow,
/// for as long as its owner wants: only a refusal that no repeat can cure ends it, or ``cancel()``. On its loop only.
package final class BulkClient {
    /// What a transfer is for, as `OpenTransfer` says it.
    package struct Purpose: Sendable {
        /// Names the upload, 16 bytes, kept for as long as it is not done; nil: nothing is stored.
        package var upload: [UInt8]?
        /// Room that the upload needs in all (``BulkLimits/counted(_:)`` of each chunk).
        package var uploadBytes: UInt64
        /// For which container it is; empty: for any that counts on the plan.
        package var container: String

        package init(upload: [UInt8]? = nil, uploadBytes: UInt64 = 0, container: String = "") {
            self.upload = upload
            self.uploadBytes = uploadBytes
            self.container = container
        }
    }

    /// Leave to move content.
    package struct Pass: Sendable {
        var ticket: BulkTicket
        /// A chunk at least, and no more than waits in this device's memory for its answer.
        package let creditBytes: Int

        /// - Parameter creditBytes: As the service says.
        package init(ticket: BulkTicket, creditBytes: UInt64) {
            self.ticket = ticket
            self.creditBytes = Int(
                min(max(creditBytes, UInt64(BulkLimits.chunkBytesMax)), UInt64(BulkLimits.creditBytes)))
        }
    }

    /// Asks the service's `requests` for leave, and calls back once, on the loop and not before it returns.
    package typealias Open = (Purpose, @escaping (Result<Pass, CloudError>) -> Void) -> Void

    /// How long nothing may be heard while something waits for an answer, before that is sent again; and at most, when
    /// nothing is heard then either.
    private static let patience: Duration = .seconds(5)
    private static let patienceMax: Duration = .seconds(120)
    /// The longest time that passes between two answers on a line that is only slow: what is waited for besides. Before
    /// anything was answered the line may be as slow as that.
    private static let gapMax: Duration = .seconds(60)
    private static let gapAtFirst: Duration = .seconds(30)
    private static let pause: Duration = .milliseconds(50)
    /// A pause of a chunk that is told of.
    private static let noticedPause: Duration = .milliseconds(500)

    struct Pending {
        var frame: Frame
        /// Of content, as it is.
        var bytes: Int
        /// Of the credit.
        var counted: Int
        var isSent = false
        var completion: (Result<Void, CloudError>) -> Void
    }

    /// Called when there is room for more chunks.
    package var onRoom: () -> Void = {}
    /// Called when ``progress`` has changed, now and then.
    package var onProgress: () -> Void = {}

    let loop: any BusLoop
    private var purpose: Purpose
    private var open: Open?
    private var generator: any RandomNumberGenerator
    private var socket: (any RequestSocket)?
    private(set) var pass: Pass?
    private(set) var isConnected = false
    private var isOpening = false
    private var isResting = false
    /// Of tickets that were refused one after the other, before anything was moved under them.
    private var ticketRetry = Retry(.ticket)
    private var reopening: (any LoopTimer)?
    /// How often nothing was heard, one after the other.
    private var silences = 0
    /// Chunks that were refused for the moment: how often, and when they go again.
    private var pauses: [UInt64: (retry: Retry, timer: (any LoopTimer)?)] = [:]
    private var done = BulkProgress()
    /// Why nothing more can be moved; nil: it goes on, or waits.
    package private(set) var ended: CloudError?
    private var watchdog: (any LoopTimer)?
    private var retry: (any LoopTimer)?
    private var lastHeard: Duration
    /// How long the last answer came after the one before it, or after it was waited for.
    private var gap = gapAtFirst
    /// When a chunk was stored or fetched last, whoever wanted it.
    package private(set) var lastMoved: Duration?
    private var pending: [UInt64: Pending] = [:]
    /// Chunks that wait to be sent, in order.
    private var waiting: [UInt64] = []
    private var inFlightBytes = 0
    private var waitingBytes = 0
    private var lastNumber: UInt64 = 0
    lazy var fetching = BulkFetching(self)
    let coder = ChunkCoder()

    /// - Parameters:
    ///   - options: Of the service's `bulk` endpoints.
    ///   - generator: Where jitter comes from.
    ///   - open: Kept until ``close()`` or ``cancel()``.
    /// - Throws: ``CloudError`` `.configurationInvalid` for an endpoint that the transport does not understand.
    package init(
        loop: any BusLoop, socket options: RequestSocketOptions, purpose: Purpose,
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator(), open: @escaping Open
    ) throws {
        self.loop = loop
        self.purpose = purpose
        self.open = open
        self.generator = generator
        lastHeard = loop.monotonicNow
        socket = try loop.makeRequestSocket(options) { [weak self] in self?.receive($0) }
        watch()
        openAgain()
    }

    /// Keeps the connection, and nothing else: what it was for is over, and no ticket is asked for. To make a connection
    /// costs more than to move many chunks.
    ///
    /// - Returns: False: it has something to do, or no connection.
    package func rest() -> Bool {
        guard ended == nil, socket != nil, isConnected, pass != nil, pending.isEmpty, fetching.count == 0 else {
            return false
        }
        (isResting, pass, done, onRoom, onProgress) = (true, nil, BulkProgress(), {}, {})
        return true
    }

    /// Goes on for another purpose, over the same connection.
    ///
    /// - Returns: False: it does not rest, or has no connection any more.
    package func resume(for purpose: Purpose) -> Bool {
        guard isResting, ended == nil, socket != nil, isConnected else { return false }
        (self.purpose, isResting, lastHeard) = (purpose, false, loop.monotonicNow)
        openAgain()
        return true
    }

    /// Ends it. What is not answered fails with the reason.
    package func close(because reason: CloudError = CloudError(.networkFailure, "The connection is closed.")) {
        shut(reason)
    }

    /// Gives up, at any moment. What is not answered fails with `.operationCancelled`, before this returns; nothing is
    /// called after that. What the service has stored by then stays in its upload, which `CloseTransfer` ends.
    package func cancel() { shut(CloudError(.operationCancelled, "The transfer was cancelled.")) }

    private func shut(_ error: CloudError) {
        (onRoom, onProgress, open) = ({}, {}, nil)
        socket?.close()
        socket = nil
        end(because: ended ?? error)
        watchdog?.cancel()
        watchdog = nil
    }

    /// How far it is.
    package var progress: BulkProgress {
        var progress = done
        progress.chunksLeft = pending.count + fetching.count
        if ended != nil { progress.waiting = nil }
        return progress
    }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    package func hasten() {
        if reopening != nil {
            reopening?.cancel()
            reopening = nil
            openAgain()
        }
        for (number, paused) in pauses {
            guard let timer = paused.timer else { continue }
            timer.cancel()
            pauses[number]?.timer = nil
            sendAgain(number)
            fetching.askAgain(number)
        }
        waiting.sort()
        goOn()
    }

    // MARK: Storing

    /// Bytes that a service takes from this client without an answer; 0: there is no ticket.
    package var creditBytes: Int { pass?.creditBytes ?? 0 }

    /// Bytes that may be stored now without waiting in this device's memory, also if they do not compress.
    package var room: Int { max(0, (pass?.creditBytes ?? 0) - inFlightBytes - waitingBytes) }

    /// What chunks are made under: the ticket that there is, and if it is another one when they go, they are copied.
    var ticket: BulkTicket { pass?.ticket ?? .none }

    /// Stores a chunk that was made for it. The completion runs on the loop, once, when the chunk survives a crash of the
    /// service.
    func store(_ made: MadeChunk, then completion: @escaping (Result<Void, CloudError>) -> Void) {
        if let ended {
            loop.schedule(after: .zero) { completion(.failure(ended)) }
            return
        }
        noteStart()
        let counted = BulkLimits.counted(BulkFrame(made.frame).contentBytes)
        pending[made.number] = Pending(
            frame: made.frame, bytes: made.bytes, counted: counted, completion: completion)
        waiting.append(made.number)
        waitingBytes += counted
        goOn()
    }

    /// Makes a chunk, on the loop, and stores it. The completion runs on the loop, once, when the chunk survives a
    /// crash of the service.
    ///
    /// - Parameters:
    ///   - bytes: Of content; 1 to ``BulkLimits/chunkBytesMax``. Compressing takes a few milliseconds for as many.
    ///   - write: Writes the content where it will be sent from, if it is not compressed, and returns its hash.
    /// - Returns: The hash.
    @discardableResult
    package func store(
        bytes: Int, _ write: (UnsafeMutableRawBufferPointer) throws -> ChunkID,
        then completion: @escaping (Result<Void, CloudError>) -> Void
    ) rethrows -> ChunkID {
        if let ended {
            loop.schedule(after: .zero) { completion(.failure(ended)) }
            return .none
        }
        let made = try Self.make(nextNumber(), under: ticket, bytes: bytes, by: coder, write)
        store(made, then: completion)
        return made.chunk
    }

    /// Nothing was waited for until now.
    func noteStart() {
        if pending.isEmpty, fetching.count == 0 { lastHeard = loop.monotonicNow }
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
            : BulkFrame.chunk(
                ticket, number: bulk.number, encoding: bulk.encoding, contentBytes: bulk.contentBytes
            ) { room in
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
        forgetPause(number)
        guard let chunk = pending.removeValue(forKey: number) else { return }
        if case .success = result { noteDone(chunk.bytes, moved: BulkFrame(chunk.frame).contentBytes) }
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
        for timer in [reopening, retry] { timer?.cancel() }
        (reopening, retry) = (nil, nil)
        for number in Array(pauses.keys) { forgetPause(number) }
        failAll(error)
        onProgress()
    }

    private func failAll(_ error: CloudError) {
        for number in pending.keys.sorted() { end(number, .failure(error)) }
        fetching.failAll(error)
    }

    // MARK: Connection and ticket

    private func openAgain() {
        guard !isResting, !isOpening, socket != nil, ended == nil, let open else { return }
        isOpening = true
        pass = nil
        open(purpose) { [weak self] result in
            guard let self, socket != nil, ended == nil else { return }
            isOpening = false
            switch result {
            case .success(let pass):
                self.pass = pass
                done.waiting = nil
                onProgress()
                sendAllAgain(isNew: true)
            case .failure(let error): openAgain(after: error)
            }
        }
    }

    /// There is no ticket, or not any more.
    private func openAgain(after error: CloudError) {
        guard error.code.retry != .never else { return end(because: error) }
        pass = nil
        let pause = ticketRetry.failed(error, using: &generator)
        // That it has run out says nothing the first time. If the next ones are none either, something is wrong.
        guard error.code != .tokenExpired || ticketRetry.attempts > 1 else { return openAgain() }
        wait(error, attempts: ticketRetry.attempts, pause)
        reopening?.cancel()
        reopening = loop.schedule(after: pause) { [weak self] in
            self?.reopening = nil
            self?.openAgain()
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
            let isWaiting = pending.count + fetching.count > pauses.count { $0.value.timer != nil }
            if let pass, isWaiting {
                let silence = loop.monotonicNow - lastHeard
                if silence > patience {
                    heardNothing()
                } else if isConnected {
                    fetching.probe(pass, after: silence)
                }
            }
            watch()
        }
    }

    /// What is on its way on a connection that lives comes in time: to send it again would only fill a slow line.
    private var patience: Duration {
        let slack = isConnected ? min(gap * 4, Self.gapMax) : .zero
        return min((Self.patience + slack) * (1 << min(silences, 8)), Self.patienceMax)
    }

    private func heardNothing() {
        silences += 1
        wait(
            CloudError(
                .networkUnavailable, "The service is not heard. What waits is sent again, and goes on by itself."),
            attempts: silences, patience)
        if isConnected { sendAllAgain(isNew: false) } else { tryUngreeted() }
    }

    /// The greeting may be what was lost. Where there is no connection nothing can be sent, and it is waited on.
    private func tryUngreeted() {
        lastHeard = loop.monotonicNow
        guard retry == nil else { return }
        isConnected = true
        sendAllAgain(isNew: true)
        guard let failed = retry else { return }
        failed.cancel()
        (retry, isConnected) = (nil, false)
    }

    private func receive(_ messages: [Message]) {
        if isConnected, pending.count + fetching.count > 0 { gap = loop.monotonicNow - lastHeard }
        lastHeard = loop.monotonicNow
        silences = 0
        let before = done
        if done.waiting?.reason.code == .networkUnavailable { done.waiting = nil }
        for message in messages where message.count == 1 && socket != nil {
            let frame = BulkFrame(message[0])
            // Bytes that are no frame can only come from a faulty server; what waits is sent again in time.
            guard let kind = try? frame.kind(contentBytesMax: BulkLimits.chunkBytesMax) else { continue }
            switch kind {
            case .greeting:
                isConnected = true
                if pass != nil { sendAllAgain(isNew: true) }
            case .stored:
                end(frame.number, .success(()))
            case .chunk:
                fetching.take(frame)
            case .refused: refused(frame)
            case .get, .credit: break
            }
        }
        guard socket != nil else { return }
        goOn()
        if room > 0 { onRoom() }
        if done != before { onProgress() }
    }

    func noteDone(_ bytes: Int, moved: Int) {
        lastMoved = loop.monotonicNow
        done.chunksDone += 1
        done.bytesDone += bytes
        done.bytesMoved += moved
        done.waiting = nil
        ticketRetry.succeeded()
    }

    private func wait(_ reason: CloudError, attempts: Int, _ pause: Duration) {
        done.waiting = BulkProgress.Wait(reason: reason, attempts: attempts, until: loop.monotonicNow + pause)
        onProgress()
    }

    func forgetPause(_ number: UInt64) { pauses.removeValue(forKey: number)?.timer?.cancel() }

    private func refused(_ frame: BulkFrame) {
        let error = frame.failure
        // An answer to what went out under an earlier ticket says nothing of this one.
        if error.code == .tokenExpired || frame.chunk == .none {
            guard frame.ticket == pass?.ticket else { return }
            return openAgain(after: error)
        }
        guard pending[frame.number] != nil || fetching.has(frame.number) else { return }
        guard Self.passes(error) else {
            end(frame.number, .failure(error))
            return fetching.end(frame.number, .failure(error))
        }
        var retry = pauses[frame.number]?.retry ?? Retry(.chunk)
        let pause = retry.failed(error, using: &generator)
        pauses[frame.number]?.timer?.cancel()
        let timer = loop.schedule(after: pause) { [weak self] in
            self?.pauses[frame.number]?.timer = nil
            self?.sendAgain(frame.number)
            self?.fetching.askAgain(frame.number)
            self?.goOn()
        }
        pauses[frame.number] = (retry, timer)
        if pause >= Self.noticedPause { wait(error, attempts: retry.attempts, pause) }
    }

    /// Whether the same may be taken later: the service is busy, the account has written too much of late, the disk is
    /// full. That there is no credit is so too: what was sent before the connection was made anew still counts until it
    /// is stored, and so does what other clients of this device send.
    private static func passes(_ error: CloudError) -> Bool {
        switch error.code {
        case .limitExceeded: error.details["credit_bytes"] != nil
        // Of what is damaged it is not said.
        case .storageFailure: error.retryAfter != nil
        default: error.code.retry == .afterBackoff
        }
    }
}
