import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// Several apps of a team name one store, and one process has them all.
@Suite struct SharedStoreTests {
    private static let apps = [AppID("T.one"), AppID("T.two")]

    private func cloud(_ seed: UInt64) throws -> TestCloud {
        let cloud = try TestCloud(seed: seed)
        for app in Self.apps { try cloud.createApp(app.rawValue, store: "T.shared") }
        return cloud
    }

    /// Two readings of one scope at a time must not mix their pages: what is in no page counts as deleted.
    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func twoAppsOfOneProcessDownloadTheStoreInPages(seed: UInt64) throws {
        let cloud = try cloud(seed)
        defer { cloud.close() }
        cloud.pageItemsMax = 3
        let writer = try cloud.addDevice()
        let store = try #require(writer.engine?.keyValue(Self.apps[0]))
        cloud.network.run(for: .seconds(5))
        for number in 0..<40 { try store.set(.integer(Int64(number)), forKey: "k\(number)") }
        #expect(cloud.network.run(within: .seconds(60)) { (try? store.status().isInSync) == true })
        let engine = try #require(cloud.addDevice().engine)
        let one = engine.keyValue(Self.apps[0])
        cloud.network.run(for: .milliseconds(Int64(seed) * 7))
        let two = engine.keyValue(Self.apps[1])
        cloud.network.run(for: .seconds(30))
        for store in [one, two, store] { #expect(try store.dictionary().count == 40) }
        let guest = try Guest(of: cloud, app: "T.one")
        #expect(try guest.pull().get().items.filter(\.hasValue).count == 40)
    }

    @Test func bothAppsAreTold() throws {
        let cloud = try cloud(5)
        defer { cloud.close() }
        let writer = try cloud.addDevice()
        let store = try #require(writer.engine?.keyValue(Self.apps[0]))
        let engine = try #require(cloud.addDevice().engine)
        for app in Self.apps { _ = engine.keyValue(app) }
        cloud.network.run(for: .seconds(10))
        try store.set(0, forKey: "before")
        cloud.network.run(for: .seconds(30))
        let told = Told()
        engine.onEvent = { event in
            if case .change(let scope, let change) = event, change.changedKeys.contains("k") {
                told.apps.append(scope.app)
            }
        }
        try store.set(1, forKey: "k")
        cloud.network.run(for: .seconds(10))
        #expect(told.apps.sorted() == Self.apps)
    }
}

private final class Told {
    var apps: [AppID] = []
}
