import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

import struct Foundation.Data

@testable import NephosKeyValue

struct QuotaTests {
    /// A house whose limits are these.
    private func house(_ limits: KeyValueLimits) throws -> KeyValueHouse {
        var configuration = KeyValueConfiguration()
        configuration.limits = limits
        return try KeyValueHouse(configuration)
    }

    /// A value with a canonical encoding of exactly this size.
    private func value(bytes: Int) throws -> PropertyValue {
        for overhead in 2...5 {
            let value = PropertyValue.data(Data(repeating: 1, count: bytes - overhead))
            if value.canonicalBytes.count == bytes { return value }
        }
        throw CloudError(.invalidArguments, "No value has this size.")
    }

    private func expect(
        _ error: CloudError?, limit: String, _ limits: KeyValueLimits, maximum: Int, overBy: Int, keys: String
    ) {
        #expect(error?.code == .quotaExceeded)
        #expect(
            error?.details == [
                "limit": limit, "maximum": "\(maximum)", "actual": "\(maximum + overBy)", "over_by": "\(overBy)",
                "profile": limits.name, "keys": keys,
            ])
    }

    static let profiles: [KeyValueLimits] = [.standard, .original]

    @Test(arguments: profiles)
    func valueOfTheLimitFitsAndOneByteMoreDoesNot(_ limits: KeyValueLimits) throws {
        let house = try house(limits)
        let caller = house.caller("dev_a")
        try house.push(house.write("k", value(bytes: limits.valueBytesMax)), by: caller)
        let kept = try house.values(caller)
        let error = failure {
            try house.push(
                house.write("k", value(bytes: limits.valueBytesMax + 1), after: .seconds(1)),
                house.write("other", 1), by: caller)
        }
        expect(error, limit: "value_bytes", limits, maximum: limits.valueBytesMax, overBy: 1, keys: "k")
        #expect(try house.values(caller) == kept)
    }

    @Test(arguments: profiles)
    func storeOfTheLimitFitsAndOneByteMoreDoesNot(_ limits: KeyValueLimits) throws {
        let house = try house(limits)
        let caller = house.caller("dev_a")
        try house.push(
            house.write("a", value(bytes: limits.totalBytesMax - 100)), house.write("b", value(bytes: 100)),
            by: caller)
        let kept = try house.values(caller)
        let error = failure {
            try house.push(house.write("b", value(bytes: 101), after: .seconds(1)), by: caller)
        }
        expect(error, limit: "total_bytes", limits, maximum: limits.totalBytesMax, overBy: 1, keys: "b")
        #expect(try house.values(caller) == kept)
        // Room made in the same push counts.
        try house.push(
            house.write("b", value(bytes: 200), after: .seconds(1)), house.write("a", nil, after: .seconds(1)),
            by: caller)
        #expect(try house.pull(caller).usage.totalBytes == 200)
    }

    @Test(arguments: profiles)
    func storeHoldsOnlySoManyKeys(_ limits: KeyValueLimits) throws {
        let house = try house(limits)
        let caller = house.caller("dev_a")
        let writes = (0..<limits.keyCountMax).map { house.write("k\($0)", 1) }
        _ = try house.call(house.push(writes), by: caller, WirePushKeysReply.self)
        let error = failure { try house.push(house.write("new", 1), house.write("newer", 1), by: caller) }
        expect(error, limit: "key_count", limits, maximum: limits.keyCountMax, overBy: 2, keys: "new,newer")
        #expect(try house.pull(caller).usage.keyCount == UInt32(limits.keyCountMax))
        try house.push(house.write("k0", nil, after: .seconds(1)), house.write("new", 1), by: caller)
    }

    @Test(arguments: profiles)
    func namesAreCountedInBytes(_ limits: KeyValueLimits) throws {
        let house = try house(limits)
        let caller = house.caller("dev_a")
        let name = String(repeating: "é", count: limits.keyBytesMax / 2)
        try house.push(house.write(name, 1), by: caller)
        let error = failure { try house.push(house.write(name + "x", 1), by: caller) }
        expect(error, limit: "key_bytes", limits, maximum: limits.keyBytesMax, overBy: 1, keys: name + "x")
    }

    @Test func refusedPushTellsTheDeviceWhichKeys() throws {
        let house = try house(.original)
        let caller = house.caller("dev_a")
        let before = try house.push(house.write("k", 1), by: caller)
        let id = house.newOperation()
        _ = failure { try house.push(house.write("big", value(bytes: 70_000)), by: caller, id: id) }
        #expect(house.events.count == 2)
        let event = try #require(house.events.last)
        #expect(event.previousSequence == event.position.sequence)
        let notification = try #require(house.lastNotification)
        #expect(notification.reason == .quotaViolationChange && notification.deviceID == "dev_a")
        #expect(notification.token == before.token)
        #expect(notification.changes.map(\.item) == ["big"] && notification.changes[0].body.isEmpty)
        #expect(OperationID(bytes: notification.operationID) == id)
    }

    @Test func atMostTenKeysAreNamed() throws {
        let house = try house(.original)
        let writes = try (0..<12).map { house.write("k\($0)", try value(bytes: 66_000)) }
        let push = house.push(writes)
        let error = failure { _ = try house.call(push, by: house.caller("dev_a"), WirePushKeysReply.self) }
        #expect(error?.details["keys"]?.split(separator: ",").count == PushLimits.keysNamedMax)
        #expect(house.lastNotification?.changes.count == PushLimits.keysNamedMax)
    }

    @Test func aNameThatIsLongIsNamedByItsBeginning() throws {
        let house = try house(.original)
        let push = house.push([house.write(String(repeating: "k", count: 1128), 1)])
        let error = failure { _ = try house.call(push, by: house.caller("dev_a"), WirePushKeysReply.self) }
        #expect(error?.code == .quotaExceeded && error?.details["keys"]?.utf8.count == 128)
        #expect(house.lastNotification?.changes.map(\.item.utf8.count) == [128])
    }

    @Test func storeAboveALoweredLimitCanStillShrink() throws {
        let house = try house(.standard)
        let caller = house.caller("dev_a")
        try house.push(house.write("a", value(bytes: 100_000)), house.write("b", value(bytes: 100_000)), by: caller)
        var configuration = KeyValueConfiguration()
        configuration.limits = .original
        try house.restart(configuration)
        try house.push(house.write("a", nil, after: .seconds(1)), by: caller)
        let error = failure { try house.push(house.write("c", 1, after: .seconds(1)), by: caller) }
        #expect(error?.details["limit"] == "total_bytes")
        #expect(try house.values(caller).keys.sorted() == ["b"])
    }

    @Test func tooManyWritesHaveToBeSplit() throws {
        let house = try house(.standard)
        let writes = (0...PushLimits.writesMax).map { house.write("k\($0)", nil) }
        let error = failure {
            _ = try house.call(house.push(writes), by: house.caller("dev_a"), WirePushKeysReply.self)
        }
        #expect(error?.code == .limitExceeded)
    }
}
