import Foundation
import Logging
import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import Synchronization

/// Kills services under load and checks that nothing that was promised is gone.
///
/// The writers and the checks live on one loop, the following devices, which
/// are real ones of the SDK, on another.
final class CrashRun {
    /// What a run found.
    struct Summary: Encodable {
        var kills = 0
        var transactions = 0
        /// From the kill until every writer's transaction in flight was acknowledged, in milliseconds.
        var recoveryMedian = 0.0
        var recoveryMax = 0.0
        /// From the signal until the process was gone, in milliseconds.
        var stopMedian = 0.0
        var stopMax = 0.0
        var checkedStates = 0
    }

    /// After a kill, everybody must be served again within this.
    private static let patience: Duration = .seconds(60)
    /// Short, so that tokens are renewed all the time.
    static let tokenLifetime: Duration = .seconds(10)

    private let deployment: LoadDeployment
    private let transport = ZeroMQTransport()
    private let enrolment: Enrolment
    /// Reads what the server has: one for all rounds, since an account has no more than so many devices.
    private var reader: LoadDevice
    private let writerCount: Int
    private let progress: Progress
    private let writers = Shelf<[TransactionWriter]>()
    private let followers = Shelf<[Follower]>()
    private var loops: [any LoopHandle] = []
    private var summary = Summary()
    private var recoveries: [Double] = []
    private var stops: [Double] = []
    /// What each service gets.
    private let signal: Int32

    init(
        _ deployment: LoadDeployment, writers: Int, followers: Int, signal: Int32 = SIGKILL, progress: Progress
    ) throws {
        self.signal = signal
        self.deployment = deployment
        self.progress = progress
        writerCount = writers
        progress.show("signing in \(writers) writers and \(followers) followers")
        enrolment = try Enrolment(in: deployment, transport: transport)
        let devices = try enrolment.devices(writers)
        reader = try enrolment.devices(1)[0]
        let enrolment = enrolment
        let transport = transport
        let shelf = self.followers
        loops.append(
            try transport.startLoop(named: "followers") { loop in
                shelf.put(try (0..<followers).map { try Follower($0, loop, transport, enrolment) }, on: loop)
            })
        try wait("The followers did not get in sync.") { try self.followerStates().allSatisfy(\.isInSync) }
        let desk = self.writers
        loops.append(
            try transport.startLoop(named: "writers") { loop in
                let places = AcknowledgedPlaces()
                let made = try devices.enumerated().map {
                    try TransactionWriter(
                        index: $0.offset, loop: loop, enrolment: enrolment, device: $0.element, places: places,
                        tokenLifetime: Self.tokenLifetime)
                }
                desk.put(made, on: loop)
            })
    }

    func close() {
        for loop in loops { loop.stop() }
    }

    /// - Throws: ``CloudError`` `.constraintViolation` when something that was promised does not hold.
    func run(kills: Int) throws -> Summary {
        for round in 1...kills {
            for service in ServiceName.all {
                Thread.sleep(forTimeInterval: .random(in: 0.1...0.6))
                try kill(service, "round \(round) of \(kills)")
            }
        }
        try finish()
        let sorted = recoveries.sorted()
        summary.recoveryMedian = sorted.isEmpty ? 0 : sorted[sorted.count / 2]
        summary.recoveryMax = sorted.last ?? 0
        stops.sort()
        summary.stopMedian = stops.isEmpty ? 0 : stops[stops.count / 2]
        summary.stopMax = stops.last ?? 0
        return summary
    }

    private func kill(_ service: ServiceName, _ label: String) throws {
        let pid = try deployment.processID(of: service)
        let start = ContinuousClock.now
        guard Foundation.kill(pid, signal) == 0 else {
            throw CloudError(.serviceUnavailable, "The service could not be killed.", details: ["pid": "\(pid)"])
        }
        if signal != SIGKILL {
            // Under load until its end.
            try wait("The service does not end: \(service).") { (try? self.deployment.processID(of: service)) != pid }
            stops.append(start.duration(to: .now) / .milliseconds(1))
        }
        // What was in flight when the service died, and no more: what came just
        // before it can still be seen.
        try ask(writers) { $0.forEach { $0.pause() } }
        try wait("The service was not started again: \(service).") {
            guard let now = try? self.deployment.processID(of: service) else { return false }
            return now != pid
        }
        try waitForWriters("after \(service) was ended")
        let taken = start.duration(to: .now) / .milliseconds(1)
        recoveries.append(taken)
        summary.kills += 1
        try checkServer()
        try checkFollowers()
        progress.show("\(label): \(service) ended, all writers served after \(Int(taken)) ms")
        try ask(writers) { $0.forEach { $0.resume() } }
    }

    private func waitForWriters(_ when: String) throws {
        try wait("Not all writers were served \(when).") {
            try self.ask(self.writers) { writers in
                if let error = writers.lazy.compactMap(\.error).first { throw error }
                return writers.allSatisfy(\.isIdle)
            }
        }
    }

    // MARK: Checks

    /// The server has the last transactions of all writers, who rest, as a whole and as they were acknowledged.
    private func checkServer() throws {
        let acknowledged = try ask(writers) { $0.map(\.acknowledged) }
        let values = try enrolment.pull(as: &reader).values
        summary.checkedStates += 1
        for (writer, last) in acknowledged.enumerated() {
            for number in max(1, last - TransactionWriter.groupCount + 1)...max(1, last) where last > 0 {
                for key in TransactionWriter.keys(of: writer, number: number) {
                    guard values[ItemName(key)] == .integer(Int64(number)) else {
                        throw CloudError(
                            .constraintViolation, "An acknowledged write is gone.",
                            details: [
                                "key": key, "acknowledged": "\(number)", "stored": "\(values[ItemName(key)] as Any)",
                            ])
                    }
                }
            }
        }
    }

    private func checkFollowers() throws {
        for (index, state) in try followerStates().enumerated() { try check(state.values, "Follower \(index)") }
    }

    /// All keys of a transaction have the same number, everywhere and at any time.
    private func check(_ values: [ItemName: PropertyValue], _ who: String) throws {
        summary.checkedStates += 1
        for writer in 0..<writerCount {
            for group in 0..<TransactionWriter.groupCount {
                let numbers = TransactionWriter.keys(of: writer, number: group).map { values[ItemName($0)] }
                guard Set(numbers).count == 1 else {
                    throw CloudError(
                        .constraintViolation, "Half a transaction is visible.",
                        details: ["who": who, "writer": "\(writer)", "values": "\(numbers)"])
                }
            }
        }
    }

    /// Lets the writers come to rest; then all followers have the server's digest.
    private func finish() throws {
        progress.show("letting the writers finish")
        try ask(writers) { $0.forEach { $0.pause() } }
        try waitForWriters("in the end")
        summary.transactions = try ask(writers) { $0.reduce(0) { $0 + $1.acknowledged } }
        try checkServer()
        let server = try enrolment.pull(as: &reader)
        try wait("The followers' digests did not become the server's.") {
            try self.followerStates().allSatisfy { $0.digest == server.digest && $0.head == server.head }
        }
        try checkFollowers()
    }

    private func followerStates() throws -> [Follower.State] { try ask(followers) { try $0.map { try $0.state() } } }

    // MARK: Waiting

    private func wait(_ failure: String, until condition: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + Self.patience
        while try !condition() {
            guard ContinuousClock.now < deadline else { throw CloudError(.constraintViolation, "\(failure)") }
            Thread.sleep(forTimeInterval: 0.01)
        }
    }

    private func ask<Value, Answer: Sendable>(
        _ shelf: Shelf<Value>, _ body: @escaping @Sendable (Value) throws -> Answer
    ) throws -> Answer {
        let loop = shelf === followers ? loops[0] : loops[1]
        return try shelf.ask(loop, body)
    }
}

/// Something that lives on a loop, to be asked from the main thread.
final class Shelf<Value>: Sendable {
    private let held = Mutex<LoopBound<Value>?>(nil)

    func put(_ value: Value, on loop: any BusLoop) {
        let bound = LoopBound(value, to: loop)
        held.withLock { $0 = bound }
    }

    /// Runs the closure on the value's loop and waits for what it returns.
    func ask<Answer: Sendable>(
        _ loop: any LoopHandle, _ body: @escaping @Sendable (Value) throws -> Answer
    ) throws -> Answer {
        let answer = Mutex<Result<Answer, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        loop.execute { [self] loop in
            let bound = held.withLock { $0 }
            let result = Result { () throws in
                guard let bound else { throw CloudError(.internalError, "The loop holds nothing.") }
                return try bound.withValue(on: loop, body)
            }
            answer.withLock { $0 = result }
            done.signal()
        }
        done.wait()
        guard let result = answer.withLock({ $0 }) else {
            throw CloudError(.internalError, "The loop gave no answer.")
        }
        return try result.get()
    }
}

/// A device of the SDK that follows the store, with its database in memory.
final class Follower {
    struct State: Sendable {
        var isInSync: Bool
        var head: ChangeToken
        var digest: SetDigest
        var values: [ItemName: PropertyValue]
    }

    private let engine: DeviceEngine
    private let app: AppID

    init(_ index: Int, _ loop: any BusLoop, _ transport: ZeroMQTransport, _ enrolment: Enrolment) throws {
        app = AppID(enrolment.store)
        engine = DeviceEngine(
            loop: loop, local: try LocalStore(), secrets: MemorySecrets(),
            logger: Logger(label: "follower", factory: { _ in SwiftLogNoOpLogHandler() }),
            makeKeyPair: { try transport.makeKeyPair() })
        try engine.start()
        engine.signIn(enrolment.signIn(deviceName: "follower \(index)")) { _ in }
        _ = engine.keyValue(app)
    }

    func state() throws -> State {
        let store = engine.keyValue(app)
        let status = try store.status()
        return State(
            isInSync: status.isInSync, head: status.head, digest: status.digest, values: try store.dictionary())
    }
}
