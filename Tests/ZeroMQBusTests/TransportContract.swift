import Foundation
import NephosBus
import NephosCore
import Synchronization
import Testing

/// What every transport promises, over any transport and address.
struct TransportContract {
    var transport: any Transport
    /// An address whose port the transport chooses.
    var endpoint = "tcp://127.0.0.1:*"

    func requestAndReplyRoundTrip() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        let large = [UInt8](repeating: 9, count: 300_000)
        for bytes in [[1, 2, 3], large] { try client.send([Frame(bytes)]) }
        try eventually { client.received == [[[1, 2, 3]], [large]] }
    }

    func probeAnnouncesConnectAndReconnect() throws {
        let keys = try transport.makeKeyPair()
        let first = try EchoServer(transport, endpoint, keys: keys)
        let client = try Client(transport, first)
        defer { client.handle.stop() }
        try eventually { first.probes.count == 1 }
        first.handle.stop()
        let second = try EchoServer(transport, first.endpoint, keys: keys)
        defer { second.handle.stop() }
        try eventually { second.probes.count == 1 }
        #expect(second.probes.first?.publicKey == client.keys.publicKey)
        try client.send([Frame([7])])
        try eventually { client.received == [[[7]]] }
    }

    func whoseConnectionIsOverIsGone() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let (one, other) = (try Client(transport, echo), try Client(transport, echo))
        defer { other.handle.stop() }
        try eventually { echo.probes.count == 2 }
        let ones = try #require(echo.probes.first { $0.publicKey == one.keys.publicKey })
        #expect(!echo.probes.contains { echo.isGone($0) })
        one.handle.stop()
        try eventually { echo.isGone(ones) }
        #expect(echo.probes.filter { echo.isGone($0) } == [ones])
    }

    func publicKeyOfThePeerIsProved() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let (one, other) = (try Client(transport, echo), try Client(transport, echo))
        defer { for client in [one, other] { client.handle.stop() } }
        try one.send([Frame([1])])
        try other.send([Frame([2])])
        try eventually { echo.requests.count == 2 }
        for (client, byte) in [(one, UInt8(1)), (other, 2)] {
            let peer = echo.requests.first { $0.message[0].bytes == [byte] }?.peer
            #expect(peer?.publicKey == client.keys.publicKey)
        }
        #expect(Set(echo.requests.map(\.peer.connection)).count == 2)
    }

    func rosterRefusesForeignKeys() throws {
        let member = try transport.makeKeyPair()
        let echo = try EchoServer(transport, endpoint, admission: .roster([member.publicKey]))
        defer { echo.handle.stop() }
        let publisher = try Publisher(transport, endpoint, admission: .roster([member.publicKey]))
        defer { publisher.handle.stop() }
        let stranger = try Client(transport, echo)
        let friend = try Client(transport, echo, keys: member)
        let spy = try Subscriber(transport, publisher, topics: [""])
        let follower = try Subscriber(transport, publisher, topics: [""], keys: member)
        defer { for handle in [stranger.handle, friend.handle, spy.handle, follower.handle] { handle.stop() } }
        try friend.send([Frame([1])])
        try eventually { friend.received.count == 1 }
        try eventually {
            publisher.publish([Frame([5]), Frame([1])])
            return !follower.received.isEmpty
        }
        #expect(stranger.trySend([Frame([2])]) == .full)
        #expect(spy.received.isEmpty)
        #expect(Set(echo.probes.map(\.publicKey)) == [member.publicKey])
    }

    func subscribersGetTheirPrefixesOnly() throws {
        let publisher = try Publisher(transport, endpoint)
        defer { publisher.handle.stop() }
        let subscriber = try Subscriber(transport, publisher, topics: ["a/", "end"])
        defer { subscriber.handle.stop() }
        let topics = ["a/1", "b/1", "a/2", "a", "end"]
        func seen() -> Set<String> { Set(subscriber.received.map { String(decoding: $0[0], as: UTF8.self) }) }
        // The subscription may begin in the middle of a round.
        try eventually {
            for topic in topics { publisher.publish([Frame(Array(topic.utf8)), Frame([1])]) }
            return seen().isSuperset(of: ["a/1", "a/2", "end"])
        }
        #expect(seen() == ["a/1", "a/2", "end"])
    }

    func sendToAPeerThatLeftIsGone() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        try eventually { echo.probes.count == 1 }
        let peer = try #require(echo.probes.first)
        #expect(echo.send([Frame([1])], to: peer) == .sent)
        client.handle.stop()
        try eventually { echo.send([Frame([1])], to: peer) == .gone }
    }

    func aMessageOfSeveralFramesCutsItsConnection() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        defer { client.handle.stop() }
        try eventually { echo.probes.count == 1 }
        try client.send([Frame([1]), Frame([2])])
        try eventually { echo.probes.count == 2 }
        try client.send([Frame([3])])
        try eventually { client.received == [[[3]]] }
        #expect(echo.requests.count == 1)
    }

    func oversizedFrameCutsOnlyItsConnection() throws {
        let echo = try EchoServer(transport, endpoint) { $0.frameBytesMax = 1000 }
        defer { echo.handle.stop() }
        let (good, bad) = (try Client(transport, echo), try Client(transport, echo))
        defer { for client in [good, bad] { client.handle.stop() } }
        try eventually { echo.probes.count == 2 }
        let connections = Dictionary(
            echo.probes.map { ($0.publicKey, $0.connection) }, uniquingKeysWith: { first, _ in first })
        try bad.send([Frame([UInt8](repeating: 1, count: 1001))])
        try eventually { echo.probes.count == 3 }
        #expect(echo.probes.last?.publicKey == bad.keys.publicKey)
        // One of just so many is none.
        let largest = [UInt8](repeating: 4, count: 1000)
        try good.send([Frame(largest)])
        try eventually { good.received == [[largest]] }
        #expect(echo.requests.map(\.peer.connection) == [connections[good.keys.publicKey]])
    }

    func timersRunInOrderAndCanBeCancelled() throws {
        let log = Log<Int>()
        let handle = try transport.startLoop(named: "timers") { loop in
            loop.schedule(after: .milliseconds(30)) {
                log.add(3)
                // A timer may start another.
                loop.schedule(after: .milliseconds(1)) { log.add(4) }
            }
            loop.schedule(after: .milliseconds(10)) { log.add(1) }
            loop.schedule(after: .milliseconds(10)) { log.add(2) }
            loop.schedule(after: .milliseconds(15)) { log.add(99) }.cancel()
        }
        defer { handle.stop() }
        try eventually { log.all.count == 4 }
        #expect(log.all == [1, 2, 3, 4])
    }

    func executeKeepsItsOrderAndWakesTheLoop() throws {
        let log = Log<Int>()
        let handle = try transport.startLoop(named: "execute") { _ in }
        for number in 0..<1000 { handle.execute { _ in log.add(number) } }
        try eventually { log.all.count == 1000 }
        #expect(log.all == Array(0..<1000))
        handle.execute { _ in log.add(1000) }
        handle.stop()
        #expect(log.all.last == 1000)
        handle.execute { _ in log.add(1001) }
        #expect(log.all.count == 1001)
    }

    func offloadedWorkCompletesOnTheLoop() throws {
        let log = Log<String>()
        let gate = DispatchSemaphore(value: 0)
        let handle = try transport.startLoop(named: "offload") { loop in
            let home = pthread_self()
            loop.offload(to: .computing, { pthread_equal(home, pthread_self()) == 0 ? "elsewhere" : "here" }) {
                result in
                log.add("\((try? result.get()) ?? ""), then \(pthread_equal(home, pthread_self()) != 0)")
            }
        }
        defer { handle.stop() }
        try eventually { log.all == ["elsewhere, then true"] }
        handle.execute { loop in
            for _ in 0..<500 {
                loop.offload(to: .computing, { gate.wait() }) { result in
                    if case .failure(let error as CloudError) = result, error.code == .serviceBusy { log.add("busy") }
                }
            }
        }
        try eventually { log.all.contains("busy") }
        for _ in 0..<500 { gate.signal() }
    }

    func stopDeliversWhatIsQueued() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let client = try Client(transport, echo)
        try eventually { echo.probes.count == 1 }
        let payload = Frame([UInt8](repeating: 1, count: 2000))
        for _ in 0..<200 { try client.send([payload]) }
        client.handle.stop()
        try eventually { echo.requests.count == 200 }
    }

    func failedSetUpIsThrown() throws {
        struct Broken: Error {}
        #expect(throws: Broken.self) { try transport.startLoop(named: "broken") { _ in throw Broken() } }
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        #expect(throws: CloudError.self) { try EchoServer(transport, echo.endpoint) }
    }

    func aFrameCanGoToManyPeers() throws {
        let echo = try EchoServer(transport, endpoint)
        defer { echo.handle.stop() }
        let clients = try (0..<5).map { _ in try Client(transport, echo) }
        defer { for client in clients { client.handle.stop() } }
        try eventually { echo.probes.count == 5 }
        for size in [10, 100, 5000] {
            #expect(echo.broadcast([Frame([UInt8](repeating: 1, count: size))]) == Array(repeating: .sent, count: 5))
        }
        try eventually { clients.allSatisfy { $0.received.count == 3 } }
        for client in clients {
            #expect(client.received.map { $0.map(\.count) } == [[10], [100], [5000]])
            #expect(client.received.allSatisfy { $0[0].allSatisfy { $0 == 1 } })
        }
    }
}
