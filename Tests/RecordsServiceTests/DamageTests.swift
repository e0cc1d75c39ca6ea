import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// One row that the disk has lost takes no other with it, and can be put right.
@Suite struct DamageTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    /// Damages what is stored under the name, from the byte on.
    private func damage(_ name: String, from byte: Int = 2, isRestarted: Bool = true) throws {
        try house.cloud.storage(of: .records).write { transaction in
            let body = try transaction.first(SQL("SELECT body FROM feed_items WHERE name = ?1"), [.text(name)]) {
                $0.blob(0)
            }
            let damaged = Array(try #require(body).prefix(byte)) + Array("damaged!".utf8)
            let count = try transaction.execute(
                SQL("UPDATE feed_items SET body = ?1 WHERE name = ?2"), [.blob(damaged), .text(name)])
            #expect(count == 1)
        }
        guard isRestarted else { return }
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
    }

    /// A write meets it.
    @Test(arguments: [0, 2]) func aDamagedRecordIsNotThere(_ byte: Int) throws {
        try device.save("a", ["text": .string("lost")])
        try damage("a", from: byte)
        // Whoever has it would bring it back.
        #expect(try device.modify([.delete("a")]).codes == [.constraintViolation])
        #expect(try device.list().isEmpty)
        #expect(try house.used(of: device.mover.account) == 0 && counter("quarantine.now") == 1)
    }

    /// Reads everything in pages of so many records.
    private func readAll(by count: UInt32) throws {
        var request = WireReadChanges()
        request.scope = "\(device.container)/\(device.zone)"
        request.itemsMax = count
        repeat {
            let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
            request.place = reply.place
            guard reply.hasPlace else { return }
        } while true
    }

    private func changes() throws -> WireReadChangesReply {
        var request = WireReadChanges()
        request.scope = "\(device.container)/\(device.zone)"
        return try device.call("ReadChanges", request, as: WireReadChangesReply.self)
    }

    private func query(_ predicate: String) throws -> Set<String> {
        var request = WireQueryRecords()
        (request.container, request.zoneID, request.predicate) = (device.container, device.zone, predicate)
        return Set(try device.call("QueryRecords", request, as: WireQueryRecordsReply.self).records.map(\.item))
    }

    private func counter(_ name: String) throws -> UInt64 {
        let health: WireCheckHealthReply = try device.client.call(
            "CheckHealth", WireCheckHealth(), at: .requests(.records))
        return health.counters[name] ?? 0
    }

    /// In a row, or in the head: both are only what records add up to. Read at once, or page by page.
    @Test(
        arguments: [
            "UPDATE feed_items SET digest = x'1234' WHERE name = 'a'",
            "UPDATE feed_items SET digest = zeroblob(32) WHERE name = 'a'",
            "UPDATE feed_scopes SET digest = zeroblob(32), live_count = 7 WHERE path LIKE '%/%'",
        ], [0, 2] as [UInt32])
    func aDamagedDigestIsPutRight(_ damage: String, _ itemsMax: UInt32) throws {
        for name in ["a", "b", "c", "d", "e"] { try device.save(name, ["n": .integer(1)]) }
        let before = try device.list()
        let count = try house.cloud.storage(of: .records).write { try $0.execute(SQL(damage), []) }
        #expect(count == 1)
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        try readAll(by: itemsMax)
        house.cloud.network.run(for: .seconds(10))
        // It looks whether the digest is theirs.
        #expect(try device.list() == before)
        #expect(try counter("digests.damaged") > 0)
        #expect(try house.rows(of: "feed_scopes WHERE path LIKE '%/%' AND live_count = 5") == 1)
        // Nothing is put right again.
        let counted = try counter("digests.damaged")
        try readAll(by: itemsMax)
        house.cloud.network.run(for: .seconds(700))
        try readAll(by: itemsMax)
        house.cloud.network.run(for: .seconds(10))
        #expect(try counter("digests.damaged") == counted)
    }

    /// A read meets it: of the feed, by its name or by what it has; in a snapshot, too.
    @Test(arguments: ["ReadChanges", "FetchRecords", "QueryRecords"])
    func whatAReadMeetsGoesToTheQuarantineOnce(_ method: String) throws {
        let names = (0..<60).map { "r\($0)" }
        for name in names { try device.save(name, ["n": .integer(1)]) }
        let head = try changes().token
        try damage("r7", isRestarted: false)
        func read() throws -> Set<String> {
            switch method {
            case "ReadChanges": Set(try changes().changes.map(\.item))
            case "FetchRecords": Set(try device.fetch(names).keys)
            default: try query("n == 1")
            }
        }
        for _ in 0..<3 {
            #expect(try read() == Set(names).subtracting(["r7"]))
            house.cloud.network.run(for: .seconds(1))
            #expect(try counter("quarantine.now") == 1 && counter("items.quarantined") == 1)
        }
        // Nothing has moved.
        #expect(try changes().token == head)
        // Who saves a new one need not know of it. By force it is given up.
        #expect(try device.modify([.save("r7", ["n": .integer(2)])]).codes == [.constraintViolation])
        #expect(try counter("quarantine.now") == 1)
        #expect(try device.modify([.save("r7", ["n": .integer(2)], policy: .allKeys)]).codes == [nil])
        #expect(try counter("quarantine.now") == 0 && house.rows(of: "quarantined_items") == 0)
    }

    @Test func aDamagedDigestKeyIsMadeAnewAndSoAreTheDigests() throws {
        let version = try device.save("a", ["n": .integer(0)])
        for start in [0, 250] {
            try device.modify((start..<start + 250).map { .save("r\($0)", ["n": .integer(Int64($0))]) })
        }
        try device.makeZone("other")
        let before = try (device.list(), device.zones())
        try house.cloud.storage(of: .records).write { transaction in
            let scopes = try transaction.all(SQL("SELECT id, metadata FROM feed_scopes"), []) {
                ($0.integer(0), $0.blob(1))
            }
            for (id, metadata) in scopes where metadata.count > 8 {
                try transaction.execute(
                    SQL("UPDATE feed_scopes SET metadata = ?1 WHERE id = ?2"),
                    [.blob(metadata.dropLast(4) + [1, 2, 3, 4]), .integer(id)])
            }
        }
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        // A write finds out, and goes on; a reader too.
        try device.save("a", ["n": .integer(1)], base: version)
        house.cloud.network.run(for: .seconds(5))
        var after = try device.list()
        #expect(after.removeValue(forKey: "a")?["n"] == .integer(1))
        #expect(after == before.0.filter { $0.key != "a" })
        _ = try device.zones()
        house.cloud.network.run(for: .seconds(5))
        #expect(try device.zones() == before.1)
        #expect(try house.rows(of: "record_mendings") == 0)
    }

    // MARK: An account's key

    /// Two accounts, of which the first, whose turn is before the other's, has a key that does not open any more.
    private func accountsOfWhichOneIsDamaged(
        _ prepare: (RecordDevice) throws -> Void, _ change: (any Transaction, [RecordDevice]) throws -> Void
    ) throws -> (bad: RecordDevice, good: RecordDevice, mend: () throws -> Void) {
        try house.cloud.createAccount("other")
        var devices = [device, try house.device(account: "other")]
        func place(_ device: RecordDevice) -> (Int, String) {
            let owner = Owner(device.mover.account)
            return (ScopeName(owner, ItemName(device.container)).partition, owner.rawValue)
        }
        devices.sort { place($0) < place($1) }
        for device in devices {
            try device.save("a", ["n": .integer(1)])
            try prepare(device)
        }
        let bad = SQLValue.text(Owner(devices[0].mover.account).rawValue)
        house.cloud.crash(.records)
        let storage = try house.cloud.storage(of: .records)
        let wrapped = try storage.write { transaction in
            let wrapped = try transaction.first(SQL("SELECT wrapped FROM owner_keys WHERE owner = ?1"), [bad]) {
                $0.blob(0)
            }
            try change(transaction, devices)
            try transaction.execute(SQL("UPDATE owner_keys SET wrapped = zeroblob(60) WHERE owner = ?1"), [bad])
            return try #require(wrapped)
        }
        try house.cloud.start(.records)
        return (
            devices[0], devices[1],
            {
                _ = try self.house.cloud.storage(of: .records).write { transaction in
                    try transaction.execute(
                        SQL("UPDATE owner_keys SET wrapped = ?2 WHERE owner = ?1"), [bad, .blob(wrapped)])
                }
            }
        )
    }

    @Test func anAccountWhoseKeyIsDamagedHoldsUpNoOthersIndexes() throws {
        let (_, good, mend) = try accountsOfWhichOneIsDamaged(
            { device in
                try device.index("Note(n)")
                try device.settleIndexes()
            },
            { transaction, devices in
                for (turn, device) in devices.enumerated() {
                    try transaction.execute(
                        SQL("UPDATE record_indexes SET state = ?1, record = '', turn = ?2 WHERE owner = ?3"),
                        [
                            .integer(IndexRows.State.building.rawValue), .integer(Int64(turn)),
                            .text(Owner(device.mover.account).rawValue),
                        ])
                }
            })
        func building() throws -> Int64 {
            try house.cloud.storage(of: .records).write { transaction in
                try transaction.first(
                    SQL("SELECT COUNT(*) FROM record_indexes WHERE state = ?1"),
                    [.integer(IndexRows.State.building.rawValue)]
                ) { $0.integer(0) } ?? 0
            }
        }
        house.cloud.network.run(for: .seconds(5))
        #expect(try good.indexes().map(\.state) == [.ready] && building() == 1)
        // Another one is made while that one waits.
        try good.index("Note(m)")
        house.cloud.network.run(for: .seconds(5))
        #expect(try good.indexes().map(\.state) == [.ready, .ready] && building() == 1)
        try mend()
        house.cloud.network.run(for: .seconds(70))
        #expect(try building() == 0)
    }

    @Test(arguments: ["record_mendings", "record_role_changes"])
    func anAccountWhoseKeyIsDamagedHoldsUpNoOthersZones(_ table: String) throws {
        let (_, good, mend) = try accountsOfWhichOneIsDamaged(
            { _ in },
            { transaction, devices in
                for device in devices {
                    let scope = ScopeName(
                        Owner(device.mover.account), ItemName("\(device.container)/\(device.zone)"))
                    try transaction.execute(
                        SQL("INSERT INTO \(table) VALUES (?1, ?2, ?3, '')"), ZoneRows.place(of: scope))
                }
            })
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.rows(of: table) == 1 && good.list().count == 1)
        try mend()
        house.cloud.network.run(for: .seconds(70))
        #expect(try house.rows(of: table) == 0)
    }

    /// Of what is done by itself for one zone after the other: whose rows the disk does not let go keeps no others waiting.
    @Test(arguments: ["record_removals", "record_asset_endings", "record_history"])
    func aZoneWhoseRowsCannotBeRemovedHoldsUpNoOthers(_ table: String) throws {
        try house.cloud.createAccount("another")
        let accounts = [device.mover.account, try house.device(account: "another").mover.account]
        let zones = accounts.map { ScopeName(Owner($0), ItemName("\(device.container)/\(RecordDevice.zoneID())")) }
            .sorted { ($0.partition, $0.owner.rawValue) < ($1.partition, $1.owner.rawValue) }
        let damaged = zones[0].owner.rawValue
        let storage = try house.cloud.storage(of: .records)
        try storage.migrate([
            Migration(
                name: "damage",
                statements: [
                    """
                    CREATE TRIGGER damage BEFORE DELETE ON \(table) WHEN OLD.owner = '\(damaged)'
                    BEGIN SELECT RAISE(ABORT, 'damaged'); END
                    """
                ])
        ])
        try storage.write { transaction in
            for (turn, zone) in zones.enumerated() {
                let place = ZoneRows.place(of: zone)
                switch table {
                case "record_removals":
                    try transaction.execute(SQL("INSERT INTO record_removals VALUES (?1, ?2, ?3)"), place)
                case "record_asset_endings":
                    try transaction.execute(SQL("INSERT INTO record_asset_endings VALUES (?1, ?2, ?3, 1, 1)"), place)
                default:
                    try transaction.execute(
                        SQL("INSERT INTO record_history VALUES (?1, ?2, ?3, 1, 'a', ?4, 300, x'00', '')"),
                        place + [.integer(Int64(turn))])
                }
            }
        }
        house.cloud.network.run(for: .seconds(700))
        #expect(try house.rows(of: table) == 1 && house.rows(of: "\(table) WHERE owner = '\(damaged)'") == 1)
        try storage.migrate([Migration(name: "mended", statements: ["DROP TRIGGER damage"])])
        house.cloud.network.run(for: .seconds(700))
        #expect(try house.rows(of: table) == 0)
    }

    @Test func aDamagedRecordIsSavedAnew() throws {
        let version = try device.save("a", ["text": .string("lost"), "to": .with("target")])
        try damage("a")
        #expect(try device.modify([.save("a", ["x": .integer(1)], base: version)]).codes == [.unknownItem])
        #expect(try device.modify([.save("a", ["text": .string("again")], policy: .allKeys)]).codes == [nil])
        #expect(try device.list()["a"]?["text"] == .string("again"))
        let record = try #require(try device.list()["a"])
        let counted = record.countedBytes("a", encoded: try record.serializedData().count)
        #expect(try house.used(of: device.mover.account) == Int64(counted))
        // What the damaged one referred to, the new one does not.
        try device.save("target")
        #expect(try device.modify([.delete("target")]).cascaded == [])
        #expect(try Set(device.list().keys) == ["a"])
    }

    @Test func aDamagedRecordHoldsUpNoOthers() throws {
        try device.save("list")
        try device.save("item", ["list": .with("list")])
        try device.save("b")
        try damage("item")
        let outcome = try device.modify([.save("c"), .delete("item", base: RecordDevice.version())], atomic: false)
        #expect(outcome.codes == [nil, .constraintViolation])
        #expect(try device.modify([.delete("list")]).cascaded == [])
        #expect(try Set(device.list().keys) == ["b", "c"])
    }

    /// What lies in a zone is there as long as it is: also while its own row is in quarantine.
    @Test func aZoneWhoseRowIsDamagedComesBackWithWhatIsInIt() throws {
        let zone = try device.makeZone("Work")
        device.zone = zone
        try device.save("a", ["text": .string("kept")])
        let before = try #require(try device.zones()["Work"])
        try damage("Work", from: 34)
        #expect(try device.zones().isEmpty)
        #expect(try device.list()["a"]?["text"] == .string("kept"))
        // Nobody else makes one of its id.
        for name in ["Other", "Work"] {
            #expect(throws: CloudError.self) { try device.makeZone(name, id: zone) }
        }
        // Nor is the name another's, or the zone deleted, while there is something in it.
        #expect(throws: CloudError.self) { try device.makeZone("Work") }
        #expect(throws: CloudError.self) { try device.deleteZone("Work", id: zone) }
        try device.offerZone("Work", before)
        #expect(try device.zones() == ["Work": before])
        try device.deleteZone("Work", id: zone)
        #expect(throws: CloudError.self) { try device.list() }
        #expect(try house.used(of: device.mover.account) == 0)
    }

    /// Another of its name is in quarantine, and an old seal is at hand.
    @Test func aZoneThatWasDeletedDoesNotComeBackInTheNameOfAnother() throws {
        let first = try device.makeZone("Work")
        let former = try #require(try device.zones()["Work"])
        device.zone = first
        try device.save("a", ["text": .string("x")])
        try device.deleteZone("Work", id: first)
        _ = try device.makeZone("Work")
        try damage("Work", from: 34)
        #expect(throws: CloudError.self) { try device.offerZone("Work", former) }
        #expect(try device.zones().isEmpty)
    }
}
