import Bus
import Core
import TestKit
import Testing

/// What sockets hold is bounded by what they are opened with; that the bounds hold is tested on real sockets.
@Suite struct SocketBoundsTests {
    @Test func everyServiceOpensItsSocketsWithTheBoundsThatTheProtocolNames() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let sockets = cloud.network.replySockets
        // Requests of three services, and subscriptions.
        #expect(sockets.count == 4)
        for socket in sockets {
            #expect(socket.frameBytesMax <= 4 << 20, "\(socket.endpoint)")
            #expect(socket.unreadBytesPerConnectionMax <= 16 << 20, "\(socket.endpoint)")
            #expect(socket.unreadBytesMax <= 128 << 20, "\(socket.endpoint)")
            #expect(socket.unsentBytesPerConnectionMax <= 8 << 20, "\(socket.endpoint)")
            #expect(socket.unsentBytesMax <= 128 << 20, "\(socket.endpoint)")
            #expect(socket.sendQueueMax <= 10_000, "\(socket.endpoint)")
        }
        // Thousands of devices follow, and say little.
        let narrow = sockets.filter {
            $0.unreadBytesPerConnectionMax <= 1 << 20 && $0.unsentBytesPerConnectionMax <= 2 << 20
        }
        #expect(narrow.count == 1)
    }
}
