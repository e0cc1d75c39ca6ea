import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What a request costs its caller: about what it costs the service.
@Suite struct CostTests {
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
        #expect((984...990).contains(try left(skipping: 0) ?? 0))
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

    /// What can be told from the request alone is, before its values are brought into form.
    @Test func whatCannotFitIsRefusedBeforeTheWork() throws {
        let cloud = try TestCloud(seed: 22, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let entries = ["a", "b"].map { key in
            var entry = WirePropertyDictionary.Entry()
            entry.key = key
            entry.value.string = String(repeating: "x", count: 8000)
            return entry
        }
        let tooLarge = PropertyValue.string(String(repeating: "x", count: 1_040_000))
        func left(_ entries: [WirePropertyDictionary.Entry], _ other: WireKeyWrite) throws -> (CloudError.Code?, Int?) {
            var write = guest.write("k", nil)
            write.value.dictionary.entries = entries
            let reply = try guest.ask(guest.push([write, other]))
            defer { cloud.network.run(for: .seconds(30)) }
            return (reply.code, reply.budget?.remaining)
        }
        // More than a store may hold, and a write by a device that the account does not have.
        for (other, code) in [
            (guest.write("large", tooLarge), CloudError.Code.quotaExceeded),
            (guest.write("small", 1, by: "dev_other"), .permissionFailure),
        ] {
            let inForm = try left(entries, other)
            let reversed = try left(entries.reversed(), other)
            #expect(inForm.0 == code && reversed.0 == code)
            #expect(inForm.1 == reversed.1 && inForm.1 != nil)
        }
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

    /// What is read costs, whether or not it is sent.
    @Test func whatIsReadAndNotSentIsPaidFor() throws {
        let cloud = try TestCloud(seed: 21, budgets: BudgetConfiguration())
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let (small, large) = (guest.write("a", 1), guest.write("b", .string(String(repeating: "x", count: 819_200))))
        #expect(try guest.ask(guest.push([small])).code == nil)
        let token = try guest.pull().get().token
        #expect(try guest.ask(guest.push([guest.write("a", 2), large])).code == nil)
        func cost(_ request: some SwiftProtobuf.Message) throws -> Int? {
            cloud.network.run(for: .seconds(30))
            let reply = try guest.ask(request)
            return reply.code == nil ? reply.budget.map { $0.capacity - $0.remaining } : nil
        }
        // A page that has no room for the large value does not read it.
        for from in [WireChangeToken(), token] {
            var page = WireReadChanges()
            page.scope = guest.session.accessToken.app.storeID
            page.after = from
            page.itemsMax = 1
            let taken = try cost(page)
            #expect(taken == 1)
        }
        var digests = WireListKeyDigests()
        digests.storeID = guest.session.accessToken.app.storeID
        let all = try cost(digests)
        #expect(all == 200)
        // What lost is passed over without a look at it.
        cloud.network.run(for: .seconds(30))
        for age: UInt64 in 1...2 {
            var losing = guest.write("b", .string(String(repeating: "y", count: 40_960)))
            losing.timestamp -= age * 3_600_000 << 16
            #expect(try guest.ask(guest.push([losing])).code == nil)
            cloud.network.run(for: .seconds(30))
        }
        var history = WireListKeyHistory()
        history.storeID = guest.session.accessToken.app.storeID
        history.key = "b"
        let both = try cost(history)
        #expect(both == 20)
        history.skip = 2
        let none = try cost(history)
        #expect(none == 1)
    }

    /// Replies are stored for a day, so that repeats are known: an account fills no disk with them.
    @Test func anAccountsStoredRepliesAreBounded() throws {
        var budgets = BudgetConfiguration()
        budgets.storedReplies = BudgetConfiguration.Limit(capacity: 20, refillPerSecond: 1)
        let cloud = try TestCloud(seed: 22, budgets: budgets)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let guest = try Guest(of: cloud)
        let sibling = try Guest(of: cloud, seed: 2)
        let other = try Guest(of: cloud, account: "other", seed: 3)
        var taken = 0
        while taken < 100, try guest.ask(guest.push([guest.write("a", .integer(Int64(taken)))])).code == nil {
            taken += 1
        }
        #expect((15...30).contains(taken))
        let refused = try sibling.ask(sibling.push([sibling.write("b", 1)]))
        #expect(refused.code == .requestRateLimited && refused.budget?.remaining == 0)
        // Reading stores nothing, and others are not concerned.
        #expect(try guest.pull().code == nil)
        #expect(try other.ask(other.push([other.write("a", 1)])).code == nil)
        cloud.network.run(for: .seconds(5))
        #expect(try sibling.ask(sibling.push([sibling.write("b", 1)])).code == nil)

        // One that is not answered as it was asked is stored write by write, and counts so.
        cloud.network.run(for: .seconds(60))
        let ahead = (0..<100).map { number in
            var write = other.write("key-\(number)", 1)
            write.timestamp += 61_000 << 16
            return write
        }
        #expect(try other.ask(other.push(ahead)).code == nil)
        cloud.network.run(for: .seconds(10))
        #expect(try other.ask(other.push([other.write("a", 2)])).code == .requestRateLimited)
    }
}
