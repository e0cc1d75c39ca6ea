import CNephosZeroMQ
import Foundation
import NephosBus
import NephosCore
import Testing

@testable import NephosZeroMQ

/// What notices that the other end of a connection is gone: the kernel, as it was told on every socket.
@Suite(.serialized, .timeLimit(.minutes(2)))
struct LivenessTests {
    private let transport = ZeroMQTransport()

    @Test func theKernelWatchesBothEndsOfARequestConnection() throws {
        let echo = try EchoServer(transport, "tcp://127.0.0.1:*")
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try client.send([Frame([1])])
        try eventually { client.received.count == 1 }
        try check(port: echo.endpoint)
    }

    @Test func theKernelWatchesBothEndsOfASubscription() throws {
        let publisher = try Publisher(transport, "tcp://127.0.0.1:*")
        defer { publisher.handle.stop() }
        let subscriber = try Subscriber(transport, publisher, topics: [""])
        defer { subscriber.handle.stop() }
        try eventually {
            publisher.publish([Frame([1]), Frame([1])])
            return !subscriber.received.isEmpty
        }
        try check(port: publisher.endpoint)
    }

    /// As when a cable is pulled: no FIN comes, no RST, and nothing is acknowledged.
    @Test func whoVanishesIsCutSpokenToOrNot() throws {
        let echo = try EchoServer(transport, "tcp://127.0.0.1:*")
        defer { echo.handle.stop() }
        // The relay's own sockets have none of our options: what ends its connections is the server's end.
        let relay = try Relay(to: echo.endpoint)
        defer { relay.close() }
        let clients = try (0..<2).map { _ in try Client(transport, echo, endpoint: relay.endpoint) }
        let stays = try Client(transport, echo)
        defer { for client in clients + [stays] { client.handle.stop() } }
        for client in clients + [stays] { try client.send([Frame([1])]) }
        try eventually { (clients + [stays]).allSatisfy { $0.received.count == 1 } }
        let peers = try clients.map { client in
            try #require(echo.probes.first { $0.publicKey == client.keys.publicKey })
        }
        let third = try #require(echo.probes.first { $0.publicKey == stays.keys.publicKey })
        let connections = try OwnConnection.all(with: echo.endpoint)
        for connection in connections where connection.option(Int32(IPPROTO_TCP), TCP_USER_TIMEOUT) == 0 {
            #expect(connection.takeNothingMore())
        }
        let start = ContinuousClock.now
        #expect(echo.send([Frame([2])], to: peers[0]) == .sent)
        var times: [Int: Duration] = [:]
        try eventually {
            usleep(20_000)
            for (number, peer) in peers.enumerated() where times[number] == nil && echo.isGone(peer) {
                times[number] = ContinuousClock.now - start
            }
            return times.count == 2
        }
        // The kernel looks when its own timers run out, which lie up to half as far apart again.
        for time in times.values { #expect(time > .seconds(13) && time < .seconds(27), "\(time)") }
        // Whoever is silent and there stays.
        #expect(!echo.isGone(third))
        try stays.send([Frame([3])])
        try eventually { stays.received.last == [[3]] }
    }

    /// Else whoever connects and says nothing that libzmq would tell of holds a descriptor for half a minute.
    @Test func aHandshakeMayTakeFiveSecondsOnEverySocket() throws {
        #expect(try options([ZMQ_HANDSHAKE_IVL]) == Array(repeating: [5000], count: 4))
    }

    /// However long one would wait for it: nothing is to be sent, no answer waited for, and none promised.
    @Test func noSocketHasHeartbeatsOfLibzmq() throws {
        let names = [ZMQ_HEARTBEAT_IVL, ZMQ_HEARTBEAT_TTL, ZMQ_HEARTBEAT_TIMEOUT]
        // The last follows the first where it is not set.
        #expect(try options(names).map { [$0[0], $0[1], max(0, $0[2])] } == Array(repeating: [0, 0, 0], count: 4))
    }

    /// What libzmq says of options of one socket of each kind.
    private func options(_ names: [Int32]) throws -> [[Int32]] {
        let found = Log<[Int32]>()
        let keys = try transport.makeKeyPair()
        let loop = try transport.startLoop(named: "four") { loop in
            let endpoint = "tcp://127.0.0.1:*"
            let reply = try loop.makeReplySocket(ReplySocketOptions(endpoint: endpoint, keys: keys)) { _ in }
            let publisher = try loop.makePublishSocket(
                PublishSocketOptions(endpoint: endpoint, keys: keys, admission: .anyone))
            let request = try loop.makeRequestSocket(
                RequestSocketOptions(endpoints: [reply.endpoint], serverKey: keys.publicKey, keys: keys)
            ) { _ in }
            let subscriber = try loop.makeSubscribeSocket(
                SubscribeSocketOptions(endpoints: [publisher.endpoint], serverKey: keys.publicKey, keys: keys)
            ) { _ in }
            for socket in [reply, publisher, request, subscriber] as [AnyObject] {
                guard let core = (socket as? any LoopSocket)?.core else { continue }
                found.add(
                    names.map { name in
                        var value: Int32 = .min
                        var size = MemoryLayout<Int32>.size
                        zmq_getsockopt(core.pointer, name, &value, &size)
                        return value
                    })
            }
        }
        defer { loop.stop() }
        return found.all
    }

    // A PING of libzmq's ends a process that has stopped reading a connection.
    @Test func nothingIsSaidOnASilentConnection() throws {
        let echo = try EchoServer(transport, "tcp://127.0.0.1:*")
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try client.send([Frame([1])])
        try eventually { client.received.count == 1 }
        Thread.sleep(forTimeInterval: 0.2)
        let connections = try OwnConnection.all(with: echo.endpoint)
        let before = connections.map(\.received)
        Thread.sleep(forTimeInterval: 2.5)
        #expect(before.count == 2 && before.allSatisfy { $0 ?? 0 > 0 })
        #expect(connections.map(\.received) == before)
    }

    private func check(port endpoint: String) throws {
        let connections = try OwnConnection.all(with: endpoint)
        #expect(connections.count == 2, "the accepted end and the connecting one")
        for connection in connections {
            #expect(connection.option(SOL_SOCKET, SO_KEEPALIVE) == 1)
            #expect(connection.option(Int32(IPPROTO_TCP), TCP_KEEPIDLE) == 10)
            #expect(connection.option(Int32(IPPROTO_TCP), TCP_KEEPINTVL) == 5)
            #expect(connection.option(Int32(IPPROTO_TCP), TCP_KEEPCNT) == 3)
            #expect(connection.option(Int32(IPPROTO_TCP), TCP_USER_TIMEOUT) == 15_000)
        }
    }
}

/// A TCP connection of this process, found among its descriptors.
struct OwnConnection {
    let descriptor: Int32

    /// The ends of connections to the endpoint's port, accepted and connecting.
    static func all(with endpoint: String) throws -> [OwnConnection] {
        let port = try #require(endpoint.split(separator: ":").last.flatMap { UInt16($0) })
        return try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { name in
            guard let descriptor = Int32(name) else { return nil }
            let ports = [address(descriptor, getsockname), address(descriptor, getpeername)]
            guard !ports.contains(nil), ports.contains(port) else { return nil }
            return OwnConnection(descriptor: descriptor)
        }
    }

    /// The kernel's number for the socket, never used again.
    var cookie: UInt64 {
        var cookie: UInt64 = 0
        var size = socklen_t(MemoryLayout<UInt64>.size)
        return getsockopt(descriptor, SOL_SOCKET, 57, &cookie, &size) == 0 ? cookie : 0
    }

    /// Bytes that have arrived since it was made.
    var received: UInt64? {
        var information = [UInt8](repeating: 0, count: 136)
        var size = socklen_t(information.count)
        guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, &information, &size) == 0, size == 136 else {
            return nil
        }
        // `tcpi_bytes_received`.
        return information.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 128, as: UInt64.self) }
    }

    func option(_ level: Int32, _ name: Int32) -> Int32? {
        var value: Int32 = -1
        var size = socklen_t(MemoryLayout<Int32>.size)
        return getsockopt(descriptor, level, name, &value, &size) == 0 ? value : nil
    }

    func set(_ level: Int32, _ name: Int32, _ value: Int32) -> Bool {
        var value = value
        return setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<Int32>.size)) == 0
    }

    /// From now on the kernel drops whatever comes for it, and answers none of it.
    func takeNothingMore() -> Bool {
        // `struct sock_filter` and `struct sock_fprog` of a program of one instruction: keep no byte.
        var program: [UInt64] = [UInt64(0x06)]
        return program.withUnsafeMutableBytes { instructions in
            var filter = (count: UInt16(1), instructions: UnsafeRawPointer(instructions.baseAddress))
            return setsockopt(
                descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter, socklen_t(MemoryLayout.size(ofValue: filter))) == 0
        }
    }

    private static func address(
        _ descriptor: Int32,
        _ get: (Int32, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
    ) -> UInt16? {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { get(descriptor, $0, &size) }
        }
        return result == 0 && address.sin_family == sa_family_t(AF_INET) ? UInt16(bigEndian: address.sin_port) : nil
    }
}
