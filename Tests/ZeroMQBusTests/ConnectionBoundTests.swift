import CNephosZeroMQ
import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosZeroMQ
import Testing

/// What one peer, and all together, can make a process hold of what arrives, in bytes.
@Suite(.serialized, .timeLimit(.minutes(2)))
struct ConnectionBoundTests {
    private let transport = ZeroMQTransport()
    private let endpoint = "tcp://127.0.0.1:*"
    private static let chunk = Frame([UInt8](repeating: 1, count: 64 << 10))

    /// In one frame, or in many of which each is small.
    @Test(arguments: [1, 48]) func aMessageThatNeverEndsCutsItsConnectionAtTheBound(_ frameCount: Int) throws {
        let echo = try EchoServer(transport, endpoint) { $0.unreadBytesPerConnectionMax = 1 << 20 }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint)
        defer { relay.close() }
        let honest = try Client(transport, echo)
        let hostile = try Client(transport, echo, endpoint: relay.endpoint)
        defer { for client in [honest, hostile] { client.handle.stop() } }
        try eventually { echo.probes.count == 2 }
        relay.set { $0.toServer = 2 << 20 }
        let frame = Frame([UInt8](repeating: 1, count: (3 << 20) / frameCount))
        try hostile.send(Message(repeating: frame, count: frameCount))
        try eventually { relay.cutCount == 1 }
        // None of it has come out.
        #expect(echo.requests.isEmpty)
        try honest.send([Frame([4])])
        try eventually { honest.received == [[[4]]] }
    }

    @Test func aPeerThatSendsMoreThanIsTakenIsCut() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unreadBytesPerConnectionMax = 1 << 20 }
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try eventually { echo.probes.count == 1 }
        let release = DispatchSemaphore(value: 0)
        echo.handle.execute { _ in release.wait() }
        for _ in 0..<48 { _ = client.trySend([Self.chunk]) }
        // It is cut, and comes back, although the server's loop sees none of it.
        let first = try OwnConnection.all(with: echo.endpoint).map(\.cookie)
        try eventually { try OwnConnection.all(with: echo.endpoint).allSatisfy { !first.contains($0.cookie) } }
        release.signal()
        try eventually { echo.probes.count >= 2 }
    }

    @Test func whatManyPeersBeginAndDoNotFinishIsBoundedForAll() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unreadBytesMax = 2 << 20 }
        defer { echo.handle.stop() }
        let relays = try (0..<4).map { _ in try Relay(to: echo.endpoint) }
        defer { for relay in relays { relay.close() } }
        let honest = try Client(transport, echo)
        let hostile = try relays.map { try Client(transport, echo, endpoint: $0.endpoint) }
        defer { for client in [honest] + hostile { client.handle.stop() } }
        try eventually { echo.probes.count == 5 }
        for (relay, client) in zip(relays, hostile) {
            relay.set { $0.toServer = 700 << 10 }
            try client.send([Frame([UInt8](repeating: 1, count: 1 << 20))])
        }
        try eventually { relays.reduce(0) { $0 + $1.cutCount } >= 2 }
        try honest.send([Frame([4])])
        try eventually { honest.received == [[[4]]] }
        #expect(relays.contains { $0.cutCount == 0 }, "no more are cut than need be")
    }

    @Test func whoSaysNothingIsCutWhoSaidSomethingIsNot() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        let silent = try HostilePeer(echo)
        defer { silent.close() }
        try eventually { try OwnConnection.all(with: echo.endpoint).count == 4 }
        // It reconnects, without a word to the server.
        try eventually { silent.disconnections > 0 }
        #expect(echo.probes.count == 1)
        try client.send([Frame([4])])
        try eventually { client.received == [[[4]]] }
        #expect(echo.probes.count == 1)
    }

    // MARK: What arrives where one has connected

    @Test func aServerThatSendsMoreThanIsTakenIsCut() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo) {
            #expect($0.unreadBytesMax <= 64 << 20)
            $0.unreadBytesMax = 1 << 20
        }
        defer { client.handle.stop() }
        try eventually { echo.probes.count == 1 }
        try whileHeld(client.handle, areMadeAnew: echo.endpoint) {
            guard let peer = echo.probes.first else { return }
            for _ in 0..<48 { _ = echo.send([Self.chunk], to: peer) }
        }
        try client.send([Frame([4])])
        try eventually { client.received.contains([[4]]) }
    }

    @Test func aPublisherThatSendsMoreThanIsTakenIsCut() throws {
        let publisher = try Publisher(transport, endpoint)
        defer { publisher.handle.stop() }
        let subscriber = try Subscriber(transport, publisher, topics: [""]) {
            #expect($0.unreadBytesMax <= 64 << 20)
            $0.unreadBytesMax = 1 << 20
        }
        defer { subscriber.handle.stop() }
        try eventually {
            publisher.publish([Frame([1]), Frame([1])])
            return !subscriber.received.isEmpty
        }
        try whileHeld(subscriber.handle, areMadeAnew: publisher.endpoint) {
            for _ in 0..<48 { publisher.publish([Frame([7]), Self.chunk]) }
        }
        try eventually {
            publisher.publish([Frame([9]), Frame([1])])
            return subscriber.received.contains { $0[0] == [9] }
        }
    }

    /// Waits until both ends of the one connection to the endpoint are others, while its loop takes nothing.
    private func whileHeld(_ loop: any LoopHandle, areMadeAnew endpoint: String, _ send: () -> Void) throws {
        let release = DispatchSemaphore(value: 0)
        defer { release.signal() }
        loop.execute { _ in release.wait() }
        let first = try OwnConnection.all(with: endpoint).map(\.cookie)
        #expect(first.count == 2)
        send()
        try eventually {
            let cookies = try OwnConnection.all(with: endpoint).map(\.cookie)
            return cookies.count == 2 && !cookies.contains { first.contains($0) }
        }
    }

    /// What subscribers say stays with the publisher, or is nothing to it: it is counted, and never comes out.
    @Test func aSubscriberThatSaysTooMuchIsCut() throws {
        let publisher = try Publisher(transport, endpoint)
        defer { publisher.handle.stop() }
        let relay = try Relay(to: publisher.endpoint)
        defer { relay.close() }
        let honest = try Subscriber(transport, publisher, topics: [""], endpoint: relay.endpoint)
        defer { honest.handle.stop() }
        let hostile = try HostilePeer(publisher.endpoint, publisher.keys.publicKey, type: ZMQ_XSUB)
        defer { hostile.close() }
        // Not a topic, as its first byte says.
        let bytes = [UInt8](repeating: 7, count: 4000)
        try eventually {
            for _ in 0..<20 { hostile.send(bytes) }
            return hostile.disconnections > 0
        }
        try eventually {
            publisher.publish([Frame([1]), Frame([1])])
            return !honest.received.isEmpty
        }
        #expect(relay.cutCount == 0)
    }

    /// Whoever comes gets in, also while strangers hold all connections, and an identified connection stays.
    @Test func aNewcomerGetsInAndAnIdentifiedConnectionStays() throws {
        let server = try EchoServer(ZeroMQTransport(connectionsMax: 8), "tcp://127.0.0.1:*")
        defer { server.handle.stop() }
        let known = try HostilePeer(server)
        defer { known.close() }
        known.send([1])
        try eventually { server.requests.count == 1 }
        server.identify(server.requests[0].peer)
        var strangers: [HostilePeer] = []
        defer { for stranger in strangers { stranger.close() } }
        for number in 0..<16 {
            strangers.append(try HostilePeer(server))
            strangers[number].send([2, UInt8(number)])
            try eventually { server.requests.contains { $0.message[0].bytes == [2, UInt8(number)] } }
        }
        try eventually { strangers.count { $0.disconnections > 0 } >= 9 }
        #expect(known.disconnections == 0)
        known.send([3])
        try eventually { server.requests.contains { $0.message[0].bytes == [3] } }
    }
}
