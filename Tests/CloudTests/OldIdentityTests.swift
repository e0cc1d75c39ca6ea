import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

import struct Foundation.Data

/// Identity comes back from an old copy of its database.
@Suite struct OldIdentityTests {
    @Test func identityThatForgotAnEndingLearnsItAgain() throws {
        let cloud = try TestCloud(seed: 17)
        defer { cloud.close() }
        let devices = try (0..<3).map { _ in try cloud.addDevice() }
        let other = try cloud.createAccount("other")
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .identity)

        try cloud.revoke(devices[2])
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
        #expect(known.first { $0.deviceID == devices[2].session?.deviceID.rawValue }?.revoked == true)
        #expect(known.count { !$0.revoked } == 2)
        let accounts = try cloud.operate("ListAccounts", WireListAccounts(), as: WireListAccountsReply.self).accounts
        #expect(!accounts.map(\.accountID).contains(other.rawValue))
        let apps = try cloud.operate("ListApps", WireListApps(), as: WireListAppsReply.self).apps
        #expect(apps.map(\.appID).contains(app.appID))
        #expect(try cloud.health(of: .identity).oldCopyFoundAt > 0)
        // The others go on.
        try devices[0].set("b", 2)
        cloud.network.run(for: .seconds(10))
        #expect(devices[1].values == ["a": 1, "b": 2])
    }

    @Test func identityThatForgotWhatAnAppWasGivenLearnsItAgain() throws {
        let cloud = try TestCloud(seed: 45)
        defer { cloud.close() }
        let app = try cloud.createApp("T.notes", store: "T.shared")
        cloud.network.run(for: .seconds(5))
        let copy = try cloud.copyStorage(of: .identity)
        var update = WireUpdateApp()
        (update.appID, update.name, update.storeID) = (app.appID, "Notes", "T.other")
        let updated = try cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self).app
        cloud.network.run(for: .seconds(5))

        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        let apps = try cloud.operate("ListApps", WireListApps(), as: WireListAppsReply.self).apps
        #expect(updated.storeID == "T.other" && updated.version > 1)
        #expect(apps.first { $0.appID == app.appID } == updated)
        #expect(try Guest(of: cloud, app: app.appID).pull().code == nil)
    }

    @Test func identityThatForgotWhatAContainerIsLearnsItAgain() throws {
        let cloud = try TestCloud(seed: 47)
        defer { cloud.close() }
        let copy = try cloud.copyStorage(of: .identity)
        var save = WireSaveContainer()
        save.definition.containerID = "T.box"
        save.definition.containerClass = .stream
        save.definition.names = .bytes
        let saved = try cloud.operate("SaveContainer", save, as: WireSaveContainerReply.self).definition
        cloud.network.run(for: .seconds(5))
        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        let known = try cloud.operate("ListContainers", WireListContainers(), as: WireListContainersReply.self)
        #expect(known.definitions.filter { $0.containerID == "T.box" } == [saved])
    }

    /// Whoever has a copy of the device's home does not come in again, and the device is told why it has ended.
    @Test func identityThatForgotACopiedDeviceLearnsWhyItEnded() throws {
        let cloud = try TestCloud(seed: 46)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let thief = try cloud.makeCopy(of: device)
        let copy = try cloud.copyStorage(of: .identity)
        func failure(_ body: () throws -> Void) -> CloudError? {
            do { try body() } catch { return error as? CloudError }
            return nil
        }
        func refresh() throws {
            var request = WireRefreshToken()
            request.refreshToken = thief.refreshToken
            try thief.client.call(
                "RefreshToken", request, at: .requests(.identity), as: WireRefreshTokenReply.self)
        }
        // Used twice, in two exchanges.
        #expect(failure { try refresh() } == nil)
        #expect(failure { try refresh() }?.code == .deviceRevoked)
        cloud.network.run(for: .seconds(5))

        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(30))
        var signIn = WireSignIn()
        signIn.accountName = TestCloud.accountName
        signIn.password = TestCloud.password
        signIn.deviceName = "thief"
        for refused in [
            failure { try thief.client.call("SignIn", signIn, at: .requests(.identity), as: WireSignInReply.self) },
            failure { try refresh() },
        ] {
            #expect(refused?.code == .deviceRevoked && refused?.details["reason"] == "copied")
        }
        #expect(device.session?.revoked == true && device.session?.wasCopied == true)
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
        try cloud.revoke(device)
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
        let app = try cloud.createApp("T.notes", store: "T.shared")
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

    /// The copy is from when the account was not locked, and from before the key was replaced.
    @Test func anOldIdentityUnlocksNobodyAndRevivesNoKey() throws {
        let cloud = try TestCloud(seed: 44)
        defer { cloud.close() }
        let replaced: WireRotateSigningKeyReply = try cloud.operate("RotateSigningKey", WireRotateSigningKey())
        cloud.network.run(for: .seconds(60))
        try lock([true, false], in: cloud)
        let copy = try cloud.copyStorage(of: .identity)
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.network.run(for: .seconds(20 * 60))
        let guest = try Guest(of: cloud)
        #expect(try guest.pull().code == nil)
        try lock([true], in: cloud)
        cloud.network.run(for: .seconds(5))
        let end = try #require(try forgottenAt("token-key/" + replaced.keyID, in: cloud))

        try cloud.restore(copy, of: .identity)
        cloud.network.run(for: .seconds(60))
        #expect(try guest.pull().code == .accountTemporarilyUnavailable)
        // It was replaced again, which moves the end of what has ended no further away.
        #expect(try forgottenAt("token-key/" + replaced.keyID, in: cloud) == end)
        try lock([false], in: cloud)
        #expect(cloud.network.run(within: .seconds(10)) { (try? Guest(of: cloud, seed: 3).pull().code) == .some(nil) })
    }

    private func lock(_ states: [Bool], in cloud: TestCloud) throws {
        for isLocked in states {
            var lock = WireLockAccount()
            lock.accountName = TestCloud.accountName
            lock.locked = isLocked
            try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        }
    }

    /// Until when key-value remembers the item: a fixed time after it has ended.
    private func forgottenAt(_ item: String, in cloud: TestCloud) throws -> Int64? {
        try cloud.storage(of: .keyValue).write {
            try $0.first(SQL("SELECT forget_at FROM directory_items WHERE item = ?1"), [.text(item)]) { $0.integer(0) }
        }
    }

    /// What a service knows and identity has forgotten is told also by a service that ended in between.
    @Test func whatIdentityHasToBeToldOutlivesACrash() throws {
        let cloud = try TestCloud(seed: 38)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let copy = try cloud.copyStorage(of: .identity)
        try cloud.revoke(device)
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
