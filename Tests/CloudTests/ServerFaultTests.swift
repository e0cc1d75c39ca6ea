import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What the documents promise of the services' doors, clocks and old copies.
@Suite struct ServerFaultTests {
    // MARK: Operation ids

    @Test(arguments: [-48 * 3600, 2 * 3600, 20 * 365 * 86_400])
    func aPushUnderAnIdOfAnotherTimeIsRefused(_ seconds: Int) throws {
        let cloud = try TestCloud(seed: 41)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        var generator = SplitMix64(seed: 5)
        let id = OperationID(at: guest.now.advanced(by: .seconds(seconds)), using: &generator)
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(20))
        let refused = #expect(throws: CloudError.self) {
            try guest.ask(guest.push([guest.write("k", 1)]), id: id).result.get()
        }
        #expect(refused?.code == .operationExpired)
        let told = try #require(refused?.details["server_time"].flatMap { UInt64($0) })
        let ahead = Timestamp(milliseconds: told).since(guest.now)
        #expect(ahead > .seconds(19) && ahead <= .seconds(20))
    }

    @Test func whatPushesLeaveIsForgottenAfterADay() throws {
        let cloud = try TestCloud(seed: 42)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        var generator = SplitMix64(seed: 5)
        for number in 0..<20 {
            let id = OperationID(at: guest.now.advanced(by: .seconds(20 * 365 * 86_400)), using: &generator)
            _ = try guest.ask(guest.push([guest.write("k", .integer(Int64(number)))]), id: id)
        }
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(10 * 86_400))
        cloud.network.run(for: .seconds(30))
        let count = SQL("SELECT COUNT(*) FROM feed_operations")
        #expect(try cloud.storage(of: .keyValue).write { try $0.first(count) { $0.integer(0) } } == 0)
    }

    @Test func aDeviceWhoseClockIsWrongLearnsTheTimeFromItsFirstPush() throws {
        let cloud = try TestCloud(seed: 49)
        defer { cloud.close() }
        let (right, wrong) = (try cloud.addDevice(), try cloud.addDevice())
        #expect(cloud.settle())
        wrong.setClockOffset(.seconds(-40 * 86_400))
        try wrong.store?.set(1, forKey: "first")
        #expect(cloud.settle())
        wrong.setOffline(true)
        try right.store?.set("older", forKey: "k")
        cloud.network.run(for: .seconds(10))
        try wrong.store?.set("newer", forKey: "k")
        cloud.network.run(for: .seconds(10))
        wrong.setOffline(false)
        #expect(cloud.settle())
        #expect(right.values["k"] == "newer" && wrong.values["k"] == "newer")
    }

    // MARK: The service's clock

    @Test(arguments: [1, 2])
    func theServersClockDoesNotGoBehindWhatItStoredAlsoAfterARestart(_ pushes: Int) throws {
        let cloud = try TestCloud(seed: 43)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        cloud.network.run(for: .seconds(400))
        // Written without a connection, by clocks that are right.
        let older = guest.write("fresh", "older")
        cloud.network.run(for: .seconds(50))
        let newer = guest.write("fresh", "newer")
        cloud.network.run(for: .seconds(50))
        for number in 0..<pushes {
            #expect(try guest.ask(guest.push([guest.write("k", .integer(Int64(number)))])).code == nil)
        }
        // The machine starts again with its clock five minutes behind.
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(-300))
        cloud.network.run(for: .seconds(1))
        #expect(try guest.ask(guest.push([newer])).code == nil)
        #expect(try guest.ask(guest.push([older])).code == nil)
        let items = try guest.pull().get().items
        #expect(items.first { $0.key == "fresh" }?.value.string == "newer")
    }

    // MARK: Doors

    @Test func whatIsNoRequestDrawsOnAStrangersBudgetAtTheSubscriptionsToo() throws {
        var budgets = BudgetConfiguration()
        budgets.device.capacity = 0
        budgets.account.capacity = 0
        let cloud = try TestCloud(seed: 44, budgets: budgets)
        defer { cloud.close() }
        for door in [TestClient.Door.requests(.notifications), .subscriptions] {
            let raw = try cloud.makeRawClient()
            for _ in 0..<1000 { try raw.send([Frame([0xff, 0xff, 0xff])], to: door) }
            cloud.network.run(for: .seconds(1))
            #expect(raw.replies.count { $0.code == .malformedRequest } <= 150, "\(door)")
        }
    }

    @Test func whoFollowsWhatNobodyKnowsHasHeartbeatsAllTheSame() throws {
        let cloud = try TestCloud(seed: 50)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        cloud.crash(.keyValue)
        try guest.subscribe()
        cloud.network.run(for: .seconds(15))
        #expect(guest.client.deliveries.count { $0.heartbeat && $0.heads.isEmpty } >= 2)
    }

    // MARK: Old copies

    @Test func aServiceThatWasAwayDoesNotUndoWhatIdentityStillKnows() throws {
        let cloud = try TestCloud(seed: 45)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let other = try Guest(of: cloud, account: "other", seed: 3)
        func lock(_ locked: Bool) throws {
            var lock = WireLockAccount()
            lock.accountName = "other"
            lock.locked = locked
            try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
            cloud.network.run(for: .seconds(3))
        }
        try lock(true)
        #expect(try other.pull().code == .accountTemporarilyUnavailable)
        cloud.crash(.keyValue)
        try lock(false)
        // The copy has the unlocking.
        let copy = try cloud.copyStorage(of: .identity)
        var app = WireApp()
        app.appID = "T.any"
        app.name = "Any"
        try cloud.createApp(app)
        cloud.network.run(for: .seconds(3))
        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(10))
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(30))
        #expect(try other.pull().code == nil)
        let accounts: WireListAccountsReply = try cloud.operate("ListAccounts", WireListAccounts())
        #expect(accounts.accounts.filter(\.locked).map(\.accountName) == [])
    }

    @Test func whatWasAcknowledgedBeforeAnOldCopyCameBackIsNotLostWhileADeviceHasIt() throws {
        let cloud = try TestCloud(seed: 47)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let guest = try Guest(of: cloud)
        try device.store?.set("old", forKey: "k")
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        // Nobody tells the device of what the other writes.
        cloud.crash(.notifications)
        cloud.network.run(for: .milliseconds(100))
        let pushed = try guest.ask(guest.push([guest.write("theirs", 1)])).decoded(as: WirePushKeysReply.self)
        // Its own write is acknowledged, after one that it has not fetched; then it is without a connection.
        try device.store?.set("mine", forKey: "fresh")
        #expect(
            cloud.network.run(within: .seconds(10)) { (try? device.store?.status().pending.isEmpty) == true })
        device.setOffline(true)
        let headBefore = try #require(device.head)
        #expect(headBefore < ChangeToken(pushed.token))

        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(3))
        // The other shows what is lost, and writes on.
        _ = try guest.pull(after: ChangeToken(pushed.token))
        for number in 0..<5 {
            #expect(try guest.ask(guest.push([guest.write("theirs", .integer(Int64(number)))])).code == nil)
        }
        try cloud.start(.notifications)
        device.setOffline(false)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        #expect(device.values["fresh"] == "mine")
        #expect(try guest.pull().get().items.map(\.key).contains("fresh"))
    }

    @Test func followersHearOfTheNewEpochAlsoWhereTheGroupThatBeganItWrote() throws {
        let cloud = try TestCloud(seed: 48)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(3))
        let copy = try cloud.copyStorage(of: .keyValue)
        cloud.crash(.notifications)
        let lost = try guest.ask(guest.push([guest.write("k", 2)])).decoded(as: WirePushKeysReply.self)
        try cloud.restore(copy, of: .keyValue)
        try cloud.start(.notifications)
        cloud.network.run(for: .seconds(5))
        // In one group: a write, and a token that shows what the copy does not have.
        var proof = guest.push([guest.write("l", 1)])
        proof.head = lost.token
        try guest.send(guest.push([guest.write("k", 3)]))
        try guest.send(proof)
        cloud.network.run(for: .seconds(20))
        let health: WireCheckHealthReply = try cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
        #expect(health.oldCopyFoundAt > 0)
        let cursors = SQL("SELECT epoch FROM follow_cursors WHERE service = 'keyvalue' AND sequence > 0")
        let epochs = try cloud.storage(of: .notifications).write {
            try $0.all(cursors, []) { UInt64(bitPattern: $0.integer(0)) }
        }
        #expect(epochs == [health.epoch])
    }

    // MARK: What an account leaves behind

    @Test func signingInAndOutManyTimesLeavesNoMoreThanABound() throws {
        let cloud = try TestCloud(seed: 46)
        defer { cloud.close() }
        func signInAndOut(_ numbers: Range<Int>, after time: Duration) throws {
            for number in numbers {
                let guest = try Guest(of: cloud, seed: UInt64(number) + 10)
                var generator = SplitMix64(seed: UInt64(number))
                let id = OperationID(at: guest.now.advanced(by: time), using: &generator)
                #expect(try guest.ask(WireSignOut(), to: .identity, id: id).code == nil)
            }
        }
        try signInAndOut(0..<300, after: .zero)
        // Neither faster than that, nor for ever.
        let tooMany = #expect(throws: CloudError.self) { try Guest(of: cloud, seed: 5) }
        #expect(tooMany?.code == .requestRateLimited)
        for round in 1...3 {
            let time = Duration.seconds(round * 3 * 86_400)
            for service in TestCloud.services { cloud.skip(.seconds(3 * 86_400), of: service) }
            cloud.network.run(for: .seconds(5))
            try signInAndOut(round * 1000..<round * 1000 + 90, after: time)
        }
        cloud.network.run(for: .seconds(5))
        let devices = SQL("SELECT COUNT(*) FROM devices")
        let items = SQL("SELECT COUNT(*) FROM feed_items WHERE name LIKE 'device/%' AND deleted_at = 0")
        let known = SQL("SELECT COUNT(*) FROM directory_items WHERE item LIKE 'device/%'")
        let identity = try cloud.storage(of: .identity)
        #expect(try identity.write { try $0.first(devices) { $0.integer(0) } } ?? 0 <= 200)
        #expect(try identity.write { try $0.first(items) { $0.integer(0) } } ?? 0 <= 200)
        let follower = try cloud.storage(of: .keyValue)
        #expect(try follower.write { try $0.first(known) { $0.integer(0) } } ?? 0 <= 200)
    }
}
