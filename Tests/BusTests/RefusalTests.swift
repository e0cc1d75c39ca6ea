import NephosBus
import NephosCore
import Testing

/// What a caller is told, and when, where nobody listens.
@Suite struct RefusalTests {
    // Unchecked: a simulation has one thread.
    private final class Seen: @unchecked Sendable {
        var client: RequestClient?
        var server: (any ReplySocket)?
        var impatient: (result: CloudError.Code?, at: Duration)?
        var patient: (result: CloudError.Code?, at: Duration)?
        var refusals = 0
    }

    private let network = SimulatedNetwork(seed: 1)

    private func startServer(_ transport: InProcessTransport, _ keys: KeyPair, _ seen: Seen) throws {
        _ = try transport.startLoop(named: "server") { loop in
            seen.server = try loop.makeReplySocket(ReplySocketOptions(endpoint: "tcp://server:1", keys: keys)) {
                for incoming in $0 {
                    guard let request = try? RequestEnvelope(decoding: incoming.message) else {
                        _ = seen.server?.send(ReplyEnvelope.greeting.encoded(), to: incoming.peer)
                        continue
                    }
                    let reply = ReplyEnvelope(id: request.id, result: .success(Frame([1])))
                    _ = seen.server?.send(reply.encoded(), to: incoming.peer)
                }
            }
        }
    }

    /// Two calls at once, one of which does not wait for a server that is away.
    private func ask(_ transport: InProcessTransport, _ server: KeyPair, _ seen: Seen) throws {
        let keys = try transport.makeKeyPair()
        _ = try transport.startLoop(named: "client") { [network] loop in
            let client = try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(endpoints: ["tcp://server:1"], serverKey: server.publicKey, keys: keys),
                generator: SplitMix64(seed: 2))
            client.onRefused = { _ in seen.refusals += 1 }
            seen.client = client
            func code(_ reply: ReplyEnvelope) -> CloudError.Code? {
                if case .failure(let error) = reply.result { error.code } else { nil }
            }
            client.call("Ask", body: Frame([]), endsWhenRefused: true) { seen.impatient = (code($0), network.now) }
            client.call("Ask", body: Frame([])) { seen.patient = (code($0), network.now) }
        }
    }

    @Test func aRefusedConnectionIsKnownWithinASecond() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try ask(transport, keys, seen)
        network.run(for: .seconds(2))
        let impatient = try #require(seen.impatient)
        #expect(impatient.result == .networkUnavailable)
        #expect(impatient.at < .seconds(1))
        #expect(seen.refusals > 0)
        // The other waits on, and is answered.
        #expect(seen.patient == nil)
        try startServer(transport, keys, seen)
        network.run(for: .seconds(10))
        #expect(seen.patient?.result == nil && seen.patient != nil)
    }

    @Test func aServiceThatIsStartedAgainIsWaitedFor() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try ask(transport, keys, seen)
        network.run(for: .milliseconds(400))
        try startServer(transport, keys, seen)
        network.run(for: .seconds(2))
        #expect(seen.impatient != nil && seen.impatient?.result == nil)
        #expect(seen.refusals == 0)
    }

    @Test func silenceIsNoRefusal() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try startServer(transport, keys, seen)
        network.setOffline("server", true)
        try ask(transport, keys, seen)
        network.run(for: .seconds(5))
        #expect(seen.impatient == nil && seen.refusals == 0)
    }
}
