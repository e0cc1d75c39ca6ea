import Foundation
import NephosBus
import NephosCore
import NephosWire
import Synchronization

/// What the writer of a fan-out run changes, and its subscribers follow.
enum FanOutChanges: Sendable {
    /// One key of the store.
    case pushes(store: String)
    /// One record of the container's public database.
    case saves(SampleRecords, owner: Owner)

    var followed: WireSubscribedScope {
        var scope = WireSubscribedScope()
        switch self {
        case .pushes(let store):
            scope.service = ServiceName.keyValue.rawValue
            scope.scope = store
        case .saves(let records, let owner):
            scope.service = ServiceName.records.rawValue
            scope.owner = owner.rawValue
            scope.scope = records.container + "/" + SampleRecords.zone
        }
        return scope
    }
}

/// What a fan-out run does.
struct FanOutPlan: Sendable {
    var changes: FanOutChanges
    /// Which the writer speaks to.
    var service: ServerAddress
    var subscriptions: ServerAddress
    var writer: LoadDevice
    /// Devices that share the subscribers among them: what may wait for one device is bounded.
    var followers: [LoadDevice]
    var subscribers: Int
    /// Pushes whose deliveries are not complete yet.
    var window: Int
    var valueBytes: Int
    var warmUp: Duration
    var duration: Duration
}

/// One writer, and many connections that follow its store, on one loop.
///
/// The connections of a device hang on one DEALER, which receives from all of
/// them: what counts is when the last of them was told, not which. Each comes
/// from another loopback address, so that they are as many endpoints to libzmq.
final class FanOutGenerator {
    /// Connections of one device.
    static let connectionsOfDevice = 64
    private static let standstill: Duration = .milliseconds(500)
    private static let patience: Duration = .seconds(60)
    private static let ringSize = 1 << 12

    private struct Event {
        var number: UInt64 = .max
        var sent: UInt64 = 0
        var delivered = 0
    }

    /// The connections of one device.
    private struct Follower {
        var device: LoadDevice
        var socket: any RequestSocket
        var connections: Int
        var asked = 0
    }

    private let loop: any BusLoop
    private let plan: FanOutPlan
    private let outcome: WriteOutcome
    private let residentBytes: () -> Int
    private var figures = WriteOutcome.Figures()
    /// Of key-value's writes.
    private var template: PushTemplate?
    private var writer: (any RequestSocket)?
    private var followers: [Follower] = []
    private var greeted = 0
    private var confirmed = 0
    private var events = [Event](repeating: Event(), count: ringSize)
    private var number: UInt64 = 0
    private var stamp: UInt64 = 0
    private var incomplete = 0
    private var completed: UInt64 = 0
    /// Whether the first push has come through, and with it the warm-up begun.
    private var hasBegun = false
    private var isSending = false
    private var window: (start: UInt64, end: UInt64) = (.max, .max)
    private var ended = false

    /// - Parameter residentBytes: The server's memory at this moment.
    init(loop: any BusLoop, plan: FanOutPlan, outcome: WriteOutcome, residentBytes: @escaping () -> Int) throws {
        self.loop = loop
        self.plan = plan
        self.outcome = outcome
        self.residentBytes = residentBytes
        if case .pushes(let store) = plan.changes {
            template = try PushTemplate(
                store: store, key: "key", valueBytes: plan.valueBytes, accessToken: plan.writer.accessToken)
        }
        writer = try loop.makeRequestSocket(
            RequestSocketOptions(
                endpoints: [plan.service.endpoint], serverKey: plan.service.key, keys: plan.writer.keys)
        ) { [unowned self] in answered($0) }
        var endpoints = try Self.endpoints(of: plan)[...]
        for device in plan.followers {
            let own = endpoints.prefix(Self.connectionsOfDevice)
            endpoints = endpoints.dropFirst(own.count)
            guard !own.isEmpty else { break }
            let socket = try loop.makeRequestSocket(
                RequestSocketOptions(endpoints: Array(own), serverKey: plan.subscriptions.key, keys: device.keys)
            ) { [unowned self] in delivered($0) }
            followers.append(Follower(device: device, socket: socket, connections: own.count))
        }
        loop.schedule(after: Self.patience) { [self] in
            guard confirmed < plan.subscribers else { return }
            fail("Not all subscribers were connected.", ["greeted": "\(greeted)", "confirmed": "\(confirmed)"])
        }
    }

    /// The same address from as many sources.
    private static func endpoints(of plan: FanOutPlan) throws -> [String] {
        let scheme = "tcp://"
        guard plan.subscriptions.endpoint.hasPrefix(scheme + "127."), plan.subscribers < 1 << 16 else {
            throw CloudError(
                .configurationInvalid, "The subscribers need a deployment on this machine's loopback address.")
        }
        let address = plan.subscriptions.endpoint.dropFirst(scheme.count)
        return (0..<plan.subscribers).map { "\(scheme)127.1.\($0 >> 8).\($0 & 255):0;\(address)" }
    }

    // MARK: Subscribing

    /// The DEALER gives each connection its turn, so as many requests as connections reach every one.
    private func subscribe() {
        var body = WireSubscribe()
        body.scopes = [plan.changes.followed]
        for index in followers.indices {
            while followers[index].asked < followers[index].connections {
                let request = RequestEnvelope(
                    method: "Subscribe", id: PushID.foreign(at: loop.wallClock.now),
                    accessToken: followers[index].device.accessToken, body: Frame(encoding: body))
                guard followers[index].socket.send(request.encoded()) == .sent else {
                    loop.schedule(after: .milliseconds(5)) { [self] in subscribe() }
                    return
                }
                followers[index].asked += 1
            }
        }
    }

    private func confirm() {
        confirmed += 1
        guard confirmed == plan.subscribers else { return }
        // Once it is quiet, the server's memory tells what an idle subscriber costs.
        loop.schedule(after: .milliseconds(500)) { [self] in
            figures.residentBytes = residentBytes()
            isSending = true
            watch(seen: nil)
        }
    }

    /// Gives up what stands still: an event that reached a service by its
    /// catching up does not say which push it was.
    private func watch(seen: UInt64?) {
        guard isSending else { return }
        if seen == completed {
            for index in events.indices { events[index].number = .max }
            if hasBegun { figures.failures += incomplete }
            incomplete = 0
        }
        push()
        let completed = completed
        loop.schedule(after: Self.standstill) { [self] in watch(seen: completed) }
    }

    private func begin() {
        hasBegun = true
        let start = monotonicNanoseconds()
        window.start = start + UInt64(plan.warmUp.nanoseconds)
        window.end = window.start + UInt64(plan.duration.nanoseconds)
        loop.schedule(after: plan.warmUp) { [self] in outcome.isMeasuring.store(true, ordering: .relaxed) }
        loop.schedule(after: plan.warmUp + plan.duration) { [self] in
            isSending = false
            outcome.isMeasuring.store(false, ordering: .relaxed)
            drain(since: loop.monotonicNow)
        }
    }

    // MARK: Pushing

    private func push() {
        while isSending, incomplete < plan.window {
            let time = loop.wallClock.now
            stamp = max(stamp + 1, time.milliseconds << 16)
            let frame = change(PushID(number: number, writer: 0).operation(at: time))
            let now = monotonicNanoseconds()
            guard writer?.send([frame]) == .sent else {
                loop.schedule(after: .milliseconds(5)) { [self] in push() }
                return
            }
            events[Int(number) & (Self.ringSize - 1)] = Event(number: number, sent: now)
            number += 1
            incomplete += 1
        }
    }

    private func change(_ id: OperationID) -> Frame {
        switch plan.changes {
        case .pushes: template?.frame(id: id, timestamp: stamp, number: number) ?? Frame([])
        case .saves(let records, _):
            RequestEnvelope(
                method: "ModifyRecords", id: id, accessToken: plan.writer.accessToken,
                body: Frame(encoding: records.publicSave(number, bytes: plan.valueBytes))
            ).encoded()[0]
        }
    }

    private func answered(_ messages: [Message]) {
        let now = monotonicNanoseconds()
        for message in messages {
            message.first?.withUnsafeBytes { bytes in
                guard case .answer(let number, _, let failed) = ScannedReply(bytes) else { return }
                guard !failed else { return fail("A write was refused.") }
                let sent = events[Int(number) & (Self.ringSize - 1)].sent
                guard sent >= window.start, sent < window.end else { return }
                figures.answered += 1
                figures.replies.record(.nanoseconds(Int64(clamping: now &- sent)))
            }
        }
    }

    // MARK: Deliveries

    private func delivered(_ messages: [Message]) {
        let now = monotonicNanoseconds()
        var count = 0
        for message in messages {
            message.first?.withUnsafeBytes { bytes in
                switch ScannedReply(bytes) {
                case .delivery(let delivery): count += scan(delivery, now)
                case .other(let failed), .answer(_, _, let failed):
                    guard !failed else { return fail("A subscription was refused.") }
                    confirm()
                }
            }
        }
        outcome.answered.add(count, ordering: .relaxed)
        if now >= window.start, now < window.end { figures.delivered += count }
        push()
    }

    /// The notifications in a delivery.
    private func scan(_ delivery: UnsafeRawBufferPointer, _ now: UInt64) -> Int {
        var scan = FieldScan(delivery)
        var count = 0
        while let field = scan.next() {
            switch field.number {
            case 1:
                var notification = FieldScan(field.bytes)
                while let part = notification.next() {
                    guard part.number == 8, let id = PushID(part.bytes) else { continue }
                    note(id.number, now)
                    count += 1
                }
            case 3:
                // Left out for being too slow: what is missing will never be complete.
                figures.failures += 1
            case 4:
                // Each new connection is told that the server does not know it.
                greeted += 1
                if greeted == plan.subscribers { subscribe() }
                if confirmed == plan.subscribers { fail("A subscriber lost its connection.") }
            default: break
            }
        }
        if count > 0, now >= window.start, now < window.end { figures.frames += 1 }
        return count
    }

    private func note(_ number: UInt64, _ now: UInt64) {
        let place = Int(number) & (Self.ringSize - 1)
        guard events[place].number == number else { return }
        events[place].delivered += 1
        guard events[place].delivered == plan.subscribers else { return }
        incomplete -= 1
        completed += 1
        if !hasBegun { begin() }
        let sent = events[place].sent
        guard sent >= window.start, sent < window.end else { return }
        figures.notified.record(.nanoseconds(Int64(clamping: now &- sent)))
    }

    // MARK: End

    private func drain(since: Duration) {
        guard incomplete == 0 || loop.monotonicNow - since > .seconds(5) else {
            loop.schedule(after: .milliseconds(10)) { [self] in drain(since: since) }
            return
        }
        figures.failures += incomplete
        finish()
    }

    private func fail(_ message: String, _ details: [String: String] = [:]) {
        figures.error = CloudError(.serviceUnavailable, message, details: details)
        finish()
    }

    private func finish() {
        guard !ended else { return }
        ended = true
        isSending = false
        figures.seconds = Double(plan.duration.nanoseconds) / 1e9
        let result = figures
        outcome.figures.withLock { $0 = result }
        outcome.end()
    }
}
