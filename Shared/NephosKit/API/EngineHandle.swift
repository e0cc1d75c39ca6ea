import NephosBus
import NephosCore
import Synchronization

/// A ``DeviceEngine`` on its own loop, as other threads reach it.
final class EngineHandle: Sendable {
    private let handle: any LoopHandle
    private let engine: LoopBound<DeviceEngine>
    private let waiters = Waiters()
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

    /// A name that nothing has had before.
    func makeDocumentID() -> DocumentID {
        generator.withLock { generator in
            guard var seeded = generator else {
                var system = SystemRandomNumberGenerator()
                return .random(using: &system)
            }
            defer { generator = seeded }
            return .random(using: &seeded)
        }
    }

    /// - Parameter seed: Of what is accepted off the loop.
    init(
        transport: any Transport, seed: UInt64? = nil, _ make: @escaping @Sendable (any BusLoop) throws -> DeviceEngine
    ) throws(CloudError) {
        // Other numbers than the loop's own.
        generator = Mutex(seed.map { SplitMix64(seed: ~$0) })
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
    ///
    /// - Throws: ``CloudError``, also `.operationCancelled`: the engine was stopped, before or meanwhile.
    func perform<Value: Sendable>(
        _ start: @escaping @Sendable (DeviceEngine, @escaping @Sendable (Result<Value, CloudError>) -> Void) -> Void
    ) async throws(CloudError) -> Value {
        let result = await withCheckedContinuation {
            (continuation: CheckedContinuation<Result<Value, CloudError>, Never>) in
            let once = Once(continuation, handle, waiters)
            let isOpen = waiters.add(once)
            if isOpen {
                handle.execute { [engine] loop in
                    engine.withValue(on: loop) { engine in
                        if engine.stopped { return once.end() }
                        start(engine) { once.resume($0) }
                    }
                }
            }
            handle.waiterCame()
            if !isOpen { once.end() }
        }
        return try result.get()
    }

    /// Ends the engine's work, and all waiting for it: those who wait are told before anything else is done.
    func stop() {
        guard waiters.end() else { return }
        execute { $0.stop() }
        handle.stop()
    }
}

/// Somebody off the loop who waits for it.
private protocol Waiting: AnyObject, Sendable {
    /// There is nothing to wait for any more.
    func end()
}

/// All who wait for an engine. What is to resume them may be kept by somebody who never comes to it once the engine
/// has stopped; here they are found by whoever stops it.
private final class Waiters: Sendable {
    private struct Place {
        weak var waiting: (any Waiting)?
    }

    private struct State {
        var places: [ObjectIdentifier: Place] = [:]
        var isOver = false
    }

    private let state = Mutex(State())

    /// - Returns: False: there is nothing to wait for any more.
    func add(_ waiting: any Waiting) -> Bool {
        state.withLock { state in
            if !state.isOver { state.places[ObjectIdentifier(waiting)] = Place(waiting: waiting) }
            return !state.isOver
        }
    }

    func remove(_ name: ObjectIdentifier) { state.withLock { _ = $0.places.removeValue(forKey: name) } }

    /// - Returns: Whether it was the first time.
    func end() -> Bool {
        let (isFirst, waiting) = state.withLock { state in
            defer { state = State(isOver: true) }
            return (!state.isOver, state.places.values.compactMap(\.waiting))
        }
        for waiting in waiting { waiting.end() }
        return isFirst
    }
}

/// A continuation that is resumed exactly once, also when the engine stops, or the loop drops what would have resumed
/// it.
private final class Once<Value: Sendable>: Waiting {
    private let continuation: Mutex<CheckedContinuation<Result<Value, CloudError>, Never>?>
    private let handle: any LoopHandle
    private let waiters: Waiters

    init(
        _ continuation: CheckedContinuation<Result<Value, CloudError>, Never>, _ handle: any LoopHandle,
        _ waiters: Waiters
    ) {
        self.continuation = Mutex(continuation)
        self.handle = handle
        self.waiters = waiters
    }

    deinit { end() }

    func end() { resume(.failure(DeviceEngine.closed)) }

    func resume(_ result: Result<Value, CloudError>) {
        let waiting = continuation.withLock { continuation in
            defer { continuation = nil }
            return continuation
        }
        guard let waiting else { return }
        waiters.remove(ObjectIdentifier(self))
        handle.waiterLeft()
        waiting.resume(returning: result)
    }
}

/// Wakes whoever waits for something to have happened: however often it did meanwhile, once.
final class Bell: Sendable {
    private struct State {
        var listeners: [UInt64: AsyncStream<Void>.Continuation] = [:]
        var count: UInt64 = 0
        var isOver = false
    }

    private let state = Mutex(State())

    /// Rings from now on; ends with the bell.
    func listen() -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let id: UInt64? = state.withLock { state in
            guard !state.isOver else { return nil }
            state.count += 1
            state.listeners[state.count] = continuation
            return state.count
        }
        guard let id else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            _ = self?.state.withLock { $0.listeners.removeValue(forKey: id) }
        }
        return stream
    }

    func ring() { for listener in state.withLock({ Array($0.listeners.values) }) { listener.yield() } }

    /// There is nothing to wait for any more.
    func end() {
        let last = state.withLock { state in
            defer { state = State(isOver: true) }
            return Array(state.listeners.values)
        }
        for listener in last { listener.finish() }
    }

    /// Whether it has ended.
    var isOver: Bool { state.withLock { $0.isOver } }
}
