import NephosCore
import NephosStorage
import NephosWire
import Testing

@testable import NephosKeyValue

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
        #expect((house.now.milliseconds...house.now.milliseconds + 1000).contains(entries[0].recordedAt))
    }

    @Test func overwrittenValueOfAnotherDeviceIsKept() throws {
        let house = try KeyValueHouse()
        let first = house.write("k", "first")
        try house.push(first, by: house.caller("dev_a"))
        var second = house.write("k", "second", after: .seconds(1))
        second.seenTimestamp = first.timestamp
        try house.push(second, by: house.caller("dev_b"))
        try house.push(house.write("k", "third", after: .seconds(2)), by: house.caller("dev_b"))
        let entries = try house.history(house.caller("dev_a"))
        #expect(try entries.map { try KeyValueItem($0.item).value } == ["second", "first"])
        #expect(entries.allSatisfy { !$0.lostConflict && $0.winnerDeviceID == "dev_b" })
    }

    @Test func overwritingAnUnseenValueIsAConflict() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        let seen = house.write("k", "seen")
        try house.push(seen, by: a)
        try house.push(house.write("k", "unseen", after: .seconds(1)), by: a)
        var winner = house.write("k", "winner", after: .seconds(2))
        winner.seenTimestamp = seen.timestamp
        try house.push(winner, by: b)
        var last = house.write("k", "last", after: .seconds(3))
        last.seenTimestamp = winner.timestamp
        try house.push(last, by: a)
        let entries = try house.history(a, key: "k")
        #expect(
            try entries.filter(\.lostConflict).map { try KeyValueItem($0.item).value } == ["unseen"], "\(entries)")
        for key in ["k", ""] {
            var list = WireListKeyHistory()
            (list.storeID, list.key, list.conflictsOnly) = (a.store.rawValue, key, true)
            let conflicts = try house.call(list, by: a, WireListKeyHistoryReply.self)
            #expect(conflicts.entries == entries.filter(\.lostConflict) && !conflicts.more)
            list.skip = 1
            #expect(try house.call(list, by: a, WireListKeyHistoryReply.self).entries.isEmpty)
        }
    }

    @Test func aResolvedConflictStaysInTheHistoryAlone() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        func conflicts(_ key: String = "") throws -> [String] {
            var list = WireListKeyHistory()
            (list.storeID, list.key, list.conflictsOnly) = (a.store.rawValue, key, true)
            return try house.call(list, by: a, WireListKeyHistoryReply.self).entries.map(\.item.key)
        }
        func resolve(_ keys: [String], until time: UInt64 = .max) throws -> UInt32 {
            var request = WireResolveKeyConflicts()
            (request.storeID, request.keys, request.recordedUntil) = (a.store.rawValue, keys, time)
            return try house.call(request, by: b, WireResolveKeyConflictsReply.self).count
        }
        for key in ["k", "l", "m"] {
            try house.push(house.write(key, "won", after: .seconds(2)), by: a)
            try house.push(house.write(key, "lost", after: .seconds(1)), by: b)
        }
        #expect(try conflicts() == ["m", "l", "k"])
        #expect(try resolve([], until: house.now.milliseconds - 1) == 0)
        #expect(try resolve(["k", "none"]) == 1)
        #expect(try conflicts() == ["m", "l"] && conflicts("k").isEmpty && conflicts("l") == ["l"])
        #expect(try house.history(a).count == 3)
        // A push that is repeated under another id does not make it one again.
        try house.push(house.write("k", "lost", after: .seconds(1)), by: b)
        #expect(try conflicts("k").isEmpty)
        #expect(try resolve([]) == 2 && conflicts().isEmpty)
    }

    /// As two copies of one device's home make them.
    @Test func differentValuesUnderOneStampAreAllKept() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        for value in ["stood", "lost", "lost too", "lost"] {
            try house.push(house.write("k", .string(value)), by: a)
        }
        try house.push(house.write("k", "newest", after: .seconds(1)), by: b)
        let values = try house.history(a, key: "k").map { try #require(KeyValueItem($0.item).value) }
        #expect(Set(values) == ["stood", "lost", "lost too"] && values.count == 3)
    }

    /// Else what is asked of a key costs as much as all that the store has, and what is asked of a store as much as all
    /// that there is.
    @Test(arguments: [
        (KeyHistory.ofKey, 3, "COVERING INDEX key_history_by_key (store_id=? AND item=?)", 1),
        (KeyHistory.resolveOfKey, 4, "key_history", 0),
        (KeyHistory.surplusOfKey, 5, "COVERING INDEX key_history_by_key (store_id=? AND item=? AND own=?)", 0),
        (KeyHistory.oldestOfStore, 3, "PRIMARY KEY (own=? AND store_id=?)", 0),
        (KeyHistory.ofStore, 2, "PRIMARY KEY (own=? AND store_id=?)", 0),
        (KeyHistory.anyOfStore, 2, "key_history_by_key (store_id=?)", 0),
        (KeyHistory.agedOfStore, 4, "PRIMARY KEY (own=? AND store_id=?)", 0),
        (KeyHistory.oldestStore, 1, "key_history_stores_by_oldest (oldest<?)", 0),
    ]) func entriesAreFoundWhereTheyLie(statement: SQL, count: Int, index: String, sorts: Int) throws {
        let house = try KeyValueHouse()
        let values = [SQLValue](repeating: .integer(1), count: count)
        let plan = try house.engine.write {
            try $0.all(SQL("EXPLAIN QUERY PLAN " + statement.text), values) { $0.text(3) }
        }
        let searches = plan.filter { $0.contains("SEARCH") || $0.contains("SCAN") }
        #expect(!searches.isEmpty && searches.allSatisfy { $0.contains(index) }, "\(plan)")
        #expect(plan.count { $0.contains("TEMP B-TREE") } == sorts, "\(plan)")
    }

    @Test func aDamagedEntryIsNamed() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", "newest", after: .seconds(2)), by: a)
        try house.push(house.write("k", "lost", after: .seconds(1)), by: house.caller("dev_b"))
        let empty = SQL("UPDATE key_history SET sealed = ?1")
        _ = try house.engine.write { try $0.execute(empty, [.blob([1, 2, 3])]) }
        let entries = try house.history(a)
        try #require(entries.count == 1)
        #expect(entries[0].damaged && entries[0].item.key == "k" && !entries[0].item.hasValue)
    }

    @Test func overwritesByTheSameDeviceAreKeptWithinTheirOwnBounds() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", "of b"), by: house.caller("dev_b"))
        for index in 1...20 { try house.push(house.write("k", .integer(Int64(index)), after: .seconds(index)), by: a) }
        let values = try house.history(a, key: "k").map { try KeyValueItem($0.item).value }
        #expect(values == (10...19).reversed().map { .integer($0) } + ["of b"])
    }

    @Test func whatHasHardlyStoodIsNotKeptWhenTheSameDeviceReplacesIt() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        for index in 1...20 {
            try house.push(house.write("k", .integer(Int64(index)), after: .milliseconds(99 * index)), by: a)
        }
        #expect(try house.history(a).isEmpty)
    }

    @Test func whatADeviceReplacedItselfNeverDrivesOutAConflict() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        let value = { (index: Int) in PropertyValue.string(String(repeating: "\(index % 10)", count: 900_000)) }
        try house.push(house.write("k", "newest", after: .seconds(1)), by: a)
        for index in 0..<4 { try house.push(house.write("k", value(index), after: .milliseconds(index)), by: b) }
        for index in 2..<12 {
            try house.push(house.write("k", value(index), after: .seconds(index)), by: a)
            // What it costs is in the device's budget again.
            house.pass(.seconds(3))
        }
        // A list of them is cut to what fits one reply.
        let kept = try house.engine.write {
            try $0.first(SQL("SELECT SUM(lost_conflict), SUM(own) FROM key_history")) { ($0.integer(0), $0.integer(1)) }
        }
        #expect(kept?.0 == 4 && (kept?.1 ?? .max) <= 1)
    }

    @Test func aDevicesOwnOvertakenWriteIsKeptAndIsNoConflict() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", "later", after: .seconds(2)), by: a)
        let reply = try house.push(house.write("k", "earlier", after: .seconds(1)), by: a)
        #expect(reply.outcomes[0].superseded)
        let entries = try house.history(a)
        #expect(try entries.map { try KeyValueItem($0.item).value } == ["earlier"])
        #expect(entries.first?.lostConflict == false)
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
            try house.push(
                house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: house.caller(device))
        }
        var list = WireListKeyHistory()
        list.storeID = "notes"
        list.limit = 1000
        let entries = try house.call(list, by: house.caller("dev_a"), WireListKeyHistoryReply.self).entries
        #expect(entries.count == KeyHistory.entriesPerKeyMax)
        #expect(try entries.first.map { try KeyValueItem($0.item).value } == .integer(118))
    }

    /// However often others have written the key meanwhile, and however old the write is that lost to them.
    @Test func aLostConflictOutlivesWhatWasOverwritten() throws {
        let house = try KeyValueHouse()
        for index in 0..<120 {
            let device = index.isMultiple(of: 2) ? "dev_a" : "dev_b"
            var write = house.write("k", .integer(Int64(index)), after: .milliseconds(index))
            write.seenTimestamp = write.timestamp
            try house.push(write, by: house.caller(device))
        }
        let late = try house.push(
            house.write("k", "written an hour ago", after: .seconds(-3600)), by: house.caller("dev_c"))
        #expect(late.outcomes[0].superseded)
        for index in 120..<240 {
            let device = index.isMultiple(of: 2) ? "dev_a" : "dev_b"
            var write = house.write("k", .integer(Int64(index)), after: .milliseconds(index))
            write.seenTimestamp = write.timestamp
            try house.push(write, by: house.caller(device))
        }
        var list = WireListKeyHistory()
        list.storeID = "notes"
        list.limit = 1000
        let entries = try house.call(list, by: house.caller("dev_a"), WireListKeyHistoryReply.self).entries
        #expect(entries.count == 100)
        let lost = entries.filter(\.lostConflict)
        #expect(try lost.map { try KeyValueItem($0.item).value } == ["written an hour ago"])
    }

    @Test func bytesOfAStoresHistoryAreBounded() throws {
        let house = try KeyValueHouse()
        for index in 0..<11 {
            let value = PropertyValue.string(String(repeating: "\(index % 10)", count: 1_000_000))
            let caller = house.caller(index.isMultiple(of: 2) ? "dev_a" : "dev_b")
            try house.push(house.write("k", value, after: .milliseconds(index)), by: caller)
            // What it costs is in the devices' budgets again.
            house.pass(.seconds(3))
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
            try house.push(
                house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: house.caller(device))
        }
        let later = house.now.advanced(by: .seconds(1))
        #expect(try house.engine.write { try KeyHistory.prune(recordedBefore: later, limit: 3, in: $0) })
        #expect(try house.history(house.caller("dev_a")).count == 1)
        #expect(try !house.engine.write { try KeyHistory.prune(recordedBefore: later, limit: 3, in: $0) })
        #expect(try house.history(house.caller("dev_a")).isEmpty)
    }

    /// The clock was a year ahead, and was set back: what was recorded meanwhile hides nothing that came after it.
    @Test func whatWasRecordedByAClockThatWasAheadKeepsNothingElse() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        for (index, caller) in [a, b, a, b].enumerated() {
            try house.push(house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: caller)
        }
        let year = SQL("UPDATE key_history SET recorded_at = recorded_at + 31536000000 WHERE number = 1")
        _ = try house.engine.write { try $0.execute(year, []) }
        func prune(after days: Int) throws -> Bool {
            let time = house.now.advanced(by: .seconds(days * 86_400) - KeyHistory.retention)
            return try house.engine.write { try KeyHistory.prune(recordedBefore: time, limit: 100, in: $0) }
        }
        #expect(try !prune(after: 29))
        #expect(try house.history(a).count == 3)
        #expect(try !prune(after: 31))
        #expect(try house.history(a).map { try KeyValueItem($0.item).value } == [0])
        #expect(try !prune(after: 394) && !prune(after: 460))
        #expect(try house.history(a).isEmpty)
        let left = SQL("SELECT bytes FROM key_history_stores")
        #expect(try house.engine.write { try $0.first(left) { $0.integer(0) } } == 0)
    }
}
