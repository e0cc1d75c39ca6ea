import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What one account can make the services keep.
@Suite struct BoundsTests {
    private func rows(_ sql: String, _ cloud: TestCloud, of service: ServiceName = .keyValue) throws -> Int64 {
        let statement = SQL(sql)
        return try cloud.storage(of: service).write { try $0.first(statement) { $0.integer(0) } ?? 0 }
    }

    @Test func deletesOfWhatNeverWasLeaveNothing() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("live", 1)])).code == nil)
        let head = try ChangeToken(guest.pull().get().token)
        let before = try rows("SELECT COUNT(*) FROM feed_operations", cloud)
        for round in 0..<3 {
            let writes = (0..<1000).map { guest.write("never-\(round)-\($0)", nil) }
            let reply = try guest.ask(guest.push(writes)).decoded(as: WirePushKeysReply.self)
            #expect(reply.outcomes.count == 1000 && reply.outcomes.allSatisfy { !$0.superseded })
            #expect(ChangeToken(reply.token) == head && reply.previousSequence == head.sequence)
        }
        #expect(try rows("SELECT COUNT(*) FROM feed_items", cloud) == 1)
        #expect(try rows("SELECT COUNT(*) FROM feed_operations", cloud) == before)
        // What was, leaves what the others have to hear of.
        #expect(try guest.ask(guest.push([guest.write("live", nil), guest.write("never", nil)])).code == nil)
        #expect(try guest.pull(after: head).get().items.map(\.key) == ["live"])
        #expect(try rows("SELECT COUNT(*) FROM feed_items", cloud) == 1)
    }

    @Test func aDevicesDeleteWinsAlsoOverAnOlderWriteThatArrivesAfterIt() throws {
        let cloud = try TestCloud(seed: 15)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let guest = try Guest(of: cloud)
        // Written, and on its way for a while.
        let late = guest.push([guest.write("k", "older")])
        cloud.network.run(for: .seconds(1))
        try device.store?.set(nil, forKey: "k")
        #expect(cloud.settle())
        let reply = try guest.ask(late).decoded(as: WirePushKeysReply.self)
        #expect(reply.outcomes.map(\.superseded) == [true])
        #expect(try guest.pull().get().items.isEmpty && cloud.settle() && device.values.isEmpty)
    }

    /// A device's own deletes leave something also where nothing was: its older write may still be on its way.
    @Test func deletionsOfWhatNeverWasAreRememberedUpToTheSameBoundAndNobodyWaitsForThem() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        let guest = try Guest(of: cloud)
        try cloud.createAccount("other")
        let other = try Guest(of: cloud, account: "other", seed: 2)
        #expect(try guest.ask(guest.push([guest.write("kept", 1)])).code == nil)
        let early = try ChangeToken(guest.pull().get().token)
        var slowest: Duration = .zero
        for round in 0..<12 {
            let writes = (0..<1000).map { guest.write("never-\(round)-\($0)", nil, by: guest.device) }
            try guest.send(guest.push(writes))
            let start = cloud.network.now
            #expect(try other.ask(other.push([other.write("k", .integer(Int64(round)))])).code == nil)
            slowest = max(slowest, cloud.network.now - start)
            cloud.network.run(for: .milliseconds(50))
            #expect(guest.takeReplies().allSatisfy { $0.code == nil })
        }
        let count = try rows("SELECT COUNT(*) FROM feed_items WHERE deleted_at > 0", cloud)
        #expect((3500...4096).contains(count))
        #expect(try rows("SELECT SUM(tombstones) FROM feed_scopes", cloud) == count)
        #expect(slowest <= .milliseconds(50), "\(slowest)")
        #expect(try guest.pull(after: early).code == .changeTokenExpired)
        #expect(try guest.pull().get().items.map(\.key) == ["kept"])
    }

    @Test func aStoresDeletionsAreRememberedUpToABound() throws {
        let cloud = try TestCloud(seed: 2)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("kept", 1)])).code == nil)
        let early = try ChangeToken(guest.pull().get().token)
        for round in 0..<6 {
            let keys = (0..<1000).map { "\(round)-\($0)" }
            #expect(try guest.ask(guest.push(keys.map { guest.write($0, 1) })).code == nil)
            cloud.network.run(for: .milliseconds(5))
            #expect(try guest.ask(guest.push(keys.map { guest.write($0, nil) })).code == nil)
        }
        let count = try rows("SELECT COUNT(*) FROM feed_items WHERE deleted_at > 0", cloud)
        #expect((3500...4096).contains(count))
        #expect(try rows("SELECT SUM(tombstones) FROM feed_scopes", cloud) == count)
        #expect(try guest.pull(after: early).code == .changeTokenExpired)
        let everything = try guest.pull().get()
        #expect(everything.complete && everything.items.map(\.key) == ["kept"])
        #expect(try guest.pull(after: ChangeToken(everything.token)).get().items.isEmpty)
    }

    @Test func whoLosesToLargeValuesIsNotAnsweredWithThem() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let winner = try Guest(of: cloud)
        let loser = try Guest(of: cloud, seed: 2)
        var late = loser.write("large", "late")
        var lateSmall = loser.write("small", "late")
        late.timestamp -= 1 << 20
        lateSmall.timestamp -= 1 << 20
        let large = String(repeating: "x", count: 500_000)
        #expect(
            try winner.ask(winner.push([winner.write("large", .string(large)), winner.write("small", "new")])).code
                == nil)
        let id = loser.operation()
        let push = loser.push([late, lateSmall])
        let answer = try loser.ask(push, id: id)
        let outcomes = try answer.decoded(as: WirePushKeysReply.self).outcomes
        #expect(outcomes.map(\.superseded) == [true, true])
        #expect(outcomes.map(\.valueOmitted) == [true, false])
        #expect(outcomes[1].current.value.string == "new")
        #expect(try answer.result.get().count < 1000)
        #expect(try rows("SELECT MAX(LENGTH(reply)) FROM feed_operations", cloud) < 1000)
        let again = try loser.ask(push, id: id).decoded(as: WirePushKeysReply.self).outcomes
        #expect(again.map(\.superseded) == [true, true] && again.map(\.valueOmitted) == [true, true])
    }

    @Test func aClosedAccountsLongHistoryIsRemovedWhole() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        let one = try Guest(of: cloud)
        let two = try Guest(of: cloud, seed: 2)
        for (round, guest) in [one, two, one, two].enumerated() {
            let writes = (0..<600).map { guest.write("k\($0)", .integer(Int64(round))) }
            #expect(try guest.ask(guest.push(writes)).code == nil)
            cloud.network.run(for: .milliseconds(10))
        }
        #expect(try rows("SELECT COUNT(*) FROM key_history", cloud) == 1800)
        var close = WireCloseAccount()
        close.accountName = TestCloud.accountName
        try cloud.operate("CloseAccount", close, as: WireCloseAccountReply.self)
        cloud.network.run(for: .seconds(10))
        for table in ["key_history", "key_history_stores", "feed_items", "feed_scopes", "account_closures"] {
            #expect(try rows("SELECT COUNT(*) FROM \(table)", cloud) == 0, "\(table)")
        }
    }

    @Test func aRepeatIsKnownForADayAlsoAfterOldOnesWereForgotten() throws {
        let cloud = try TestCloud(seed: 5)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let id = guest.operation()
        let push = guest.push([guest.write("k", 1)])
        let first = try guest.ask(push, id: id).result.get().bytes
        var passed = Duration.seconds(60)
        func pass(_ hours: Int) {
            for service in TestCloud.services { cloud.skip(.seconds(hours * 3600) - passed, of: service) }
            passed = .seconds(hours * 3600)
            // Longer than the host takes to look for what is old.
            cloud.network.run(for: .seconds(12))
        }
        for hours in [2, 23] {
            pass(hours)
            try guest.signInAgain()
            #expect(try guest.ask(push, id: id).result.get().bytes == first, "after \(hours) hours")
        }
        pass(26)
        try guest.signInAgain()
        // What may have been forgotten is refused, and not carried out again.
        #expect(try guest.ask(push, id: id).code == .operationExpired)
        #expect(try rows("SELECT COUNT(*) FROM feed_operations", cloud) == 0)
    }
}
