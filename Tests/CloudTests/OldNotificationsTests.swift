import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Notifications alone comes back from an old copy of its database, or from none.
@Suite struct OldNotificationsTests {
    private static let cursors = SQL(
        """
        SELECT service, "partition", epoch, sequence FROM follow_cursors WHERE sequence > 0 ORDER BY 1, 2
        """)

    /// How far it has followed whom, as it has stored.
    private func cursors(_ cloud: TestCloud) throws -> [String: ChangeToken] {
        let rows = try cloud.storage(of: .notifications).write { transaction in
            try transaction.all(Self.cursors, []) {
                (
                    "\($0.text(0))/\($0.integer(1))",
                    ChangeToken(epoch: UInt64(bitPattern: $0.integer(2)), sequence: UInt64(bitPattern: $0.integer(3)))
                )
            }
        }
        return Dictionary(uniqueKeysWithValues: rows)
    }

    @Test(arguments: ["an old copy", "nothing"])
    func whoHasEndedStaysOutAndWhoFollowsIsTold(_ left: String) throws {
        let cloud = try TestCloud(seed: 71)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        let ended = try Guest(of: cloud)
        try ended.subscribe()
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(5))
        let copy = left == "nothing" ? nil : try cloud.copyStorage(of: .notifications)

        var revoke = WireRevokeDevice()
        (revoke.deviceID, revoke.accountName) = (ended.device, TestCloud.accountName)
        try cloud.operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
        for number in 0..<20 { try devices[0].set("a", .integer(Int64(number))) }
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(5))
        #expect(refusal { try ended.subscribe() } == .deviceRevoked)
        let told = ended.client.notifications.count
        let before = try cursors(cloud)
        #expect(before.count >= 2)

        try cloud.restore(copy, of: .notifications)
        // It has read what identity says before anybody would notice; the device's token would be good for minutes.
        cloud.network.run(for: .seconds(1))
        #expect(refusal { try ended.subscribe() } == .deviceRevoked)
        let changes = devices[1].changes.count
        try devices[0].set("b", 2)
        #expect(cloud.passes(within: .seconds(10)) { devices[1].values["b"] == 2 })
        #expect(devices[1].changes.count == changes + 1)
        // Who comes anew hears where the store stands, and then of what is newer, once.
        let guest = try Guest(of: cloud, seed: 2)
        let head = try #require(try guest.subscribe().heads.first)
        #expect(ChangeToken(head.token) == devices[0].head)
        try devices[1].set("c", 3)
        cloud.network.run(for: .seconds(5))
        #expect(guest.client.notifications.map { $0.changes.map(\.item) } == [["c"]])
        #expect(guest.client.notifications.first?.previousSequence == head.token.sequence)
        // It has followed on from where it was, or from the beginning.
        cloud.network.run(for: .seconds(60))
        let after = try cursors(cloud)
        for (place, cursor) in before {
            let now = try #require(after[place], "\(place) is followed")
            #expect(now.epoch == cursor.epoch && now.sequence >= cursor.sequence, "\(place)")
        }
        #expect(ended.client.notifications.count == told)
        #expect(refusal { try ended.subscribe() } == .deviceRevoked)
        cloud.settleForGood()
    }

    /// Nobody tells it of what has changed while it was away: it reads that.
    @Test(arguments: ["an old copy", "nothing"])
    func whatHasChangedMeanwhileIsToldByHeartbeats(_ left: String) throws {
        let cloud = try TestCloud(seed: 72)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        let copy = left == "nothing" ? nil : try cloud.copyStorage(of: .notifications)
        cloud.crash(.notifications)
        try devices[0].set("a", 2)
        cloud.network.run(for: .seconds(5))
        #expect(devices[0].isSettled && devices[1].values["a"] == 1)
        try cloud.restore(copy, of: .notifications)
        #expect(cloud.passes(within: .seconds(30)) { devices[1].values["a"] == 2 })
        cloud.settleForGood()
    }

    /// It is told identity's whole directory again. Nothing of it is news for whoever follows, and a token that is
    /// renewed for nothing makes every copy of the home that was taken before look like a second device.
    @Test(arguments: ["an old copy", "nothing"])
    func nobodyRenewsATokenForWhatWasKnown(_ left: String) throws {
        let cloud = try TestCloud(seed: 73)
        defer { cloud.close() }
        let copy = left == "nothing" ? nil : try cloud.copyStorage(of: .notifications)
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        let home = try devices[1].copyHome()
        let saves = devices.map(\.secretSaves)
        try cloud.restore(copy, of: .notifications)
        cloud.network.run(for: .seconds(30))
        #expect(devices.map(\.secretSaves) == saves)

        try devices[1].restoreHome(home)
        try devices[1].set("b", 2)
        try cloud.restore(copy, of: .notifications)
        cloud.network.run(for: .seconds(30))
        #expect(devices.allSatisfy { $0.isSettled && $0.values == ["a": 1, "b": 2] })
        cloud.settleForGood()
    }
}
