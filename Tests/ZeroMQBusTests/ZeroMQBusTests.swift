import Foundation
import NephosBus
import NephosCore
import NephosLoadBus
import NephosZeroMQ
import Testing

/// The contract over ZeroMQ, and what only ZeroMQ has.
@Suite(.serialized, .timeLimit(.minutes(2)))
struct ZeroMQBusTests {
    let contract = TransportContract(transport: ZeroMQTransport(busyPollMax: .microseconds(200)))

    @Test func requestAndReplyRoundTrip() throws { try contract.requestAndReplyRoundTrip() }
    @Test func whoseConnectionIsOverIsGone() throws { try contract.whoseConnectionIsOverIsGone() }
    @Test func probeAnnouncesConnectAndReconnect() throws { try contract.probeAnnouncesConnectAndReconnect() }
    @Test func publicKeyOfThePeerIsProved() throws { try contract.publicKeyOfThePeerIsProved() }
    @Test func rosterRefusesForeignKeys() throws { try contract.rosterRefusesForeignKeys() }
    @Test func subscribersGetTheirPrefixesOnly() throws { try contract.subscribersGetTheirPrefixesOnly() }
    @Test func sendToAPeerThatLeftIsGone() throws { try contract.sendToAPeerThatLeftIsGone() }
    @Test func aMessageOfSeveralFramesCutsItsConnection() throws {
        try contract.aMessageOfSeveralFramesCutsItsConnection()
    }
    @Test func oversizedFrameCutsOnlyItsConnection() throws { try contract.oversizedFrameCutsOnlyItsConnection() }
    @Test func timersRunInOrderAndCanBeCancelled() throws { try contract.timersRunInOrderAndCanBeCancelled() }
    @Test func executeKeepsItsOrderAndWakesTheLoop() throws { try contract.executeKeepsItsOrderAndWakesTheLoop() }
    @Test func offloadedWorkCompletesOnTheLoop() throws { try contract.offloadedWorkCompletesOnTheLoop() }
    @Test func stopDeliversWhatIsQueued() throws {
        // However long the machine takes to send it.
        var patient = contract
        patient.transport = ZeroMQTransport(linger: .seconds(120))
        try patient.stopDeliversWhatIsQueued()
    }
    @Test func failedSetUpIsThrown() throws { try contract.failedSetUpIsThrown() }
    @Test func aFrameCanGoToManyPeers() throws { try contract.aFrameCanGoToManyPeers() }

    @Test func garbageBytesLeaveTheLoopServing() throws {
        let echo = try EchoServer(contract.transport, contract.endpoint)
        defer { echo.handle.stop() }
        let client = try Client(contract.transport, echo)
        defer { client.handle.stop() }
        var random = SplitMix64(seed: 1)
        for round in 0..<20 {
            var bytes = (0..<4096).map { _ in UInt8.random(in: 0...255, using: &random) }
            // Half of them begin as ZMTP does.
            if round % 2 == 0 { bytes.replaceSubrange(0..<12, with: [0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0]) }
            try writeRaw(bytes, to: echo.endpoint)
        }
        try client.send([Frame([1])])
        try eventually { client.received == [[[1]]] }
        #expect(echo.requests.count == 1)
    }

    @Test func manyLinesShareOneSocketUnderKeysOfTheirOwn() throws {
        let echo = try EchoServer(contract.transport, contract.endpoint)
        defer { echo.handle.stop() }
        let keys = try (0..<20).map { _ in try contract.transport.makeKeyPair() }
        let replies = Log<[Int]>()
        let (handle, socket) = try startLoop(contract.transport, "lines") { loop in
            let socket = try MultiRequestSocket.open(on: loop) { batch in
                for (line, message) in batch { replies.add([line, Int(message[0].bytes[0])]) }
            }
            for (number, pair) in keys.enumerated() {
                let line = try socket.connect(to: echo.endpoint, serverKey: echo.keys.publicKey, keys: pair)
                #expect(line == number)
                #expect(socket.send([Frame([UInt8(line)])], on: line) == .sent)
            }
            return socket
        }
        defer { handle.stop() }
        try eventually { replies.all.count == 20 }
        #expect(Set(replies.all) == Set((0..<20).map { [$0, $0] }))
        for one in echo.requests {
            #expect(one.peer.publicKey == keys[Int(one.message[0].bytes[0])].publicKey)
        }
        #expect(Set(echo.probes.map(\.publicKey)) == Set(keys.map(\.publicKey)))
        let result = onLoop(handle) { socket.withValue(on: $0) { $0.send([Frame([1])], on: 99) } }
        #expect(result == .gone)
    }

    private func writeRaw(_ bytes: [UInt8], to endpoint: String) throws {
        let port = try #require(endpoint.split(separator: ":").last.flatMap { UInt16($0) })
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(result == 0)
        _ = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }
}
