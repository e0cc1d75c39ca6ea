import Bus
import Core
import Storage
import TestKit
import Testing
import Wire

@testable import NephosKit

/// A device and the service have other content at one and the same place.
@Suite struct DigestTests {
    /// Makes the device's copy another one than the server's, at one and the same head.
    private func forget(_ key: ItemName, on device: TestDevice) throws {
        let app = try #require(device.store?.app)
        try device.local.write { database in
            let store = try device.local.store(of: app, database)
            var state = try store.state()
            var item = try #require(try store.item(key))
            item.value = nil
            try store.put(item, &state)
            try store.save(state)
        }
    }

    @Test func aHeartbeatTellsADeviceThatItsCopyIsAnother() throws {
        let cloud = try TestCloud(seed: 34)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try device.set("a", 1)
        try device.set("b", 2)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        try forget("a", on: device)
        #expect(device.values == ["b": 2])
        #expect(cloud.network.run(within: .seconds(15)) { device.values == ["a": 1, "b": 2] })
        #expect(cloud.settle())
    }

    /// As if the server had lost it without a trace.
    @Test func whatOnlyADeviceHasIsOfferedWhenTheDigestsDiffer() throws {
        let cloud = try TestCloud(seed: 44)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try device.set("a", 1)
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(15))
        let app = try #require(device.store?.app)
        try device.local.write { database in
            let store = try device.local.store(of: app, database)
            var state = try store.state()
            var item = try #require(try store.item("a"))
            item.key = "b"
            try store.put(item, &state)
            try store.save(state)
        }
        cloud.network.run(for: .seconds(15))
        #expect(cloud.settle())
        #expect(device.values == ["a": 1, "b": 1])
        #expect(try Guest(of: cloud).pull().get().items.map(\.key).sorted() == ["a", "b"])
    }

    @Test func aNotificationTellsADeviceThatItsCopyIsAnother() throws {
        let cloud = try TestCloud(seed: 35)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        // A heartbeat, which tells as well, may fall into one round's time, and into no other's.
        for round in 0..<4 {
            cloud.network.run(for: .milliseconds(15_900))
            try forget("a", on: devices[1])
            try devices[0].set("b", .integer(Int64(round)))
            #expect(
                cloud.network.run(within: .milliseconds(100)) {
                    devices[1].values == ["a": 1, "b": .integer(Int64(round))]
                })
        }
    }

    @Test func aDamagedValueHoldsNobodyUpAndHeals() throws {
        let cloud = try TestCloud(seed: 19)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        try first.set("good", 1)
        try first.set("bad", "precious")
        #expect(cloud.settle())
        first.setOffline(true)
        let damage = SQL("UPDATE feed_items SET body = ?1 WHERE name = 'bad'")
        let body = try cloud.storage(of: .keyValue).write { transaction in
            try transaction.first(SQL("SELECT body FROM feed_items WHERE name = 'bad'")) { $0.blob(0) }
        }
        var damaged = try #require(body)
        damaged[damaged.count - 1] ^= 1
        _ = try cloud.storage(of: .keyValue).write { try $0.execute(damage, [.blob(damaged)]) }
        // It begins anew, and remembers nothing of the row as it was.
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)

        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(10))
        #expect(second.values == ["good": 1])
        let status = try #require(second.store).status()
        #expect(!status.isInSync && status.problem?.code == .storeOutOfStep)
        #expect(status.problem?.details["damaged"] == "1")
        #expect(try cloud.health(of: .keyValue).counters["keys.damaged"] ?? 0 > 0)
        // It is named, on either way that a device asks.
        let guest = try Guest(of: cloud)
        let changes = try guest.pull().get().changes
        #expect(changes.filter(\.damaged).map(\.item) == ["bad"] && changes.count == 2)
        var list = WireListKeyDigests()
        list.storeID = guest.session.accessToken.app.storeID
        let digests: WireListKeyDigestsReply = try guest.ask(list).decoded()
        #expect(digests.entries.filter(\.damaged).map(\.key) == ["bad"] && digests.entries.count == 2)

        first.setOffline(false)
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == ["good": 1, "bad": "precious"])
    }

    /// In a row, or in the head: both are only what values add up to.
    @Test(arguments: [
        "UPDATE feed_items SET digest = x'1234' WHERE name = 'a'",
        "UPDATE feed_items SET digest = zeroblob(32) WHERE name = 'a'",
        "UPDATE feed_scopes SET digest = zeroblob(32), live_count = 7 WHERE path <> 'directory'",
    ])
    func aDamagedDigestIsPutRight(_ damage: String) throws {
        let cloud = try TestCloud(seed: 43)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        for key: ItemName in ["a", "b", "c"] { try first.set(key, "precious") }
        #expect(cloud.settle())
        _ = try cloud.storage(of: .keyValue).write { try $0.execute(SQL(damage), []) }
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)

        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(60))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == first.values && second.values.count == 3)
        #expect(try cloud.health(of: .keyValue).counters["digests.damaged"] ?? 0 > 0)
        for key: ItemName in ["a", "b", "c"] { try first.set(key, nil) }
        #expect(cloud.settle())
        #expect(second.values.isEmpty)
    }
}
