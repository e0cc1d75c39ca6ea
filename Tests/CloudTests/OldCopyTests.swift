import Bus
import Core
import ServiceKit
import Storage
import SwiftProtobuf
import TestKit
import Testing
import Wire

import struct Foundation.Data

@testable import NephosKit

/// Databases come back from old copies, through the real hosts, tokens and devices.
@Suite struct OldCopyTests {
    private func set(_ device: TestDevice, _ key: ItemName, _ value: PropertyValue?) throws {
        try #require(device.store).set(value, forKey: key)
    }

    /// Everybody is in sync, and stays so when the next heartbeats have come.
    private func settle(_ cloud: TestCloud) {
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        #expect(cloud.settle())
    }

    private func health(of service: ServiceName, in cloud: TestCloud) throws -> WireCheckHealthReply {
        try cloud.makeClient().call("CheckHealth", WireCheckHealth(), at: .requests(service))
    }

    @Test(arguments: [[ServiceName.keyValue], TestCloud.services])
    func whatWasWrittenAfterTheCopyComesBackAndWhatWasDeletedDoesNot(_ restored: [ServiceName]) throws {
        let cloud = try TestCloud(seed: 11)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "old", 1)
        try set(devices[0], "gone", 1)
        #expect(cloud.settle())
        let copies = try restored.map { try cloud.copyStorage(of: $0) }
        try set(devices[0], "new", 2)
        try set(devices[1], "old", 3)
        try set(devices[0], "gone", nil)
        #expect(cloud.settle())
        let before = try health(of: .keyValue, in: cloud)
        for (service, copy) in zip(restored, copies) { try cloud.restore(copy, of: service) }
        settle(cloud)
        for device in devices { #expect(device.values == ["new": 2, "old": 3]) }
        #expect(devices[0].digest == devices[1].digest)
        let after = try health(of: .keyValue, in: cloud)
        #expect(before.oldCopyFoundAt == 0 && after.oldCopyFoundAt > 0 && after.epoch > before.epoch)
        // A device that comes anew sees the same.
        let third = try cloud.addDevice()
        settle(cloud)
        #expect(third.values == ["new": 2, "old": 3])
    }

    @Test func anEmptyDatabaseIsFilledAgain() throws {
        let cloud = try TestCloud(seed: 12)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        for number in 0..<20 { try set(devices[number % 2], ItemName("key\(number)"), .integer(Int64(number))) }
        #expect(cloud.settle())
        let values = devices[0].values
        try cloud.restore(nil, of: .keyValue)
        settle(cloud)
        #expect(values.count == 20)
        for device in devices { #expect(device.values == values) }
    }

    /// The copy is written on, beyond where the device was, before the device
    /// is heard of again: its token's numbers are in this history, its changes are not.
    @Test func aCopyThatWasWrittenOnIsFoundOut() throws {
        let cloud = try TestCloud(seed: 13)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "base", 0)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        let home = try devices[1].copyHome()
        try set(devices[0], "lost", 1)
        #expect(cloud.settle())
        devices[0].setOffline(true)
        // The other device is as old as the copy: it proves nothing.
        try devices[1].restoreHome(home)
        try cloud.restore(copy, of: .keyValue)
        for number in 0..<9 {
            try set(devices[1], ItemName("on\(number)"), 1)
            cloud.network.run(for: .milliseconds(200))
        }
        devices[0].setOffline(false)
        settle(cloud)
        for device in devices {
            #expect(device.values["lost"] == 1 && device.values.count == 11)
        }
    }

    @Test func oneCopyBroughtBackTwiceIsTwoHistories() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "a", 1)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        var epochs: Set<UInt64> = [try health(of: .keyValue, in: cloud).epoch]
        for round in 0..<3 {
            try set(devices[round % 2], ItemName("round\(round)"), 1)
            #expect(cloud.settle())
            try cloud.restore(copy, of: .keyValue)
            settle(cloud)
            epochs.insert(try health(of: .keyValue, in: cloud).epoch)
        }
        #expect(epochs.count == 4)
        for device in devices { #expect(device.values.count == 4) }
    }

    /// What lost with the copy, and what it had, is in the history.
    @Test func whatLosesIsKept() throws {
        let cloud = try TestCloud(seed: 15)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "a", "first")
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        try set(devices[0], "a", "acknowledged")
        #expect(cloud.settle())
        devices[0].setOffline(true)
        devices[1].setOffline(true)
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        try set(devices[1], "a", "newest")
        devices[1].setOffline(false)
        cloud.network.run(for: .seconds(15))
        devices[0].setOffline(false)
        settle(cloud)
        for device in devices { #expect(device.values == ["a": "newest"]) }
        let guest = try Guest(of: cloud)
        var list = WireListKeyHistory()
        list.storeID = guest.session.accessToken.app.storeID
        let history: WireListKeyHistoryReply = try guest.ask(list).decoded()
        let values = try history.entries.map { try KeyValueItem($0.item).value }
        #expect(values.contains("acknowledged"))
    }

    @Test func aHomeFromAnOldImageLosesNothing() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "a", 1)
        #expect(cloud.settle())
        devices[0].setOffline(true)
        try set(devices[0], "b", 1)
        // The image holds a write that was never sent; what goes out later under its id is another.
        let image = try devices[0].copyHome()
        try set(devices[0], "b", 2)
        devices[0].setOffline(false)
        #expect(cloud.settle())
        try set(devices[1], "c", 3)
        try set(devices[1], "a", nil)
        #expect(cloud.settle())
        try devices[0].restoreHome(image)
        settle(cloud)
        for device in devices { #expect(device.values == ["b": 2, "c": 3]) }
    }

    // MARK: What a token shows

    /// What the guest's newest token is of is lost: the database is a copy from before.
    private func lose(_ cloud: TestCloud, _ guest: Guest) throws -> ChangeToken {
        #expect(try guest.ask(guest.push([guest.write("base", 1)])).code == nil)
        let copy = try cloud.copyStorage(of: .keyValue)
        #expect(try guest.ask(guest.push([guest.write("lost", 1)])).code == nil)
        let held = try ChangeToken(guest.pull().get().token)
        // It follows the other, and would show what it knows.
        cloud.crash(.notifications)
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        return held
    }

    /// Else its sequence would be one of the lost history's, under the same epoch.
    @Test func aPushThatShowsALostHeadIsTakenInANewEpochAlone() throws {
        let cloud = try TestCloud(seed: 31)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let held = try lose(cloud, guest)
        let id = guest.operation()
        var push = guest.push([guest.write("new", 2)])
        push.head = WireChangeToken(held)
        #expect(try guest.ask(push, id: id).code == .serviceBusy)
        cloud.network.run(for: .seconds(1))
        let reply = try guest.ask(push, id: id).decoded(as: WirePushKeysReply.self)
        #expect(reply.token.epoch > held.epoch)
        #expect(try guest.pull().get().items.map(\.key).sorted() == ["base", "new"])
        #expect(try health(of: .keyValue, in: cloud).oldCopyFoundAt > 0)
    }

    /// Else the device would take what it lacks for deleted.
    @Test func aWholePullThatShowsALostTokenIsAnsweredInANewEpochAlone() throws {
        let cloud = try TestCloud(seed: 32)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let held = try lose(cloud, guest)
        var pull = WirePullKeys()
        pull.storeID = guest.session.accessToken.app.storeID
        pull.held = WireChangeToken(held)
        #expect(try guest.ask(pull).code == .serviceBusy)
        cloud.network.run(for: .seconds(1))
        let reply = try guest.ask(pull).decoded(as: WirePullKeysReply.self)
        #expect(reply.complete && reply.items.map(\.key) == ["base"])
        #expect(reply.token.epoch > held.epoch && reply.epochStart == held.sequence - 1)
    }

    @Test func aPullThatShowsALostTokenBeginsANewEpoch() throws {
        let cloud = try TestCloud(seed: 33)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let held = try lose(cloud, guest)
        // Written on, beyond the token: its numbers are in this history.
        for number in 0..<3 { #expect(try guest.ask(guest.push([guest.write("on\(number)", 1)])).code == nil) }
        #expect(try guest.pull(after: held).code == .changeTokenExpired)
        #expect(try health(of: .keyValue, in: cloud).epoch > held.epoch)
    }

    /// What was written is seen all the time, also while it is found out that its place is another.
    @Test func whatIsWrittenAtOnceAfterARestoreStaysInView() throws {
        let cloud = try TestCloud(seed: 39)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try set(device, "base", 0)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        for number in 0..<3 {
            try set(device, ItemName("lost\(number)"), 1)
            #expect(cloud.settle())
        }
        try cloud.restore(copy, of: .keyValue)
        try set(device, "new", 1)
        let vanished = cloud.network.run(within: .seconds(20)) { device.values["new"] == nil }
        #expect(!vanished)
        #expect(device.values.count == 5 && cloud.settle())
    }

    /// A store that the copy does not have at all is no scope of any event.
    @Test func aHeadThatIsLostIsNotToldAnyMore() throws {
        let cloud = try TestCloud(seed: 41)
        defer { cloud.close() }
        var app = WireApp()
        app.appID = "T.second"
        app.storeID = "T.second"
        try cloud.createApp(app)
        let guest = try Guest(of: cloud)
        let copy = try cloud.copyStorage(of: .keyValue)
        #expect(try guest.ask(guest.push([guest.write("lost", 1)])).code == nil)
        let held = try ChangeToken(guest.pull().get().token)
        #expect(try guest.subscribe().heads.map { ChangeToken($0.token) } == [held])
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        #expect(try guest.pull(after: held).code == .changeTokenExpired)
        // Of the account's partition there is something to hear again.
        let second = try Guest(of: cloud, app: app.appID, seed: 2)
        #expect(try second.ask(second.push([second.write("k", 1)])).code == nil)
        cloud.network.run(for: .seconds(20))
        #expect(try guest.subscribe().heads.map { ChangeToken($0.token).sequence } == [0])
    }

    /// Of a partition that is empty in the copy no event comes.
    @Test func aHeadThatIsLostWithItsPartitionIsNotToldAnyMore() throws {
        let cloud = try TestCloud(seed: 43)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let copy = try cloud.copyStorage(of: .keyValue)
        #expect(try guest.ask(guest.push([guest.write("lost", 1)])).code == nil)
        let held = try ChangeToken(guest.pull().get().token)
        #expect(try guest.subscribe().heads.map { ChangeToken($0.token) } == [held])
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        #expect(try guest.pull(after: held).code == .changeTokenExpired)
        cloud.network.run(for: .seconds(20))
        #expect(try guest.subscribe().heads.map { ChangeToken($0.token).sequence } == [0])
    }

    // MARK: Digests

    /// Makes the device's copy another one than the server's, at one and the same head.
    private func forget(_ key: ItemName, on device: TestDevice) throws {
        let app = try #require(device.store?.app)
        try device.local.write { database in
            let store = try device.local.store(of: app, database)
            var state = try store.state()
            var item = try #require(try store.item(key))
            item.value = nil
            try store.put(item, &state)
            try store.save(state)
        }
    }

    @Test func aHeartbeatTellsADeviceThatItsCopyIsAnother() throws {
        let cloud = try TestCloud(seed: 34)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try set(device, "a", 1)
        try set(device, "b", 2)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        try forget("a", on: device)
        #expect(device.values == ["b": 2])
        #expect(cloud.network.run(within: .seconds(15)) { device.values == ["a": 1, "b": 2] })
        #expect(cloud.settle())
    }

    /// As if the server had lost it without a trace.
    @Test func whatOnlyADeviceHasIsOfferedWhenTheDigestsDiffer() throws {
        let cloud = try TestCloud(seed: 44)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try set(device, "a", 1)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        let app = try #require(device.store?.app)
        try device.local.write { database in
            let store = try device.local.store(of: app, database)
            var state = try store.state()
            var item = try #require(try store.item("a"))
            item.key = "b"
            try store.put(item, &state)
            try store.save(state)
        }
        cloud.network.run(for: .seconds(15))
        #expect(cloud.settle())
        #expect(device.values == ["a": 1, "b": 1])
        #expect(try Guest(of: cloud).pull().get().items.map(\.key).sorted() == ["a", "b"])
    }

    @Test func aNotificationTellsADeviceThatItsCopyIsAnother() throws {
        let cloud = try TestCloud(seed: 35)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try set(devices[0], "a", 1)
        #expect(cloud.settle())
        // A heartbeat, which tells as well, may fall into one round's time, and into no other's.
        for round in 0..<4 {
            cloud.network.run(for: .milliseconds(15_900))
            try forget("a", on: devices[1])
            try set(devices[0], "b", .integer(Int64(round)))
            #expect(
                cloud.network.run(within: .milliseconds(100)) {
                    devices[1].values == ["a": 1, "b": .integer(Int64(round))]
                })
        }
    }

    // MARK: Identity

    @Test func identityThatForgotAnEndingLearnsItAgain() throws {
        let cloud = try TestCloud(seed: 17)
        defer { cloud.close() }
        let devices = try (0..<3).map { _ in try cloud.addDevice() }
        let other = try cloud.createAccount("other")
        try set(devices[0], "a", 1)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .identity)

        var revoke = WireRevokeDevice()
        revoke.accountName = TestCloud.accountName
        revoke.deviceID = try #require(devices[2].session?.deviceID.rawValue)
        try cloud.operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
        var close = WireCloseAccount()
        close.accountName = "other"
        try cloud.operate("CloseAccount", close, as: WireCloseAccountReply.self)
        var app = WireApp()
        app.appID = "A1B2C3.com.example.later"
        app.name = "Later"
        app.storeID = "A1B2C3.com.example.later"
        try cloud.createApp(app)
        cloud.network.run(for: .seconds(5))

        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        var list = WireListDevices()
        list.accountName = TestCloud.accountName
        let known = try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        #expect(known.first { $0.deviceID == revoke.deviceID }?.revoked == true)
        #expect(known.count { !$0.revoked } == 2)
        let accounts = try cloud.operate("ListAccounts", WireListAccounts(), as: WireListAccountsReply.self).accounts
        #expect(!accounts.map(\.accountID).contains(other.rawValue))
        let apps = try cloud.operate("ListApps", WireListApps(), as: WireListAppsReply.self).apps
        #expect(apps.map(\.appID).contains(app.appID))
        #expect(try health(of: .identity, in: cloud).oldCopyFoundAt > 0)
        // The others go on.
        try set(devices[0], "b", 2)
        cloud.network.run(for: .seconds(10))
        #expect(devices[1].values == ["a": 1, "b": 2])
    }

    @Test func identityThatForgotALockLocksAgain() throws {
        let cloud = try TestCloud(seed: 36)
        defer { cloud.close() }
        try cloud.addDevice()
        let copy = try cloud.copyStorage(of: .identity)
        var lock = WireLockAccount()
        lock.accountName = TestCloud.accountName
        lock.locked = true
        try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        cloud.network.run(for: .seconds(5))
        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        let accounts = try cloud.operate("ListAccounts", WireListAccounts(), as: WireListAccountsReply.self).accounts
        #expect(accounts.map(\.locked) == [true])
    }

    /// The services know of the rotation: what is signed with the old key is worth nothing when its time is over, and
    /// the key that came after it is lost with the copy.
    @Test func identityThatForgotARotationRotatesAgainAndEndsTheKeyThatIsLost() throws {
        let cloud = try TestCloud(seed: 37)
        defer { cloud.close() }
        let copy = try cloud.copyStorage(of: .identity)
        let lost: WireRotateSigningKeyReply = try cloud.operate("RotateSigningKey", WireRotateSigningKey())
        cloud.network.run(for: .seconds(60))
        let guest = try Guest(of: cloud)
        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        // As long as its last tokens live, it counts.
        #expect(try guest.pull().code == nil)
        let end = SQL("SELECT forget_at FROM directory_items WHERE item = ?1")
        let forgetAt = try cloud.storage(of: .keyValue).write {
            try $0.first(end, [.text("token-key/" + lost.keyID)]) { $0.integer(0) }
        }
        #expect(try #require(forgetAt) > 0)
        cloud.network.run(for: .seconds(20 * 60))
        #expect(try Guest(of: cloud, seed: 2).pull().code == nil)
    }

    /// The numbers of what was written on are those of what was lost.
    @Test func anIdentityThatWasWrittenOnIsFoundOut() throws {
        let cloud = try TestCloud(seed: 42)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let copy = try cloud.copyStorage(of: .identity)
        var revoke = WireRevokeDevice()
        revoke.accountName = TestCloud.accountName
        revoke.deviceID = try #require(device.session?.deviceID.rawValue)
        try cloud.operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
        cloud.network.run(for: .seconds(5))
        for service in [ServiceName.keyValue, .notifications] { cloud.crash(service) }
        try cloud.restore(copy, of: .identity)
        var app = WireApp()
        app.appID = "T.later"
        try cloud.createApp(app)
        for service in [ServiceName.keyValue, .notifications] { try cloud.start(service) }
        cloud.network.run(for: .seconds(20))
        var list = WireListDevices()
        list.accountName = TestCloud.accountName
        let known = try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        #expect(known.map(\.revoked) == [true])
    }

    /// An old copy of identity says what was true once. Until it has been told, nothing that came later is undone.
    @Test func whatAnOldIdentitySaysTakesNothingBack() throws {
        let cloud = try TestCloud(seed: 43)
        defer { cloud.close() }
        var app = WireApp()
        app.appID = "T.notes"
        app.storeID = "T.shared"
        try cloud.createApp(app)
        try cloud.createAccount("gone")
        let notes = try Guest(of: cloud, app: app.appID)
        let gone = try Guest(of: cloud, account: "gone", seed: 2)
        // So that the copy says of the account that it is active.
        for locked in [true, false] {
            var lock = WireLockAccount()
            lock.accountName = "gone"
            lock.locked = locked
            try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        }
        cloud.network.run(for: .seconds(5))
        #expect(try notes.pull().code == nil && gone.pull().code == nil)
        let copy = try cloud.copyStorage(of: .identity)
        var update = WireUpdateApp()
        update.appID = app.appID
        update.storeID = "T.other"
        try cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        var close = WireCloseAccount()
        close.accountName = "gone"
        try cloud.operate("CloseAccount", close, as: WireCloseAccountReply.self)
        cloud.network.run(for: .seconds(10))

        cloud.crash(.notifications)
        try cloud.restore(copy, of: .identity)
        let storage = try cloud.storage(of: .keyValue)
        let untold = SQL("SELECT COUNT(*) FROM directory_untold")
        let replayed = cloud.network.run(within: .seconds(30)) {
            (try? storage.write { try $0.first(untold) { $0.integer(0) } ?? 0 }) ?? 0 > 0
        }
        #expect(replayed)
        // It hears nothing for now.
        cloud.setCommitsFail(of: .identity, true)
        cloud.network.run(for: .seconds(2))
        #expect(try notes.pull().code == .missingEntitlement)
        #expect(try gone.pull().code == .notAuthenticated)
        cloud.crash(.identity)
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(1))
        #expect(try notes.pull().code == .missingEntitlement)
        #expect(try gone.pull().code == .notAuthenticated)
    }

    /// What a service knows and identity has forgotten is told also by a service that ended in between.
    @Test func whatIdentityHasToBeToldOutlivesACrash() throws {
        let cloud = try TestCloud(seed: 38)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let copy = try cloud.copyStorage(of: .identity)
        var revoke = WireRevokeDevice()
        revoke.accountName = TestCloud.accountName
        revoke.deviceID = try #require(device.session?.deviceID.rawValue)
        try cloud.operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
        cloud.network.run(for: .seconds(5))
        // Only one of them is there to tell.
        cloud.crash(.notifications)
        try cloud.restore(copy, of: .identity)
        let untold = SQL("SELECT COUNT(*) FROM directory_untold")
        let storage = try cloud.storage(of: .keyValue)
        let begun = cloud.network.run(within: .seconds(30)) {
            (try? storage.write { try $0.first(untold) { $0.integer(0) } ?? 0 }) ?? 0 > 0
        }
        #expect(begun)
        cloud.setCommitsFail(of: .identity, true)
        cloud.network.run(for: .seconds(1))
        cloud.crash(.keyValue)
        cloud.setCommitsFail(of: .identity, false)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(10))
        var list = WireListDevices()
        list.accountName = TestCloud.accountName
        let known = try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        #expect(known.map(\.revoked) == [true])
        #expect(try storage.write { try $0.first(untold) { $0.integer(0) } } == 0)
    }

    @Test func aReportWithoutIdentitysSealIsNotHeard() throws {
        let cloud = try TestCloud(seed: 18)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let id = try #require(device.session?.deviceID.rawValue)
        var state = WireDeviceState()
        state.deviceID = id
        state.revoked = true
        var change = WireChange()
        change.item = "device/" + id
        change.body = try state.serializedData() + [15 << 3 | 2, 8, 0, 0, 0, 0, 0, 0, 0, 0]
        var report = WireReportDirectory()
        report.items = [change]
        try cloud.makeClient(asService: .keyValue).call(
            "ReportDirectory", report, at: .requests(.identity), as: WireReportDirectoryReply.self)
        var list = WireListDevices()
        list.accountName = TestCloud.accountName
        let known = try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        #expect(known.map(\.revoked) == [false])
    }

    // MARK: Damage

    @Test func aDamagedValueHoldsNobodyUpAndHeals() throws {
        let cloud = try TestCloud(seed: 19)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        try set(first, "good", 1)
        try set(first, "bad", "precious")
        #expect(cloud.settle())
        first.setOffline(true)
        let damage = SQL("UPDATE feed_items SET body = ?1 WHERE name = 'bad'")
        let body = try cloud.storage(of: .keyValue).write { transaction in
            try transaction.first(SQL("SELECT body FROM feed_items WHERE name = 'bad'")) { $0.blob(0) }
        }
        var damaged = try #require(body)
        damaged[damaged.count - 1] ^= 1
        _ = try cloud.storage(of: .keyValue).write { try $0.execute(damage, [.blob(damaged)]) }
        // It begins anew, and remembers nothing of the row as it was.
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)

        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(10))
        #expect(second.values == ["good": 1])
        let status = try #require(second.store).status()
        #expect(!status.isInSync && status.problem?.code == .storeOutOfStep)
        #expect(status.problem?.details["damaged"] == "1")
        #expect(try health(of: .keyValue, in: cloud).counters["keys.damaged"] ?? 0 > 0)

        first.setOffline(false)
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == ["good": 1, "bad": "precious"])
    }

    @Test func aDeviceThatIdentityHasForgottenIsToldWhatToDoWhenItAsks() throws {
        let cloud = try TestCloud(seed: 31)
        defer { cloud.close() }
        try cloud.addDevice()
        let copy = try cloud.copyStorage(of: .identity)
        let device = try cloud.addDevice()
        try device.store?.set("kept", forKey: "k")
        #expect(cloud.settle())
        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        let refused = #expect(throws: CloudError.self) {
            _ = try device.call(.identity, WireWhoAmI(), as: WireWhoAmIReply.self)
        }
        #expect(refused?.code == .notAuthenticated)
        cloud.network.run(for: .seconds(1))
        #expect(try device.store?.status().problem?.code == .notAuthenticated)
        #expect(try device.store?.status().isInSync == false)
        // What it has is kept, and goes on once somebody signs in.
        try device.store?.set("more", forKey: "l")
        try device.signIn(as: TestCloud.accountName)
        #expect(cloud.settle())
        #expect(cloud.devices[0].values == ["k": "kept", "l": "more"])
    }
}
