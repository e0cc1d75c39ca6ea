import Foundation
import NephosBus
import NephosCore
import NephosZeroMQ
import Synchronization
import Testing

/// What a probe finds out about who is at an address.
@Suite(.serialized, .timeLimit(.minutes(2)))
struct PresenceTests {
    private let transport = ZeroMQTransport()

    private func presence(at endpoint: String, _ keys: [PublicKey]) throws -> Presence {
        let found = Mutex<Presence?>(nil)
        let handle = try transport.startLoop(named: "prober") { loop in
            loop.probe(endpoint, serverKeys: keys) { presence in found.withLock { $0 = presence } }
        }
        defer { handle.stop() }
        try eventually { found.withLock { $0 } != nil }
        return try #require(found.withLock { $0 })
    }

    @Test func theServerIsKnownByAnyOfItsKeysAndAnotherServerIsNot() throws {
        let echo = try EchoServer(transport, "tcp://127.0.0.1:*")
        let other = try transport.makeKeyPair().publicKey
        #expect(try presence(at: echo.endpoint, [echo.keys.publicKey]) == .server)
        #expect(try presence(at: echo.endpoint, [other, echo.keys.publicKey]) == .server)
        #expect(try presence(at: echo.endpoint, [other]) == .stranger)
        // The server took no harm from a handshake that ended there.
        let client = try Client(transport, echo)
        try client.send([Frame([1])])
        try eventually { client.received.count == 1 }
        client.handle.stop()
        echo.handle.stop()
        #expect(try presence(at: echo.endpoint, [echo.keys.publicKey]) == .nobody)
    }

    @Test func anotherProgramIsAStrangerAndASilentOneProvesNothing() throws {
        let key = try transport.makeKeyPair().publicKey
        let web = try Listener(greeting: "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        #expect(try presence(at: web.endpoint, [key]) == .stranger)
        let silent = try Listener(greeting: "")
        #expect(try presence(at: silent.endpoint, [key]) == .server)
    }
}

/// A program of another kind: says something to whoever connects, and nothing more.
private final class Listener {
    let endpoint: String
    private let descriptor: Int32

    init(greeting: String) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        self.descriptor = descriptor
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && getsockname(descriptor, $0, &size) == 0
            }
        }
        try #require(isBound && listen(descriptor, 8) == 0)
        endpoint = "tcp://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
        Thread.detachNewThread {
            while case let connection = accept(descriptor, nil, nil), connection >= 0 {
                guard !greeting.isEmpty else { continue }
                _ = greeting.withCString { send(connection, $0, strlen($0), Int32(MSG_NOSIGNAL)) }
            }
        }
    }

    deinit {
        shutdown(descriptor, Int32(SHUT_RDWR))
        close(descriptor)
    }
}
