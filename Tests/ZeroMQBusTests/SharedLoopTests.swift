import NephosBus
import NephosCore
import NephosZeroMQ
import Synchronization
import Testing

/// Many owners on few loops.
struct SharedLoopTests {
    /// Runs something on the loop of an owner, and waits for it; nil: it did not run.
    private func run<Value: Sendable>(
        _ owner: any LoopHandle, _ body: @escaping @Sendable (any BusLoop) -> Value
    ) async -> Value? {
        await withTaskGroup(of: Value?.self) { group in
            let (stream, continuation) = AsyncStream.makeStream(of: Value.self)
            owner.execute { loop in
                continuation.yield(body(loop))
                continuation.finish()
            }
            group.addTask {
                for await value in stream { return value }
                return nil
            }
            group.addTask {
                try? await Task.sleep(for: .milliseconds(300))
                return nil
            }
            let first = await group.next() ?? nil
            group.cancelAll()
            return first
        }
    }

    @Test func ownersOfOneLoopEndAlone() async throws {
        let shared = SharedLoops(ZeroMQTransport(), count: 1)
        let first = try shared.startLoop(named: "test") { _ in }
        let second = try shared.startLoop(named: "test") { _ in }
        let loop = await run(first) { ObjectIdentifier($0) }
        #expect(loop != nil)
        #expect(await run(second) { ObjectIdentifier($0) } == loop)
        #expect(throws: CloudError.self) {
            _ = try shared.startLoop(named: "test") { _ in throw CloudError(.internalError, "It does not start.") }
        }
        let done = Mutex(0)
        for _ in 0..<100 { first.execute { _ in done.withLock { $0 += 1 } } }
        first.stop()
        #expect(done.withLock { $0 } == 100, "What was given before the end has run.")
        #expect(await run(first) { _ in true } == nil)
        #expect(await run(second) { _ in true } == true)
        second.stop()
        shared.stop()
    }

    @Test func ownersAreSpread() async throws {
        let shared = SharedLoops(ZeroMQTransport(), count: 2)
        var owners: [any LoopHandle] = []
        for _ in 0..<4 { owners.append(try shared.startLoop(named: "test") { _ in }) }
        var loops: [ObjectIdentifier?] = []
        for owner in owners { loops.append(await run(owner) { ObjectIdentifier($0) }) }
        #expect(loops[0] == loops[2] && loops[1] == loops[3] && loops[0] != loops[1])
        owners[1].stop()
        owners[3].stop()
        let next = try shared.startLoop(named: "test") { _ in }
        #expect(await run(next) { ObjectIdentifier($0) } == loops[1])
        for owner in [owners[0], owners[2], next] { owner.stop() }
        shared.stop()
    }
}
