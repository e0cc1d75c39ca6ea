import Core
@testable import KeyValueService
import Storage
import Testing
import Wire

struct PullKeysTests {
    @Test func changesAfterATokenIncludeTombstones() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("old", 1), by: caller)
        let token = try house.push(house.write("gone", 1), by: caller).token
        try house.push(house.write("gone", nil, after: .seconds(1)), house.write("new", 2), by: caller)
        let reply = try house.pull(caller, after: token)
        #expect(!reply.complete)
        #expect(reply.items.map(\.key) == ["gone", "new"])
        #expect(!reply.items[0].hasValue && reply.items[1].hasValue)
        #expect(try house.pull(caller, after: reply.token).items.isEmpty)
    }

    @Test func pullFromTheBeginningIsTheWholeLiveStore() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("a", 1), house.write("b", 2), by: caller)
        try house.push(house.write("a", nil, after: .seconds(1)), by: caller)
        let reply = try house.pull(caller)
        #expect(reply.complete && reply.items.map(\.key) == ["b"])
        #expect(reply.usage.profile == "standard" && reply.usage.keyCount == 1 && reply.usage.keyCountMax == 1024)
    }

    @Test func neverWrittenStoreIsEmpty() throws {
        let house = try KeyValueHouse()
        let reply = try house.pull(house.caller("dev_a"))
        #expect(reply.complete && reply.items.isEmpty && reply.digestKey.isEmpty)
        #expect(SetDigest(bytes: reply.digest) == .empty)
    }

    @Test func tokensOfAnotherHistoryHaveExpired() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let token = try house.push(house.write("a", 1), by: caller).token
        var future = token
        future.sequence += 5
        #expect(failure { _ = try house.pull(caller, after: future) }?.code == .changeTokenExpired)
        _ = try house.engine.write { try Feed.raiseEpoch(in: $0) }
        #expect(failure { _ = try house.pull(caller, after: token) }?.code == .changeTokenExpired)
        let reply = try house.pull(caller)
        #expect(reply.complete && reply.token.epoch == token.epoch + 1 && reply.epochStart == token.sequence)
    }

    @Test func tokensBelowTheFloorHaveExpired() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let first = try house.push(house.write("a", 1), by: caller).token
        let last = try house.push(house.write("a", nil, after: .seconds(1)), by: caller).token
        let later = house.clock.now.advanced(by: .seconds(60))
        try house.engine.write {
            let feed = Feed(over: $0, at: later)
            _ = try feed.compactTombstones(before: later, limit: 10)
            try feed.flush()
        }
        #expect(failure { _ = try house.pull(caller, after: first) }?.code == .changeTokenExpired)
        #expect(try house.pull(caller, after: last).items.isEmpty)
    }

    @Test func readerFarBehindGetsTheWholeStoreInstead() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let token = try house.push(house.write("live", 1), by: caller).token
        for batch in 0...PullRule.changesMax / 2000 {
            let writes = (0..<2000).map { house.write("k\(batch).\($0)", nil) }
            _ = try house.call(house.push(writes), by: caller, WirePushKeysReply.self)
        }
        let reply = try house.pull(caller, after: token)
        #expect(reply.complete && reply.items.map(\.key) == ["live"])
    }

    @Test func digestsEqualTheirRecomputation() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        for (index, value) in PushKeysTests.values.enumerated() {
            try house.push(house.write("k\(index)", value), by: caller)
        }
        try house.push(house.write("k1", nil, after: .seconds(1)), house.write("k2", 5, after: .seconds(1)), by: caller)
        let reply = try house.pull(caller)
        var digest = SetDigest.empty
        var byKey: [String: [UInt8]] = [:]
        for item in reply.items {
            let share = try KeyValueItem(item).digest(key: [UInt8](reply.digestKey))
            digest.add(share)
            byKey[item.key] = share.bytes
        }
        #expect(reply.digestKey.count == 32)
        #expect([UInt8](reply.digest) == digest.bytes)
        var list = WireListKeyDigests()
        list.storeID = "notes"
        let listed = try house.call(list, by: caller, WireListKeyDigestsReply.self)
        #expect([UInt8](listed.digest) == digest.bytes && listed.token == reply.token)
        #expect(Dictionary(uniqueKeysWithValues: listed.entries.map { ($0.key, [UInt8]($0.digest)) }) == byKey)
    }
}

struct KeyHistoryTests {
    @Test func loserIsKeptWithItsWinner() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        let b = house.caller("dev_b")
        let won = house.write("k", "won", after: .seconds(2))
        try house.push(won, by: a)
        try house.push(house.write("k", "lost", after: .seconds(1)), by: b)
        let entries = try house.history(a, key: "k")
        try #require(entries.count == 1)
        #expect(entries[0].lostConflict && entries[0].item.deviceID == "dev_b")
        #expect(try KeyValueItem(entries[0].item).value == "lost")
        #expect(entries[0].winnerDeviceID == "dev_a" && entries[0].winnerTimestamp == won.timestamp)
        #expect(entries[0].recordedAt == house.clock.now.milliseconds)
    }

    @Test func overwrittenValueOfAnotherDeviceIsKept() throws {
        let house = try KeyValueHouse()
        try house.push(house.write("k", "first"), by: house.caller("dev_a"))
        try house.push(house.write("k", "second", after: .seconds(1)), by: house.caller("dev_b"))
        try house.push(house.write("k", "third", after: .seconds(2)), by: house.caller("dev_b"))
        let entries = try house.history(house.caller("dev_a"))
        #expect(try entries.map { try KeyValueItem($0.item).value } == ["first"])
        #expect(entries.first?.lostConflict == false && entries.first?.winnerDeviceID == "dev_b")
    }

    @Test func equalContentIsNoConflict() throws {
        let house = try KeyValueHouse()
        try house.push(house.write("k", "same", after: .seconds(1)), by: house.caller("dev_b"))
        try house.push(house.write("k", "same"), by: house.caller("dev_a"))
        try house.push(house.write("k", "same", after: .seconds(2)), by: house.caller("dev_a"))
        #expect(try house.history(house.caller("dev_a")).isEmpty)
    }

    @Test func historyOfAKeyIsBounded() throws {
        let house = try KeyValueHouse()
        for index in 0..<KeyHistory.entriesPerKeyMax + 20 {
            let device = index.isMultiple(of: 2) ? "dev_a" : "dev_b"
            try house.push(house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: house.caller(device))
        }
        var list = WireListKeyHistory()
        list.storeID = "notes"
        list.limit = 1000
        let entries = try house.call(list, by: house.caller("dev_a"), WireListKeyHistoryReply.self).entries
        #expect(entries.count == KeyHistory.entriesPerKeyMax)
        #expect(try entries.first.map { try KeyValueItem($0.item).value } == .integer(118))
    }

    @Test func bytesOfAStoresHistoryAreBounded() throws {
        let house = try KeyValueHouse()
        for index in 0..<11 {
            let value = PropertyValue.string(String(repeating: "\(index % 10)", count: 1_000_000))
            let caller = house.caller(index.isMultiple(of: 2) ? "dev_a" : "dev_b")
            try house.push(house.write("k", value, after: .milliseconds(index)), by: caller)
        }
        let kept = try house.engine.write {
            try $0.first(SQL("SELECT COUNT(*), SUM(size) FROM key_history")) { ($0.integer(0), $0.integer(1)) }
        }
        #expect(kept?.0 == 8)
        #expect((kept?.1 ?? .max) <= Int64(KeyHistory.bytesPerStoreMax))
    }

    @Test func oldEntriesAreRemovedInSteps() throws {
        let house = try KeyValueHouse()
        for index in 0..<5 {
            let device = index.isMultiple(of: 2) ? "dev_a" : "dev_b"
            try house.push(house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: house.caller(device))
        }
        let later = house.clock.now.advanced(by: .seconds(1))
        #expect(try house.engine.write { try KeyHistory.prune(recordedBefore: later, limit: 3, in: $0) })
        #expect(try house.history(house.caller("dev_a")).count == 1)
        #expect(try !house.engine.write { try KeyHistory.prune(recordedBefore: later, limit: 3, in: $0) })
        #expect(try house.history(house.caller("dev_a")).isEmpty)
    }
}
