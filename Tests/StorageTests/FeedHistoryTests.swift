import NephosCore
import Testing

@testable import NephosStorage

/// One database, and copies of it that were brought back.
@Suite struct FeedHistoryTests {
    private let notes = ScopeName(AccountID("acct_1"), "notes")

    /// A service's database while one run of the service goes on.
    private final class Run {
        let engine: SQLiteEngine
        let cache = FeedCache()
        private let now: Timestamp
        private let random: UInt64

        init(_ engine: SQLiteEngine, at time: UInt64, random: UInt64 = 1, key: UInt8 = 3) throws {
            self.engine = engine
            self.random = random
            now = Timestamp(milliseconds: time)
            try engine.migrate(ChangeFeedSchema.migrations)
            let key = try #require(SipHash(key: [UInt8](repeating: key, count: 16)))
            cache.history = try engine.write {
                try Feed.beginRun(in: $0, key: key, at: Timestamp(milliseconds: time), random: random)
            }
        }

        func group<Result>(_ body: (Feed) throws -> Result) throws -> Result {
            try engine.write { transaction in
                let feed = Feed(over: transaction, at: now, cache: cache)
                let result = try body(feed)
                try feed.flush()
                return result
            }
        }

        /// Writes, and returns the last token.
        @discardableResult
        func write(_ count: Int, to scope: ScopeName) throws -> ChangeToken {
            var token = ChangeToken.zero
            for number in 0..<count { token = try group { try $0.put(scope, [item("\(number)", "x")]) }.token }
            return token
        }

        func judge(_ token: ChangeToken, of scope: ScopeName) throws -> TokenStanding {
            try group { try $0.judge(token, in: scope.partition) }
        }

        func judge(_ token: ChangeToken, after epochs: [ChangeToken], of scope: ScopeName) throws -> TokenStanding {
            try group { try $0.judge(token, after: epochs, in: scope.partition) }
        }

        func raise(shownBy token: ChangeToken) throws -> ChangeToken {
            let history = try #require(cache.history)
            cache.removeAll()
            cache.history = try engine.write {
                try Feed.beginEpoch(in: $0, shownBy: token, history, at: now, random: random &+ 7)
            }
            return try group { try $0.position(ofPartition: 0) }
        }

        /// A copy of the database as it is now.
        func copy() throws -> SQLiteEngine { try engine.copyInMemory() }
    }

    @Test func aTokenIsKnownAgainAlsoAfterARestart() throws {
        let first = try Run(.inMemory(), at: 1_750_000_000_000)
        let early = try first.write(3, to: notes)
        let again = try Run(first.engine, at: 1_750_000_001_000)
        let late = try again.write(2, to: notes)
        let third = try Run(first.engine, at: 1_750_000_002_000)
        #expect(try third.judge(early, of: notes) == .past)
        #expect(try third.judge(late, of: notes) == .past)
        #expect(try third.group { try $0.head(notes) }.token.isSamePlace(as: late))
        #expect(early.epoch == late.epoch && early.epoch > 1 << 40)
    }

    @Test func aForgedTokenProvesNothing() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        var token = try run.write(1, to: notes)
        token.sequence = 100
        #expect(try run.judge(token, of: notes) == .unknown)
        let other = try Run(.inMemory(), at: 1_750_000_000_000, key: 4).write(5, to: notes)
        #expect(try run.judge(other, of: notes) == .unknown)
        #expect(try run.judge(ChangeToken(epoch: token.epoch, sequence: 9), of: notes) == .unknown)
    }

    @Test func aTokenOfTheLostFutureProvesAnOldCopy() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        let kept = try run.write(3, to: notes)
        let copy = try run.copy()
        let lost = try run.write(4, to: notes)
        let later = try Run(run.engine, at: 1_750_000_005_000).write(2, to: notes)
        let restored = try Run(copy, at: 1_750_000_010_000)
        #expect(try restored.judge(kept, of: notes) == .past)
        #expect(try restored.judge(lost, of: notes) == .lost(since: 3, isNews: true))
        // Of a run that the copy has never heard of.
        #expect(try restored.judge(later, of: notes) == .lost(since: 3, isNews: true))
    }

    /// Numbers alone would take such a token for one of this history.
    @Test func aCopyThatWasWrittenOnIsRecognisedToo() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        try run.write(3, to: notes)
        let copy = try run.copy()
        let lost = try run.write(4, to: notes)
        let restored = try Run(copy, at: 1_750_000_010_000)
        try restored.write(10, to: notes)
        let again = try Run(copy, at: 1_750_000_020_000)
        try again.write(1, to: notes)
        #expect(try again.judge(lost, of: notes) == .lost(since: 3, isNews: true))
    }

    @Test func aNewEpochIsGreaterThanAnySeenAndNeverTheSame() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        try run.write(3, to: notes)
        let copies = [try run.copy(), try run.copy()]
        let lost = try run.write(4, to: notes)
        let first = try Run(copies[0], at: 1_750_000_010_000, random: 5 << 32)
        let second = try Run(copies[1], at: 1_750_000_010_000, random: 6 << 32)
        let one = try first.raise(shownBy: lost)
        let two = try second.raise(shownBy: lost)
        #expect(one.epoch > lost.epoch && two.epoch > lost.epoch && one.epoch != two.epoch)
        // Once it is said, the same token is no news.
        #expect(try first.judge(lost, of: notes) == .lost(since: 3, isNews: false))
        // The clock went back meanwhile: the newer epoch is greater all the same.
        let head = try first.write(1, to: notes)
        let third = try Run(try run.copy(), at: 1_600_000_000_000)
        #expect(try third.judge(head, of: notes) == .lost(since: nil, isNews: true))
        #expect(try third.raise(shownBy: head).epoch > head.epoch)
    }

    @Test func anEmptyDatabaseIsRecognisedToo() throws {
        let lost = try Run(.inMemory(), at: 1_750_000_000_000).write(5, to: notes)
        let empty = try Run(.inMemory(), at: 1_750_000_010_000)
        let epoch = try empty.group { try $0.position(ofPartition: 0) }.epoch
        #expect(epoch > lost.epoch)
        #expect(try empty.judge(lost, of: notes) == .lost(since: 0, isNews: false))
        // Its clock is wrong.
        let earlier = try Run(.inMemory(), at: 1_600_000_000_000)
        #expect(try earlier.judge(lost, of: notes) == .lost(since: nil, isNews: true))
    }

    /// The service began with nothing, was written on, and then the old copy was found.
    @Test func aCopyTellsNothingOfHistoriesThatPartedBeforeIt() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        let first = try run.write(5, to: notes)
        let copy = try run.copy()
        let empty = try Run(.inMemory(), at: 1_750_000_010_000)
        let lost = try empty.write(3, to: notes)
        let epochs = [ChangeToken(epoch: first.epoch, sequence: 0), ChangeToken(epoch: lost.epoch, sequence: 0)]
        let restored = try Run(copy, at: 1_750_000_020_000)
        #expect(try restored.judge(lost, after: epochs, of: notes) == .lost(since: 0, isNews: true))
        // Who does not say it is taken to have followed this history until the copy was brought back.
        #expect(try restored.judge(lost, of: notes) == .lost(since: 3, isNews: true))
        let others = [ChangeToken(epoch: lost.epoch, sequence: 0), ChangeToken(epoch: first.epoch, sequence: 0)]
        #expect(try restored.judge(lost, after: others, of: notes) == .lost(since: 3, isNews: true))
    }

    /// What it has forgotten of deletions makes nothing common.
    @Test func aCopyWithAFloorTakesNothingOfOtherHistoriesForItsOwn() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        try run.write(5, to: notes)
        _ = try run.group { try $0.put(notes, [item("0", "", deleted: true), item("1", "", deleted: true)]) }
        try run.group { try $0.keepTombstones(of: notes, atMost: 0) }
        let first = try run.group { try $0.head(notes) }
        #expect(first.floor > 3)
        let copy = try run.copy()
        let empty = try Run(.inMemory(), at: 1_750_000_010_000)
        let lost = try empty.write(3, to: notes)
        let restored = try Run(copy, at: 1_750_000_020_000)
        var query = FeedQuery(notes, held: lost)
        query.epochs = [
            ChangeToken(epoch: first.token.epoch, sequence: 0), ChangeToken(epoch: lost.epoch, sequence: 0),
        ]
        #expect(try restored.group { try $0.page(query) { _ in } }.commonEnd == 0)
    }

    /// Where they came to an epoch that the copy has says nothing of what came later.
    @Test func whatCameBeforeAKnownEpochIsNotLookedAt() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        let first = try run.write(2, to: notes)
        let second = try Run(try run.copy(), at: 1_750_000_010_000)
        let epoch = try second.raise(shownBy: try run.write(3, to: notes)).epoch
        try second.write(5, to: notes)
        let copy = try second.copy()
        let lost = try Run(second.engine, at: 1_750_000_020_000).write(3, to: notes)
        let restored = try Run(copy, at: 1_750_000_030_000)
        let epochs = [ChangeToken(epoch: first.epoch, sequence: 0), ChangeToken(epoch: epoch, sequence: 2)]
        #expect(try restored.judge(lost, after: epochs, of: notes) == .lost(since: 7, isNews: true))
    }

    /// Copies cross: the third knows nothing of what the first two had parted from, nor does a reader who came last.
    @Test func aReaderWhoComesLastIsToldWhereTheEpochsBeforeHadParted() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        let first = try run.write(3, to: notes)
        let early = try run.copy()
        try run.write(7, to: notes)
        let late = try run.copy()
        let lost = try run.write(2, to: notes)
        // Written on before somebody shows what was lost.
        let unnoticed = try Run(early, at: 1_750_000_010_000)
        try unnoticed.write(4, to: notes)
        let second = try unnoticed.raise(shownBy: lost)
        try unnoticed.write(4, to: notes)
        let between = try unnoticed.copy()
        let third = try Run(between, at: 1_750_000_020_000)
        let present = try third.raise(shownBy: try unnoticed.write(2, to: notes))
        let head = try third.write(5, to: notes)
        let page = try third.group { try $0.page(FeedQuery(notes)) { _ in } }
        #expect(page.commonEnd == 11)
        let before = [ChangeToken(epoch: first.epoch, sequence: 0), ChangeToken(epoch: second.epoch, sequence: 3)]
        #expect(page.epochs == before)
        #expect(try third.group { try $0.page(FeedQuery(notes, held: head)) { _ in } }.epochs.isEmpty)
        let restored = try Run(late, at: 1_750_000_030_000)
        let last = ChangeToken(epoch: present.epoch, sequence: page.commonEnd)
        #expect(try restored.judge(head, after: [last], of: notes) == .lost(since: 10, isNews: true))
        #expect(try restored.judge(head, after: page.epochs + [last], of: notes) == .lost(since: 3, isNews: true))
    }

    /// Also of one in which nothing was written: no token names its run, but the histories have parted there.
    @Test func whatAnEpochWithoutAWriteHasPartedFromIsTold() throws {
        let run = try Run(.inMemory(), at: 1_750_000_000_000)
        try run.write(3, to: notes)
        let copy = try run.copy()
        let lost = try run.write(6, to: notes)
        let unnoticed = try Run(copy, at: 1_750_000_010_000)
        try unnoticed.write(4, to: notes)
        _ = try unnoticed.raise(shownBy: lost)
        let third = try Run(copy, at: 1_750_000_020_000)
        let fourth = try third.raise(shownBy: ChangeToken.zero)
        try third.write(1, to: notes)
        let fifth = try Run(copy, at: 1_750_000_030_000)
        let sixth = try fifth.raise(shownBy: ChangeToken.zero)
        let told = try fifth.group { try $0.partings(in: notes.partition) }
        #expect(told.map(\.sequence) == [0, 3] && told.last?.epoch == fourth.epoch && sixth.epoch > fourth.epoch)
    }

    @Test func ofManyEpochsTheLastAreTold() throws {
        let engine = try SQLiteEngine.inMemory()
        for number in 0..<UInt64(20) {
            let run = try Run(engine, at: 1_750_000_000_000 + number * 1000, random: number)
            _ = try run.raise(shownBy: ChangeToken.zero)
            try run.write(1, to: notes)
        }
        let run = try Run(engine, at: 1_760_000_000_000)
        let told = try run.group { try $0.partings(in: notes.partition) }
        #expect(told.count == FeedHistory.epochsMax - 1 && told.map(\.sequence).last == 18 && told[0].sequence == 0)
    }

    @Test func runsAreBoundedAndWhatIsBeforeThemIsUnknown() throws {
        let engine = try SQLiteEngine.inMemory()
        let first = try Run(engine, at: 1_750_000_000_000).write(1, to: notes)
        for number in 0..<UInt64(FeedHistory.runsMax + 5) {
            try Run(engine, at: 1_750_000_001_000 + number).write(1, to: notes)
        }
        let last = try Run(engine, at: 1_760_000_000_000)
        #expect(last.cache.history?.runs.count == FeedHistory.runsMax)
        #expect(try last.judge(first, of: notes) == .unknown)
        // Runs that write nothing leave nothing.
        _ = try Run(engine, at: 1_760_000_001_000)
        #expect(try Run(engine, at: 1_760_000_002_000).cache.history?.runs.count == FeedHistory.runsMax)
    }
}
