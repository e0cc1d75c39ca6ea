import Foundation
import NephosContent
import NephosCore
import NephosKit
import NephosRecords
import NephosSimulation
import NephosTestKit
import NephosWire
import Testing

/// The list of names is the list of places: each name is reached, and no place has another.
@Suite struct FaultPointTests {
    @Test func everyNameIsReachedAndNoOther() async throws {
        let cloud = try await NephosTestKit.TestCloud()
        cloud.faults.record()
        let session = try await cloud.openSession(account: "anna", device: "phone")
        let store = try session.keyValueStore()
        try store.set("x", forKey: "k")
        try await store.ready()
        _ = try await session.storage()
        let file = session.home.appendingPathComponent("defaults.json")
        let mirroring = Task { try await DefaultsMirror(store: store, file: file).run() }
        while !cloud.faults.reached.contains("device.mirror.note") { try await Task.sleep(for: .milliseconds(5)) }
        mirroring.cancel()
        _ = try? await mirroring.value
        try await cloud.settle()
        try await session.signOut()
        await cloud.advance(by: .seconds(10))
        let names = Set(FaultPoint.all.map(\.name))
        let reached = cloud.faults.reached.union(try await reachedByContents())
        #expect(reached.subtracting(names).isEmpty, "places without a name in the list")
        #expect(names.subtracting(reached).sorted() == [], "names without a place")
    }

    /// One device writes a content piece by piece, and another fetches it.
    private func reachedByContents() async throws -> Set<String> {
        let app = AppID("T.files")
        let root = NSTemporaryDirectory() + "/fault-points-\(UUID().uuidString)"
        for folder in ["/content", "/assets"] {
            try FileManager.default.createDirectory(atPath: root + folder, withIntermediateDirectories: true)
        }
        defer { try? FileManager.default.removeItem(atPath: root) }
        let store = try SegmentStore(folder: root + "/content")
        let assets = try SegmentStore(folder: root + "/assets")
        let simulation = try Simulation {
            let cloud = try NephosSimulation.TestCloud(
                seed: 1, contentServices: [.records: .init(store: assets) { RecordsService($0) }],
                content: ContentOptions(store: store))
            var wire = WireApp()
            wire.appID = app.rawValue
            wire.storeID = app.rawValue
            wire.containerIds = ["T.files"]
            try cloud.createApp(wire)
            cloud.faults.record()
            return cloud
        }
        defer { simulation.close() }
        var containers: [UbiquityContainer] = []
        var databases: [RecordDatabase] = []
        for name in ["one", "two"] {
            let session = try await Session.open(
                home: URL(fileURLWithPath: "\(root)/\(name)"), transport: simulation.transport(of: name),
                options: simulation.makeOptions(of: name))
            try await session.signIn(
                connection: ConnectionString(try simulation.use { try $0.connection }.description),
                account: NephosSimulation.TestCloud.accountName, password: NephosSimulation.TestCloud.password,
                deviceName: name)
            containers.append(try await session.container(app: app))
            try await containers[containers.count - 1].scope.waitUntilCurrent(timeout: .seconds(60))
            databases.append(try await session.recordContainer(app: app).privateDatabase)
        }
        let writer = try containers[0].streams.makeWriter(at: "x")
        try await writer.write(Data(repeating: 1, count: 10_000))
        _ = try await writer.finish()
        try await containers[0].scope.waitUntilSent(timeout: .seconds(60))
        try await containers[1].scope.waitUntilCurrent(timeout: .seconds(60))
        #expect(try await containers[1].downloads.start("x") == 1)
        let photo = try RecordAsset(Data(repeating: 2, count: 10_000))
        try await databases[0].save(Record(RecordID("a"), type: "Note", fields: ["photo": .asset(photo)]))
        try await databases[0].waitUntilSent(timeout: .seconds(60))
        try await databases[1].waitUntilCurrent(timeout: .seconds(60))
        let record = try #require(try await databases[1].record(RecordID("a")))
        let fetched = try #require(record["photo"] as RecordAsset?)
        #expect(try await databases[1].assets.data(of: fetched, in: RecordID("a")).count == 10_000)
        _ = await simulation.settle(within: .seconds(60))
        simulation.advance(by: .seconds(5))
        return simulation.use { $0.faults.reached }
    }
}
