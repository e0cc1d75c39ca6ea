private import Dispatch
public import NephosCore
private import Synchronization

/// A transport of few loops for many owners, such as the sessions of a server's users: each owner shares its loop, and so its
/// thread, with others.
///
/// An owner that stops closes its own sockets; the loop stays for the others.
public final class SharedLoops: Transport {
    private struct State {
        var loops: [any LoopHandle] = []
        /// Owners of each loop.
        var owners: [Int] = []
    }

    private let transport: any Transport
    private let count: Int
    private let state = Mutex(State())

    /// - Parameter count: Loops, which are started when they are needed.
    public init(_ transport: any Transport, count: Int) {
        (self.transport, self.count) = (transport, max(1, count))
    }

    public func makeKeyPair() throws -> KeyPair { try transport.makeKeyPair() }

    public func startLoop(
        named name: String, for work: LoopWork, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        let (index, loop) = try state.withLock { state in
            if state.loops.count < count {
                state.loops.append(try transport.startLoop(named: name, for: work) { _ in })
                state.owners.append(0)
            }
            let index = state.owners.indices.min { state.owners[$0] < state.owners[$1] } ?? 0
            state.owners[index] += 1
            return (index, state.loops[index])
        }
        let owner = Owner(loop) { [weak self] in self?.state.withLock { $0.owners[index] -= 1 } }
        do { try owner.run(setUp) } catch {
            owner.stop()
            throw error
        }
        return owner
    }

    /// Stops all loops, which must have no owners any more.
    public func stop() {
        for loop in state.withLock(\.loops) { loop.stop() }
    }

    private final class Owner: LoopHandle {
        private let loop: any LoopHandle
        private let hasStopped = Atomic(false)
        private let onStop: @Sendable () -> Void

        init(_ loop: any LoopHandle, onStop: @escaping @Sendable () -> Void) {
            (self.loop, self.onStop) = (loop, onStop)
        }

        /// Runs something on the loop, and waits for it.
        func run(_ work: @escaping @Sendable (any BusLoop) throws -> Void) throws {
            let result = Mutex<Result<Void, any Error>>(.success(()))
            let done = DispatchSemaphore(value: 0)
            loop.execute { loop in
                let outcome = Result { try work(loop) }
                result.withLock { $0 = outcome }
                done.signal()
            }
            done.wait()
            try result.withLock { $0 }.get()
        }

        func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
            guard !hasStopped.load(ordering: .acquiring) else { return }
            loop.execute(work)
        }

        func stop() {
            guard !hasStopped.exchange(true, ordering: .acquiringAndReleasing) else { return }
            // Work that the loop was given before runs first.
            try? run { _ in }
            onStop()
        }
    }
}
