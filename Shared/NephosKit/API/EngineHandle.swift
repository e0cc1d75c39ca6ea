import NephosBus
import NephosCore
import Synchronization

/// A ``DeviceEngine`` on its own loop, as other threads reach it.
final class EngineHandle: Sendable {
    private let handle: any LoopHandle
    private let engine: LoopBound<DeviceEngine>
    private let stopped = Mutex(false)
    private let clock: any WallClock
    private let serverTime: ServerTime
    private let writer: Int64
    /// Where the ids of what is accepted off the loop come from; nil: the system's random numbers.
    private let generator: Mutex<SplitMix64?>

    /// What marks a write that is accepted off the loop.
    var stamp: (id: OperationID, now: Timestamp, writer: Int64) {
        let now = serverTime.now(by: clock)
        let id = generator.withLock { generator in
            guard var seeded = generator else { return OperationID(at: now) }
            defer { generator = seeded }
            return OperationID(at: now, using: &seeded)
        }
        return (id, now, writer)
    }

    /// - Parameter seed: Of what is accepted off the loop.
    init(
        transport: any Transport, seed: UInt64? = nil, _ make: @escaping @Sendable (any BusLoop) throws -> DeviceEngine
    ) throws(CloudError) {
        generator = Mutex(seed.map { SplitMix64(seed: $0) })
        let made = Mutex<
            (engine: LoopBound<DeviceEngine>, clock: any WallClock, serverTime: ServerTime, writer: Int64)?
        >(nil)
        do {
            handle = try transport.startLoop(named: "nephos-device") { loop in
                let engine = try make(loop)
                try engine.start()
                let parts = (LoopBound(engine, to: loop), loop.wallClock, engine.serverTime, engine.writer)
                made.withLock { $0 = parts }
            }
        } catch { throw CloudError(wrapping: error) }
        guard let (engine, clock, serverTime, writer) = made.withLock({ $0 }) else {
            throw CloudError(.internalError, "The device's loop did not start.")
        }
        self.engine = engine
        self.clock = clock
        self.serverTime = serverTime
        self.writer = writer
    }

    /// Runs the closure on the loop. Nothing happens once the engine has stopped.
    func execute(_ work: @escaping @Sendable (DeviceEngine) -> Void) {
        handle.execute { [engine] loop in engine.withValue(on: loop, work) }
    }

    /// Starts something on the loop and waits for its completion.
    func perform<Value: Sendable>(
        _ start: @escaping @Sendable (DeviceEngine, @escaping @Sendable (Result<Value, CloudError>) -> Void) -> Void
    ) async throws(CloudError) -> Value {
        let result = await withCheckedContinuation {
            (continuation: CheckedContinuation<Result<Value, CloudError>, Never>) in
            let once = Once(continuation, handle)
            handle.execute { [engine] loop in
                engine.withValue(on: loop) { engine in
                    if engine.stopped { return once.resume(.failure(Once<Value>.closed)) }
                    start(engine) { once.resume($0) }
                }
            }
            handle.waiterCame()
        }
        return try result.get()
    }

    func stop() {
        let first = stopped.withLock { stopped in
            defer { stopped = true }
            return !stopped
        }
        guard first else { return }
        execute { $0.stop() }
        handle.stop()
    }
}

/// A continuation that is resumed exactly once, also when the loop stops and
/// drops what would have resumed it.
private final class Once<Value: Sendable>: Sendable {
    private let continuation: Mutex<CheckedContinuation<Result<Value, CloudError>, Never>?>
    private let handle: any LoopHandle

    static var closed: CloudError { CloudError(.operationCancelled, "The session is closed.") }

    init(_ continuation: CheckedContinuation<Result<Value, CloudError>, Never>, _ handle: any LoopHandle) {
        self.continuation = Mutex(continuation)
        self.handle = handle
    }

    deinit { resume(.failure(Self.closed)) }

    func resume(_ result: Result<Value, CloudError>) {
        let waiting = continuation.withLock { continuation in
            defer { continuation = nil }
            return continuation
        }
        guard let waiting else { return }
        handle.waiterLeft()
        waiting.resume(returning: result)
    }
}

/// Hands each element to everyone who listens. A listener that lags keeps the
/// newest ``bufferMax`` elements.
final class Broadcast<Element: Sendable>: Sendable {
    static var bufferMax: Int { 10_000 }
    private let listeners = Mutex<[UInt64: AsyncStream<Element>.Continuation]>([:])
    private let nextID = Atomic<UInt64>(0)

    func subscribe() -> AsyncStream<Element> {
        let id = nextID.wrappingAdd(1, ordering: .relaxed).newValue
        let (stream, continuation) = AsyncStream.makeStream(
            of: Element.self, bufferingPolicy: .bufferingNewest(Self.bufferMax))
        listeners.withLock { $0[id] = continuation }
        continuation.onTermination = { [weak self] _ in
            // Taken out first and released after, since its release may run foreign code.
            _ = self?.listeners.withLock { $0.removeValue(forKey: id) }
        }
        return stream
    }

    func send(_ element: Element) {
        for listener in listeners.withLock({ Array($0.values) }) { listener.yield(element) }
    }

    func finish() {
        for listener in listeners.withLock({ Array($0.values) }) { listener.finish() }
    }
}
