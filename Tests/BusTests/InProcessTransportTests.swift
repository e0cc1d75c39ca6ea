import NephosBus
import NephosCore
import Testing

/// What a loop's handlers saw.
private final class Log {
    var lines: [String] = []
}

// Unchecked: a simulation has one thread.
private struct Unshared<Value>: @unchecked Sendable {
    var value: Value
}

/// An echo server and a client on one simulated network.
private final class House {
    let network: SimulatedNetwork
    let transport: InProcessTransport
    let keys: KeyPair
    let clientKeys: KeyPair
    let log = Log()
    private(set) var client: (any RequestSocket)?

    init(seed: UInt64 = 1, faults: Faults = .none) throws {
        network = SimulatedNetwork(seed: seed, faults: faults)
        transport = InProcessTransport(network)
        keys = try transport.makeKeyPair()
        clientKeys = try transport.makeKeyPair()
    }

    deinit { network.close() }

    func startServer(admission: Admission = .anyone, sendQueueMax: Int = 1000) throws {
        let log = Unshared(value: log)
        let options = ReplySocketOptions(
            endpoint: "tcp://server:1", keys: keys, admission: admission, sendQueueMax: sendQueueMax)
        _ = try transport.startLoop(named: "server") { loop in
            let socket = Unshared(value: Box<(any ReplySocket)?>(nil))
            socket.value.value = try loop.makeReplySocket(options) { batch in
                for incoming in batch {
                    if incoming.isProbe {
                        log.value.lines.append("probe")
                    } else {
                        log.value.lines.append(incoming.message[0].text)
                        _ = socket.value.value?.send(incoming.message, to: incoming.peer)
                    }
                }
            }
        }
    }

    func startClient() throws {
        let log = Unshared(value: log)
        let box = Unshared(value: Box<(any RequestSocket)?>(nil))
        let options = RequestSocketOptions(
            endpoints: ["tcp://server:1"], serverKey: keys.publicKey, keys: clientKeys)
        _ = try transport.startLoop(named: "client") { loop in
            box.value.value = try loop.makeRequestSocket(options) { messages in
                for message in messages { log.value.lines.append("reply " + message[0].text) }
            }
        }
        client = box.value.value
    }

    func send(_ text: String) -> SendResult { client?.send([Frame(Array(text.utf8))]) ?? .gone }
}

private final class Box<Value> {
    var value: Value
    init(_ value: Value) { self.value = value }
}

extension Frame {
    fileprivate var text: String { String(decoding: bytes, as: UTF8.self) }
}

@Suite struct InProcessTransportTests {
    @Test func aRequestIsAnsweredAfterAProbe() throws {
        let house = try House()
        try house.startServer()
        try house.startClient()
        house.network.run(for: .milliseconds(50))
        #expect(house.send("one") == .sent)
        house.network.run(for: .milliseconds(50))
        #expect(house.log.lines == ["probe", "one", "reply one"])
    }

    @Test func messagesKeepTheirOrderWithoutFaults() throws {
        let house = try House()
        try house.startServer()
        try house.startClient()
        house.network.run(for: .milliseconds(50))
        for number in 0..<100 { _ = house.send("\(number)") }
        house.network.run(for: .seconds(1))
        #expect(house.log.lines.filter { $0.hasPrefix("reply") } == (0..<100).map { "reply \($0)" })
    }

    @Test func aClientComesBackWhenItsServerDoes() throws {
        let house = try House()
        try house.startClient()
        house.network.run(for: .milliseconds(50))
        #expect(house.send("too early") == .full)
        try house.startServer()
        house.network.run(for: .milliseconds(50))
        #expect(house.send("one") == .sent)
        house.network.run(for: .milliseconds(50))
        house.network.crash("server")
        house.network.run(for: .milliseconds(50))
        #expect(house.send("lost") == .full)
        try house.startServer()
        house.network.run(for: .milliseconds(50))
        #expect(house.log.lines.filter { $0 == "probe" }.count == 2)
    }

    @Test func onlyTheRosterIsAdmitted() throws {
        let house = try House()
        try house.startServer(admission: .roster([house.keys.publicKey]))
        try house.startClient()
        house.network.run(for: .seconds(1))
        #expect(house.send("one") == .full)
        #expect(house.log.lines.isEmpty)
    }

    @Test func whoIsOfflineIsNotHeard() throws {
        let house = try House()
        try house.startServer()
        try house.startClient()
        house.network.run(for: .milliseconds(50))
        house.network.setOffline("client", true)
        #expect(house.send("lost") == .sent)
        house.network.run(for: .milliseconds(50))
        house.network.setOffline("client", false)
        #expect(house.send("heard") == .sent)
        house.network.run(for: .milliseconds(50))
        #expect(house.log.lines == ["probe", "heard", "reply heard"])
    }

    @Test func lossLosesAndDuplicationRepeats() throws {
        for (faults, expected) in [
            (Faults(loss: 1), 0), (Faults(duplication: 1), 40), (Faults(), 10),
        ] {
            let house = try House()
            try house.startServer()
            try house.startClient()
            house.network.run(for: .milliseconds(50))
            house.network.faults = faults
            for number in 0..<10 { _ = house.send("\(number)") }
            house.network.run(for: .seconds(1))
            #expect(house.log.lines.filter { $0.hasPrefix("reply") }.count == expected)
        }
    }

    @Test func reorderingLetsMessagesOvertake() throws {
        let house = try House(seed: 5)
        try house.startServer()
        try house.startClient()
        house.network.run(for: .milliseconds(50))
        house.network.faults = Faults(reordering: 0.5)
        for number in 0..<50 { _ = house.send("\(number)") }
        house.network.run(for: .seconds(1))
        let arrived = house.log.lines.filter { $0 != "probe" && !$0.hasPrefix("reply") }
        #expect(arrived.count == 50)
        #expect(arrived != (0..<50).map { "\($0)" })
    }

    @Test func timersFireInOrderAndNotAfterCancelling() throws {
        let network = SimulatedNetwork(seed: 1)
        defer { network.close() }
        let log = Unshared(value: Log())
        _ = try InProcessTransport(network).startLoop(named: "loop") { loop in
            for delay in [30, 10, 20] {
                loop.schedule(after: .milliseconds(delay)) { log.value.lines.append("\(delay)") }
            }
            loop.schedule(after: .milliseconds(15)) { log.value.lines.append("cancelled") }.cancel()
            loop.offload(to: .computing, { 42 }) { log.value.lines.append("offloaded \((try? $0.get()) ?? 0)") }
        }
        network.run(for: .milliseconds(100))
        #expect(log.value.lines == ["offloaded 42", "10", "20", "30"])
        #expect(network.now == .milliseconds(100))
    }

    @Test func subscribersGetTheTopicsTheyAskedFor() throws {
        let network = SimulatedNetwork(seed: 1)
        defer { network.close() }
        let transport = InProcessTransport(network)
        let keys = try transport.makeKeyPair()
        let log = Unshared(value: Log())
        let publisher = Unshared(value: Box<(any PublishSocket)?>(nil))
        _ = try transport.startLoop(named: "publisher") { loop in
            publisher.value.value = try loop.makePublishSocket(
                PublishSocketOptions(endpoint: "tcp://p:1", keys: keys, admission: .anyone))
        }
        _ = try transport.startLoop(named: "subscriber") { loop in
            _ = try loop.makeSubscribeSocket(
                SubscribeSocketOptions(endpoints: ["tcp://p:1"], serverKey: keys.publicKey, keys: keys, topics: ["a/"])
            ) { messages in
                for message in messages { log.value.lines.append(message[0].text) }
            }
        }
        network.run(for: .milliseconds(50))
        for topic in ["a/1", "b/1", "a/2"] { publisher.value.value?.publish([Frame(Array(topic.utf8))]) }
        network.run(for: .milliseconds(50))
        #expect(log.value.lines == ["a/1", "a/2"])
    }
}
