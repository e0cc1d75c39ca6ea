import NephosCore
import NephosStorage
import NephosWire
import Testing

@testable import NephosKeyValue

/// The history of pushes that replace many keys at once.
struct LargePushHistoryTests {
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

    private func push(_ writes: [WireKeyWrite], by caller: KeyValueHouse.Caller) throws {
        _ = try house.call(house.push(writes, store: caller.store.rawValue), by: caller, WirePushKeysReply.self)
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

    /// The store's row says what there is.
    private func checkSum() throws {
        #expect(
            try number("SELECT SUM(bytes) FROM key_history_stores")
                == number("SELECT COALESCE(SUM(size + 256), 0) FROM key_history"))
    }

    @Test func allThatALargePushReplacedIsListedInOrder() throws {
        try push(writes(500, "first"), by: a)
        let seen = writes(500, "second", after: .seconds(1)).map { write in
            var write = write
            write.seenTimestamp = write.timestamp
            return write
        }
        try push(seen, by: b)
        try push([house.write("k7", "third", after: .seconds(2))], by: a)
        let entries = try history()
        #expect(entries.map(\.item.key) == ["k7"] + (0..<500).reversed().map { "k\($0)" })
        #expect(try KeyValueItem(entries[0].item).value == "second")
        #expect(try entries.dropFirst().allSatisfy { try KeyValueItem($0.item).value == "first" && !$0.lostConflict })
        #expect(try history(page: 77) == entries)
        #expect(try history("k7").map(\.item.timestamp) == [entries[0], entries[493]].map(\.item.timestamp))
        try checkSum()
    }

    @Test func lostWritesOfALargePushAreKeptWithTheirWinners() throws {
        try push(writes(100, "won", after: .seconds(1)), by: a)
        var lost = writes(100, "lost")
        // A deletion that loses is kept too.
        lost[3].clearValue()
        try push(lost, by: b)
        let entries = try history()
        #expect(entries.count == 100)
        #expect(entries.allSatisfy { $0.lostConflict && $0.winnerDeviceID == "dev_a" && !$0.damaged })
        #expect(entries.allSatisfy { $0.item.deviceID == "dev_b" })
        #expect(entries.filter { !$0.item.hasValue }.map(\.item.key) == ["k3"])
    }

    @Test func boundsOfEachKeyHoldAfterLargePushes() throws {
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
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 1") == 40 * 10)
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 0") == 40 * 100)
        let newest = try history("k0")[0]
        #expect(try KeyValueItem(newest.item).value == "103")
        try checkSum()
    }

    @Test func ownOverwritesOfLargePushesDriveOutNoConflict() throws {
        let large = String(repeating: "x", count: 24_000)
        for round in 0..<12 {
            try push(writes(40, "\(round % 10)" + large, after: .seconds(round)), by: round.isMultiple(of: 2) ? a : b)
            house.pass(.seconds(4))
        }
        let others = try number("SELECT SUM(size + 256) FROM key_history WHERE own = 0")
        #expect((7 << 20...8 << 20).contains(others))
        #expect(try number("SELECT number FROM key_history WHERE item = 'k39' ORDER BY number DESC LIMIT 1") == 11 * 40)
        for round in 12..<15 {
            try push(writes(40, "\(round % 10)" + large, after: .seconds(round)), by: b)
            house.pass(.seconds(4))
        }
        #expect(try number("SELECT SUM(size + 256) FROM key_history WHERE own = 0") == others)
        #expect(try number("SELECT COUNT(*) FROM key_history WHERE own = 1") == 0)
        try checkSum()
    }
}
