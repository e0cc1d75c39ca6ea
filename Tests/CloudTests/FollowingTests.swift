import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What services make of identity's changes when there are more than one reply holds.
@Suite struct FollowingTests {
    /// Apps that together are more than two replies.
    private func createManyApps(_ cloud: TestCloud) throws {
        var bytes = 0
        var number = 0
        while bytes < 2200 << 10 {
            number += 1
            let id = "T.app-\(number)" + String(repeating: "x", count: 100)
            var app = WireApp()
            app.appID = id
            app.name = String(repeating: "n", count: 200)
            app.containerIds = (0..<16).map { "T.\($0)" + String(repeating: "c", count: 120) }
            try cloud.createApp(app)
            bytes += try app.serializedData().count
        }
    }

    @Test func aServiceThatWasAwayForMuchStillRefusesWhomIdentityHasEnded() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let lost = try Guest(of: cloud)
        let kept = try Guest(of: cloud, seed: 2)
        let locked = try Guest(of: cloud, account: "other", seed: 3)
        for guest in [lost, kept, locked] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }

        cloud.crash(.keyValue)
        var revoke = WireRevokeDevice()
        revoke.deviceID = lost.device
        #expect(try kept.ask(revoke, to: .identity).code == nil)
        try createManyApps(cloud)
        var lock = WireLockAccount()
        lock.accountName = "other"
        lock.locked = true
        try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(5))

        let health: WireCheckHealthReply = try cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
        #expect(health.followerLag["identity"] == 0)
        #expect(try lost.ask(lost.push([lost.write("k", 2)])).code == .deviceRevoked)
        #expect(try lost.pull().code == .deviceRevoked)
        #expect(try locked.pull().code == .accountTemporarilyUnavailable)
        #expect(try kept.pull().code == nil)
    }

    @Test func aServiceThatStopsBetweenTwoPagesMissesNothing() throws {
        let cloud = try TestCloud(seed: 17)
        defer { cloud.close() }
        let lost = try Guest(of: cloud)
        let kept = try Guest(of: cloud, seed: 2)
        cloud.crash(.keyValue)
        try createManyApps(cloud)
        var revoke = WireRevokeDevice()
        revoke.deviceID = lost.device
        #expect(try kept.ask(revoke, to: .identity).code == nil)
        try cloud.start(.keyValue)
        let items = SQL("SELECT COUNT(*) FROM directory_items")
        // Until the first page is stored, and not the last.
        let isBetween = cloud.network.run(within: .seconds(5)) {
            let stored = try? cloud.storage(of: .keyValue).write { try $0.first(items) { $0.integer(0) } ?? 0 }
            return stored ?? 0 > 100
        }
        #expect(isBetween)
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(5))
        #expect(try lost.pull().code == .deviceRevoked)
    }

    /// A token says all there is to know of a device that is new.
    @Test func signInsOfNewDevicesTellTheServicesNothing() throws {
        let cloud = try TestCloud(seed: 19)
        defer { cloud.close() }
        let service = try cloud.makeClient(asService: .keyValue)
        func directory() throws -> WireReadChangesReply {
            var read = WireReadChanges()
            (read.owner, read.scope) = ("directory", "directory")
            return try service.call("ReadChanges", read, at: .requests(.identity))
        }
        let before = try directory()
        let guests = try (1...50).map { try Guest(of: cloud, seed: $0) }
        cloud.network.run(for: .seconds(1))
        let after = try directory()
        #expect(after.token == before.token && !after.changes.contains { $0.item.hasPrefix("device/") })
        // It tells them of one that has ended.
        #expect(try guests[0].ask(WireSignOut(), to: .identity).code == nil)
        let ended = try directory()
        #expect(ended.token != before.token)
        #expect(ended.changes.map(\.item).filter { $0.hasPrefix("device/") } == ["device/" + guests[0].device])
    }
}

extension Result where Failure == CloudError {
    var code: CloudError.Code? { if case .failure(let error) = self { error.code } else { nil } }
}
