import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

/// Who may not see a store learns nothing of it, not even that it changed.
@Suite struct HostileSubscriptionTests {
    private static let otherApp = "TEAM.app.other"

    /// A device that writes, a guest of another account, and another app with a store of its own.
    private func house() throws -> TestCloud {
        let cloud = try TestCloud(seed: 7)
        try cloud.createAccount("guest")
        var app = WireApp()
        app.appID = Self.otherApp
        app.name = "Other"
        app.storeID = "TEAM.store.other"
        try cloud.createApp(app)
        try cloud.addDevice()
        guard cloud.settle() else { throw CloudError(.deadlineExceeded, "The device did not settle.") }
        return cloud
    }

    private func signIn(_ client: TestClient, as account: String = TestCloud.accountName) throws -> WireSignInReply {
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "bare"
        return try client.call("SignIn", request, at: .requests(.identity))
    }

    private func subscribe(
        _ client: TestClient, to scope: String, of service: ServiceName = .keyValue, accessToken: String
    ) throws {
        var wire = WireSubscribedScope()
        wire.service = service.rawValue
        wire.scope = scope
        var request = WireSubscribe()
        request.scopes = [wire]
        try client.call(
            "Subscribe", request, at: .subscriptions, accessToken: accessToken, as: WireSubscribeReply.self)
    }

    private func code(of body: () throws -> Void) -> CloudError.Code? {
        do {
            try body()
            return nil
        } catch {
            return (error as? CloudError)?.code
        }
    }

    /// Writes and waits longer than two heartbeats.
    private func write(_ cloud: TestCloud, _ key: ItemName) throws {
        try cloud.devices[0].store?.set(1, forKey: key)
        cloud.network.run(for: .seconds(12))
    }

    @Test func refusedSubscriptionsReceiveNothing() throws {
        let cloud = try house()
        defer { cloud.close() }
        let session = try #require(cloud.devices[0].session)
        let store = try #require(session.storeIDs[session.defaultApp.rawValue])
        let owner = try cloud.makeClient()
        let own = try signIn(owner).accessToken.token
        let foreign = try cloud.makeClient()
        let foreignToken = try signIn(foreign, as: "guest").accessToken.token
        var forged = Array(own)
        let last = forged.count - 10
        forged[last] = forged[last] == "A" ? "B" : "A"
        let claimed = try #require(own.split(separator: ".").last)

        var spies: [TestClient] = []
        func refused(
            _ scope: String, of service: ServiceName = .keyValue, _ token: String, by client: TestClient? = nil
        ) throws -> CloudError.Code? {
            let client = try client ?? cloud.makeClient()
            spies.append(client)
            return code { try subscribe(client, to: scope, of: service, accessToken: token) }
        }
        #expect(try refused(store, "") == .notAuthenticated)
        #expect(try refused(store, "nonsense") == .notAuthenticated)
        #expect(try refused(store, String(forged), by: owner) == .notAuthenticated)
        #expect(try refused(store, "e30.e30.\(claimed)", by: owner) == .notAuthenticated)
        // A stolen token is worth nothing without the key that it is bound to.
        #expect(try refused(store, own) == .tokenNotBound)
        #expect(try refused("", own, by: owner) == .missingEntitlement)
        #expect(try refused("TEAM.store.other", own, by: owner) == .missingEntitlement)
        #expect(try refused("no.such.store", own, by: owner) == .missingEntitlement)
        #expect(try refused("directory", of: .identity, own, by: owner) == .missingEntitlement)
        #expect(
            code {
                try owner.call(
                    "Subscribe", WireSubscribe(), at: .subscriptions, accessToken: own, as: WireSubscribeReply.self)
            } == .invalidArguments)
        // Accepted, but of another account: the same name is another store.
        #expect(try refused(store, foreignToken, by: foreign) == nil)

        try write(cloud, "secret")
        for spy in spies {
            #expect(spy.notifications.isEmpty)
            #expect(spy.deliveries.flatMap(\.heads).allSatisfy { $0.token.sequence == 0 })
        }
        // The same spies do receive once they ask as they should.
        try subscribe(owner, to: store, accessToken: own)
        try write(cloud, "shared")
        #expect(owner.notifications.count == 1)
        #expect(foreign.notifications.isEmpty)
    }

    @Test func subscribingDrawsOnTheBudgetToo() throws {
        var budgets = BudgetConfiguration()
        budgets.device = .init(capacity: 5, refillPerSecond: 1)
        let cloud = try TestCloud(seed: 8, budgets: budgets)
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let reply = try signIn(client)
        func subscribe(_ times: Int) throws -> Duration {
            let start = cloud.network.now
            for _ in 0..<times {
                try self.subscribe(
                    client, to: reply.accessToken.app.storeID, accessToken: reply.accessToken.token)
            }
            return cloud.network.now - start
        }
        #expect(try subscribe(5) < .milliseconds(500))
        // From here on each has to wait for the next second: the client does so by itself.
        #expect(try subscribe(3) > .seconds(2))
    }

    @Test func aSubscriptionEndsWithItsToken() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let reply = try signIn(client)
        try subscribe(client, to: reply.accessToken.app.storeID, accessToken: reply.accessToken.token)
        try write(cloud, "before")
        #expect(client.notifications.count == 1)
        cloud.network.run(for: .milliseconds(Int64(reply.accessToken.lifetimeMilliseconds)))
        try write(cloud, "after")
        #expect(client.notifications.count == 1)
        #expect(client.deliveries.last.map { CloudError($0.ended).code } == .tokenExpired)
        #expect(
            code {
                try subscribe(client, to: reply.accessToken.app.storeID, accessToken: reply.accessToken.token)
            } == .tokenExpired)
    }

    @Test func aRevokedDeviceIsCutOffAndItsSistersMissNothing() throws {
        let cloud = try house()
        defer { cloud.close() }
        let revoked = try cloud.makeClient()
        let revokedSession = try signIn(revoked)
        let sister = try cloud.makeClient()
        let sisterSession = try signIn(sister)
        let store = sisterSession.accessToken.app.storeID
        try subscribe(revoked, to: store, accessToken: revokedSession.accessToken.token)
        try subscribe(sister, to: store, accessToken: sisterSession.accessToken.token)
        for number in 0..<10 {
            try cloud.devices[0].store?.set(.integer(Int64(number)), forKey: "before-\(number)")
            cloud.network.run(for: .milliseconds(300))
        }
        cloud.network.run(for: .seconds(2))
        let seen = revoked.notifications.count
        #expect(seen == sister.notifications.count)
        #expect(seen > 0)

        var request = WireRevokeDevice()
        request.deviceID = revokedSession.device.deviceID
        try sister.call(
            "RevokeDevice", request, at: .requests(.identity), accessToken: sisterSession.accessToken.token,
            as: WireRevokeDeviceReply.self)
        let told = cloud.network.run(within: .seconds(5)) {
            revoked.deliveries.last.map { CloudError($0.ended).code } == .deviceRevoked
        }
        #expect(told)
        for number in 0..<10 {
            try cloud.devices[0].store?.set(.integer(Int64(number)), forKey: "after-\(number)")
            cloud.network.run(for: .milliseconds(300))
        }
        cloud.network.run(for: .seconds(12))
        #expect(revoked.notifications.count == seen)
        let keys = Set(sister.notifications.flatMap { $0.changes.map(\.item) })
        #expect(keys.count == 20, "\(keys.sorted())")
        #expect(
            code { try subscribe(revoked, to: store, accessToken: revokedSession.accessToken.token) }
                == .deviceRevoked)
    }

    @Test func aSlowDeviceIsToldToRefetchAndEndsWithEverything() throws {
        let cloud = try TestCloud(
            seed: 11, faults: Faults(latency: .seconds(1)...(.seconds(1)), loss: 0, duplication: 0, reordering: 0),
            subscriberQueueMax: 2)
        defer { cloud.close() }
        for _ in 0..<2 { try cloud.addDevice() }
        // With so slow a line something is always on its way.
        #expect(cloud.network.run(within: .seconds(600)) { cloud.devices.allSatisfy(\.isSettled) })
        let client = try cloud.makeClient()
        let reply = try signIn(client)
        try subscribe(client, to: reply.accessToken.app.storeID, accessToken: reply.accessToken.token)
        for number in 0..<40 {
            try cloud.devices[0].store?.set(.integer(Int64(number)), forKey: "key-\(number)")
            cloud.network.run(for: .milliseconds(100))
        }
        let arrived = cloud.network.run(within: .seconds(60)) { cloud.devices[1].values.count == 40 }
        #expect(arrived)
        cloud.network.run(for: .seconds(5))
        #expect(client.deliveries.contains { $0.lagging })
        #expect(client.notifications.count < 40)
        let told = client.deliveries.last { $0.lagging }?.heads.first?.token.sequence
        #expect(told != nil && told == cloud.devices[1].head?.sequence)
    }
}
