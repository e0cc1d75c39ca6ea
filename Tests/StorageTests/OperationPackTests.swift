import NephosCore
import Testing

@testable import NephosStorage

/// Replies that are stored together are found one by one.
@Suite struct OperationPackTests {
    private static let start: UInt64 = 1_700_000_000_000
    private let engine: SQLiteEngine

    init() throws { engine = try .fresh() }

    private func id(_ milliseconds: UInt64, _ number: UInt64) -> OperationID {
        OperationID(high: (Self.start + milliseconds) << 16 | 0x7000, low: number)
    }

    private func rows(_ sql: SQL) throws -> Int64 { try engine.write { try $0.first(sql) { $0.integer(0) } ?? 0 } }

    private func reply(_ id: OperationID, by principal: String = "one", _ request: UInt64 = 0) throws -> [UInt8]? {
        try engine.group { try $0.reply(to: id, by: principal, request: RequestFingerprint(rawValue: request)) }
    }

    private static let singles = SQL("SELECT COUNT(*) FROM feed_operations")
    private static let packs = SQL("SELECT COUNT(*) FROM feed_operation_packs")
    private static let longestPack = SQL("SELECT MAX(LENGTH(operations)) FROM feed_operation_packs")

    @Test func repliesOfAGroupShareARow() throws {
        try engine.group { feed in
            for number in 0..<UInt64(30) {
                try feed.remember([7, UInt8(number)], of: id(number % 3, number), by: "one", request: .none)
            }
        }
        #expect(try rows(Self.singles) == 0)
        #expect(try rows(Self.packs) == 1)
        for number in 0..<UInt64(30) { #expect(try reply(id(number % 3, number)) == [7, UInt8(number)]) }
        #expect(try reply(id(0, 3), by: "two") == nil)
        #expect(try reply(id(0, 31)) == nil)
        let other = code { _ = try reply(id(0, 3), 5) }
        #expect(other == .operationReused)
    }

    @Test func aReplyThatIsAloneHasARowOfItsOwn() throws {
        try engine.group { feed in
            try feed.remember([1], of: id(0, 1), by: "one", request: .none)
            try feed.remember([2], of: id(8000, 2), by: "one", request: .none)
        }
        #expect(try rows(Self.singles) == 2)
        #expect(try rows(Self.packs) == 0)
        #expect(try reply(id(0, 1)) == [1] && reply(id(8000, 2)) == [2])
    }

    @Test func aRepeatInTheSameGroupFindsWhatIsNotStoredYet() throws {
        try engine.group { feed in
            try feed.remember([1], of: id(0, 1), by: "one", request: .none)
            #expect(try feed.reply(to: id(0, 1), by: "one", request: .none) == [1])
            #expect(try feed.reply(to: id(0, 1), by: "two", request: .none) == nil)
        }
    }

    @Test func aLongReplyHasARowOfItsOwn() throws {
        let long = [UInt8](repeating: 5, count: 256)
        try engine.group { feed in
            try feed.remember(long, of: id(0, 1), by: "one", request: .none)
            for number in 2..<UInt64(5) {
                try feed.remember([UInt8](repeating: 6, count: 255), of: id(0, number), by: "one", request: .none)
            }
        }
        #expect(try rows(Self.singles) == 1)
        #expect(try reply(id(0, 1)) == long)
        for number in 2..<UInt64(5) { #expect(try reply(id(0, number))?.count == 255) }
    }

    @Test func aRowIsNoLongerThanAPage() throws {
        try engine.group { feed in
            for number in 0..<UInt64(512) {
                try feed.remember(
                    [UInt8](repeating: 1, count: Int(number % 40)), of: id(0, number), by: "one", request: .none)
            }
        }
        #expect(try rows(Self.packs) > 3)
        #expect(try rows(Self.longestPack) <= 3900)
        #expect(try reply(id(0, 511))?.count == 31)
    }

    @Test func nobodyHasOthersLookThroughMoreThanSoManyRows() throws {
        for group in 0..<UInt64(70) {
            try engine.group { feed in
                for number in 0..<UInt64(2) {
                    try feed.remember([UInt8(group)], of: id(5, group * 2 + number), by: "one", request: .none)
                }
            }
        }
        #expect(try rows(Self.packs) == 16)
        #expect(try rows(Self.singles) == 108)
        for number in 0..<UInt64(140) { #expect(try reply(id(5, number)) == [UInt8(number / 2)]) }
    }

    @Test func damageOfARowEndsNothing() throws {
        try engine.group { feed in
            for number in 0..<UInt64(20) {
                try feed.remember([1, 2, 3], of: id(0, number), by: "one", request: .none)
            }
        }
        let (select, update) = (
            SQL("SELECT operations FROM feed_operation_packs"), SQL("UPDATE feed_operation_packs SET operations = ?1")
        )
        let whole = try engine.write { try $0.first(select) { $0.blob(0) } ?? [] }
        var generator = SplitMix64(seed: 4)
        for _ in 0..<200 {
            var bytes = Array(whole.prefix(.random(in: 0...whole.count, using: &generator)))
            for _ in 0..<Int.random(in: 0...4, using: &generator) where !bytes.isEmpty {
                bytes[.random(in: bytes.indices, using: &generator)] = .random(in: .min ... .max, using: &generator)
            }
            try engine.write { _ = try $0.execute(update, [.blob(bytes)]) }
            for number in 0..<UInt64(20) { _ = try? reply(id(0, number)) }
        }
    }

    @Test func packsAreForgottenByAge() throws {
        for time in stride(from: UInt64(0), to: 4000, by: 10) {
            try engine.group { feed in
                for number in 0..<UInt64(3) {
                    try feed.remember([1], of: id(time, number), by: "one", request: .none)
                }
            }
        }
        let before = try rows(Self.packs)
        let bound = OperationID.lowerBound(at: Timestamp(milliseconds: Self.start + 2000))
        var steps = 1
        while try engine.group({ try $0.pruneOperations(before: bound, limit: 320) }) { steps += 1 }
        #expect(steps > 2)
        #expect(try rows(Self.packs) == before / 2)
        #expect(try reply(id(1990, 0)) == nil && reply(id(2000, 0)) == [1])
    }

    @Test func noStoredOperationIsNewerThanTheNewest() throws {
        #expect(try engine.write { try Feed.newestOperation(in: $0) } == nil)
        for time in [UInt64(0), 8, 7000, 7007] {
            try engine.group { feed in
                for number in 0..<UInt64(3) {
                    try feed.remember([1], of: id(time, number), by: "one", request: .none)
                }
            }
            let newest = try engine.write { try Feed.newestOperation(in: $0) }
            #expect(try #require(newest) >= id(time, 2))
            // So that nearly every operation after it need not be looked for.
            #expect(try #require(newest) <= id(time + 9, 0))
        }
    }

    /// The last bucket ends where ids end: the bound was 0 there, and hid all others.
    @Test func anIdOfTheEndOfTimeHidesNoOther() throws {
        let last = [UInt64(1), 2].map { OperationID(high: .max, low: $0) }
        try engine.group { feed in for id in last { try feed.remember([1], of: id, by: "one", request: .none) } }
        try engine.group { feed in
            for number in 0..<UInt64(2) { try feed.remember([2], of: id(0, number), by: "one", request: .none) }
        }
        #expect(try #require(try engine.write { try Feed.newestOperation(in: $0) }) >= last[1])
    }

    @Test func whatIsLookedThroughIsCounted() throws {
        for group in 0..<UInt64(5) {
            try engine.group { feed in
                for number in 0..<UInt64(2) {
                    try feed.remember([1], of: id(5, group * 2 + number), by: "one", request: .none)
                }
            }
        }
        try engine.group { feed in
            _ = try feed.reply(to: id(5, 99), by: "one", request: .none)
            #expect(feed.packsLooked == 5)
        }
    }

    @Test(arguments: 1...12)
    func whateverWasStoredIsFound(_ seed: UInt64) throws {
        var generator = SplitMix64(seed: seed)
        var known: [(id: OperationID, principal: String, reply: [UInt8])] = []
        for group in 0..<60 {
            try engine.group { feed in
                for _ in 0..<Int.random(in: 0...40, using: &generator) {
                    let late = flip(&generator) ? 0 : UInt64.random(in: 0...100_000, using: &generator)
                    let id = OperationID(
                        at: Timestamp(milliseconds: Self.start + UInt64(group) * 3 - late), using: &generator)
                    let principal = ["one", "two", "three"][Int(generator.next() % 3)]
                    let reply = [UInt8](
                        repeating: UInt8(known.count % 200), count: .random(in: 0...280, using: &generator))
                    try feed.remember(reply, of: id, by: principal, request: .none)
                    known.append((id, principal, reply))
                }
            }
        }
        try engine.group { feed in
            for one in known {
                let reply = try feed.reply(to: one.id, by: one.principal, request: .none)
                let others = try feed.reply(to: one.id, by: "nobody", request: .none)
                #expect(reply == one.reply && others == nil)
            }
        }
    }

    private func flip(_ generator: inout SplitMix64) -> Bool { generator.next() % 2 == 0 }
}
