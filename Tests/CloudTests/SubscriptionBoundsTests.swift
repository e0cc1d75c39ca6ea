import Bus
import Core
import NephosKit
import ServiceKit
import Storage
import SwiftProtobuf
import TestKit
import Testing
import Wire

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
