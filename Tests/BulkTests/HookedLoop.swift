import NephosBus
import NephosCore
import NephosSimulation

/// A loop that does something between the moment at which messages are taken from a reply socket and the one at which
/// they are handled: what other threads may do then.
final class HookedLoop: BusLoop {
    private let loop: any BusLoop
    var beforeHandling: ([Incoming]) -> Void = { _ in }

    init(_ loop: any BusLoop) { self.loop = loop }

    /// Work comes with the loop that it was given to, and may be bound to this one.
    private struct Handle: LoopHandle {
        let inner: any LoopHandle
        let loop: Unshared<HookedLoop>

        func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) { inner.execute { _ in work(loop.value) } }
        func stop() { inner.stop() }
    }

    var handle: any LoopHandle { Handle(inner: loop.handle, loop: Unshared(self)) }
    var monotonicNow: Duration { loop.monotonicNow }
    var wallClock: any WallClock { loop.wallClock }

    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        loop.schedule(after: delay, action)
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) { loop.offload(to: pool, work, then: completion) }

    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void) {
        loop.probe(endpoint, serverKeys: serverKeys, then: completion)
    }

    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket {
        try loop.makeReplySocket(options) { [unowned self] messages in
            beforeHandling(messages)
            handler(messages)
        }
    }

    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket { try loop.makeRequestSocket(options, handler: handler) }

    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket {
        try loop.makePublishSocket(options)
    }

    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket { try loop.makeSubscribeSocket(options, handler: handler) }
}
