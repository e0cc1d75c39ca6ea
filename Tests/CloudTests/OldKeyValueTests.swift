import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// Key-value comes back from an old copy of its database.
@Suite struct OldKeyValueTests {
    @Test(arguments: [[ServiceName.keyValue], TestCloud.services])
    func whatWasWrittenAfterTheCopyComesBackAndWhatWasDeletedDoesNot(_ restored: [ServiceName]) throws {
        let cloud = try TestCloud(seed: 11)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("old", 1)
        try devices[0].set("gone", 1)
        #expect(cloud.settle())
        let copies = try restored.map { try cloud.copyStorage(of: $0) }
        try devices[0].set("new", 2)
        try devices[1].set("old", 3)
        try devices[0].set("gone", nil)
        #expect(cloud.settle())
        let before = try cloud.health(of: .keyValue)
        for (service, copy) in zip(restored, copies) { try cloud.restore(copy, of: service) }
        cloud.settleForGood()
        for device in devices { #expect(device.values == ["new": 2, "old": 3]) }
        #expect(devices[0].digest == devices[1].digest)
        let after = try cloud.health(of: .keyValue)
        #expect(before.oldCopyFoundAt == 0 && after.oldCopyFoundAt > 0 && after.epoch > before.epoch)
        // A device that comes anew sees the same.
        let third = try cloud.addDevice()
        cloud.settleForGood()
        #expect(third.values == ["new": 2, "old": 3])
    }

    @Test func anEmptyDatabaseIsFilledAgain() throws {
        let cloud = try TestCloud(seed: 12)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        for number in 0..<20 { try devices[number % 2].set(ItemName("key\(number)"), .integer(Int64(number))) }
        #expect(cloud.settle())
        let values = devices[0].values
        try cloud.restore(nil, of: .keyValue)
        cloud.settleForGood()
        #expect(values.count == 20)
        for device in devices { #expect(device.values == values) }
    }

    /// Nobody writes after it, and the copy has no head of theirs that could be behind.
    @Test(arguments: [1, 2]) func aCopyFromBeforeTheFirstWriteIsFoundOut(_ times: Int) throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        for time in 1...times {
            try devices[0].set("key", .integer(Int64(time)))
            #expect(cloud.settle())
            // Then it is the copy of an older epoch.
            try cloud.restore(copy, of: .keyValue)
            cloud.settleForGood()
            for device in devices { #expect(device.values == ["key": .integer(Int64(time))]) }
            let third = try cloud.addDevice()
            cloud.settleForGood()
            #expect(third.values == ["key": .integer(Int64(time))])
            third.stop()
            try third.start()
        }
    }

    /// The copy is written on, beyond where the device was, before the device
    /// is heard of again: its token's numbers are in this history, its changes are not.
    @Test func aCopyThatWasWrittenOnIsFoundOut() throws {
        let cloud = try TestCloud(seed: 13)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("base", 0)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        let home = try devices[1].copyHome()
        try devices[0].set("lost", 1)
        #expect(cloud.settle())
        devices[0].setOffline(true)
        // The other device is as old as the copy: it proves nothing.
        try devices[1].restoreHome(home)
        try cloud.restore(copy, of: .keyValue)
        for number in 0..<9 {
            try devices[1].set(ItemName("on\(number)"), 1)
            cloud.network.run(for: .milliseconds(200))
        }
        devices[0].setOffline(false)
        cloud.settleForGood()
        for device in devices {
            #expect(device.values["lost"] == 1 && device.values.count == 11)
        }
    }

    @Test func oneCopyBroughtBackTwiceIsTwoHistories() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        var epochs: Set<UInt64> = [try cloud.health(of: .keyValue).epoch]
        for round in 0..<3 {
            try devices[round % 2].set(ItemName("round\(round)"), 1)
            #expect(cloud.settle())
            try cloud.restore(copy, of: .keyValue)
            cloud.settleForGood()
            epochs.insert(try cloud.health(of: .keyValue).epoch)
        }
        #expect(epochs.count == 4)
        for device in devices { #expect(device.values.count == 4) }
    }

    /// Copies cross: the last knows nothing of two epochs, and the device came when both had begun.
    @Test func whoCameLastLosesNothingToACopyFromBeforeTheEpochsThatThereWere() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("base", 0)
        #expect(cloud.settle())
        let early = try cloud.copyStorage(of: .keyValue)
        for number in 1...20 {
            try devices[0].set("often", .integer(Int64(number)))
            #expect(cloud.settle())
        }
        let late = try cloud.copyStorage(of: .keyValue)
        try devices[0].set("often", 21)
        #expect(cloud.settle())
        try cloud.restore(early, of: .keyValue)
        cloud.settleForGood()
        try devices[0].set("kept", 1)
        #expect(cloud.settle())
        let between = try cloud.copyStorage(of: .keyValue)
        try devices[0].set("more", 2)
        #expect(cloud.settle())
        try cloud.restore(between, of: .keyValue)
        cloud.settleForGood()
        let last = try cloud.addDevice()
        cloud.settleForGood()
        for device in devices { device.setOffline(true) }
        try cloud.restore(late, of: .keyValue)
        cloud.network.run(for: .seconds(60))
        #expect(last.values == ["base": 0, "often": 21, "kept": 1, "more": 2])
        for device in devices { device.setOffline(false) }
        cloud.settleForGood()
        for device in devices { #expect(device.values == last.values && device.digest == last.digest) }
    }

    /// What lost with the copy, and what it had, is in the history.
    @Test func whatLosesIsKept() throws {
        let cloud = try TestCloud(seed: 15)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", "first")
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        try devices[0].set("a", "acknowledged")
        #expect(cloud.settle())
        devices[0].setOffline(true)
        devices[1].setOffline(true)
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        try devices[1].set("a", "newest")
        devices[1].setOffline(false)
        cloud.network.run(for: .seconds(15))
        devices[0].setOffline(false)
        cloud.settleForGood()
        for device in devices { #expect(device.values == ["a": "newest"]) }
        let guest = try Guest(of: cloud)
        var list = WireListKeyHistory()
        list.storeID = guest.session.accessToken.app.storeID
        let history: WireListKeyHistoryReply = try guest.ask(list).decoded()
        let values = try history.entries.map { try KeyValueItem($0.item).value }
        #expect(values.contains("acknowledged"))
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
        #expect(try cloud.health(of: .keyValue).oldCopyFoundAt > 0)
    }

    /// Else the device would take what it lacks for deleted.
    @Test func aWholePullThatShowsALostTokenIsAnsweredInANewEpochAlone() throws {
        let cloud = try TestCloud(seed: 32)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let held = try lose(cloud, guest)
        var pull = WireReadChanges()
        pull.scope = guest.session.accessToken.app.storeID
        pull.held = WireChangeToken(held)
        #expect(try guest.ask(pull).code == .serviceBusy)
        cloud.network.run(for: .seconds(1))
        let reply = try guest.ask(pull).decoded(as: WireReadChangesReply.self)
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
        #expect(try cloud.health(of: .keyValue).epoch > held.epoch)
    }

    /// Between two pages the database comes back from a copy, and is written on beyond the place.
    @Test func aPageThatShowsALostPlaceBeginsANewEpoch() throws {
        let cloud = try TestCloud(seed: 42)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        for number in 0..<3 { #expect(try guest.ask(guest.push([guest.write("base\(number)", 1)])).code == nil) }
        let copy = try cloud.copyStorage(of: .keyValue)
        for number in 0..<3 { #expect(try guest.ask(guest.push([guest.write("lost\(number)", 1)])).code == nil) }
        var pull = WireReadChanges()
        pull.scope = guest.session.accessToken.app.storeID
        pull.after.epoch = try guest.pull().get().token.epoch
        pull.after.sequence = 1
        pull.itemsMax = 4
        let page = try guest.ask(pull).decoded(as: WireReadChangesReply.self)
        #expect(page.items.last?.key == "lost1" && page.hasPlace)
        // It follows the other, and would show what it knows.
        cloud.crash(.notifications)
        try cloud.restore(copy, of: .keyValue)
        cloud.network.run(for: .seconds(1))
        for number in 0..<5 { #expect(try guest.ask(guest.push([guest.write("on\(number)", 1)])).code == nil) }
        pull.place = page.place
        #expect(try guest.ask(pull).code == .changeTokenExpired)
        cloud.network.run(for: .seconds(1))
        #expect(try guest.pull().get().token.epoch > page.token.epoch)
    }

    /// What was written is seen all the time, also while it is found out that its place is another.
    @Test func whatIsWrittenAtOnceAfterARestoreStaysInView() throws {
        let cloud = try TestCloud(seed: 39)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try device.set("base", 0)
        #expect(cloud.settle())
        let copy = try cloud.copyStorage(of: .keyValue)
        for number in 0..<3 {
            try device.set(ItemName("lost\(number)"), 1)
            #expect(cloud.settle())
        }
        try cloud.restore(copy, of: .keyValue)
        try device.set("new", 1)
        let vanished = cloud.network.run(within: .seconds(20)) { device.values["new"] == nil }
        #expect(!vanished)
        #expect(device.values.count == 5 && cloud.settle())
    }

    /// A store that the copy does not have at all is no scope of any event.
    @Test func aHeadThatIsLostIsNotToldAnyMore() throws {
        let cloud = try TestCloud(seed: 41)
        defer { cloud.close() }
        let app = try cloud.createApp("T.second", store: "T.second")
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
}
