import Bus
import Core
import NephosKit
import TestKit
import Testing
import Wire

/// Large requests wait for their turn, and nobody waits for them but who sent them.
@Suite struct TurnTests {
    /// What is sent at one time arrives at one time, and is taken as one group.
    private func makeCloud(seed: UInt64) throws -> TestCloud {
        let cloud = try TestCloud(seed: seed)
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        return cloud
    }

    private func wholePull(_ guest: Guest) -> WirePullKeys {
        var pull = WirePullKeys()
        pull.storeID = guest.session.accessToken.app.storeID
        return pull
    }

    private func pulled(_ guest: Guest) throws -> [String] {
        let replies = guest.takeReplies().compactMap { try? $0.decoded(as: WirePullKeysReply.self) }
        return try #require(replies.first { $0.complete }).items.map(\.key)
    }

    @Test func aSmallRequestGoesBeforeALargeOneThatCameWithIt() throws {
        let cloud = try makeCloud(seed: 21)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let small = try Guest(of: cloud, seed: 2)
        for guest in [large, small] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        try large.send(wholePull(large))
        try small.send(small.push([small.write("small", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(try pulled(large).sorted() == ["k", "small"])
    }

    @Test func whatAConnectionSendsAfterALargeRequestIsCarriedOutAfterIt() throws {
        let cloud = try makeCloud(seed: 22)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil)
        try guest.send(wholePull(guest))
        try guest.send(guest.push([guest.write("after", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(try pulled(guest) == ["k"])
        #expect(try guest.pull().get().items.count == 2)
    }

    @Test func manyShortWritesInManyPushesDoNotShareOneGroup() throws {
        let cloud = try makeCloud(seed: 24)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let small = try Guest(of: cloud, seed: 2)
        for guest in [large, small] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        func groups() throws -> UInt64 {
            try cloud.makeOperator().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.keyValue), as: WireCheckHealthReply.self
            ).counters["groups"] ?? 0
        }
        let before = try groups()
        // Small by their bytes, and 500 rows each.
        let push = large.push((0..<250).map { large.write("\($0)", .boolean(true)) })
        for _ in 0..<20 { try large.send(push) }
        try small.send(small.push([small.write("small", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(small.takeReplies().count == 1)
        #expect(large.takeReplies().count == 20)
        #expect(try groups() - before >= 20)
    }

    /// What waits has no share in the group that others join.
    @Test func aMiddlingRequestWaitsForNoLargeOneThatCameWithIt() throws {
        let cloud = try makeCloud(seed: 25)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let middling = try Guest(of: cloud, seed: 2)
        for guest in [large, middling] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        try large.send(wholePull(large))
        // 3 calls.
        try middling.send(
            middling.push((0..<24).map { middling.write("\($0)", .string(String(repeating: "x", count: 40))) }))
        cloud.network.run(for: .seconds(1))
        #expect(try pulled(large).count == 25)
    }

    @Test func whatWaitsForItsTurnIsBounded() throws {
        let cloud = try makeCloud(seed: 23)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil)
        // More than a store may hold: each costs its bytes, and is then refused.
        let value = PropertyValue.string(String(repeating: "x", count: 1_200_000))
        let push = guest.push([guest.write("large", value)])
        for _ in 0..<60 { try guest.send(push) }
        cloud.network.run(for: .seconds(5))
        let codes = guest.takeReplies().map(\.code)
        // 64 MiB of them.
        #expect(codes.count { $0 == .quotaExceeded } == 55)
        #expect(codes.count { $0 == .serviceBusy } == 5)
        #expect(try guest.pull().code == nil)
    }
}
