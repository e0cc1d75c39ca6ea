import NephosBus
import NephosCore
import NephosKit
import NephosNotifications
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// How many and how large subscriptions are, and what their holders are told.
@Suite struct SubscriptionBoundsTests {
    @Test func twoDevicesChangesInOneBatchAreToldToTheOther() throws {
        let cloud = try TestCloud(seed: 11)
        defer { cloud.close() }
        let one = try Guest(of: cloud)
        let two = try Guest(of: cloud, seed: 2)
        let three = try Guest(of: cloud, seed: 3)
        for guest in [one, two, three] { try guest.subscribe() }
        for guest in [one, two] {
            try guest.send(guest.push([guest.write("warm-\(guest.device)", 1)]))
            cloud.network.run(for: .seconds(1))
        }
        let told = [one, two, three].map(\.client.notifications.count)
        // Both are on their way before the service takes either.
        for number in 0..<5 {
            try one.send(one.push([one.write("one-\(number)", 1)]))
            try two.send(two.push([two.write("two-\(number)", 2)]))
        }
        cloud.network.run(for: .seconds(1))
        func keys(_ guest: Guest, _ index: Int) -> Set<String> {
            Set(guest.client.notifications.dropFirst(told[index]).flatMap(\.changes).map(\.item))
        }
        let ones = Set((0..<5).map { "one-\($0)" })
        let twos = Set((0..<5).map { "two-\($0)" })
        #expect(keys(one, 0) == twos && keys(two, 1) == ones && keys(three, 2) == ones.union(twos))
    }

    @Test func aServiceThatDoesNotAnswerDropsNoOtherScope() throws {
        let cloud = try TestCloud(seed: 12)
        defer { cloud.close() }
        var app = WireApp()
        app.appID = "T.app"
        app.containerIds = ["T.container"]
        try cloud.createApp(app)
        let guest = try Guest(of: cloud, app: "T.app")
        let other = try Guest(of: cloud, app: "T.app", seed: 2)
        // Nobody answers for documents here.
        let reply = try guest.subscribe([(.documents, "T.container")])
        #expect(reply.heads.map(\.unknown) == [false, true])
        #expect(try other.ask(other.push([other.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(1))
        #expect(guest.client.notifications.flatMap(\.changes).map(\.item) == ["k"])
        cloud.network.run(for: .seconds(12))
        let beats = guest.client.deliveries.filter { $0.notifications.isEmpty && !$0.heads.isEmpty }
        #expect(!beats.isEmpty && beats.allSatisfy { $0.heads.map(\.service) == ["keyvalue"] })
    }

    @Test func aScopeThatIsNamedManyTimesIsOne() throws {
        let cloud = try TestCloud(seed: 20)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let store = guest.session.accessToken.app.storeID
        let often = Array(repeating: (service: ServiceName.keyValue, scope: store), count: 500)
        // A head has a hundred bytes, so that a small request would get a large answer, and each heartbeat after it.
        #expect(try guest.subscribe(often + [(.identity, "account")]).heads.map(\.scope) == [store, "account"])
        cloud.network.run(for: .seconds(12))
        let beats = guest.client.deliveries.filter { $0.heartbeat }
        #expect(!beats.isEmpty && beats.allSatisfy { $0.heads.map(\.scope) == [store, "account"] })
        let told = guest.client.notifications.count
        let other = try Guest(of: cloud, seed: 2)
        #expect(try other.ask(other.push([other.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(1))
        #expect(guest.client.notifications.dropFirst(told).filter { $0.service == "keyvalue" }.count == 1)
    }

    @Test func muchThatIsToldAtOnceGoesInFramesThatADeviceTakes() throws {
        let cloud = try TestCloud(seed: 24)
        defer { cloud.close() }
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        let writer = try Guest(of: cloud)
        let reader = try Guest(of: cloud, seed: 2)
        try reader.subscribe()
        cloud.network.run(for: .seconds(1))
        let before = reader.client.deliveries.count
        let value = PropertyValue.string(String(repeating: "x", count: 500))
        let rounds = 0..<300
        // All of them are on their way before the service takes the first.
        for round in rounds {
            let writes = (0..<16).map { writer.write("\(round % 60)-\($0)", value) }
            try writer.send(writer.push(writes))
        }
        cloud.network.run(for: .seconds(2))
        let deliveries = reader.client.deliveries.dropFirst(before)
        let sizes = try deliveries.map { try $0.serializedData().count }
        #expect(sizes.allSatisfy { $0 <= 513 << 10 }, "\(sizes)")
        #expect(deliveries.flatMap(\.notifications).flatMap(\.changes).count == rounds.count * 16)
    }

    @Test func aDevicesSubscribedConnectionsAreSoMany() throws {
        let cloud = try TestCloud(seed: 25)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        try guest.subscribe()
        var request = WireSubscribe()
        var scope = WireSubscribedScope()
        scope.service = ServiceName.keyValue.rawValue
        scope.scope = guest.session.accessToken.app.storeID
        request.scopes = [scope]
        let codes = (1...64).map { _ in
            refusal {
                let _: WireSubscribeReply = try cloud.makeClient(copying: guest.client)
                    .call("Subscribe", request, at: .subscriptions, accessToken: guest.session.accessToken.token)
            }
        }
        #expect(codes.dropLast().allSatisfy { $0 == nil } && codes.last == .limitExceeded)
        // It is that device's bound.
        #expect(try Guest(of: cloud, seed: 2).subscribe().heads.count == 1)
    }

    @Test func subscribedConnectionsAreSoManyInAll() throws {
        let bounds = NotificationsConfiguration()
        #expect(bounds.connectionsMax == 50_000 && bounds.connectionsPerDeviceMax == 64)
        let cloud = try TestCloud(
            seed: 28,
            factories: [
                .notifications: { _ in
                    var configuration = NotificationsConfiguration()
                    configuration.connectionsMax = 3
                    return NotificationsService(configuration: configuration)
                }
            ])
        defer { cloud.close() }
        let guests = try (1...3).map { try Guest(of: cloud, seed: $0) }
        for guest in guests { try guest.subscribe() }
        let another = try Guest(of: cloud, seed: 4)
        #expect(refusal { try another.subscribe() } == .serviceBusy)
        // The others are told as before, and may say what else they follow.
        #expect(try another.ask(another.push([another.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(1))
        for guest in guests {
            #expect(guest.client.notifications.flatMap(\.changes).map(\.item) == ["k"])
            #expect(try guest.subscribe([(.identity, "account")]).heads.count == 2)
        }
        // One that leaves makes room.
        try guests[0].unsubscribe([(.identity, "account")])
        #expect(try another.subscribe().heads.count == 1)
    }

    @Test func aConnectionFollowsSoManyScopes() throws {
        let cloud = try TestCloud(seed: 29)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        try guest.subscribe([(.identity, "account")])
        func refused(_ count: Int) -> CloudError.Code? {
            refusal { try guest.subscribe((0..<count).map { (.keyValue, "no store \($0)") }) }
        }
        // With the two that it follows.
        #expect(refused(254) == .missingEntitlement && refused(255) == .limitExceeded)
        let other = try Guest(of: cloud, seed: 2)
        #expect(try other.ask(other.push([other.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(1))
        #expect(guest.client.notifications.flatMap(\.changes).map(\.item) == ["k"])
    }

    @Test func aSubscriptionIsNoLargerThanItMayBe() throws {
        let cloud = try TestCloud(seed: 17)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        func refused(_ bytes: Int) -> CloudError.Code? {
            refusal { try guest.subscribe([(.keyValue, String(repeating: "x", count: bytes))]) }
        }
        #expect(refused(60 << 10) == .missingEntitlement)
        #expect(refused(65 << 10) == .limitExceeded)
    }

    @Test func aLoneSubscriberHasOneHeartbeatInEachRound() throws {
        let cloud = try TestCloud(seed: 13)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        try guest.subscribe()
        cloud.network.run(for: .seconds(60))
        #expect((11...13).contains(guest.client.deliveries.count { !$0.heads.isEmpty }))
    }

    // A token that cannot be renewed yet serves until it ends: asking with it again and again renews nothing.
    @Test func whileIdentityIsAwaySubscriptionsAreRepeatedWithPauses() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        cloud.settleForGood()
        cloud.crash(.identity)
        cloud.network.run(for: .seconds(580))
        let before = cloud.requestCount(.notifications)
        cloud.network.run(for: .seconds(300))
        let repeated = cloud.requestCount(.notifications) - before
        #expect((3...30).contains(repeated))
        try cloud.start(.identity)
        cloud.network.run(for: .seconds(90))
        #expect(try #require(device.store).status().isFollowing)
    }
}
