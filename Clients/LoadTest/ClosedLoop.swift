import Foundation
import NephosBus
import NephosCore
import NephosLoadBus
import NephosZeroMQ
import Synchronization

/// What one client asks next.
struct LoadRequest {
    var method: String
    var body: Frame
}

/// Clients, each with a connection of its own and one request in flight, which it follows by the next when it was
/// answered.
final class ClosedLoop {
    private static let drainMax: Duration = .seconds(20)
    private static let patience: Duration = .seconds(15)

    private let loop: any BusLoop
    private let devices: [LoadDevice]
    private let duration: Duration
    private let warmUp: Duration
    private let outcome: WriteOutcome
    private let next: (Int) -> LoadRequest?
    /// All connections: one socket for each would wake this loop for every message.
    private var lines: MultiRequestSocket?
    private var figures = WriteOutcome.Figures()
    /// Clients that were heard from, whose connection has carried their token, and since when each waits for its answer.
    private var isUp: [Bool]
    private var carried: [Bool]
    private var sent: [UInt64?]
    private var asked: [LoadRequest?]
    private var isSending = false
    private var window: (start: UInt64, end: UInt64) = (.max, .max)
    private var began: UInt64 = 0
    private var ended = false

    /// - Parameters:
    ///   - devices: One connection for each.
    ///   - next: What the client of this number asks next; nil: it is done.
    init(
        loop: any BusLoop, to address: ServerAddress, devices: [LoadDevice], warmUp: Duration, duration: Duration,
        outcome: WriteOutcome, next: @escaping (Int) -> LoadRequest?
    ) throws {
        self.loop = loop
        self.devices = devices
        self.warmUp = warmUp
        self.duration = duration
        self.outcome = outcome
        self.next = next
        isUp = Array(repeating: false, count: devices.count)
        carried = isUp
        sent = Array(repeating: nil, count: devices.count)
        asked = Array(repeating: nil, count: devices.count)
        let lines = try MultiRequestSocket.open(on: loop) { [unowned self] in answered($0) }
        self.lines = lines
        for device in devices {
            _ = try lines.connect(to: address.endpoint, serverKey: address.key, keys: device.keys)
        }
        // Each connection has to be up: an answer tells.
        for client in devices.indices { send(LoadRequest(method: "CheckHealth", body: Frame([])), by: client) }
        loop.schedule(after: Self.patience) { [self] in
            if isUp.contains(false) { fail("A connection was not made.") }
        }
    }

    private func begin() {
        isSending = true
        began = monotonicNanoseconds()
        window.start = began + UInt64(warmUp.nanoseconds)
        window.end = window.start + UInt64(min(duration, .seconds(86_400)).nanoseconds)
        loop.schedule(after: warmUp) { [self] in outcome.isMeasuring.store(true, ordering: .relaxed) }
        loop.schedule(after: warmUp + duration) { [self] in stop() }
        for client in devices.indices { goOn(client) }
    }

    private func stop() {
        isSending = false
        outcome.isMeasuring.store(false, ordering: .relaxed)
        drain(since: loop.monotonicNow)
    }

    private func goOn(_ client: Int) {
        guard isSending, let request = next(client) else { return }
        send(request, by: client)
    }

    private func send(_ request: LoadRequest, by client: Int) {
        let device = devices[client]
        let envelope = RequestEnvelope(
            method: request.method, id: OperationID(at: loop.wallClock.now),
            accessToken: carried[client] ? "" : device.accessToken,
            accessTokenDigest: carried[client] ? TokenDigest(of: device.accessToken) : nil, timeout: .seconds(30),
            body: request.body)
        sent[client] = sent[client] ?? monotonicNanoseconds()
        asked[client] = request
        guard lines?.send(envelope.encoded(), on: client) == .sent else {
            loop.schedule(after: .milliseconds(1)) { [self] in send(request, by: client) }
            return
        }
    }

    private func answered(_ messages: [(line: Int, message: Message)]) {
        let now = monotonicNanoseconds()
        for (client, message) in messages {
            // A greeting answers nothing.
            guard let reply = try? ReplyEnvelope(decoding: message), reply.id != nil, let since = sent[client] else {
                continue
            }
            if case .failure(let error) = reply.result, error.code == .serviceBusy, let request = asked[client] {
                // As at the first save of an account, for which the service has to ask for room.
                loop.schedule(after: .milliseconds(20)) { [self] in send(request, by: client) }
                continue
            }
            sent[client] = nil
            if case .failure(let error) = reply.result {
                figures.failures += 1
                if figures.error == nil { figures.error = error }
                return finish()
            }
            guard isUp[client] else {
                isUp[client] = true
                if !isUp.contains(false) { begin() }
                continue
            }
            carried[client] = true
            outcome.answered.add(1, ordering: .relaxed)
            if since >= window.start, now < window.end {
                figures.answered += 1
                figures.replies.record(.nanoseconds(Int64(clamping: now &- since)))
            }
            goOn(client)
        }
        // Everybody is done before the time is over.
        if isSending, !sent.contains(where: { $0 != nil }) {
            window.end = min(window.end, now)
            stop()
        }
    }

    private func drain(since: Duration) {
        guard !sent.contains(where: { $0 != nil }) || loop.monotonicNow - since > Self.drainMax else {
            loop.schedule(after: .milliseconds(10)) { [self] in drain(since: since) }
            return
        }
        // What never came counts as failed.
        figures.failures += sent.count { $0 != nil }
        finish()
    }

    private func fail(_ message: String) {
        figures.error = CloudError(.serviceUnavailable, message)
        finish()
    }

    private func finish() {
        guard !ended else { return }
        ended = true
        figures.seconds = window.end > window.start ? Double(window.end - window.start) / 1e9 : 0
        let result = figures
        outcome.figures.withLock { $0 = result }
        outcome.end()
    }
}
