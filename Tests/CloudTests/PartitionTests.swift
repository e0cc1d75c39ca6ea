import Foundation
import NephosContent
import NephosCore
import NephosKit
import NephosRecords
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What services keep in memory of a partition, they can forget.
@Suite struct PartitionTests {
    /// These are of whoever is connected and asks, and not of what a partition holds.
    private static let kept: Set<String> = [
        "Caller.account", "Subscriber.account", "Subscriber.asked", "Subscriber.scopes", "SubscriptionTable.byScope",
    ]

    /// What is to be found before, so that the test looks at something.
    private static let expected: [ServiceName: Set<String>] = [
        .identity: ["FeedHeads.partitions", "FeedHeads.scopes"],
        .keyValue: [
            "FeedHeads.partitions", "FeedHeads.places", "FeedHeads.scopes", "ItemCache.young", "OwnerKeys.cache",
            "ServiceHost.publisher", "DigestKeys.latest", "DigestKeys.opened", "ScopeMending.counted",
        ],
        .notifications: ["Follower.partitions", "AccessCache.recent", "HeadCache.recent"],
        .records: ["StorageLedger.refusals"],
    ]

    @Test func nothingOfADroppedPartitionStaysInMemory() throws {
        let warehouses = Warehouses()
        let cloud = try TestCloud(seed: 61, factories: warehouses.factories)
        defer { cloud.close() }
        let ann = try cloud.createAccount("ann")
        let partition = ScopeName(ann, "").partition
        let device = try cloud.addDevice(to: "ann")
        for key: ItemName in ["a", "b", "c"] { try device.store?.set("1", forKey: key) }
        #expect(cloud.settle())
        // One value, and another's share in the digest.
        for damage in [
            "UPDATE feed_items SET body = x'00' WHERE name = 'a'",
            "UPDATE feed_items SET digest = zeroblob(32) WHERE name = 'b'",
        ] { try cloud.storage(of: .keyValue).write { _ = try $0.execute(SQL(damage), []) } }
        // So that the digest is what the rows make of it.
        cloud.lose(partition, of: .keyValue)
        try cloud.addDevice(to: "ann")
        cloud.network.run(for: .seconds(5))
        try device.store?.set("2", forKey: "c")
        cloud.network.run(for: .seconds(5))
        warehouses[.records]?.store(1, 1 << 60, for: Owner(ann)) { _ in }
        cloud.network.run(for: .milliseconds(500))

        for (service, expected) in Self.expected {
            let host = try #require(cloud.host(of: service))
            let before = MemoryWalk.places(in: host, of: partition, [ann])
            #expect(expected.isSubset(of: before), "\(service): \(expected.subtracting(before)) not there")
            host.drop(partition: partition)
            let after = MemoryWalk.places(in: host, of: partition, [ann])
            #expect(after.isSubset(of: Self.kept), "\(service) keeps \(after.subtracting(Self.kept))")
        }
        let identity = try #require(cloud.host(of: .identity))
        func signers() -> Set<String> {
            MemoryWalk.places(in: identity, of: directoryScope.partition, properties: ["signingKeys"])
        }
        #expect(signers().contains("Running.signingKeys"))
        identity.drop(partition: directoryScope.partition)
        #expect(signers().isEmpty)
    }

    /// The same of what has containers.
    @Test func nothingOfADroppedPartitionStaysInDocumentsOrRecords() throws {
        let folder = NSTemporaryDirectory() + "partition-tests-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        for service in ["documents", "records"] {
            try FileManager.default.createDirectory(
                atPath: folder + "/" + service, withIntermediateDirectories: true)
        }
        let cloud = try TestCloud(
            seed: 64,
            contentServices: [
                .records: .init(store: try SegmentStore(folder: folder + "/records", segmentBytesMax: 1 << 20)) {
                    RecordsService($0)
                }
            ],
            content: ContentOptions(store: try SegmentStore(folder: folder + "/documents", segmentBytesMax: 1 << 20)))
        defer { cloud.close() }
        var app = WireApp()
        app.appID = Belongings.app
        app.containerIds = [Belongings.container]
        try cloud.createApp(app)
        let ann = try cloud.createAccount("ann")
        let partition = ScopeName(ann, "").partition
        let belongings = try Belongings(in: cloud, account: "ann", text: "ann's")
        #expect(try belongings.faults().isEmpty)
        let documents = try #require(cloud.host(of: .documents))
        let records = try #require(cloud.host(of: .records))
        let expected: Set = [
            "FeedHeads.partitions", "FeedHeads.places", "FeedHeads.scopes", "OwnerKeys.cache",
            "ServiceHost.publisher", "DigestKeys.latest", "DigestKeys.opened",
        ]
        // Tickets end on the loop that content goes over, and what is known of their uploads goes soon after.
        let later: Set = [
            "Receiving.fillings", "Receiving.spendings", "TicketTable.byAccount", "Ticket.account", "Ticket.owner",
            "Ticket.upload", "ChunkSealer.owner",
        ]
        for (service, host) in [(ServiceName.documents, documents), (.records, records)] {
            let before = MemoryWalk.places(in: host, of: partition, [ann])
            #expect(expected.isSubset(of: before), "\(service): \(expected.subtracting(before)) not there")
            host.drop(partition: partition)
            let after = MemoryWalk.places(in: host, of: partition, [ann])
            let kept = Self.kept.union(service == .documents ? later : [])
            #expect(after.isSubset(of: kept), "\(service) keeps \(after.subtracting(kept))")
        }
        cloud.network.run(for: .seconds(120))
        #expect(MemoryWalk.places(in: documents, of: partition, [ann]).isDisjoint(with: later))

        // An upload that cannot be removed: whose it is, is known until the round is over.
        try cloud.storage(of: .documents).migrate([
            Migration(
                name: "damage",
                statements: [
                    """
                    CREATE TRIGGER damage BEFORE DELETE ON content_holds
                    BEGIN SELECT RAISE(ABORT, 'damaged'); END
                    """
                ])
        ])
        try belongings.closeUpload()
        let removal: Set = ["UploadRemoval.failed", "UploadRemoval.last"]
        let isThere = cloud.network.run(within: .seconds(600)) {
            removal.isSubset(of: MemoryWalk.places(in: documents, of: partition, [ann]))
        }
        #expect(isThere)
        documents.drop(partition: partition)
        let after = MemoryWalk.places(in: documents, of: partition, [ann])
        #expect(after.isSubset(of: Self.kept), "documents keeps \(after.subtracting(Self.kept))")
    }

    /// A large value's body lies in a row of its own.
    @Test func aLargeValueThatIsLostIsNamedAloneAndHeals() throws {
        let cloud = try TestCloud(seed: 63)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let large = PropertyValue.string(String(repeating: "x", count: 20_000))
        try device.store?.set(large, forKey: "large")
        try device.store?.set("1", forKey: "small")
        #expect(cloud.settle())
        let database = try cloud.storage(of: .keyValue)
        func bodies() throws -> Int64? {
            try database.write { try $0.first(SQL("SELECT COUNT(*) FROM feed_bodies")) { $0.integer(0) } }
        }
        #expect(try bodies() == 1)
        try database.write { _ = try $0.execute(SQL("DELETE FROM feed_bodies"), []) }
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        #expect(other.values == device.values && other.values.count == 2)
        #expect(try bodies() == 1)
        // Replaced by a small one, and by nothing.
        try device.store?.set(.string(String(repeating: "y", count: 5000)), forKey: "large")
        try other.store?.set(large, forKey: "other")
        #expect(cloud.settle())
        #expect(try bodies() == 2)
        try device.store?.set("short", forKey: "large")
        try device.store?.set(nil, forKey: "other")
        #expect(cloud.settle())
        #expect(try bodies() == 0)
    }

    /// Whoever loses a partition and gets it again says what others have written meanwhile.
    @Test func whatOthersHaveWrittenIsServedAndToldAgain() throws {
        let cloud = try TestCloud(seed: 62)
        defer { cloud.close() }
        let ann = try cloud.createAccount("ann")
        let partition = ScopeName(ann, "").partition
        let device = try cloud.addDevice(to: "ann")
        try device.store?.set("1", forKey: "a")
        #expect(cloud.settle())
        let host = try #require(cloud.host(of: .keyValue))
        host.drop(partition: partition)
        // Another instance moves an item to the head.
        let moved = try cloud.storage(of: .keyValue).write { transaction in
            let feed = Feed(over: transaction)
            let scope = ScopeName(ann, "default")
            let item = try #require(try feed.item(scope, "a"))
            let change = try feed.put(scope, [item])
            try feed.flush()
            return change.token.sequence
        }
        host.takeUp(partition: partition)
        // By the heartbeat.
        cloud.network.run(for: .seconds(3))
        #expect(device.head?.sequence == moved)
        try device.store?.set("2", forKey: "a")
        #expect(cloud.settle())
        #expect(device.head?.sequence == moved + 1)
    }
}
