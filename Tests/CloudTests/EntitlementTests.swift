import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What an app may use changes while it runs.
@Suite struct EntitlementTests {
    /// A device with an app of its own store, in step.
    private func open(_ cloud: TestCloud) throws -> KeyValueSync {
        try cloud.createApp("T.one", store: "T.shared")
        let device = try cloud.addDevice()
        let store = try #require(device.engine?.keyValue(AppID("T.one")))
        cloud.network.run(for: .seconds(5))
        try store.set(1, forKey: "a")
        #expect(cloud.passes(within: .seconds(10)) { (try? store.status().isInSync) == true })
        return store
    }

    private func removeApp(_ cloud: TestCloud) throws {
        var remove = WireRemoveApp()
        remove.appID = "T.one"
        try cloud.operate("RemoveApp", remove, as: WireRemoveAppReply.self)
        cloud.network.run(for: .seconds(5))
    }

    // Nobody tells the device that the right is back.
    @Test func whatWaitedForARightIsSentWhenItIsThere() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let store = try open(cloud)
        try removeApp(cloud)
        try store.set(2, forKey: "b")
        cloud.network.run(for: .seconds(120))
        #expect(try store.status().pending.map(\.state) == [.blocked])
        try cloud.createApp("T.one", store: "T.shared")
        #expect(cloud.passes(within: .seconds(300)) { (try? store.status().isInSync) == true })
    }

    @Test func whatWaitsForAPersonIsTriedAgainWhenSomebodyAsks() throws {
        let cloud = try TestCloud(seed: 15)
        defer { cloud.close() }
        let store = try open(cloud)
        let scope = try #require(store.driver.scope)
        try block(store, scope)
        #expect(try store.status().pending.map(\.state) == [.blocked])
        store.synchronize()
        #expect(cloud.passes(within: .seconds(5)) { (try? store.status().isInSync) == true })
    }

    @Test func whatWaitsForAPersonIsTriedAgainAfterAWhile() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let store = try open(cloud)
        let scope = try #require(store.driver.scope)
        try block(store, scope)
        #expect(try store.status().pending.map(\.state) == [.blocked])
        #expect(cloud.passes(within: .seconds(1900)) { (try? store.status().isInSync) == true })
    }

    /// As after an answer that only a person can cure, and that nothing is heard of any more.
    private func block(_ store: KeyValueSync, _ scope: LocalScope) throws {
        try store.engine.local.accept(
            [LocalWrite(key: "b", value: 2)], app: store.app, id: store.engine.makeOperationID(),
            writer: store.engine.writer, now: store.engine.now)
        try store.engine.local.write { database in
            let rows = ScopeTransaction(database, scope)
            for var operation in try rows.operations() {
                operation.state = .blocked
                operation.error = CloudError(.incompatibleVersion, "The server is older than this device.")
                try rows.update(operation)
            }
        }
    }

    @Test func anAppWhoseStoreWasChangedGoesOnWithTheOther() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        let store = try open(cloud)
        var update = WireUpdateApp()
        update.appID = "T.one"
        update.storeID = "T.other"
        try cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        // Longer than a token lives.
        cloud.network.run(for: .seconds(7200))
        try store.set(2, forKey: "b")
        cloud.network.run(for: .seconds(60))
        #expect(try store.status().isInSync && store.status().isFollowing)
        #expect(try store.dictionary() == ["b": 2])
        // What others write there arrives as it comes.
        let guest = try cloud.addDevice()
        let other = try #require(guest.engine?.keyValue(AppID("T.one")))
        cloud.network.run(for: .seconds(5))
        try other.set(3, forKey: "c")
        cloud.network.run(for: .seconds(5))
        #expect(try store.dictionary() == ["b": 2, "c": 3])
        #expect(try other.dictionary() == ["b": 2, "c": 3])
    }
}
