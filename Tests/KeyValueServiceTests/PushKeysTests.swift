import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

import struct Foundation.Data
import struct Foundation.Date

@testable import NephosKeyValue

struct PushKeysTests {
    static let values: [PropertyValue] = [
        true, -7, 2.5, "text with é", .date(Date(timeIntervalSince1970: 1_700_000_000.123456)),
        .data(Data([0, 255, 1])), [1, "two", [3.5]], ["b": 1, "a": [true, ["deep": "er"]]], [], [:], "",
    ]

    @Test(arguments: values)
    func everyTypeOfValueComesBack(_ value: PropertyValue) throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("k", value), by: caller)
        #expect(try house.values(caller) == ["k": value])
    }

    @Test func laterTimestampWins() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        let b = house.caller("dev_b")
        try house.push(house.write("k", "later", after: .seconds(2)), by: a)
        let reply = try house.push(house.write("k", "earlier", after: .seconds(1)), by: b)
        #expect(reply.outcomes[0].superseded)
        #expect(try KeyValueItem(reply.outcomes[0].current).value == "later")
        #expect(reply.outcomes[0].current.deviceID == "dev_a")
        #expect(reply.previousSequence == reply.token.sequence)
        #expect(try house.values(a) == ["k": "later"])
    }

    @Test(arguments: [["dev_a", "dev_b"], ["dev_b", "dev_a"]])
    func greaterDeviceWinsATieInEitherOrder(_ order: [String]) throws {
        let house = try KeyValueHouse()
        for device in order { try house.push(house.write("k", .string(device)), by: house.caller(device)) }
        #expect(try house.values(house.caller("dev_a")) == ["k": "dev_b"])
    }

    @Test func sameWriteAgainChangesNothing() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let first = try house.push(house.write("k", 1), by: caller)
        let second = try house.push(house.write("k", 1), by: caller)
        #expect(!second.outcomes[0].superseded)
        #expect(second.outcomes[0].current == first.outcomes[0].current)
        #expect(second.token == first.token)
        #expect(house.events.count == 1)
    }

    @Test func sameStampWithOtherContentIsNotLostSilently() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("k", 1), by: caller)
        let reply = try house.push(house.write("k", 2), by: caller)
        #expect(reply.outcomes[0].superseded)
        #expect(try house.history(caller).isEmpty == false)
    }

    @Test func repeatUnderTheSameOperationGetsTheFirstReply() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        let b = house.caller("dev_b")
        let id = house.newOperation()
        let first = try house.push(house.write("k", 1), by: a, id: id)
        let write = house.write("k", 1)
        house.pass(.seconds(1))
        try house.push(house.write("k", 2), by: b)
        #expect(try house.push(write, by: a, id: id) == first)

        let lost = house.newOperation()
        var superseded = try house.push(write, by: a, id: lost)
        #expect(superseded.outcomes[0].superseded && superseded.outcomes[0].current.value.integer == 2)
        // But for the winner's value, which is not kept twice.
        superseded.outcomes[0].current.clearValue()
        superseded.outcomes[0].valueOmitted = true
        house.pass(.seconds(1))
        try house.push(house.write("k", 3), by: b)
        #expect(try house.push(write, by: a, id: lost) == superseded)
    }

    @Test func storedRepliesAreSmall() throws {
        let house = try KeyValueHouse()
        let value = PropertyValue.string(String(repeating: "x", count: 1000))
        let keys = (0..<8).map { "k\($0)" }
        _ = try house.call(
            house.push(keys.map { house.write($0, value, after: .seconds(2)) }), by: house.caller("dev_a"),
            WirePushKeysReply.self)
        let reply = try house.call(
            house.push(keys.map { house.write($0, 1, after: .seconds(1)) }), by: house.caller("dev_b"),
            WirePushKeysReply.self)
        #expect(reply.outcomes.contains { $0.current.hasValue })
        let size = try house.engine.write {
            try $0.first(SQL("SELECT MAX(LENGTH(reply)) FROM feed_operations")) { $0.integer(0) }
        }
        #expect(size ?? .max < 500)
    }

    @Test func runawayClockIsCutBack() throws {
        let house = try KeyValueHouse()
        let fast = house.caller("dev_a")
        let reply = try house.push(house.write("k", "fast", after: .seconds(3600)), by: fast)
        #expect(reply.outcomes[0].current.timestamp == HybridTimestamp(house.now).rawValue)
        house.pass(.seconds(1))
        let other = try house.push(house.write("k", "right"), by: house.caller("dev_b"))
        #expect(!other.outcomes[0].superseded)
        #expect(try house.values(fast) == ["k": "right"])
    }

    @Test func withinDriftTheDevicesClockCounts() throws {
        let house = try KeyValueHouse()
        let write = house.write("k", 1, after: .seconds(59))
        let reply = try house.push(write, by: house.caller("dev_a"))
        #expect(reply.outcomes[0].current.timestamp == write.timestamp)
    }

    @Test func writesOfARunawayClockKeepTheirOrderWithinOneMillisecond() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("k", 1, after: .seconds(3600)), by: caller)
        let reply = try house.push(house.write("k", 2, after: .seconds(3601)), by: caller)
        #expect(!reply.outcomes[0].superseded)
        #expect(try house.values(caller) == ["k": 2])
    }

    @Test func newerStaysNewerWhenTheServersClockIsSetBack() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        try house.push(house.write("k", "older"), house.write("l", 1), by: a)
        let newer = house.write("k", "newer", after: .seconds(1))
        let fresh = house.write("fresh", "by a", after: .seconds(2))
        let stale = house.write("fresh", "by b, before", after: .seconds(-120))
        house.now = house.now.advanced(by: .seconds(-300))
        let reply = try house.push(newer, by: b)
        #expect(!reply.outcomes[0].superseded && reply.outcomes[0].current.timestamp == newer.timestamp)
        try house.push(fresh, by: a)
        #expect(try house.push(stale, by: b).outcomes[0].superseded)
        #expect(try house.values(a) == ["k": "newer", "l": 1, "fresh": "by a"])
    }

    @Test func aServiceThatStartsWithItsClockSetBackGoesByWhatItHasStored() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", "older"), by: a)
        let fresh = house.write("fresh", "by a", after: .seconds(1))
        let newer = house.write("k", "newer", after: .seconds(90))
        house.now = house.now.advanced(by: .seconds(-300))
        try house.restart()
        // The service may be up to a minute behind what it had stored.
        #expect(try house.push(fresh, by: a).outcomes[0].current.timestamp >= fresh.timestamp - (61_000 << 16))
        #expect(try !house.push(newer, by: house.caller("dev_b")).outcomes[0].superseded)
        #expect(try house.values(a)["k"] == "newer")
    }

    @Test func keysOfOnePushAreCutBackTogether() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", "there", after: .seconds(30)), by: house.caller("dev_b"))
        let reply = try house.push(
            house.write("j", 1, after: .seconds(3600)), house.write("k", 2, after: .seconds(3600)), by: a)
        #expect(reply.outcomes.allSatisfy { !$0.superseded })
        #expect(reply.outcomes[0].current.timestamp == reply.outcomes[1].current.timestamp)
    }

    @Test func aWriteThatWasCutBackIsUnchangedWhenItComesAgain() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        let write = house.write("k", "fast", after: .seconds(3600))
        let first = try house.push(write, by: a)
        house.pass(.seconds(1))
        #expect(try house.push(write, by: a).token == first.token)
    }

    @Test func severalKeysAreOneChange() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let reply = try house.push(house.write("a", 1), house.write("b", 2), by: caller)
        #expect(Set(reply.outcomes.map(\.current.sequence)) == [reply.token.sequence])
        #expect(house.events.count == 1)
        #expect(house.lastNotification?.changes.map(\.item) == ["a", "b"])
    }

    @Test func notificationTellsWhatChanged() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let before = try house.push(house.write("gone", 1), by: caller)
        house.pass(.seconds(1))
        let id = house.newOperation()
        let large = PropertyValue.string(String(repeating: "x", count: 1100))
        let reply = try house.push(
            house.write("small", "s"), house.write("large", large), house.write("gone", nil), by: caller, id: id)
        let notification = try #require(house.lastNotification)
        #expect(notification.service == "keyvalue" && notification.scope == "notes")
        #expect(notification.reason == .serverChange && notification.deviceID == "dev_a")
        #expect(notification.token == reply.token)
        #expect(notification.previousSequence == before.token.sequence)
        #expect(OperationID(bytes: notification.operationID) == id)
        let small = try WireKeyValueItem(serializedBytes: notification.changes[0].body)
        #expect(try KeyValueItem(small).value == "s" && small.sequence == reply.token.sequence)
        #expect(notification.changes[1].body.isEmpty && !notification.changes[1].deleted)
        #expect(notification.changes[2].deleted)
    }

    @Test func manySmallItemsStayWithinTheNotificationsLimit() throws {
        let house = try KeyValueHouse()
        let value = PropertyValue.string(String(repeating: "x", count: 900))
        let writes = (0..<20).map { house.write("k\($0)", value) }
        _ = try house.call(house.push(writes), by: house.caller("dev_a"), WirePushKeysReply.self)
        let notification = try #require(house.lastNotification)
        #expect(notification.changes.count == 20)
        let bytes = notification.changes.map(\.body.count).reduce(0, +)
        #expect(bytes > 0 && bytes <= KeyValueEvents.itemsBytesMax)
    }

    @Test func deletedKeyIsGoneAndItsTombstoneBeatsOlderWrites() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        try house.push(house.write("k", 1), by: caller)
        try house.push(house.write("k", nil, after: .seconds(2)), by: caller)
        let late = try house.push(house.write("k", 9, after: .seconds(1)), by: house.caller("dev_b"))
        #expect(late.outcomes[0].superseded && !late.outcomes[0].current.hasValue)
        #expect(try house.values(caller).isEmpty)
        #expect(try house.pull(caller).usage.keyCount == 0)
    }

    @Test func appsThatListTheSameStoreShareIt() throws {
        let house = try KeyValueHouse()
        try house.push(house.write("k", 1), by: house.caller("dev_a", app: "com.example.notes"))
        #expect(try house.values(house.caller("dev_b", app: "com.example.notes.lite")) == ["k": 1])
    }

    @Test func foreignStoreIsRefusedLikeOneThatDoesNotExist() throws {
        let house = try KeyValueHouse()
        try house.push(house.write("k", 1), by: house.caller("dev_a", store: "secret"))
        let caller = house.caller("dev_a")
        func answers(_ store: String) throws -> [CloudError?] {
            let answers = try house.finish(house.requests(on: store).map { try house.begin($0, by: caller) })
            return answers.map { answer in failure { _ = try answer.get() } }
        }
        #expect(try answers("secret") == answers("nothing"))
        #expect(try answers("secret").allSatisfy { $0?.code == .missingEntitlement })
        #expect(try house.values(house.caller("dev_b", account: "acct_two")).isEmpty)
    }

    @Test func malformedPushesAreRefused() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        var deep: PropertyValue = 1
        for _ in 0...PropertyValue.depthMax { deep = [deep] }
        var untyped = house.write("k", 1)
        untyped.value = WirePropertyValue()
        var unstamped = house.write("k", 1)
        unstamped.timestamp = 0
        let pushes: [[WireKeyWrite]] = [
            [], [house.write("k", 1), house.write("k", 2)], [house.write("", 1)], [house.write("k", deep)],
            [untyped], [unstamped],
        ]
        for writes in pushes {
            let error = failure { _ = try house.call(house.push(writes), by: caller, WirePushKeysReply.self) }
            #expect(error?.code == .invalidArguments)
        }
        #expect(try house.values(caller).isEmpty)
    }

    @Test func failedPushTakesNobodyInItsGroupWithIt() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let answers = try house.callTogether(
            [house.push([house.write("a", 1)]), house.push([]), house.push([house.write("b", 2)])], by: caller)
        #expect(failure { _ = try answers[1].get() }?.code == .invalidArguments)
        #expect(try house.values(caller) == ["a": 1, "b": 2])
    }

    @Test func offeredAgainAfterARestoreAWriteKeepsItsDevice() throws {
        let house = try KeyValueHouse()
        var write = house.write("k", 1)
        let caller = house.caller("dev_a")
        var generator = SplitMix64(seed: 1)
        write.deviceID = DeviceID.random(of: try house.account(caller.account), using: &generator).rawValue
        let reply = try house.push(write, by: caller)
        #expect(reply.outcomes[0].current.deviceID == write.deviceID)
    }

    /// A clock that is years ahead would keep the key from everybody until then.
    @Test func aStampAheadOfTheClockIsCutOverADamagedValue() throws {
        let house = try KeyValueHouse()
        let caller = house.caller("dev_a")
        let ahead = Duration.seconds(365 * 86_400)
        try house.push(house.write("k", "before", after: ahead), by: caller)
        _ = try house.engine.write {
            try $0.execute(
                SQL("UPDATE feed_items SET body = substr(body, 1, length(body) - 4) || ?1 WHERE name = ?2"),
                [.blob([1, 2, 3, 4]), .text("k")])
        }
        try house.restart()
        let reply = try house.push(house.write("k", "after", after: ahead), by: caller)
        #expect(!reply.outcomes[0].superseded)
        let stored = HybridTimestamp(rawValue: reply.outcomes[0].current.timestamp)
        #expect(stored.time.since(house.now) < .seconds(3600))
        #expect(try house.values(caller) == ["k": "after"])
    }
}
