import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// Wrong clocks, on devices and in services.
@Suite struct ClockTests {
    private func settled(_ devices: Int, seed: UInt64 = 1) throws -> TestCloud {
        let cloud = try TestCloud(seed: seed)
        for _ in 0..<devices { try cloud.addDevice() }
        #expect(cloud.settle())
        return cloud
    }

    @Test func aSlowDeviceThatWasNotifiedOfANewerValueReplacesIt() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (fast, slow) = (cloud.devices[0], cloud.devices[1])
        let store = try #require(slow.store)
        // The first write makes the store's digest key, which comes with a fetch; from then on notifications suffice.
        try fast.store?.set("first", forKey: "other")
        #expect(cloud.settle())
        slow.setClockOffset(.seconds(-1800))
        try fast.store?.set("theirs", forKey: "k")
        let told = cloud.network.run(within: .seconds(5)) { slow.values["k"] == "theirs" }
        #expect(told)
        try store.set("mine", forKey: "k")
        #expect(try store.read("k") == .value("mine"))
        #expect(cloud.settle())
        #expect(fast.values["k"] == "mine" && slow.values["k"] == "mine")
    }

    @Test func aSlowDeviceThatFetchedANewerValueReplacesIt() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (fast, slow) = (cloud.devices[0], cloud.devices[1])
        slow.setClockOffset(.seconds(-1800))
        slow.setOffline(true)
        cloud.network.run(for: .seconds(1))
        try fast.store?.set("theirs", forKey: "k")
        cloud.network.run(for: .seconds(60))
        slow.setOffline(false)
        #expect(cloud.settle())
        #expect(slow.values["k"] == "theirs")
        try slow.store?.set("mine", forKey: "k")
        #expect(cloud.settle())
        #expect(fast.values["k"] == "mine" && slow.values["k"] == "mine")
    }

    @Test func newerStaysNewerWhenTheServersClockIsSetBack() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (a, b) = (cloud.devices[0], cloud.devices[1])
        try a.store?.set("older", forKey: "k")
        #expect(cloud.settle())
        b.setOffline(true)
        cloud.network.run(for: .seconds(1))
        try b.store?.set("newer", forKey: "k")
        try b.store?.set("newer", forKey: "fresh")
        cloud.network.run(for: .seconds(1))
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(-300))
        b.setOffline(false)
        #expect(cloud.settle())
        #expect(a.values == ["k": "newer", "fresh": "newer"])
    }

    /// What is stored tells a service that begins how late it is at least.
    @Test func newerStaysNewerWhenTheServiceStartsWithItsClockSetBack() throws {
        let cloud = try settled(3)
        defer { cloud.close() }
        let (late, right, other) = (cloud.devices[0], cloud.devices[1], cloud.devices[2])
        // Their tokens are not of the future, by the clock that will be set back.
        cloud.network.run(for: .seconds(400))
        for device in [late, right] { device.setOffline(true) }
        cloud.network.run(for: .seconds(1))
        try late.store?.set("older", forKey: "k")
        cloud.network.run(for: .seconds(5))
        try right.store?.set("newer", forKey: "k")
        cloud.network.run(for: .seconds(5))
        try other.store?.set(1, forKey: "other")
        cloud.network.run(for: .seconds(1))
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(-300))
        right.setOffline(false)
        cloud.network.run(for: .seconds(20))
        late.setOffline(false)
        #expect(cloud.settle())
        #expect(cloud.devices.allSatisfy { $0.values["k"] == "newer" })
    }

    @Test func whatADeviceOvertookItselfIsNoLostConflict() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let device = cloud.devices[0]
        // Sent in one order, and arriving in any.
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(50)), loss: 0.2, reordering: 0.5)
        for index in 1...40 {
            try device.store?.set(.integer(Int64(index)), forKey: "k")
            cloud.network.run(for: .milliseconds(7))
        }
        cloud.network.faults = .none
        #expect(cloud.settle())
        #expect(cloud.devices.allSatisfy { $0.values["k"] == 40 })
        #expect(try history(of: device, in: cloud).allSatisfy { !$0.lostConflict })
    }

    @Test func aValueDeletedByAnotherDeviceIsInTheHistory() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (a, b) = (cloud.devices[0], cloud.devices[1])
        try a.store?.set("precious", forKey: "k")
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(1))
        try b.store?.set(nil, forKey: "k")
        #expect(cloud.settle())
        #expect(a.values.isEmpty)
        let entries = try history(of: a, in: cloud)
        #expect(try entries.map { try KeyValueItem($0.item).value } == ["precious"])
        #expect(entries.first?.winnerDeviceID == b.session?.deviceID.rawValue)
    }

    // MARK: Clocks of devices

    @Test(arguments: [-40 * 86_400, 3 * 3600])
    func aDeviceWithAWrongClockWritesRenewsAndIsNotified(_ seconds: Int) throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (right, wrong) = (cloud.devices[0], cloud.devices[1])
        wrong.setClockOffset(.seconds(seconds))
        let requests = cloud.requestCount(.keyValue)
        try wrong.store?.set("from the wrong one", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        #expect(right.values["k"] == "from the wrong one")
        // One push was refused, and told the time. What follows needs no second attempt.
        try wrong.store?.set("again", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        #expect(cloud.requestCount(.keyValue) - requests < 12)
        // Past the life of its tokens, and then it is told at once.
        cloud.network.run(for: .seconds(1000))
        try right.store?.set("from the right one", forKey: "k")
        #expect(cloud.network.run(within: .seconds(2)) { wrong.values["k"] == "from the right one" })
        try wrong.store?.set("the last", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        #expect(right.values["k"] == "the last")
        #expect(wrong.secretSaves < 12)
    }

    /// The first write is refused for its time, and tells the device what time it is. What it writes from then on is as
    /// new as it is, also where it has not heard of what others wrote before it.
    @Test func aDeviceWhoseClockWasFoundSlowWritesByTheServersTime() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (right, slow) = (cloud.devices[0], cloud.devices[1])
        slow.setClockOffset(.seconds(-40 * 86_400))
        try slow.store?.set("first", forKey: "other")
        #expect(cloud.settle(within: .seconds(30)))
        slow.setOffline(true)
        cloud.network.run(for: .seconds(60))
        try right.store?.set("earlier", forKey: "k")
        cloud.network.run(for: .seconds(60))
        try slow.store?.set("later", forKey: "k")
        cloud.network.run(for: .seconds(60))
        slow.setOffline(false)
        #expect(cloud.settle(within: .seconds(120)))
        #expect(right.values["k"] == "later" && slow.values["k"] == "later")
    }

    @Test func aDeviceSignsInWithAWrongClock() throws {
        let cloud = try settled(1)
        defer { cloud.close() }
        let device = try cloud.addDevice(clockOffset: .seconds(-30 * 86_400))
        try device.store?.set(1, forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        #expect(cloud.devices[0].values["k"] == 1)
    }

    @Test func aClockThatIsCorrectedBackwardsHoldsNothingUp() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let device = cloud.devices[1]
        device.setClockOffset(.seconds(50 * 60))
        cloud.crash(.keyValue)
        try device.store?.set("kept", forKey: "k")
        // Its next attempt is on disk as a time that the corrected clock says much later.
        cloud.network.run(for: .seconds(30))
        #expect(
            cloud.network.run(within: .seconds(60)) {
                (try? device.store?.status())?.pending.first?.nextAttempt != nil
            })
        device.setClockOffset(.seconds(-20 * 60))
        try cloud.start(.keyValue)
        #expect(cloud.settle(within: .seconds(70)))
        // And for a process that begins after the correction.
        device.setClockOffset(.seconds(50 * 60))
        cloud.crash(.keyValue)
        try device.store?.set("kept too", forKey: "k")
        cloud.network.run(for: .seconds(30))
        device.stop()
        device.setClockOffset(.seconds(-20 * 60))
        try device.start()
        try cloud.start(.keyValue)
        #expect(cloud.settle(within: .seconds(70)))
        #expect(cloud.devices[0].values["k"] == "kept too")
    }

    @Test func whatIsRefusedForItsTimeIsNotSentWithoutAPause() throws {
        // A service whose clock is wrong in its turn, and which another one's tokens bear no longer.
        let cloud = try settled(1)
        defer { cloud.close() }
        cloud.crash(.identity)
        cloud.network.setClockOffset(ServiceName.keyValue.rawValue, .seconds(30 * 86_400))
        let before = cloud.requestCount(.keyValue)
        let saves = cloud.devices[0].secretSaves
        try cloud.devices[0].store?.set(1, forKey: "k")
        cloud.network.run(for: .seconds(600))
        // Pauses grow to a minute; what is called again within a call is counted too.
        #expect(cloud.requestCount(.keyValue) - before < 120)
        #expect(cloud.devices[0].secretSaves - saves < 60)
    }

    @Test(arguments: [2 * 3600, 400 * 86_400])
    func aClockThatWasAheadAndIsPutRightBeatsNothingNewer(_ seconds: Int) throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (right, wrong) = (cloud.devices[0], cloud.devices[1])
        wrong.setClockOffset(.seconds(seconds))
        try wrong.store?.set("of a wrong clock", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        for restarts in [false, true] {
            wrong.setClockOffset(.zero)
            if restarts {
                wrong.stop()
                try wrong.start()
            }
            cloud.network.run(for: .seconds(10))
            wrong.setOffline(true)
            cloud.network.run(for: .seconds(1))
            try wrong.store?.set("older", forKey: "k")
            cloud.network.run(for: .seconds(120))
            try right.store?.set("newer", forKey: "k")
            cloud.network.run(for: .seconds(5))
            wrong.setOffline(false)
            #expect(cloud.settle())
            #expect(cloud.devices.map { $0.values["k"] } == ["newer", "newer"])
            // What it writes after it has seen that is newer still.
            try wrong.store?.set("newest", forKey: "k")
            #expect(cloud.settle(within: .seconds(30)))
            #expect(cloud.devices.map { $0.values["k"] } == ["newest", "newest"])
        }
    }

    @Test func aClockThatIsStillAheadIsKnownByWhatTheServerCutsBack() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (right, wrong) = (cloud.devices[0], cloud.devices[1])
        // No id is refused for this.
        wrong.setClockOffset(.seconds(1800))
        try wrong.store?.set("of a wrong clock", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        wrong.setOffline(true)
        cloud.network.run(for: .seconds(1))
        try wrong.store?.set("older", forKey: "k")
        cloud.network.run(for: .seconds(120))
        try right.store?.set("newer", forKey: "k")
        cloud.network.run(for: .seconds(5))
        wrong.setOffline(false)
        #expect(cloud.settle())
        #expect(cloud.devices.map { $0.values["k"] } == ["newer", "newer"])
    }

    @Test func aClockThatIsPutRightWhileTheProcessRunsIsBelieved() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let (right, wrong) = (cloud.devices[0], cloud.devices[1])
        wrong.setClockOffset(.seconds(3 * 3600))
        try wrong.store?.set("of a wrong clock", forKey: "k")
        #expect(cloud.settle(within: .seconds(30)))
        wrong.setClockOffset(.zero)
        cloud.network.run(for: .seconds(10))
        // Both away, so that neither has seen what the other writes.
        for device in cloud.devices { device.setOffline(true) }
        cloud.network.run(for: .seconds(1))
        try right.store?.set("older", forKey: "k")
        cloud.network.run(for: .seconds(120))
        try wrong.store?.set("newer", forKey: "k")
        for device in cloud.devices { device.setOffline(false) }
        #expect(cloud.settle())
        #expect(cloud.devices.map { $0.values["k"] } == ["newer", "newer"])
    }

    @Test func theOrderOfADevicesOwnWritesHoldsWhileItsClockIsPutRight() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let wrong = cloud.devices[1]
        wrong.setOffline(true)
        cloud.network.run(for: .seconds(1))
        wrong.setClockOffset(.seconds(2 * 3600))
        try wrong.store?.write([LocalWrite(key: "k", value: 1), LocalWrite(key: "l", value: 1)])
        wrong.setClockOffset(.zero)
        cloud.network.run(for: .seconds(5))
        try wrong.store?.set(2, forKey: "k")
        #expect(wrong.values == ["k": 2, "l": 1])
        wrong.setOffline(false)
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(50)), loss: 0.2, reordering: 0.5)
        for value in 3...20 {
            try wrong.store?.set(.integer(Int64(value)), forKey: "k")
            cloud.network.run(for: .milliseconds(7))
        }
        cloud.network.faults = .none
        #expect(cloud.settle())
        #expect(cloud.devices.allSatisfy { $0.values == ["k": 20, "l": 1] })
    }

    // MARK: Calls that are no push

    /// Each finds the clock wrong anew: what was learned of a clock goes when somebody sets it.
    @Test(arguments: [-40 * 86_400, 3 * 3600])
    func whatIsNoPushIsDoneUnderAWrongClockToo(_ seconds: Int) throws {
        let cloud = try settled(3)
        defer { cloud.close() }
        let (wrong, stolen) = (cloud.devices[0], cloud.devices[1])
        let ids = try cloud.devices.map { try #require($0.session?.deviceID.rawValue) }
        var offset = seconds
        /// Refused once, told the time by that, and done at once.
        func underAWrongClock(_ what: Comment, _ call: () throws -> Void) throws {
            offset += seconds / 10
            wrong.setClockOffset(.seconds(offset))
            let (requests, start) = (cloud.requestCount(.identity), cloud.network.now)
            try call()
            #expect(cloud.requestCount(.identity) - requests == 2, what)
            #expect(cloud.network.now - start < .seconds(1), what)
        }
        try underAWrongClock("renamed") {
            var rename = WireRenameDevice()
            (rename.deviceID, rename.name) = (ids[0], "another name")
            _ = try wrong.call(.identity, rename, as: WireRenameDeviceReply.self)
        }
        try underAWrongClock("another password") {
            var change = WireChangePassword()
            (change.currentPassword, change.newPassword) = (TestCloud.password, "another battery staple")
            _ = try wrong.call(.identity, change, as: WireChangePasswordReply.self)
        }
        try underAWrongClock("allowed") {
            _ = try wrong.call(.identity, WireAllowSignIn(), as: WireAllowSignInReply.self)
        }
        try underAWrongClock("revoked") {
            var revoke = WireRevokeDevice()
            revoke.deviceID = ids[1]
            _ = try wrong.call(.identity, revoke, as: WireRevokeDeviceReply.self)
        }
        func known() throws -> [WireDevice] {
            var list = WireListDevices()
            list.accountName = TestCloud.accountName
            return try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        }
        #expect(try known().first { $0.deviceID == ids[0] }?.name == "another name")
        #expect(try known().filter(\.revoked).map(\.deviceID) == [ids[1]])
        try underAWrongClock("signed out") { try wrong.signOut() }
        #expect(try !known().map(\.deviceID).contains(ids[0]))
        #expect(cloud.network.run(within: .seconds(5)) { stolen.session?.revoked == true })
        #expect(refusal { try cloud.devices[2].signIn(as: TestCloud.accountName) } == .wrongCredentials)
    }

    /// By a clock that went back the token of before has not run out: the server says so first, and then the time.
    @Test func aCallUnderAnOldTokenAndAWrongClockIsDone() throws {
        let cloud = try settled(2)
        defer { cloud.close() }
        let device = cloud.devices[0]
        device.stop()
        cloud.network.run(for: .seconds(1000))
        device.setClockOffset(.seconds(-2 * 86_400))
        try device.start()
        var rename = WireRenameDevice()
        (rename.deviceID, rename.name) = (try #require(device.session?.deviceID.rawValue), "another name")
        let reply: WireRenameDeviceReply = try device.call(.identity, rename)
        #expect(reply.device.name == "another name")
    }

    private func history(of device: TestDevice, in cloud: TestCloud) throws -> [WireKeyHistoryEntry] {
        var request = WireListKeyHistory()
        request.storeID = try #require(device.session?.storeIDs["default"])
        return try device.call(.keyValue, request, as: WireListKeyHistoryReply.self).entries
    }
}
