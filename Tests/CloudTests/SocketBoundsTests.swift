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
        // Of most of them 0, or less, would be none.
        for socket in sockets {
            #expect((1...4 << 20).contains(socket.frameBytesMax), "\(socket.endpoint)")
            #expect((1...16 << 20).contains(socket.unreadBytesPerConnectionMax), "\(socket.endpoint)")
            #expect((1...128 << 20).contains(socket.unreadBytesMax), "\(socket.endpoint)")
            #expect((1...8 << 20).contains(socket.unsentBytesPerConnectionMax), "\(socket.endpoint)")
            #expect((1...128 << 20).contains(socket.unsentBytesMax), "\(socket.endpoint)")
            #expect((1...10_000).contains(socket.sendQueueMax), "\(socket.endpoint)")
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
            #expect((1...32 << 20).contains(socket.lagBytesMax), "\(socket.endpoint)")
            #expect((1...50_000).contains(socket.sendQueueMax), "\(socket.endpoint)")
            guard case .roster(let keys) = socket.admission else {
                Issue.record("\(socket.endpoint) lets anyone in")
                continue
            }
            #expect(keys.count < 10, "\(socket.endpoint)")
        }
    }
}
