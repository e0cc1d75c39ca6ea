import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosSimulation
import Testing

/// What sockets hold is bounded by what they are opened with; that the bounds hold is tested on real sockets.
@Suite struct SocketBoundsTests {
    @Test func everyServiceOpensItsSocketsWithTheBoundsThatTheProtocolNames() throws {
        let folder = NSTemporaryDirectory() + "socket-bounds-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let cloud = try TestCloud(
            seed: 1, content: ContentOptions(store: try SegmentStore(folder: folder, segmentBytesMax: 1 << 20)))
        defer { cloud.close() }
        let sockets = cloud.network.replySockets
        // Requests of four services, subscriptions, and content.
        #expect(sockets.count == 6)
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
        // A chunk, and what names it.
        #expect(sockets.count { $0.frameBytesMax <= 1 << 20 + 64 } == 1)
    }

    @Test func everyServiceTellsItsEventsToServicesAloneAndWaitsForNoneThatLags() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let sockets = cloud.network.publishSockets
        #expect(sockets.count == 3)
        for socket in sockets {
            #expect(socket.lagBytesMax <= 32 << 20, "\(socket.endpoint)")
            #expect(socket.sendQueueMax <= 50_000, "\(socket.endpoint)")
            guard case .roster(let keys) = socket.admission else {
                Issue.record("\(socket.endpoint) lets anyone in")
                continue
            }
            #expect(keys.count < 10, "\(socket.endpoint)")
        }
    }
}
