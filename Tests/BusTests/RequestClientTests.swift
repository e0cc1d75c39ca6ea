import NephosBus
import NephosCore
import Testing

/// What a client does when its connection is lost while it waits.
@Suite struct RequestClientTests {
    // Unchecked: a simulation has one thread.
    private final class Seen: @unchecked Sendable {
        var requests: [OperationID] = []
        var credentials: [String] = []
        var replies: [(id: OperationID?, at: Duration)] = []
        var client: RequestClient?
        var forgetsTokens = false
    }

    private let network = SimulatedNetwork(seed: 1)

    /// A server that greets, as services do, and answers only if told to.
    private func startServer(_ transport: InProcessTransport, _ keys: KeyPair, answers: Bool, _ seen: Seen) throws {
        _ = try transport.startLoop(named: "server") { loop in
            // Unchecked: as above.
            final class Holder: @unchecked Sendable {
                var socket: (any ReplySocket)?
            }
            let holder = Holder()
            holder.socket = try loop.makeReplySocket(ReplySocketOptions(endpoint: "tcp://server:1", keys: keys)) {
                for incoming in $0 {
                    if incoming.isProbe {
                        _ = holder.socket?.send(ReplyEnvelope.greeting.encoded(), to: incoming.peer)
                    } else if let request = try? RequestEnvelope(decoding: incoming.message) {
                        seen.requests.append(request.id)
                        let isDigest = request.accessTokenDigest == TokenDigest(of: "token")
                        seen.credentials.append(isDigest ? "digest" : request.accessToken)
                        let isUnknown = isDigest && seen.forgetsTokens
                        let reply = ReplyEnvelope(
                            id: request.id,
                            result: isUnknown ? .failure(CloudError(.accessTokenUnknown, "")) : .success(Frame([1])))
                        if answers { _ = holder.socket?.send(reply.encoded(), to: incoming.peer) }
                    }
                }
            }
        }
    }

    private func startClient(
        _ transport: InProcessTransport, of server: KeyPair, next: KeyPair? = nil, _ seen: Seen
    ) throws {
        let keys = try transport.makeKeyPair()
        _ = try transport.startLoop(named: "client") { loop in
            let options = RequestSocketOptions(
                endpoints: ["tcp://server:1"], serverKey: server.publicKey, keys: keys)
            seen.client = try RequestClient(
                loop: loop, socket: options, nextServerKey: next?.publicKey, generator: SplitMix64(seed: 2))
        }
    }

    /// Asks, and waits a second for the answers.
    private func ask(_ seen: Seen, token: String = "", times: Int = 1) {
        for _ in 0..<times {
            seen.client?.call("Ask", body: Frame([]), accessToken: token) { [network] in
                if case .success = $0.result { seen.replies.append(($0.id, network.now)) }
            }
        }
        network.run(for: .seconds(1))
    }

    @Test func aCallMadeAgainWhileItWaitsIsSentOnceAndAnsweredTwice() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try startServer(transport, keys, answers: true, seen)
        try startClient(transport, of: keys, seen)
        network.run(for: .milliseconds(200))
        let id = seen.client?.call("Ask", body: Frame([])) { [network] in seen.replies.append(($0.id, network.now)) }
        seen.client?.call("Ask", body: Frame([]), id: id) { [network] in seen.replies.append(($0.id, network.now)) }
        network.run(for: .seconds(1))
        #expect(seen.requests == [id])
        #expect(seen.replies.map(\.id) == [id, id])
        // Afterwards the same id is a repeat, which is sent.
        seen.client?.call("Ask", body: Frame([]), id: id) { [network] in seen.replies.append(($0.id, network.now)) }
        network.run(for: .seconds(1))
        #expect(seen.requests == [id, id] && seen.replies.count == 3)
    }

    @Test func aTokenIsSentOnceForEachConnection() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try startServer(transport, keys, answers: true, seen)
        try startClient(transport, of: keys, seen)
        func ask(_ times: Int = 1) { self.ask(seen, token: "token", times: times) }
        ask(2)
        ask(2)
        #expect(seen.credentials == ["token", "token", "digest", "digest"])
        // A server that has forgotten gets it again, for each call that was on its way.
        seen.forgetsTokens = true
        seen.credentials = []
        ask(2)
        #expect(seen.credentials == ["digest", "digest", "token", "token"])
        seen.forgetsTokens = false
        network.crash("server")
        try startServer(transport, keys, answers: true, seen)
        network.run(for: .seconds(1))
        seen.credentials = []
        ask()
        ask()
        #expect(seen.credentials == ["token", "digest"])
        #expect(seen.replies.count == 8)
    }

    @Test func aServiceIsFoundByItsNextKeyToo() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let next = try transport.makeKeyPair()
        let seen = Seen()
        try startServer(transport, keys, answers: true, seen)
        try startClient(transport, of: keys, next: next, seen)
        func ask() { self.ask(seen) }
        ask()
        #expect(seen.replies.count == 1)
        network.crash("server")
        try startServer(transport, next, answers: true, seen)
        ask()
        #expect(seen.replies.count == 2)
        // A third key is a stranger's.
        network.crash("server")
        try startServer(transport, try transport.makeKeyPair(), answers: true, seen)
        ask()
        #expect(seen.replies.count == 2)
    }

    @Test func whatWasLostWithAConnectionIsRepeatedAtOnce() throws {
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let seen = Seen()
        try startServer(transport, keys, answers: false, seen)
        try startClient(transport, of: keys, seen)
        network.run(for: .milliseconds(200))
        let id = seen.client?.call("Ask", body: Frame([])) { [network] in seen.replies.append(($0.id, network.now)) }
        network.run(for: .milliseconds(200))
        // The first greeting is no reason to send anything twice.
        #expect(seen.requests == [id])

        network.crash("server")
        network.run(for: .milliseconds(200))
        let restart = network.now
        try startServer(transport, keys, answers: true, seen)
        network.run(for: .seconds(60))
        #expect(seen.requests == [id, id])
        #expect(seen.replies.count == 1)
        // Its time would be up after two seconds.
        let reply = try #require(seen.replies.first)
        #expect(reply.id == id && reply.at - restart < .milliseconds(500))
    }
}
