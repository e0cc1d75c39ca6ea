import Foundation
import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

/// One honest device beside ten that do what costs most.
struct HostileRun {
    /// What they do.
    enum Kind: String, CaseIterable {
        case pulls
        case unreadPulls = "unread-pulls"
        case refusedPushes = "refused-pushes"
        case deletes = "deletes-of-nothing"
        case losingPushes = "losing-pushes"
        case overwrites
        case unreadHealth = "unread-health"
    }

    private let deployment: LoadDeployment
    private let progress: Progress
    /// Whether the hostile devices ask again at once when they are told to wait.
    private let isRude: Bool
    /// Nil: all of the ten.
    private let only: Kind?
    private let transport = ZeroMQTransport()

    init(_ deployment: LoadDeployment, isRude: Bool, only: Kind?, progress: Progress) {
        self.only = only
        self.deployment = deployment
        self.isRude = isRude
        self.progress = progress
    }

    func run(for duration: Duration) throws -> HostileSummary {
        progress.show("signing in")
        let honest = try Enrolment(in: deployment, transport: transport)
        let pullers = try Enrolment(in: deployment, transport: transport)
        let pushers = try Enrolment(in: deployment, transport: transport)
        let honestDevice = try honest.devices(1)[0]
        let pulling = try pullers.devices(5)
        let pushing = try pushers.devices(5)
        try pullers.fill(as: pulling[4], keys: 1000, bytes: 1000)
        try pushers.fill(as: pushing[4], keys: 5, bytes: 100_000)

        progress.show("the honest device alone")
        let writer = PacedWriter(honest, honestDevice, transport: transport)
        let alone = try writer.run(for: duration)
        let before = memory()
        progress.show("all of them")
        let counts = Shared<[String: [Int]]>([:])
        let over = Shared(false)
        let held = DispatchSemaphore(value: 0)
        let started = Shared<[any LoopHandle]>([])
        @Sendable func attack(
            _ kind: Kind, _ enrolment: Enrolment, _ device: LoadDevice, _ method: String,
            _ body: @escaping @Sendable (Int) -> Frame
        ) throws {
            guard only ?? kind == kind else { return }
            let name = kind.rawValue
            let loop = try transport.startLoop(named: name) { loop in
                let attacker = try Attacker(
                    loop, enrolment.keyValue, device, method, body, isRude: isRude,
                    isOver: { over.state.withLock { $0 } }
                ) { isDone in
                    counts.state.withLock { $0[name, default: [0, 0]][isDone ? 0 : 1] += 1 }
                }
                attacker.start()
            }
            started.state.withLock { $0.append(loop) }
        }
        let pull = pullers.wholeRead
        let holding = pulling[4]
        let big = WirePushKeys.body(pushers.store, keys: (0..<1270).map { "big-\($0)" }, bytes: 1000)
        let deletes = (0..<8).map { round in
            WirePushKeys.body(
                pushers.store, keys: (0..<2048).map { "never-\(round)-\($0)" + String(repeating: "x", count: 40) })
        }
        let losing = (0..<8).map {
            WirePushKeys.body(pushers.store, keys: (0..<5).map { "full-\($0)" }, bytes: 10 + $0, age: 3600)
        }
        let store = pushers.store
        try givingWay {
            for device in pulling[0..<4] { try attack(.pulls, pullers, device, "ReadChanges") { _ in pull } }
            for device in pushing[0..<2] { try attack(.refusedPushes, pushers, device, "PushKeys") { _ in big } }
            try attack(.deletes, pushers, pushing[2], "PushKeys") { deletes[$0 % deletes.count] }
            try attack(.losingPushes, pushers, pushing[3], "PushKeys") { losing[$0 % losing.count] }
            try attack(.overwrites, pushers, pushing[4], "PushKeys") { number in
                WirePushKeys.body(store, keys: (0..<1000).map { "over-\($0)" }, bytes: 50 + number % 8)
            }
            if only ?? .unreadPulls == .unreadPulls {
                let holder = try hold(pullers, holding, until: held)
                started.state.withLock { $0.append(holder) }
            }
            if only == .unreadHealth {
                let holder = try holdHealth(pullers.keyValue, until: held)
                started.state.withLock { $0.append(holder) }
            }
        }

        let attacked = try writer.run(for: duration)
        let after = memory()
        over.state.withLock { $0 = true }
        held.signal()
        for loop in started.state.withLock({ $0 }) { loop.stop() }
        guard let quiet = alone.latencies.summary, let loud = attacked.latencies.summary else {
            throw CloudError(.serverResponseLost, "The honest device was not answered at all.")
        }
        return HostileSummary(
            alone: quiet, attacked: loud, failures: alone.failures.merging(attacked.failures, uniquingKeysWith: +),
            hostile: counts.state.withLock { $0 },
            services: zip(before, after).map { .init(name: $0.0, before: $0.1, after: $1.1) })
    }

    private func memory() -> [(String, Double)] {
        [ServiceName.identity, .keyValue, .notifications].map {
            ($0.rawValue, Double(deployment.residentBytes(of: $0) ?? 0) / 1e6)
        }
    }

    // MARK: The others

    /// Runs the body on a thread of low priority, which the threads that it starts inherit: hostile devices have
    /// machines of their own, and do not take the time of the service's.
    private func givingWay(_ body: @escaping @Sendable () throws -> Void) throws {
        let done = DispatchSemaphore(value: 0)
        let outcome = Shared(Result<Void, any Error>.success(()))
        let thread = Thread {
            _ = nice(15)
            let result = Result { try body() }
            outcome.state.withLock { $0 = result }
            done.signal()
        }
        thread.start()
        done.wait()
        try outcome.state.withLock { $0 }.get()
    }

    /// Asks for everything, and never takes an answer: its loop stands still with the first.
    private func hold(
        _ enrolment: Enrolment, _ device: LoadDevice, until held: DispatchSemaphore
    ) throws -> any LoopHandle {
        let body = enrolment.wholeRead
        let address = enrolment.keyValue
        return try transport.startLoop(named: "holds") { loop in
            let socket = try loop.makeRequestSocket(
                RequestSocketOptions(endpoints: [address.endpoint], serverKey: address.key, keys: device.keys)
            ) { messages in
                guard messages.contains(where: { ($0.first?.count ?? 0) > 1000 }) else { return }
                held.wait()
                held.signal()
            }
            loop.schedule(after: .seconds(1)) {
                for _ in 0..<900 {
                    let id = OperationID(at: Timestamp(milliseconds: UInt64(Date().timeIntervalSince1970 * 1000)))
                    let envelope = RequestEnvelope(
                        method: "ReadChanges", id: id, accessToken: device.accessToken, body: body)
                    _ = socket.send(envelope.encoded())
                }
            }
        }
    }
}

extension HostileRun {
    /// Ten strangers ask for health 10,000 times each, and take no answer: their loop stands still.
    private func holdHealth(_ address: ServerAddress, until held: DispatchSemaphore) throws -> any LoopHandle {
        let keys = try (0..<10).map { _ in try transport.makeKeyPair() }
        return try transport.startLoop(named: "health") { loop in
            let sockets = try keys.map { keys in
                try loop.makeRequestSocket(
                    RequestSocketOptions(endpoints: [address.endpoint], serverKey: address.key, keys: keys)
                ) { _ in }
            }
            loop.schedule(after: .seconds(1)) {
                for socket in sockets {
                    for _ in 0..<10_000 {
                        let id = OperationID(at: Timestamp(milliseconds: UInt64(Date().timeIntervalSince1970 * 1000)))
                        let envelope = RequestEnvelope(
                            method: "CheckHealth", id: id, accessToken: "", body: Frame(encoding: WireCheckHealth()))
                        _ = socket.send(envelope.encoded())
                    }
                }
                held.wait()
                held.signal()
            }
        }
    }
}

/// Asks the same again and again, some at a time, as often as its budget lets it.
private final class Attacker {
    private static let atOnce = 8

    private let loop: any BusLoop
    private let client: RequestClient
    private let token: String
    private let method: String
    private let body: (Int) -> Frame
    private let isRude: Bool
    private let isOver: @Sendable () -> Bool
    private let count: (Bool) -> Void
    private var number = 0

    init(
        _ loop: any BusLoop, _ address: ServerAddress, _ device: LoadDevice, _ method: String,
        _ body: @escaping (Int) -> Frame, isRude: Bool, isOver: @escaping @Sendable () -> Bool,
        _ count: @escaping (Bool) -> Void
    ) throws {
        self.loop = loop
        self.method = method
        self.body = body
        self.isRude = isRude
        self.isOver = isOver
        self.count = count
        token = device.accessToken
        client = try RequestClient(
            loop: loop,
            socket: RequestSocketOptions(endpoints: [address.endpoint], serverKey: address.key, keys: device.keys))
    }

    func start() { for _ in 0..<Self.atOnce { next() } }

    private func next() {
        guard !isOver() else { return }
        number += 1
        client.call(method, body: body(number), accessToken: token, timeout: .seconds(30)) { reply in
            var pause = Duration.zero
            switch reply.result {
            case .success: self.count(true)
            case .failure(let error):
                self.count(false)
                if !self.isRude { pause = error.retryAfter ?? .zero }
            }
            self.loop.schedule(after: pause) { self.next() }
        }
    }
}
