import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosNotifications
import NephosRecords
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// What sockets hold is bounded by what they are opened with; that the bounds hold is tested on real sockets.
@Suite struct SocketBoundsTests {
    /// All five services.
    private func withCloud(_ body: (TestCloud) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "socket-bounds-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        for service in ["documents", "records"] {
            try FileManager.default.createDirectory(
                atPath: folder + "/" + service, withIntermediateDirectories: true)
        }
        let cloud = try TestCloud(
            seed: 1, subscriberQueueMax: NotificationsConfiguration().subscriberQueueMax,
            contentServices: [
                .records: .init(store: try SegmentStore(folder: folder + "/records", segmentBytesMax: 1 << 20)) {
                    RecordsService($0)
                }
            ],
            content: ContentOptions(store: try SegmentStore(folder: folder + "/documents", segmentBytesMax: 1 << 20)))
        defer { cloud.close() }
        try body(cloud)
    }

    @Test func everyServiceOpensItsSocketsWithTheBoundsThatTheProtocolNames() throws {
        let protocolText = try Table(of: "docs/protocol/envelope.md")
        let frame = try protocolText.numbers("frame size")
        let unread = try protocolText.numbers("unread bytes")
        let unsent = try protocolText.numbers("unsent bytes")
        let messages = try protocolText.numbers("queued messages")
        // Of a connection, of a subscriber's, and of all.
        try #require(frame.count == 1 && unread.count == 3 && unsent.count == 4 && messages.count == 2)
        try withCloud { cloud in
            let sockets = cloud.network.replySockets
            // Requests of five services, subscriptions, and content of two.
            #expect(sockets.count == 8)
            let subscriptions = try #require(try cloud.roster.entry(of: .notifications).subscriptions)
            let content = try [ServiceName.documents, .records].map {
                try #require(try cloud.roster.entry(of: $0).bulk)
            }
            #expect(Set(sockets.map(\.endpoint)).isSuperset(of: [subscriptions] + content))
            for socket in sockets {
                // Thousands of devices follow, and say little.
                let isNarrow = socket.endpoint == subscriptions
                // A chunk, and what names it.
                let frameBytes = content.contains(socket.endpoint) ? 1 << 20 + 64 : frame[0]
                #expect(socket.frameBytesMax == frameBytes, "\(socket.endpoint)")
                #expect(socket.unreadBytesPerConnectionMax == unread[isNarrow ? 1 : 0], "\(socket.endpoint)")
                #expect(socket.unreadBytesMax == unread[2], "\(socket.endpoint)")
                #expect(socket.unsentBytesPerConnectionMax == unsent[isNarrow ? 1 : 0], "\(socket.endpoint)")
                #expect(socket.unsentBytesMax == unsent[2], "\(socket.endpoint)")
                #expect(socket.sendQueueMax == messages[isNarrow ? 1 : 0], "\(socket.endpoint)")
                #expect((1...512).contains(socket.batchMax), "\(socket.endpoint)")
            }
        }
    }

    /// A flood of strangers' connections pushes out no device's.
    @Test func signedInDevicesKeepTheirConnections() throws {
        try withCloud { cloud in
            let guest = try Guest(of: cloud)
            try guest.subscribe()
            let mover = try TestBulk(of: cloud)
            let client = try mover.connect(
                BulkClient.Purpose(upload: [UInt8](repeating: 1, count: 16), uploadBytes: 1 << 20))
            var stored = false
            client.store(bytes: 3) { target in
                target.copyBytes(from: [1, 2, 3])
                return ChunkID(hashing: UnsafeRawBufferPointer(target))
            } then: { result in
                if case .success = result { stored = true }
            }
            cloud.network.run(within: .seconds(10)) { stored }
            #expect(stored)
            let stranger = try cloud.makeClient()
            for service in [ServiceName.documents, .keyValue, .notifications] {
                let _: WireCheckHealthReply = try stranger.call(
                    "CheckHealth", WireCheckHealth(), at: .requests(service))
            }
            func keys(_ service: ServiceName, _ address: (Roster.Entry) -> String?) throws -> Set<PublicKey> {
                cloud.network.identifiedKeys(at: try #require(address(try cloud.roster.entry(of: service))))
            }
            let device = mover.client.keys.publicKey
            #expect(try (keys(.documents) { $0.requests }).contains(device))
            #expect(try (keys(.documents) { $0.bulk }).contains(device))
            #expect(try (keys(.notifications) { $0.subscriptions }) == [guest.client.keys.publicKey])
            for service in [ServiceName.documents, .keyValue, .notifications] {
                #expect(try !(keys(service) { $0.requests }).contains(stranger.keys.publicKey))
            }
            // A service asks another under its own key.
            let follower = try cloud.roster.entry(of: .notifications).key
            #expect(try (keys(.keyValue) { $0.requests }).contains(follower))
        }
    }

    @Test func everyServiceTellsItsEventsToServicesAloneAndWaitsForNoneThatLags() throws {
        try withCloud { cloud in
            let sockets = cloud.network.publishSockets
            #expect(sockets.count == ServiceName.all.count)
            let events = try ServiceName.all.map { try cloud.roster.entry(of: $0).events }
            #expect(Set(sockets.map(\.endpoint)) == Set(events))
            for socket in sockets {
                // As docs/security.md says.
                #expect(socket.lagBytesMax == 32 << 20, "\(socket.endpoint)")
                #expect((1...50_000).contains(socket.sendQueueMax), "\(socket.endpoint)")
                guard case .roster(let keys) = socket.admission else {
                    Issue.record("\(socket.endpoint) lets anyone in")
                    continue
                }
                #expect(keys.count < 10, "\(socket.endpoint)")
            }
        }
    }
}

/// The rows of a document's tables.
private struct Table {
    private let rows: [[Substring]]

    init(of document: String) throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let text = try String(contentsOf: root.appendingPathComponent(document), encoding: .utf8)
        rows = text.split(separator: "\n").filter { $0.hasPrefix("| ") }.map { $0.dropFirst(2).split(separator: " | ") }
    }

    /// The numbers, in the order of the text, in the second column of the row that begins so.
    func numbers(_ name: String) throws -> [Int] {
        let found = rows.filter { $0.first?.hasPrefix(name) == true && $0.count > 1 }
        try #require(found.count == 1, "one row has \(name)")
        return found[0][1].matches(of: /([0-9][0-9,]*)(?: (MiB|KiB))?/).compactMap { match in
            Int(match.1.replacing(",", with: "")).map { $0 << (match.2 == "MiB" ? 20 : match.2 == "KiB" ? 10 : 0) }
        }
    }
}
