import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKeyValue
@testable import NephosServiceKit

struct ReadStoreTests {
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
        let copy = try house.cloud.copyStorage(of: .keyValue)
        let lost = try house.push(house.write("b", 1), by: caller).token
        try house.restore(copy)
        #expect(failure { _ = try house.pull(caller, after: lost) }?.code == .changeTokenExpired)
        #expect(failure { _ = try house.pull(caller, after: token) }?.code == .changeTokenExpired)
        let reply = try house.pull(caller)
        #expect(reply.complete && reply.token.epoch > token.epoch && reply.epochStart == token.sequence)
    }

    @Test func tokensBelowTheFloorHaveExpired() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let first = try house.push(house.write("a", 1), by: caller).token
        let last = try house.push(house.write("a", nil, after: .seconds(1)), by: caller).token
        house.skip(Maintenance.tombstoneRetention + .seconds(1))
        // Longer than the host takes to look for what is old.
        house.pass(.seconds(12))
        #expect(failure { _ = try house.pull(caller, after: first) }?.code == .changeTokenExpired)
        #expect(try house.pull(caller, after: last).items.isEmpty)
    }

    @Test func whoHasNothingBeginsHereWhateverEpochItHasHeardOf() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let token = try house.push(house.write("a", 1), by: caller).token
        var other = token
        other.epoch += 1 << 30
        other.sequence = 0
        other.check.removeAll()
        let reply = try house.pull(caller, after: other)
        #expect(reply.complete && reply.token == token && reply.items.map(\.key) == ["a"])
    }

    @Test func aReaderFarBehindReadsPages() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let token = try house.push(house.write("live", 1), by: caller).token
        // As many deletions as a store remembers, nearly, and some that live.
        for batch in 0..<4 {
            for value in [1, nil] as [PropertyValue?] {
                let writes = (0..<1000).map {
                    house.write("k\(batch).\($0)", value, after: .milliseconds(value == nil ? 1 : 0))
                }
                _ = try house.call(house.push(writes), by: caller, WirePushKeysReply.self)
            }
        }
        // What it costs is in the device's budget again.
        house.pass(.seconds(10))
        let live = (0..<200).map { house.write("live-\($0)", 1) }
        _ = try house.call(house.push(live), by: caller, WirePushKeysReply.self)
        var reading = ChangesReading(.scope(caller.store.rawValue), after: ChangeToken(token))
        var names: Set<String> = []
        var sizes: [Int] = []
        var reply: WireReadChangesReply
        repeat {
            house.pass(.seconds(10))
            reply = try house.call(reading.request, by: caller, WireReadChangesReply.self)
            #expect(!reply.complete)
            names.formUnion(reply.items.map(\.key))
            sizes.append(reply.items.count)
        } while try !reading.take(reply)
        #expect(sizes == [4096, 104])
        #expect(names.count == 4200)
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
