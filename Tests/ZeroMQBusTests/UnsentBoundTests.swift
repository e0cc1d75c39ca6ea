import CNephosZeroMQ
import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosZeroMQ
import Testing

/// What one peer, and all together, can make a process hold of what it cannot send, in bytes; and peers that say what
/// none of ours would.
@Suite(.serialized, .timeLimit(.minutes(2)))
struct UnsentBoundTests {
    private let transport = ZeroMQTransport()
    private let endpoint = "tcp://127.0.0.1:*"
    private static let chunk = Frame([UInt8](repeating: 1, count: 64 << 10))

    @Test func aPeerThatNeverReadsIsFullAtItsBoundAndOthersAreNot() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unsentBytesPerConnectionMax = 1 << 20 }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint)
        defer { relay.close() }
        let slow = try Client(transport, echo, endpoint: relay.endpoint)
        defer { slow.handle.stop() }
        try eventually { echo.probes.count == 1 }
        let honest = try Client(transport, echo)
        defer { honest.handle.stop() }
        try eventually { echo.probes.count == 2 }
        let peer = try #require(echo.probes.first)
        relay.set { $0.toClient = false }
        // Full for good: the relay's own kernel buffer takes some meanwhile, which is acknowledged.
        var (sent, fulls) = (0, 0)
        try eventually {
            if echo.send([Self.chunk], to: peer) == .sent { (sent, fulls) = (sent + 1, 0) } else { fulls += 1 }
            return fulls == 20
        }
        #expect(sent < 200)
        try honest.send([Frame([4])])
        try eventually { honest.received == [[[4]]] }
        relay.set { $0.toClient = true }
        try eventually { slow.received.count == sent }
        #expect(echo.send([Frame([3])], to: peer) == .sent)
        try eventually { slow.received.last == [[3]] }
    }

    @Test func oneKeyCannotTakeTheShareOfAll() throws {
        let echo = try EchoServer(transport, endpoint) {
            $0.unsentBytesPerConnectionMax = 1 << 20
            $0.unsentBytesMax = 2 << 20
        }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint, receiveBuffer: 16 << 10)
        defer { relay.close() }
        let clients = try (0..<4).map { _ in try Client(transport, echo, endpoint: relay.endpoint) }
        defer { for client in clients { client.handle.stop() } }
        try eventually { echo.probes.count == 4 }
        let hostile = echo.probes
        relay.set { $0.toClient = false }
        for peer in hostile { _ = try fill(peer, of: echo) }
        #expect(hostile.allSatisfy { echo.send([Self.chunk], to: $0) == .full })
        let honest = try Client(transport, echo)
        defer { honest.handle.stop() }
        try honest.send([Self.chunk])
        try eventually { honest.received.count == 1 }
    }

    /// Sends until the peer is full for good: the kernel takes some meanwhile, which is acknowledged.
    private func fill(_ peer: Peer, of echo: EchoServer) throws -> Int {
        var (sent, fulls) = (0, 0)
        try eventually {
            if echo.send([Self.chunk], to: peer) == .sent { (sent, fulls) = (sent + 1, 0) } else { fulls += 1 }
            return fulls == 20 || sent == 1000
        }
        return sent
    }

    /// Else what waits for it is held for as long as its kernel says that there is somebody.
    @Test func aPeerThatStaysFullIsCutAfterTenSecondsAndComesBack() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unsentBytesPerConnectionMax = 1 << 20 }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint, receiveBuffer: 16 << 10)
        defer { relay.close() }
        let slow = try Client(transport, echo, endpoint: relay.endpoint)
        defer { slow.handle.stop() }
        try eventually { echo.probes.count == 1 }
        let peer = try #require(echo.probes.first)
        // The kernel would end it too, five seconds later.
        for connection in try OwnConnection.all(with: echo.endpoint) {
            #expect(connection.set(Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, 0))
        }
        relay.set { $0.toClient = false }
        let sent = try fill(peer, of: echo)
        #expect(sent < 200)
        let start = ContinuousClock.now
        try eventually {
            #expect(echo.send([Self.chunk], to: peer) != .sent)
            usleep(50_000)
            return relay.cutCount > 0
        }
        let time = ContinuousClock.now - start
        #expect(time > .seconds(9) && time < .seconds(25), "\(time)")
        #expect(slow.received.isEmpty)
        relay.set { $0.toClient = true }
        try eventually { echo.probes.count == 2 }
        #expect(echo.send([Frame([3])], to: echo.probes[1]) == .sent)
        try eventually { slow.received.contains([[3]]) }
    }

    /// Four times what one connection may have, and no more, however many connections it makes.
    @Test func oneKeysConnectionsShareABound() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unsentBytesPerConnectionMax = 256 << 10 }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint, receiveBuffer: 16 << 10)
        defer { relay.close() }
        let keys = try transport.makeKeyPair()
        let stopped = try (0..<12).map { _ in try Client(transport, echo, keys: keys, endpoint: relay.endpoint) }
        defer { for client in stopped { client.handle.stop() } }
        try eventually { echo.probes.count == 12 }
        relay.set { $0.toClient = false }
        for peer in echo.probes { _ = try fill(peer, of: echo) }
        let another = try Client(transport, echo, keys: keys)
        let honest = try Client(transport, echo)
        defer { for client in [another, honest] { client.handle.stop() } }
        try eventually { echo.probes.count == 14 }
        let peers = echo.probes.suffix(2)
        for peer in peers {
            let isHonest = peer.publicKey == honest.keys.publicKey
            #expect(echo.send([Self.chunk], to: peer) == (isHonest ? .sent : .full))
        }
    }

    @Test func whatWaitsForManyKeysIsBoundedForAll() throws {
        let echo = try EchoServer(transport, endpoint) {
            $0.unsentBytesPerConnectionMax = 4 << 20
            $0.unsentBytesMax = 1 << 20
        }
        defer { echo.handle.stop() }
        let relay = try Relay(to: echo.endpoint, receiveBuffer: 16 << 10)
        defer { relay.close() }
        let stopped = try (0..<4).map { _ in try Client(transport, echo, endpoint: relay.endpoint) }
        defer { for client in stopped { client.handle.stop() } }
        try eventually { echo.probes.count == 4 }
        relay.set { $0.toClient = false }
        let sent = try echo.probes.reduce(0) { try $0 + fill($1, of: echo) }
        // The first has all of it, the others a half, a third and a quarter; and the kernel a little of each.
        #expect(sent << 16 < 4 << 20)
        let honest = try Client(transport, echo)
        defer { honest.handle.stop() }
        try honest.send([Self.chunk])
        try eventually { honest.received.count == 1 }
    }

    /// Else nobody could be sent it, ever.
    @Test func aMessageThatIsLargerThanTheBoundGoesToWhoHasTakenAllBefore() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unsentBytesPerConnectionMax = 256 << 10 }
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try client.send([Frame([UInt8](repeating: 1, count: 1 << 20))])
        try eventually { client.received.map { $0[0].count } == [1 << 20] }
    }

    @Test func aSubscriberThatLagsIsCutAndComesBack() throws {
        let publisher = try Publisher(transport, endpoint, lagBytesMax: 4 << 20)
        defer { publisher.handle.stop() }
        let relay = try Relay(to: publisher.endpoint)
        defer { relay.close() }
        let stopped = try Subscriber(transport, publisher, topics: [""], endpoint: relay.endpoint)
        let honest = try Subscriber(transport, publisher, topics: [""])
        defer { for subscriber in [stopped, honest] { subscriber.handle.stop() } }
        try eventually {
            publisher.publish([Frame([1]), Frame([1])])
            return !stopped.received.isEmpty && !honest.received.isEmpty
        }
        relay.set { $0.toClient = false }
        var published = 0
        let marker = Frame([7])
        try eventually {
            for _ in 0..<16 { publisher.publish([marker, Self.chunk]) }
            published += 16
            // Whoever keeps up loses nothing.
            try eventually { honest.received.count { $0[0] == [7] } == published }
            return relay.cutCount > 0
        }
        relay.set { $0.toClient = true }
        try eventually {
            publisher.publish([Frame([9]), Frame([1])])
            return stopped.received.contains { $0[0] == [9] }
        }
    }

    // MARK: What libzmq would end the process for

    @Test func aRoutingIDOfOnesOwnIsNotHeeded() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let peers = try (0..<2).map { _ in try HostilePeer(echo, routingID: "chosen") }
        defer { for peer in peers { peer.close() } }
        // libzmq ignores the second of two that are named alike. One that had
        // its own way is cut, and asks again; rarely both have, and the one that
        // is ignored is cut when it has said nothing for ten seconds.
        try eventually {
            for (number, peer) in peers.enumerated() { peer.send([UInt8(number)]) }
            return Set(echo.requests.map(\.message[0].bytes)).count == 2
        }
        #expect(Set(echo.requests.map(\.peer.connection)).count >= 2)
    }

    // The kernel counts answers to PINGs too, and the handshake.
    @Test func whatWasReadWaitsForNobodyThoughMoreIsAcknowledgedThanWasSaid() throws {
        let echo = try EchoServer(transport, endpoint) { $0.unsentBytesPerConnectionMax = 16 << 10 }
        defer { echo.handle.stop() }
        let peer = try HostilePeer(echo, pings: true)
        defer { peer.close() }
        usleep(3_000_000)
        for _ in 0..<200 {
            let count = peer.takenCount
            try eventually {
                // What finds no room is dropped, until what was read before is acknowledged.
                peer.send([UInt8](repeating: 1, count: 1 << 10))
                return peer.takenCount > count
            }
        }
    }

    @Test func pingsAmongWhatPilesUpDoNoHarm() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try eventually { echo.probes.count == 1 }
        for _ in 0..<3 {
            let release = DispatchSemaphore(value: 0)
            echo.handle.execute { _ in release.wait() }
            let hostile = try HostilePeer(echo, pings: true)
            for _ in 0..<60 {
                for _ in 0..<200 { hostile.send([1]) }
                usleep(1000)
            }
            hostile.reset()
            usleep(20_000)
            release.signal()
            let count = client.received.count
            try client.send([Frame([4])])
            try eventually { client.received.count > count }
            hostile.close()
        }
    }
}
