import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

import struct Foundation.Data

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

    /// While the service was down; or while it runs, so that a read finds it.
    @Test(arguments: [true, false]) func aDamagedValueGoesToTheQuarantineAndComesBack(_ isRestarted: Bool) throws {
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
        if isRestarted {
            // It begins anew, and remembers nothing of the row as it was.
            cloud.crash(.keyValue)
            try cloud.start(.keyValue)
        }

        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(10))
        #expect(second.values == ["good": 1])
        #expect(try #require(second.store).status().isInSync)
        func counters() throws -> [String: UInt64] { try cloud.health(of: .keyValue).counters }
        #expect(try counters()["quarantine.now"] == 1 && counters()["items.quarantined"] == 1)
        // It is not there, on either way that a device asks.
        let guest = try Guest(of: cloud)
        #expect(try guest.pull().get().changes.map(\.item) == ["good"])
        var list = WireListKeyDigests()
        list.storeID = guest.session.accessToken.app.storeID
        let digests: WireListKeyDigestsReply = try guest.ask(list).decoded()
        #expect(digests.entries.map(\.key) == ["good"])

        first.setOffline(false)
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == ["good": 1, "bad": "precious"])
        #expect(try counters()["quarantine.now"] == 0 && counters()["items.quarantined"] == 1)
    }

    /// Nobody wants it back.
    @Test func whatIsDeletedInQuarantineIsOverSoon() throws {
        let cloud = try TestCloud(seed: 24)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        for key: ItemName in ["bad", "good"] { try first.set(key, "precious") }
        #expect(cloud.settle())
        first.setOffline(true)
        try damage("body", of: "feed_items", where: "name = 'bad'", in: cloud) { $0[$0.count - 1] ^= 1 }
        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(10))
        #expect(second.values == ["good": "precious"])
        #expect(try cloud.health(of: .keyValue).counters["quarantine.now"] == 1)
        try second.set("bad", nil)
        first.setOffline(false)
        cloud.network.run(for: .seconds(1300))
        #expect(cloud.settle())
        #expect(first.values == ["good": "precious"])
        #expect(try cloud.health(of: .keyValue).counters["quarantine.now"] == 0)
    }

    /// It reads everything, and is the last that has the value.
    @Test func anExpiredTokenDropsNoKeyInQuarantine() throws {
        let cloud = try TestCloud(seed: 23)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        for key: ItemName in ["bad", "gone", "good"] { try devices[0].set(key, "precious") }
        #expect(cloud.settle())
        devices[0].setOffline(true)
        try devices[1].set("gone", nil)
        cloud.network.run(for: .seconds(30))
        devices[1].setOffline(true)
        try damage("body", of: "feed_items", where: "name = 'bad'", in: cloud) { $0[$0.count - 1] ^= 1 }
        #expect(try Guest(of: cloud).pull().get().changes.map(\.item) == ["good"])
        cloud.network.run(for: .seconds(5))
        try cloud.forgetDeletions(of: .keyValue)
        devices[0].setOffline(false)
        cloud.network.run(for: .seconds(60))
        #expect(devices[0].values == ["bad": "precious", "good": "precious"])
        #expect(try Guest(of: cloud).pull().get().changes.map(\.item).sorted() == ["bad", "good"])
        devices[1].setOffline(false)
        #expect(cloud.settle())
        #expect(devices[1].values == devices[0].values)
    }

    /// Two devices have it, and one of them has written it anew: each offers the same, which is one write.
    @Test func whatTwoDevicesBringBackIsOneWrite() throws {
        let cloud = try TestCloud(seed: 20)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        for key: ItemName in ["a", "b"] { try devices[0].set(key, "precious") }
        #expect(cloud.settle())
        let before = try Guest(of: cloud).pull().get().items.map { "\($0.key) \($0.timestamp) \($0.deviceID)" }
        try damage("body", of: "feed_items", where: "name = 'a'", in: cloud) { $0[$0.count - 1] ^= 1 }
        _ = try Guest(of: cloud).pull()
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle())
        let guest = try Guest(of: cloud)
        #expect(
            try guest.pull().get().items.map { "\($0.key) \($0.timestamp) \($0.deviceID)" }.sorted() == before.sorted())
        var request = WireListKeyHistory()
        request.storeID = guest.session.accessToken.app.storeID
        let history: WireListKeyHistoryReply = try guest.ask(request).decoded()
        #expect(history.entries.isEmpty)
        for device in devices { #expect(device.values == ["a": "precious", "b": "precious"]) }
    }

    /// What no device brings back is kept for the operator, and forgotten in the end.
    @Test func whatNobodyHasIsForgottenAfterAWhile() throws {
        let cloud = try TestCloud(seed: 21)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("a", 1), guest.write("b", 2)])).code == nil)
        try damage("body", of: "feed_items", where: "name = 'a'", in: cloud) { $0[$0.count - 1] ^= 1 }
        cloud.network.run(for: .seconds(2))
        #expect(try guest.pull().get().items.map(\.key) == ["b"])
        cloud.network.run(for: .seconds(2))
        let select = SQL("SELECT name, body FROM quarantined_items")
        func kept() throws -> [String] {
            try cloud.storage(of: .keyValue).write { try $0.all(select) { $0.blob(1).isEmpty ? "" : $0.text(0) } }
        }
        #expect(try kept() == ["a"])
        cloud.skip(.seconds(29 * 24 * 3600), of: .keyValue)
        cloud.network.run(for: .seconds(700))
        #expect(try kept() == ["a"])
        cloud.skip(.seconds(2 * 24 * 3600), of: .keyValue)
        cloud.network.run(for: .seconds(700))
        #expect(try kept() == [] && cloud.health(of: .keyValue).counters["quarantine.now"] == 0)
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

    /// While it is counted, and again and again.
    @Test func aDigestOfWhatIsWrittenAllTheTimeIsPutRight() throws {
        let cloud = try TestCloud(seed: 45)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        for key: ItemName in ["a", "b", "c"] { try first.set(key, "precious") }
        #expect(cloud.settle())
        let damage = SQL("UPDATE feed_scopes SET digest = zeroblob(32), live_count = 7 WHERE path <> 'directory'")
        _ = try cloud.storage(of: .keyValue).write { try $0.execute(damage, []) }
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        cloud.network.offloadTime = .milliseconds(500)
        let second = try cloud.addDevice()
        for number in 0..<400 {
            try first.set("b", .integer(Int64(number)))
            cloud.network.run(for: .milliseconds(250))
        }
        #expect(try cloud.health(of: .keyValue).counters["digests.damaged"] ?? 0 > 0)
        cloud.network.offloadTime = .zero
        #expect(cloud.settle())
        #expect(second.values == first.values && second.values["b"] == 399)
    }

    /// Changes bytes that the key-value service has stored, while it is down: it remembers nothing of them as they
    /// were.
    private func damage(
        _ column: String, of table: String, where condition: String, in cloud: TestCloud,
        by change: (inout [UInt8]) -> Void
    ) throws {
        cloud.crash(.keyValue)
        let select = SQL("SELECT \(column) FROM \(table) WHERE \(condition)")
        let update = SQL("UPDATE \(table) SET \(column) = ?1 WHERE \(condition)")
        try cloud.storage(of: .keyValue).write { transaction in
            var bytes = try #require(try transaction.first(select) { $0.blob(0) })
            change(&bytes)
            #expect(try transaction.execute(update, [.blob(bytes)]) == 1)
        }
        try cloud.start(.keyValue)
    }

    private func account(_ name: String, in cloud: TestCloud) throws -> String {
        let select = SQL("SELECT account_id FROM accounts WHERE name = ?1")
        return try #require(
            try cloud.storage(of: .identity).write { try $0.first(select, [.text(name)]) { $0.text(0) } })
    }

    /// What lies in the way of one account alone, and for all that it has: the sealed key of its store's digests, its
    /// own wrapped key.
    @Test(arguments: [
        ("feed_scopes", "metadata", "digest_keys.damaged"), ("owner_keys", "wrapped", "account_keys.damaged"),
    ])
    func inPlaceOfAKeyThatDoesNotOpenAnotherIsMade(_ table: String, _ column: String, _ counter: String) throws {
        let cloud = try TestCloud(seed: 51)
        defer { cloud.close() }
        try cloud.createAccount("guest")
        let first = try cloud.addDevice()
        let other = try cloud.addDevice(to: "guest")
        for key: ItemName in ["a", "b", "gone", "c"] { try first.set(key, "precious") }
        try first.set("gone", nil)
        try other.set("o", 1)
        #expect(cloud.settle())
        let owner = try account(TestCloud.accountName, in: cloud)
        try damage(column, of: table, where: "owner = '\(owner)'", in: cloud) { $0[$0.count - 1] ^= 1 }

        // One that has nothing yet, and one that writes.
        let second = try cloud.addDevice()
        try first.set("d", "new")
        try other.set("p", 2)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == ["a": "precious", "b": "precious", "c": "precious", "d": "new"])
        #expect(second.values == first.values && other.values == ["o": 1, "p": 2])
        let counters = try cloud.health(of: .keyValue).counters
        #expect(counters[counter] == 1 && counters["digest_keys.damaged"] == 1)
        let third = try cloud.addDevice()
        #expect(cloud.settle())
        #expect(third.values == first.values)
        // It stays in order after a restart, and what was damaged is kept beside what took its place.
        cloud.crash(.keyValue)
        let aside = SQL("SELECT owner FROM owner_keys_damaged")
        let damaged = try cloud.storage(of: .keyValue).write { try $0.all(aside) { $0.text(0) } }
        #expect(damaged == (table == "owner_keys" ? [owner] : []))
        try cloud.start(.keyValue)
        try third.set("a", nil)
        #expect(cloud.settle())
        #expect(first.values == ["b": "precious", "c": "precious", "d": "new"])
        #expect(try cloud.health(of: .keyValue).counters[counter] == nil)
    }

    /// As many values as a store can have.
    @Test func aFullStoreComesBackAfterItsAccountKeyWasLost() throws {
        let cloud = try TestCloud(seed: 56)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        let guest = try Guest(of: cloud)
        for start in [0, 512] {
            let writes = (start..<start + 512).map { guest.write("k\($0)", .integer(Int64($0))) }
            #expect(try guest.ask(guest.push(writes)).code == nil)
        }
        #expect(cloud.settle())
        let values = devices[0].values
        #expect(values.count == 1024)
        let owner = try account(TestCloud.accountName, in: cloud)
        try damage("wrapped", of: "owner_keys", where: "owner = '\(owner)'", in: cloud) { $0[20] ^= 1 }
        #expect(cloud.settle(within: .seconds(3600)))
        let third = try cloud.addDevice()
        #expect(cloud.settle())
        #expect(third.values == values && devices[1].values == values)
        #expect(try cloud.health(of: .keyValue).counters["items.quarantined"] ?? 0 >= 1024)
    }

    /// However much of one account is damaged, another's is called for.
    @Test func whatIsDamagedOfOneAccountTakesNoOthersTurn() throws {
        let cloud = try TestCloud(seed: 57)
        defer { cloud.close() }
        try cloud.createAccount("guest")
        let first = try cloud.addDevice(to: "guest")
        try first.set("mine", "precious")
        let guest = try Guest(of: cloud)
        for start in [0, 512] {
            let writes = (start..<start + 512).map { guest.write("k\($0)", .integer(Int64($0))) }
            #expect(try guest.ask(guest.push(writes)).code == nil)
        }
        #expect(cloud.settle())
        let owner = try account(TestCloud.accountName, in: cloud)
        try damage("body", of: "feed_items", where: "name = 'mine'", in: cloud) { $0[$0.count - 1] ^= 1 }
        try damage("wrapped", of: "owner_keys", where: "owner = '\(owner)'", in: cloud) { $0[20] ^= 1 }
        cloud.network.run(for: .seconds(10))
        // Nobody has them any more.
        #expect(throws: CloudError.self) { try guest.pull().get() }
        cloud.network.run(for: .seconds(2))
        #expect(try guest.pull().get().changes.isEmpty)

        let second = try cloud.addDevice(to: "guest")
        cloud.network.run(for: .seconds(60))
        #expect(second.values == ["mine": "precious"] && first.values == second.values)
    }

    /// A secret that is wrong or missing is no damage: nothing is made anew, whoever asks.
    @Test(arguments: ["UPDATE owner_keys SET master_key_id = 'another'", "UPDATE master_keys SET proof = zeroblob(44)"])
    func whatNeedNotBeDamageIsNotMadeAnew(_ fault: String) throws {
        let cloud = try TestCloud(seed: 52)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        try device.set("a", "precious")
        #expect(cloud.settle())
        let owner = try account(TestCloud.accountName, in: cloud)
        let select = SQL("SELECT owner, master_key_id, wrapped FROM owner_keys")
        func keys() throws -> [[SQLValue]] {
            try cloud.storage(of: .keyValue).write {
                try $0.all(select) { [.text($0.text(0)), .text($0.text(1)), .blob($0.blob(2))] }
            }
        }
        let whole = try keys()
        // As if another master key had wrapped it; or as if this one had become another.
        try damage("wrapped", of: "owner_keys", where: "owner = '\(owner)'", in: cloud) { $0[20] ^= 1 }
        cloud.crash(.keyValue)
        _ = try cloud.storage(of: .keyValue).write { try $0.execute(SQL(fault), []) }
        let before = try keys()
        try cloud.start(.keyValue)
        try device.set("b", "waits")
        cloud.network.run(for: .seconds(60))
        #expect(try keys() == before && before != whole)
        let health = try cloud.health(of: .keyValue)
        #expect(health.counters["account_keys.damaged"] == nil && health.counters["digest_keys.damaged"] == nil)
        #expect(health.counters["failures.storageFailure"] ?? 0 > 0)
        // Nothing was given up, and all goes on when the cause is gone.
        #expect(device.values == ["a": "precious", "b": "waits"])
        let pending = try #require(device.store).status().pending
        #expect(pending.first?.error?.code == .storageFailure && pending.first?.blocker == .server)
        cloud.crash(.keyValue)
        let update = SQL("UPDATE owner_keys SET master_key_id = ?2, wrapped = ?3 WHERE owner = ?1")
        try cloud.storage(of: .keyValue).write { for key in whole { try $0.execute(update, key) } }
        try cloud.start(.keyValue)
        #expect(cloud.settle())
        #expect(try Guest(of: cloud).pull().get().items.map(\.key).sorted() == ["a", "b"])
    }

    @Test func aDamagedAccountKeyHoldsUpNoRotation() throws {
        let cloud = try TestCloud(seed: 55)
        defer { cloud.close() }
        try cloud.createAccount("guest")
        let device = try cloud.addDevice()
        let other = try cloud.addDevice(to: "guest")
        for device in [device, other] { try device.set("a", "precious") }
        #expect(cloud.settle())
        let owner = try account(TestCloud.accountName, in: cloud)
        try damage("wrapped", of: "owner_keys", where: "owner = '\(owner)'", in: cloud) { $0[20] ^= 1 }
        let key = Data(repeating: 7, count: 32).base64EncodedString()
        try cloud.changeKeys { _, secrets, _ in
            for index in secrets.indices { secrets[index].masterKeys.insert(key, at: 0) }
        }
        let health = try cloud.health(of: .keyValue)
        #expect(health.usesNewestMasterKey && health.counters["account_keys.damaged"] ?? 0 > 0)
        // That it is damaged is known although its master key is gone.
        try cloud.changeKeys { _, secrets, _ in
            for index in secrets.indices { secrets[index].masterKeys = [key] }
        }
        cloud.network.run(for: .seconds(60))
        #expect(cloud.settle(within: .seconds(1200)))
        let values = try Guest(of: cloud).pull().get().items.map { $0.value.string }
        #expect(values == ["precious"] && other.values == ["a": "precious"])
    }

    /// They are looked at in steps, and told together.
    @Test func keysOfAMissingMasterKeyAreToldOnceInARound() throws {
        let lines = LogLines()
        let cloud = try TestCloud(seed: 58, logger: lines.logger)
        defer { cloud.close() }
        let insert = SQL("INSERT INTO owner_keys (owner, master_key_id, wrapped) VALUES (?1, 'another', zeroblob(60))")
        cloud.crash(.keyValue)
        try cloud.storage(of: .keyValue).write { transaction in
            for number in 0..<450 { try transaction.execute(insert, [.text("acct_\(number)")]) }
        }
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(8))
        #expect(lines.count(of: "Account keys do not open with the master keys that there are") == 1)
        #expect(try !cloud.health(of: .keyValue).usesNewestMasterKey)
        cloud.network.run(for: .seconds(10))
        #expect(lines.count(of: "Account keys do not open with the master keys that there are") == 2)
    }

    /// Bytes that lie open beside a value: of its time (later and earlier), of its device, and of how long that is.
    @Test(arguments: [(1, 0x80), (1, 0x01), (4, 0x10), (9, 0x01), (12, 0x01)] as [(Int, UInt8)])
    func aValueWithADamagedStampComesBackAsItWas(_ index: Int, _ bit: UInt8) throws {
        let cloud = try TestCloud(seed: 53)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        try first.set("a", "precious")
        try first.set("b", 1)
        #expect(cloud.settle())
        func stamps() throws -> [String: [String]] {
            let items = try Guest(of: cloud).pull().get().items
            return Dictionary(items.map { ($0.key, ["\($0.timestamp)", $0.deviceID]) }) { $1 }
        }
        let before = try stamps()
        first.setOffline(true)
        try damage("body", of: "feed_items", where: "name = 'a'", in: cloud) { $0[index] ^= bit }

        let second = try cloud.addDevice()
        cloud.network.run(for: .seconds(10))
        #expect(second.values == ["b": 1])
        #expect(try Guest(of: cloud).pull().get().changes.map(\.item) == ["b"])
        #expect(try cloud.health(of: .keyValue).counters["items.quarantined"] == 1)

        first.setOffline(false)
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(second.values == ["a": "precious", "b": 1])
        #expect(try stamps() == before)
    }

    /// One whose time seems to be of later would win against all that is written from now on.
    @Test func whatIsLaterThanADamagedDeletionStands() throws {
        let cloud = try TestCloud(seed: 54)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        try first.set("a", "precious")
        try first.set("b", 1)
        #expect(cloud.settle())
        let away = try cloud.addDevice()
        #expect(cloud.settle())
        away.setOffline(true)
        try first.set("a", nil)
        cloud.network.run(for: .seconds(10))
        try damage("body", of: "feed_items", where: "name = 'a'", in: cloud) { $0[1] ^= 0x80 }
        // Written over what it has seen last, and later than the deletion.
        try away.set("a", "again")
        away.setOffline(false)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(first.values == ["a": "again", "b": 1] && away.values == first.values)
    }

    /// Whoever remembers the deletion says it again to what is older.
    @Test func aDamagedDeletionWinsAgainstAnOlderValue() throws {
        let cloud = try TestCloud(seed: 55)
        defer { cloud.close() }
        let first = try cloud.addDevice()
        try first.set("a", "precious")
        try first.set("b", 1)
        let away = try cloud.addDevice()
        #expect(cloud.settle())
        away.setOffline(true)
        try away.set("a", "older")
        cloud.network.run(for: .seconds(10))
        try first.set("a", nil)
        cloud.network.run(for: .seconds(10))
        try damage("body", of: "feed_items", where: "name = 'a'", in: cloud) { $0[1] ^= 0x80 }
        _ = try cloud.addDevice()
        cloud.network.run(for: .seconds(120))
        away.setOffline(false)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.settle(within: .seconds(1200)))
        for device in cloud.devices { #expect(device.values == ["b": 1]) }
    }
}
