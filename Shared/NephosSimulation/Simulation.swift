internal import Dispatch
package import NephosBus
internal import NephosCore
package import NephosKit
private import Synchronization

/// A ``TestCloud`` on a thread of its own, and the devices of tasks that run anywhere: what those give to their loops
/// is handed over, in their order.
///
/// Time passes while somebody waits, and at no other time: for the answer to a call of a session, or for
/// ``pass(_:)`` and whatever else runs the network. It stops with the event that ends the waiting. So the history is
/// the same each time for a test that does one thing after the other, however fast the machine is.
package final class Simulation: Sendable {
    private struct State {
        var handed: [@Sendable () -> Void] = []
        var waiters = 0
        var isClosed = false
        var waitingPassesTime: Bool
    }

    private let queue = DispatchQueue(label: "nephos.simulation")
    private let isOnQueue = DispatchSpecificKey<Bool>()
    private let state: Mutex<State>
    private let cloud: Unshared<TestCloud>

    package init(waitingPassesTime: Bool = true, _ make: () throws -> TestCloud) throws {
        state = Mutex(State(waitingPassesTime: waitingPassesTime))
        queue.setSpecific(key: isOnQueue, value: true)
        cloud = try queue.sync { Unshared(try make()) }
    }

    /// Ends everything. Who still waits is told that the session is closed.
    package func close() {
        let isFirst = state.withLock { state in
            defer { state.isClosed = true }
            return !state.isClosed
        }
        guard isFirst else { return }
        use { cloud in cloud.close() }
        // Released outside the lock: who is told by it leaves, which is noted there.
        _ = state.withLock { state in
            defer { state.handed = [] }
            return state.handed
        }
    }

    /// Uses the cloud, alone, while no time passes but what the body lets pass.
    package func use<Value>(_ body: (TestCloud) throws -> Value) rethrows -> Value {
        guard DispatchQueue.getSpecific(key: isOnQueue) != true else { return try body(cloud.value) }
        return try queue.sync {
            takeOver()
            return try body(cloud.value)
        }
    }

    /// The same, without holding up the caller's thread: for what may take a while.
    package func run<Value: Sendable>(_ body: @escaping @Sendable (TestCloud) -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            queue.async { [self] in
                takeOver()
                let value = body(cloud.value)
                continuation.resume(returning: value)
            }
        }
    }

    /// Lets this much time pass.
    ///
    /// - Returns: False on the simulation's own thread: there it passes anyhow.
    @discardableResult
    package func pass(_ duration: Duration) -> Bool {
        guard DispatchQueue.getSpecific(key: isOnQueue) != true else { return false }
        advance(by: duration)
        return true
    }

    /// The same, on the simulation's thread too. What was handed over meanwhile is taken over every now and then.
    package func advance(by duration: Duration) {
        use { cloud in
            let end = cloud.network.now + duration
            while cloud.network.now < end {
                takeOver()
                cloud.network.run(for: min(.milliseconds(20), end - cloud.network.now))
            }
        }
    }

    /// Whether those who wait for a session let time pass by that.
    package var waitingPassesTime: Bool {
        get { state.withLock { $0.waitingPassesTime } }
        set {
            state.withLock { $0.waitingPassesTime = newValue }
            queue.async { [weak self] in self?.passWhileAwaited() }
        }
    }

    /// How many wait for a session.
    package var waiterCount: Int { state.withLock { $0.waiters } }

    /// Lets time pass until nothing is left to send or to hear.
    ///
    /// - Returns: What was still left at the end.
    package func settle(within limit: Duration) async -> [String] {
        await run { [self] cloud in
            cloud.notSettled(within: limit, takesRefusals: true) { takeOver() }
        }
    }

    // MARK: Devices

    /// What a device's session is opened with.
    ///
    /// - Parameter name: Names its loop, and the device in faults.
    package func transport(of name: String) -> any Transport { HandedOverTransport(name: name, self) }

    /// How a device of the simulation behaves, for one session.
    package func makeOptions(of name: String) -> DeviceOptions {
        var options = DeviceOptions()
        let reach = use { cloud in
            options.seed = cloud.makeSeed()
            options.pageItemsMax = cloud.pageItemsMax
            return cloud.makeFault(of: name) { [weak self] in self?.pass($0) == true }
        }
        options.fault = reach
        options.onMade = { [weak self] engine in self?.use { $0.take(engine, named: name) } }
        return options
    }

    // MARK: What other threads hand over

    fileprivate func hand(_ work: @escaping @Sendable () -> Void) {
        let isAwaited = state.withLock { state in
            if !state.isClosed { state.handed.append(work) }
            return state.waiters > 0
        }
        if isAwaited { queue.async { [weak self] in self?.passWhileAwaited() } }
    }

    fileprivate func addWaiter() {
        state.withLock { $0.waiters += 1 }
        queue.async { [weak self] in self?.passWhileAwaited() }
    }

    fileprivate func removeWaiter() { state.withLock { $0.waiters -= 1 } }

    private func takeOver() {
        let handed = state.withLock { state in
            defer { state.handed = [] }
            return state.handed
        }
        for work in handed { work() }
    }

    private func passWhileAwaited() {
        while state.withLock({ $0.waitingPassesTime && $0.waiters > 0 && !$0.isClosed }) {
            takeOver()
            guard cloud.value.network.runNext() else { return }
        }
    }
}

/// Starts a device's loop in the simulation, and hands over to its thread what other threads want done.
private final class HandedOverTransport: Transport {
    private let name: String
    private let simulation: Simulation

    init(name: String, _ simulation: Simulation) {
        self.name = name
        self.simulation = simulation
    }

    func startLoop(
        named _: String, for _: LoopWork, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        let inner = try simulation.use { try InProcessTransport($0.network).startLoop(named: name, setUp) }
        return Handle(simulation: simulation, inner: inner)
    }

    func makeKeyPair() throws -> KeyPair { try simulation.use { try InProcessTransport($0.network).makeKeyPair() } }

    private struct Handle: LoopHandle {
        let simulation: Simulation
        let inner: any LoopHandle

        func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
            simulation.hand { inner.execute(work) }
        }

        func waiterCame() { simulation.addWaiter() }
        func waiterLeft() { simulation.removeWaiter() }

        func stop() {
            // After what was given to it before.
            simulation.hand {
                simulation.use { $0.network.run(for: .zero) }
                inner.stop()
            }
        }
    }
}
