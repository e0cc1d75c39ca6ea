import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKeyValue

/// What large pushes replace: packed with the push, and unpacked in steps after it.
struct PackedHistoryTests {
    private let house: KeyValueHouse
    private let a, b: KeyValueHouse.Caller

    init() throws {
        house = try KeyValueHouse()
        a = house.caller("dev_a")
        b = house.caller("dev_b")
    }

    /// Writes of `count` keys.
    private func writes(_ count: Int, _ value: String, after delay: Duration = .zero) -> [WireKeyWrite] {
        (0..<count).map { house.write("k\($0)", .string(value), after: delay) }
    }

    @discardableResult
    private func push(_ writes: [WireKeyWrite], by caller: KeyValueHouse.Caller) throws -> WirePushKeysReply {
        try house.call(house.push(writes, store: caller.store.rawValue), by: caller, WirePushKeysReply.self)
    }

    /// All of it, in pages.
    private func history(_ key: String = "", page: UInt32 = 1000) throws -> [WireKeyHistoryEntry] {
        var entries: [WireKeyHistoryEntry] = []
        var reply = WireListKeyHistoryReply()
        repeat {
            var list = WireListKeyHistory()
            list.storeID = a.store.rawValue
            list.key = key
            list.limit = page
            list.skip = UInt32(entries.count)
            reply = try house.call(list, by: a, WireListKeyHistoryReply.self)
            entries += reply.entries
        } while reply.more
        return entries
    }

    private func number(_ sql: String) throws -> Int64 {
        let statement = SQL(sql)
        return try house.engine.write { try $0.first(statement) { $0.integer(0) } ?? 0 }
    }

    private var unpacked: Int64 { get throws { try number("SELECT COUNT(*) FROM key_history") } }
    private var packed: Int64 { get throws { try number("SELECT COALESCE(SUM(count), 0) FROM key_history_packed") } }

    /// The stores' rows say what there is.
    private func checkSums() throws {
        #expect(
            try number("SELECT SUM(bytes) FROM key_history_stores")
                == number("SELECT COALESCE(SUM(size + 256), 0) FROM key_history"))
        #expect(try number("SELECT SUM(packed) FROM key_history_stores") == packed)
        #expect(
            try number("SELECT SUM(packed_bytes) FROM key_history_stores")
                == number("SELECT COALESCE(SUM(bytes), 0) FROM key_history_packed"))
    }

    @Test func allThatALargePushReplacedIsListedInOrderAtOnceAndAfterwards() throws {
        try push(writes(500, "first"), by: a)
        let seen = writes(500, "second", after: .seconds(1)).map { write in
            var write = write
            write.seenTimestamp = write.timestamp
            return write
        }
        try push(seen, by: b)
        #expect(try packed >= 400)
        // What comes after it has its row before it.
        try push([house.write("k7", "third", after: .seconds(2))], by: a)
        let atOnce = try history()
        #expect(atOnce.map(\.item.key) == ["k7"] + (0..<500).reversed().map { "k\($0)" })
        #expect(try KeyValueItem(atOnce[0].item).value == "second")
        #expect(try atOnce.dropFirst().allSatisfy { try KeyValueItem($0.item).value == "first" && !$0.lostConflict })
        #expect(atOnce.allSatisfy { $0.recordedAt >= house.now.milliseconds - 10 })
        #expect(try packed > 0)
        #expect(try history(page: 77) == atOnce)
        #expect(try history("k7").map(\.item.timestamp) == [atOnce[0], atOnce[493]].map(\.item.timestamp))

        house.pass(.seconds(1))
        #expect(try packed == 0 && unpacked == 501)
        #expect(try history() == atOnce)
        #expect(try history(page: 77) == atOnce)
        #expect(try history("k7").map(\.item.timestamp) == [atOnce[0], atOnce[493]].map(\.item.timestamp))
        try checkSums()
    }

    @Test func lostWritesOfALargePushAreKeptWithTheirWinners() throws {
        try push(writes(100, "won", after: .seconds(1)), by: a)
        var lost = writes(100, "lost")
        // A deletion that loses is kept too.
        lost[3].clearValue()
        try push(lost, by: b)
        for _ in 0..<2 {
            let entries = try history()
            #expect(entries.count == 100)
            #expect(entries.allSatisfy { $0.lostConflict && $0.winnerDeviceID == "dev_a" && !$0.damaged })
            #expect(entries.allSatisfy { $0.item.deviceID == "dev_b" })
            #expect(entries.filter { !$0.item.hasValue }.map(\.item.key) == ["k3"])
            house.pass(.seconds(1))
        }
        #expect(try packed == 0)
    }

    @Test func unpackingGoesOnAfterARestart() throws {
        try push(writes(500, "first"), by: a)
        try push(writes(500, "second", after: .seconds(1)), by: b)
        let atOnce = try history()
        house.pass(.milliseconds(10))
        #expect(try (32..<500).contains(unpacked))
        #expect(try packed + unpacked == 500)
        try house.restart()
        #expect(try packed > 0)
        #expect(try history() == atOnce)
        house.pass(.seconds(1))
        #expect(try packed == 0 && unpacked == 500)
        #expect(try history() == atOnce)
        try checkSums()
    }

    @Test func boundsOfAKeyHoldAfterUnpacking() throws {
        for round in 0..<15 {
            try push(writes(40, "own \(round)", after: .seconds(round)), by: a)
            house.pass(.milliseconds(500))
        }
        for round in 0..<105 {
            let writes = writes(40, "\(round)", after: .seconds(20) + .milliseconds(round))
            try push(writes, by: round.isMultiple(of: 2) ? b : a)
            // What it costs is in the devices' budgets again.
            house.pass(.milliseconds(500))
        }
        #expect(try packed == 0)
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 1") == 40 * 10)
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 0") == 40 * 100)
        let newest = try history("k0")[0]
        #expect(try KeyValueItem(newest.item).value == "103")
        try checkSums()
    }

    @Test func bytesOfAStoreAreBoundedAfterUnpackingAndNoConflictGoesForWhatADeviceReplacedItself() throws {
        let large = String(repeating: "x", count: 24_000)
        for round in 0..<12 {
            try push(writes(40, "\(round % 10)" + large, after: .seconds(round)), by: round.isMultiple(of: 2) ? a : b)
            house.pass(.seconds(4))
        }
        #expect(try packed == 0)
        let others = try number("SELECT SUM(size + 256) FROM key_history WHERE own = 0")
        #expect((7 << 20...8 << 20).contains(others))
        #expect(try number("SELECT number FROM key_history WHERE item = 'k39' ORDER BY number DESC LIMIT 1") == 11 * 40)
        for round in 12..<15 {
            try push(writes(40, "\(round % 10)" + large, after: .seconds(round)), by: b)
            house.pass(.seconds(4))
        }
        #expect(try packed == 0)
        #expect(try number("SELECT SUM(size + 256) FROM key_history WHERE own = 0") == others)
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 1") == 0)
        try checkSums()
    }

    /// Else one large entry for many small ones would hold everybody up.
    @Test func roomForLargeEntriesIsMadeInSteps() throws {
        try push([house.write("small", 1)], by: a)
        try push([house.write("small", 2, after: .seconds(1))], by: b)
        let fill = SQL(
            """
            INSERT INTO key_history (store_id, own, number, item, written, device, mark, lost_conflict, winner_written,
                winner_device, recorded_at, size, sealed)
            VALUES (1, 0, ?1, ?2, ?1, 'dev_a', 0, 0, 0, 'dev_b', ?3, 0, NULL)
            """)
        let count = 32 << 10
        let counted = SQL("UPDATE key_history_stores SET bytes = bytes + ?1, next = ?2")
        let recordedAt = Int64(house.now.milliseconds)
        try house.engine.write { transaction in
            for number in 2...count {
                try transaction.execute(
                    fill, [.integer(Int64(number)), .text("small-\(number / 50)"), .integer(recordedAt)])
            }
            try transaction.execute(counted, [.integer(Int64(count - 1) << 8), .integer(Int64(count) + 1)])
        }
        let large = String(repeating: "x", count: 10_000)
        try push(writes(40, "1" + large, after: .seconds(2)), by: a)
        let before = try unpacked
        try push(writes(40, "2" + large, after: .seconds(3)), by: b)
        var least = try unpacked
        // One step of the unpacking after another.
        for _ in 0..<200 {
            house.pass(.milliseconds(1))
            let now = try unpacked
            #expect(least - now <= 64)
            least = now
        }
        #expect(try packed == 0 && before - unpacked > 1000)
        #expect(try number("SELECT bytes FROM key_history_stores") <= 8 << 20)
        try checkSums()
    }

    @Test func whileMuchIsPackedALargePushIsToldToComeAgain() throws {
        let others = house.caller("dev_6", account: "acct_two")
        try push(writes(100, "first"), by: others)
        let devices = (0..<6).map { house.caller("dev_\($0)") }
        // Connected, so that all arrive together.
        for device in devices { _ = try house.pull(device) }
        var calls = try devices.enumerated().map { round, device in
            try house.begin(house.push(writes(1000, "\(round)", after: .seconds(round))), by: device)
        }
        // Others' stores, and what is small, are not held up.
        calls.append(try house.begin(house.push([house.write("k0", 1, after: .seconds(6))]), by: devices[0]))
        calls.append(try house.begin(house.push(writes(100, "second", after: .seconds(1))), by: others))
        let start = house.cloud.network.now
        let isRefused = { try house.counter("failures.serviceBusy") == 2 }
        house.cloud.network.run(for: .milliseconds(1))
        #expect(calls.map { $0.result != nil } == [true, true, true, true, false, false, true, true])
        #expect(try isRefused() && packed > 2000)
        // Who is told so comes again by itself, when it was told to.
        let errors = try house.finish(calls).map { result in failure { _ = try result.get() } }
        #expect(errors.allSatisfy { $0 == nil })
        #expect(try isRefused() && house.cloud.network.now - start >= .milliseconds(500))
        house.pass(.seconds(1))
        #expect(try packed == 0 && unpacked == 5001 + 100)
    }

    @Test func storesTakeTurns() throws {
        let other = house.caller("dev_o", account: "acct_two")
        for caller in [a, b] { _ = try house.pull(caller) }
        try push(writes(100, "0"), by: other)
        for round in 0..<2 {
            try push(writes(1000, "\(round)", after: .seconds(round)), by: round == 0 ? a : b)
        }
        try push(writes(100, "1", after: .seconds(1)), by: other)
        #expect(try number("SELECT COUNT(DISTINCT store_id) FROM key_history_packed") == 2)
        house.pass(.milliseconds(15))
        #expect(try number("SELECT COUNT(DISTINCT store_id) FROM key_history_packed") == 1)
        #expect(try packed > 500)
    }

    @Test func aDamagedRowIsNamedAndTheOthersAreUnpacked() throws {
        let row = KeyHistory.packedPerRowMax
        try push(writes(3 * row, "first"), by: a)
        try push(writes(3 * row, "second", after: .seconds(1)), by: b)
        let select = SQL("SELECT entries FROM key_history_packed WHERE number = ?1")
        let cut = SQL("UPDATE key_history_packed SET entries = ?2 WHERE number = ?1")
        _ = try house.engine.write { transaction in
            let number = SQLValue.integer(Int64(row) + 1)
            var bytes = try #require(try transaction.first(select, [number]) { $0.blob(0) })
            bytes.removeLast()
            return try transaction.execute(cut, [number, .blob(bytes)])
        }
        #expect(try history().count == 3 * row - 1)
        house.pass(.seconds(1))
        #expect(try packed == 0 && unpacked == 3 * row - 1)
        #expect(try house.counter("history.damaged") == 1)
        let keys = try history().map(\.item.key)
        #expect(Set(keys).count == 3 * row - 1 && !keys.contains("k\(2 * row - 1)"))
        #expect(try number("SELECT packed + packed_bytes FROM key_history_stores") == 0)
    }

    @Test(arguments: 0..<64) func damagedBytesNeverTrap(_ seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let stamp = MergeRule.Stamp(timestamp: HybridTimestamp(rawValue: 9), device: DeviceID("dev_a"))
        let entries = (0..<3).map {
            KeyHistory.Entry(
                loser: StoredKey(key: "k\($0)", stamp: stamp, sealed: nil, size: 5), mark: 7, lostConflict: true,
                winner: stamp, recordedAt: Timestamp(milliseconds: 3))
        }
        let bytes = PackedHistory.pack(entries)
        #expect(PackedHistory.unpack(bytes).isWhole)
        for _ in 0..<200 {
            var damaged = bytes
            damaged[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            if random.next() % 2 == 0 { damaged.removeLast(Int(random.next() % UInt64(bytes.count))) }
            #expect(PackedHistory.unpack(damaged).entries.count <= 64)
        }
    }
}
