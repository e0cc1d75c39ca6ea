import Foundation
import NephosBus
import NephosCore
import NephosLoadBus
import NephosWire
import NephosZeroMQ
import Synchronization

/// What a run of writers does.
struct WritePlan: Sendable {
    var store: String
    var keyValue: ServerAddress
    /// One connection for each.
    var devices: [LoadDevice]
    /// Writers, each with a key of its own and one push in flight; with a rate, only keys.
    var writers: Int
    /// Pushes a second that arrive whether or not earlier ones were answered; nil: closed loop.
    var rate: Double?
    var valueBytes: Int
    /// A device that follows the store, whose deliveries are measured.
    var subscriber: (address: ServerAddress, device: LoadDevice)?
    var warmUp: Duration
    var duration: Duration
}

/// What came of it. Written by the generator's loop, read by the command's thread.
final class WriteOutcome: Sendable {
    struct Figures {
        var replies = Latencies()
        var notified = Latencies()
        var answered = 0
        var delivered = 0
        var failures = 0
        /// Messages in which the deliveries came.
        var frames = 0
        /// Of the server, when everything was connected and nothing sent.
        var residentBytes = 0
        var seconds = 0.0
        var error: CloudError?
    }

    let figures = Mutex(Figures())
    let answered = Atomic(0)
    let isMeasuring = Atomic(false)
    let over = Atomic(false)
    let done = DispatchSemaphore(value: 0)
}

/// Nanoseconds of the monotonic clock.
func monotonicNanoseconds() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

/// Writers on one loop, and perhaps the device that is told of their writes.
///
/// Closed loop: a writer pushes again when it was answered. Open loop: pushes
/// have intended times, and a latency counts from there, so that a stall
/// shows in all the requests it delayed and not in one (coordinated omission).
final class WriteGenerator {
    /// Pushes whose times are kept; more in flight are not sent but fail.
    private static let ringSize = 1 << 17
    private static let drainMax: Duration = .seconds(5)
    private static let patience: Duration = .seconds(15)

    private let loop: any BusLoop
    private let plan: WritePlan
    private let outcome: WriteOutcome
    private var figures = WriteOutcome.Figures()
    /// All connections. One socket for each would wake this loop, which has the writers of all devices, for every
    /// message: that is no device's cost, and on the same cores it is taken from the service.
    private var lines: MultiRequestSocket?
    private var subscription: (any RequestSocket)?
    private var isSubscribed = false
    /// Each writer's push with the access token, for a connection that has not carried it yet, and without.
    private var templates: [(first: PushTemplate, later: PushTemplate)] = []
    /// Connections that have carried their token.
    private var carried: [Bool]
    private var stamps: [UInt64]
    /// Intended times by push number.
    private var times = [UInt64](repeating: 0, count: ringSize)
    private var number: UInt64 = 0
    private var inFlight = 0
    private var isSending = false
    private var window: (start: UInt64, end: UInt64) = (.max, .max)
    private var nextIntended: UInt64 = 0
    private var arrivals = 0.0
    /// Connections that have been heard from, and how many these are.
    private var isUp: [Bool]
    private var upCount = 0
    private var ended = false

    init(loop: any BusLoop, plan: WritePlan, outcome: WriteOutcome) throws {
        self.loop = loop
        self.plan = plan
        self.outcome = outcome
        stamps = Array(repeating: 0, count: plan.writers)
        carried = Array(repeating: false, count: plan.devices.count)
        isUp = carried
        templates = try (0..<plan.writers).map { writer in
            func template(byDigest: Bool) throws -> PushTemplate {
                try PushTemplate(
                    store: plan.store, key: "key-\(writer)", valueBytes: plan.valueBytes,
                    accessToken: plan.devices[writer % plan.devices.count].accessToken, byDigest: byDigest)
            }
            return (try template(byDigest: false), try template(byDigest: true))
        }
        let lines = try MultiRequestSocket.open(on: loop) { [unowned self] in answered($0) }
        self.lines = lines
        for device in plan.devices {
            _ = try lines.connect(
                to: plan.keyValue.endpoint, serverKey: plan.keyValue.key, keys: device.keys)
        }
        if let subscriber = plan.subscriber {
            subscription = try loop.makeRequestSocket(
                RequestSocketOptions(
                    endpoints: [subscriber.address.endpoint], serverKey: subscriber.address.key,
                    keys: subscriber.device.keys)
            ) { [unowned self] in delivered($0) }
            subscribe(tries: 500)
        } else {
            connect()
        }
    }

    // MARK: Start

    private func subscribe(tries: Int) {
        guard !isSubscribed, let subscriber = plan.subscriber else { return }
        guard tries > 0 else { return fail("The subscription was not confirmed.") }
        var scope = WireSubscribedScope()
        scope.service = ServiceName.keyValue.rawValue
        scope.scope = plan.store
        var body = WireSubscribe()
        body.scopes = [scope]
        let request = RequestEnvelope(
            method: "Subscribe", id: PushID.foreign(at: loop.wallClock.now),
            accessToken: subscriber.device.accessToken, body: Frame(encoding: body))
        _ = subscription?.send(request.encoded())
        loop.schedule(after: .milliseconds(50)) { [self] in subscribe(tries: tries - 1) }
    }

    /// Each connection has to be up before the first push: an answer tells.
    private func connect() {
        for line in plan.devices.indices {
            let request = RequestEnvelope(
                method: "CheckHealth", id: PushID.foreign(at: loop.wallClock.now), body: Frame([]))
            _ = lines?.send(request.encoded(), on: line)
        }
        loop.schedule(after: Self.patience) { [self] in
            if upCount < isUp.count { fail("A connection was not made.") }
        }
    }

    private func noteUp(_ line: Int) {
        guard !isUp[line] else { return }
        isUp[line] = true
        upCount += 1
        if upCount == isUp.count { begin() }
    }

    private func begin() {
        isSending = true
        let start = monotonicNanoseconds()
        window.start = start + UInt64(plan.warmUp.nanoseconds)
        window.end = window.start + UInt64(plan.duration.nanoseconds)
        loop.schedule(after: plan.warmUp) { [self] in outcome.isMeasuring.store(true, ordering: .relaxed) }
        loop.schedule(after: plan.warmUp + plan.duration) { [self] in
            isSending = false
            outcome.isMeasuring.store(false, ordering: .relaxed)
            drain(since: loop.monotonicNow)
        }
        if let rate = plan.rate {
            nextIntended = start
            pace(rate)
        } else {
            for writer in 0..<plan.writers { push(writer, intended: start) }
        }
    }

    /// The loop's own timers are good to a millisecond; this thread's to about 0.05.
    private func pace(_ rate: Double) {
        let interval = max(1_000_000_000 / rate, 100_000)
        let bound = LoopBound(self, to: loop)
        let handle = loop.handle
        let outcome = outcome
        let duration = UInt64((plan.warmUp + plan.duration).nanoseconds)
        let start = nextIntended
        let thread = Thread {
            var tick = 0.0
            while tick < Double(duration), !outcome.isOver {
                let at = start + UInt64(tick)
                var time = timespec(tv_sec: Int(at / 1_000_000_000), tv_nsec: Int(at % 1_000_000_000))
                clock_nanosleep(CLOCK_MONOTONIC, Int32(TIMER_ABSTIME), &time, nil)
                handle.execute { loop in bound.withValue(on: loop) { $0.pushDue(interval: 1_000_000_000 / rate) } }
                tick += interval
            }
        }
        thread.name = "pacer"
        thread.start()
    }

    private func pushDue(interval: Double) {
        let now = monotonicNanoseconds()
        let start = nextIntended
        while isSending, start + UInt64(arrivals * interval) <= now {
            guard inFlight < Self.ringSize / 2 else {
                figures.failures += 1
                arrivals += 1
                continue
            }
            guard push(Int(number % UInt64(plan.writers)), intended: start + UInt64(arrivals * interval)) else {
                return
            }
            arrivals += 1
        }
    }

    // MARK: Pushing

    @discardableResult
    private func push(_ writer: Int, intended: UInt64) -> Bool {
        let time = loop.wallClock.now
        stamps[writer] = max(stamps[writer] + 1, time.milliseconds << 16)
        let id = PushID(number: number, writer: writer)
        let operation = id.operation(at: time)
        let line = writer % carried.count
        let frame =
            carried[line]
            ? templates[writer].later.frame(id: operation, timestamp: stamps[writer], number: number)
            : templates[writer].first.frame(id: operation, timestamp: stamps[writer], number: number)
        guard lines?.send([frame], on: line) == .sent else {
            if plan.rate == nil {
                loop.schedule(after: .milliseconds(1)) { [self] in push(writer, intended: intended) }
            }
            return false
        }
        times[Int(number) & (Self.ringSize - 1)] = intended
        number += 1
        inFlight += 1
        return true
    }

    private func isCounted(_ intended: UInt64) -> Bool { intended >= window.start && intended < window.end }

    private func answered(_ messages: [(line: Int, message: Message)]) {
        let now = monotonicNanoseconds()
        var count = 0
        for (line, message) in messages {
            guard let first = message.first else { continue }
            first.withUnsafeBytes { bytes in
                let reply = ScannedReply(bytes)
                if case .other(failed: false) = reply { return noteUp(line) }
                guard case .answer(let number, let writer, let failed) = reply, writer < plan.writers
                else { return }
                inFlight -= 1
                carried[line] = !failed
                let intended = times[Int(number) & (Self.ringSize - 1)]
                if failed {
                    figures.failures += 1
                    if figures.error == nil { figures.error = Self.failure(in: first) }
                } else {
                    count += 1
                    if isCounted(intended) {
                        figures.replies.record(.nanoseconds(Int64(clamping: now &- intended)))
                    }
                }
                if isSending, plan.rate == nil { push(writer, intended: now) }
            }
        }
        if now >= window.start, now < window.end { figures.answered += count }
        outcome.answered.add(count, ordering: .relaxed)
    }

    private static func failure(in frame: Frame) -> CloudError? {
        guard let reply = try? ReplyEnvelope(decoding: [frame]), case .failure(let error) = reply.result else {
            return nil
        }
        return error
    }

    // MARK: Deliveries

    private func delivered(_ messages: [Message]) {
        let now = monotonicNanoseconds()
        for message in messages {
            message.first?.withUnsafeBytes { bytes in
                switch ScannedReply(bytes) {
                case .delivery(let delivery):
                    scan(delivery, now)
                case .other(let failed), .answer(_, _, let failed):
                    guard !failed else { return fail("The subscription was refused.") }
                    guard !isSubscribed else { return }
                    isSubscribed = true
                    connect()
                }
            }
        }
    }

    private func scan(_ delivery: UnsafeRawBufferPointer, _ now: UInt64) {
        var scan = FieldScan(delivery)
        while let field = scan.next() {
            // Lagging: what was left out is missing from the counts, and said.
            if field.number == 3 { figures.failures += 1 }
            guard field.number == 1 else { continue }
            var notification = FieldScan(field.bytes)
            while let part = notification.next() {
                guard part.number == 8, let id = PushID(part.bytes) else { continue }
                let intended = times[Int(id.number) & (Self.ringSize - 1)]
                guard isCounted(intended) else { continue }
                figures.delivered += 1
                figures.notified.record(.nanoseconds(Int64(clamping: now &- intended)))
            }
        }
    }

    // MARK: End

    private func drain(since: Duration) {
        let isComplete = inFlight == 0 && (plan.subscriber == nil || figures.delivered >= figures.replies.count)
        guard isComplete || loop.monotonicNow - since > Self.drainMax else {
            loop.schedule(after: .milliseconds(10)) { [self] in drain(since: since) }
            return
        }
        // What never came counts as failed.
        figures.failures += inFlight
        finish()
    }

    private func fail(_ message: String) {
        figures.error = CloudError(.serviceUnavailable, message)
        finish()
    }

    private func finish() {
        guard !ended else { return }
        ended = true
        figures.seconds = Double(plan.duration.nanoseconds) / 1e9
        let result = figures
        outcome.figures.withLock { $0 = result }
        outcome.end()
    }
}

extension WriteOutcome {
    func end() {
        over.store(true, ordering: .relaxed)
        done.signal()
    }

    var isOver: Bool { over.load(ordering: .relaxed) }
}
