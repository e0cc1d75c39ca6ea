import Bus
import Core
import NephosKit
import ServiceKit
import Storage
import TestKit
import Testing
import Wire

/// What one account can make the services keep, send and do.
@Suite struct BoundsTests {
    private func rows(_ sql: String, _ cloud: TestCloud, of service: ServiceName = .keyValue) throws -> Int64 {
        let statement = SQL(sql)
        return try cloud.storage(of: service).write { try $0.first(statement) { $0.integer(0) } ?? 0 }
    }

    // MARK: What stays

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
        for table in ["key_history", "key_history_totals", "feed_items", "feed_scopes", "account_closures"] {
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
        func pass(_ hours: Int) {
            for service in TestCloud.services {
                cloud.network.setClockOffset(service.rawValue, .seconds(hours * 3600 - 60))
            }
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

    // MARK: What it costs

    @Test func aRequestCostsWhatItCosts() throws {
        let cloud = try TestCloud(seed: 6, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        func left(_ reply: ReplyEnvelope) -> Int { reply.budget?.remaining ?? -1 }
        let small = try guest.ask(guest.push([guest.write("a", "small")]))
        #expect(left(small) == 999)
        cloud.network.run(for: .seconds(2))

        let value = PropertyValue.string(String(repeating: "x", count: 1_000_000))
        let id = guest.operation()
        let push = guest.push([guest.write("large", value)])
        let large = try guest.ask(push, id: id)
        #expect(large.code == nil && (750...757).contains(left(large)))
        // What is refused, and a repeat.
        let refused = try guest.ask(guest.push([guest.write("second", value)]))
        #expect(refused.code == .quotaExceeded && (505...518).contains(left(refused)))
        let again = try guest.ask(push, id: id)
        #expect(again.code == nil && (260...280).contains(left(again)))
        let rowsOnly = try guest.ask(guest.push((0..<800).map { guest.write("never-\($0)", nil) }))
        #expect(rowsOnly.code == nil && left(rowsOnly) < 230)

        let health: WireCheckHealthReply = try cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
        #expect(health.budgetBytesPerCall == 4096 && health.budgetRowsPerCall == 16)
    }

    @Test func whatAListPassesOverIsPaidFor() throws {
        let cloud = try TestCloud(seed: 18, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        func left(skipping count: UInt32) throws -> Int? {
            var list = WireListKeyHistory()
            list.storeID = guest.session.accessToken.app.storeID
            list.skip = count
            let reply = try guest.ask(list)
            defer { cloud.network.run(for: .seconds(30)) }
            return reply.code == nil ? reply.budget?.remaining : nil
        }
        // What is not there costs nothing.
        #expect(try left(skipping: .max) == 999)
        let keys = (0..<800).map { "\($0)" }
        #expect(try guest.ask(guest.push(keys.map { guest.write($0, 2) })).code == nil)
        for age: UInt64 in 1...2 {
            cloud.network.run(for: .seconds(30))
            let losing = keys.map { key in
                var write = guest.write(key, 1)
                write.timestamp -= age * 3_600_000 << 16
                return write
            }
            #expect(try guest.ask(guest.push(losing)).code == nil)
        }
        cloud.network.run(for: .seconds(30))
        #expect((988...994).contains(try left(skipping: 0) ?? 0))
        #expect((890...900).contains(try left(skipping: 1599) ?? 0))
        #expect((890...900).contains(try left(skipping: .max) ?? 0))
    }

    /// What they turn out to cost nobody has taken before they came; so one is carried out, and not all of them.
    @Test func manySmallRequestsThatCostMuchCannotBeHadForTheirPrice() throws {
        let cloud = try TestCloud(seed: 21, budgets: BudgetConfiguration())
        defer { cloud.close() }
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        let guest = try Guest(of: cloud)
        let other = try Guest(of: cloud, seed: 2)
        let value = PropertyValue.string(String(repeating: "x", count: 1_000_000))
        #expect(try other.ask(other.push([other.write("k", value)])).code == nil)
        cloud.network.run(for: .seconds(30))
        var losing = guest.write("k", "small")
        losing.timestamp -= 3_600_000 << 16
        for _ in 0..<300 { try guest.send(guest.push([losing])) }
        cloud.network.run(for: .seconds(1))
        let codes = guest.takeReplies().map(\.code)
        #expect(codes.count == 300)
        #expect((1...5).contains(codes.count { $0 == nil }))
        #expect(codes.allSatisfy { $0 == nil || $0 == .requestRateLimited })
        // And nobody is in debt for long.
        cloud.network.run(for: .seconds(5))
        #expect(try guest.ask(guest.push([guest.write("a", 1)])).code == nil)
    }

    /// To learn whether a write lost to its like, what it lost to is read and opened.
    @Test func whatALosingWriteIsComparedWithIsPaidFor() throws {
        let cloud = try TestCloud(seed: 20, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let value = PropertyValue.string(String(repeating: "x", count: 409_600))
        #expect(try guest.ask(guest.push([guest.write("k", value)])).code == nil)
        cloud.network.run(for: .seconds(30))
        var losing = guest.write("k", "small")
        losing.timestamp -= 3_600_000 << 16
        let reply = try guest.ask(guest.push([losing]))
        #expect(reply.code == nil && reply.budget?.remaining == 900)
    }

    @Test func valuesThatAreNotInCanonicalFormArePaidFor() throws {
        let cloud = try TestCloud(seed: 19, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        // Two entries that share 16,000 bytes.
        let entries = ["a", "b"].map { key in
            var entry = WirePropertyDictionary.Entry()
            entry.key = key
            entry.value.string = String(repeating: "x", count: 8000)
            return entry
        }
        func left(_ entries: [WirePropertyDictionary.Entry]) throws -> Int? {
            var write = guest.write("k", nil)
            write.value.dictionary.entries = entries
            let reply = try guest.ask(guest.push([write]))
            defer { cloud.network.run(for: .seconds(30)) }
            return reply.code == nil ? reply.budget?.remaining : nil
        }
        #expect(try left(entries) == 997)
        // A row for each 16 bytes, and a call for each 16 rows.
        #expect(try left(entries.reversed()) == 997 - 16_000 / 16 / 16)
        #expect(try guest.pull().get().items.first?.value.dictionary.entries == entries)
    }

    @Test func nobodyGetsTheWholeStoreMoreOftenThanTheBudgetPaysFor() throws {
        let cloud = try TestCloud(seed: 7, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let value = PropertyValue.string(String(repeating: "x", count: 1_000_000))
        #expect(try guest.ask(guest.push([guest.write("large", value)])).code == nil)
        cloud.network.run(for: .seconds(10))
        var pull = WireReadChanges()
        pull.scope = guest.session.accessToken.app.storeID
        for _ in 0..<900 { try guest.send(pull) }
        cloud.network.run(for: .milliseconds(500))
        let answers = guest.takeReplies()
        #expect((3...5).contains(answers.count { $0.code == nil }))
        #expect(answers.count { $0.code == .requestRateLimited } > 890)
        // The debt is paid in time, and others have not paid for it.
        let other = try Guest(of: cloud, seed: 2)
        #expect(try other.pull().code == nil)
        cloud.network.run(for: .seconds(5))
        #expect(try guest.pull().code == nil)
    }

    @Test func aListOfWhatWasEndsBeforeItIsTooLarge() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let guests = try [Guest(of: cloud), Guest(of: cloud, seed: 2)]
        let value = String(repeating: "x", count: 900_000)
        for round in 0..<6 {
            let guest = guests[round % 2]
            let push = guest.push([guest.write("k", .string(value + "\(round)"))])
            #expect(try guest.ask(push).code == nil)
            cloud.network.run(for: .seconds(1))
        }
        var list = WireListKeyHistory()
        list.storeID = guests[0].session.accessToken.app.storeID
        var sizes: [Int] = []
        var values: Set<String> = []
        while true {
            let answer = try guests[0].ask(list)
            let reply = try answer.decoded(as: WireListKeyHistoryReply.self)
            sizes.append(try answer.result.get().count)
            values.formUnion(reply.entries.map(\.item.value.string))
            list.skip += UInt32(reply.entries.count)
            guard reply.more else { break }
            try #require(!reply.entries.isEmpty)
        }
        #expect(values.count == 5 && sizes.count == 3)
        // 2 MiB of values: far below a frame's 4 MiB.
        #expect(sizes.allSatisfy { $0 < 2 << 20 })
    }

    // MARK: Lists

    @Test func anAccountHasSoManyDevicesAndTheyAreListedInPages() throws {
        let cloud = try TestCloud(seed: 9)
        defer { cloud.close() }
        let first = try Guest(of: cloud)
        var newest = first
        for number in 1..<100 { newest = try Guest(of: cloud, seed: UInt64(number + 1)) }
        #expect(refusal { _ = try Guest(of: cloud, seed: 200) } == .limitExceeded)
        // A device that is known may come back, and one that goes makes room.
        try first.signInAgain()
        for number in 0..<180 {
            var revoke = WireRevokeDevice()
            revoke.deviceID = newest.device
            #expect(try first.ask(revoke, to: .identity).code == nil)
            newest = try Guest(of: cloud, seed: UInt64(1000 + number))
        }
        var devices: [String] = []
        var pages = 0
        while true {
            var list = WireListDevices()
            list.after = devices.last ?? ""
            let reply = try first.ask(list, to: .identity).decoded(as: WireListDevicesReply.self)
            devices += reply.devices.map(\.deviceID)
            pages += 1
            if !reply.more { break }
        }
        #expect(pages == 2 && devices.count == 280 && Set(devices).count == 280)
    }

    @Test func appsAreListedInPages() throws {
        let cloud = try TestCloud(seed: 10)
        defer { cloud.close() }
        for number in 0..<300 {
            var app = WireApp()
            app.appID = "T.app-\(number)"
            try cloud.createApp(app)
        }
        var apps: [String] = []
        var pages = 0
        while true {
            var list = WireListApps()
            list.after = apps.last ?? ""
            let reply: WireListAppsReply = try cloud.operate("ListApps", list)
            apps += reply.apps.map(\.appID)
            pages += 1
            if !reply.more { break }
        }
        #expect(pages == 2 && apps.count == 301 && apps == apps.sorted())
    }

    // MARK: Notifications

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
}

func refusal(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return (error as? CloudError)?.code }
    return nil
}
