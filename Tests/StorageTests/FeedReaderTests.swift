import NephosCore
import NephosStorage
import Testing

@Suite struct FeedReaderTests {
    let engine: SQLiteEngine

    init() throws { engine = try .fresh() }

    func changes(after token: ChangeToken) throws -> ([ItemName], ChangeToken) {
        let (items, page) = try page(FeedQuery(notes, after: token))
        #expect(page.next == nil)
        return (items.map(\.name), page.head.token)
    }

    func page(_ query: FeedQuery, within bounds: FeedBounds = .page) throws -> ([FeedItem], FeedPage) {
        try engine.group { feed in
            var items: [FeedItem] = []
            let page = try feed.page(query, within: bounds) { items.append($0) }
            return (items, page)
        }
    }

    /// Reads to the end; `between` runs after each page but the last.
    func read(
        after token: ChangeToken = .zero, _ bounds: FeedBounds, between: (Int) throws -> Void = { _ in }
    ) throws -> (items: [ItemName: FeedItem], sizes: [Int], head: ScopeHead) {
        var query = FeedQuery(notes, after: token)
        var items: [ItemName: FeedItem] = [:]
        var sizes: [Int] = []
        while true {
            let (some, page) = try page(query, within: bounds)
            for item in some { items[item.name] = item }
            sizes.append(some.count)
            guard let next = page.next else { return (items, sizes, page.head) }
            query.place = next
            try between(sizes.count)
        }
    }

    @Test func aReaderResumesFromItsToken() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let (first, token) = try changes(after: .zero)
        #expect(first == ["a"])
        #expect(try changes(after: token).0.isEmpty)
        try engine.group { _ = try $0.put(notes, [item("b", "1"), item("a", "", deleted: true)]) }
        #expect(try changes(after: token).0 == ["a", "b"])
        #expect(try changes(after: .zero).0 == ["b"])
    }

    /// What was counted at one go says how far the head is wrong, also when it is another by now.
    @Test(arguments: [2, 100]) func aHeadThatHasMovedSinceItWasCountedIsCorrectedByTheDifference(limit: Int) throws {
        try engine.group { _ = try $0.put(notes, (0..<5).map { item("\($0)", "1") }) }
        let right = try engine.group { try $0.head(notes) }
        _ = try engine.write {
            try $0.execute(SQL("UPDATE feed_scopes SET digest = zeroblob(32), live_count = 7"), [])
        }
        var count = ScopeCount(notes)
        while count.hasMore {
            try engine.snapshots.read { try FeedSnapshot($0, history: nil).goOn(&count, limit: limit) }
        }
        #expect(count.isWhole)
        try engine.group { _ = try $0.put(notes, [item("1", "another"), item("2", "", deleted: true)]) }
        let correction = try engine.group { try $0.correctHead(by: count) }
        let (head, recount) = try engine.group { (try $0.head(notes), try $0.recount(notes)) }
        // Of two states nothing follows.
        #expect(correction == (limit == 100 ? .corrected : .moved))
        #expect((head.digest == recount.digest) == (limit == 100))
        #expect((head.liveCount == recount.liveCount) == (limit == 100) && recount.liveCount == 4)
        #expect(head.digest != right.digest)
    }

    /// What readers see nothing of is there, counts, and is in no page; what they see no more is told without its body.
    @Test func whatIsNotShownIsInNoPage() throws {
        func showing(_ name: ItemName, _ showing: ItemShowing, deleted: Bool = false) -> FeedItem {
            var item = item(name, String(repeating: "x", count: 9000), deleted: deleted)
            (item.showing, item.digest) = (showing, .empty)
            return item
        }
        try engine.group {
            _ = try $0.put(notes, [item("a", "1"), showing("hidden", .nothing), item("was", "1")])
            _ = try $0.put(notes, [showing("was", .absence)])
        }
        do {
            let (items, page) = try page(FeedQuery(notes), within: FeedBounds(items: 2, bytes: 20))
            #expect(items.map(\.name) == ["a", "was"] && page.next == nil)
            #expect(items[1].showing == .absence && items[1].body.isEmpty && !items[1].deleted)
        }
        try engine.group {
            let head = try $0.head(notes)
            #expect(head.liveCount == 3 && head.digest == item("a", "1").digest)
            let recount = try $0.recount(notes)
            #expect(recount.liveCount == 3 && recount.digest == head.digest && recount.liveBytes == head.liveBytes)
            let hidden = try #require(try $0.item(notes, "hidden"))
            #expect(hidden.showing == .nothing && hidden.sequence == 1 && hidden.body.count == 9000)
            #expect(try $0.item(notes, "was")?.body.count == 9000)
            var names: [ItemName] = []
            try $0.rows(notes, afterName: "") {
                names.append($0.name)
                return true
            }
            #expect(names == ["a", "hidden", "was"])
        }
        // As what is shown it comes, and goes.
        let before = try engine.group { try $0.head(notes) }.token
        try engine.group { _ = try $0.put(notes, [item("hidden", "1"), item("was", "2")]) }
        #expect(try changes(after: before).0 == ["hidden", "was"])
        try engine.group { _ = try $0.put(notes, [showing("hidden", .nothing, deleted: true)]) }
        #expect(try changes(after: before).0 == ["was"])
    }

    /// That deletions are forgotten of which nobody was told expires nobody's token.
    @Test func forgottenDeletionsThatNobodySawExpireNoToken() throws {
        func hidden(_ number: Int, deleted: Bool) -> FeedItem {
            var item = item(ItemName("h\(number)"), "", deleted: deleted)
            (item.showing, item.digest) = (.nothing, .empty)
            return item
        }
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let token = try engine.group { try $0.head(notes) }.token
        try engine.group(at: 2000) { feed in
            for number in 0..<20 { _ = try feed.put(notes, [hidden(number, deleted: false)]) }
            for number in 0..<20 { _ = try feed.put(notes, [hidden(number, deleted: true)]) }
            try feed.keepTombstones(of: notes, atMost: 8)
            #expect(try feed.head(notes).floor == 0 && feed.item(notes, "h0") == nil && feed.item(notes, "h19") != nil)
            // Those that were told of stay longer.
            _ = try feed.put(notes, [item("a", "", deleted: true)])
            try feed.keepTombstones(of: notes, atMost: 4)
            #expect(try feed.head(notes).floor == 0)
        }
        #expect(try changes(after: token).0 == ["a"])
        #expect(
            try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2001), limit: 1000) } == false)
        #expect(code { _ = try changes(after: token) } == .changeTokenExpired)
    }

    @Test func aTokenBelowTheFloorHasExpired() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1"), item("b", "1"), item("c", "1")]) }
        try engine.group(at: 2000) { _ = try $0.put(notes, [item("a", "", deleted: true)]) }
        try engine.group(at: 3000) { _ = try $0.put(notes, [item("b", "", deleted: true)]) }
        let digest = try engine.group { try $0.head(notes) }.digest
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2000), limit: 9) } == false)
        #expect(try engine.group { try $0.head(notes) }.floor == 0)
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2001), limit: 1) } == true)
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2001), limit: 1) } == false)
        let head = try engine.group { try $0.head(notes) }
        #expect(head.floor == 2 && head.digest == digest && head.token.sequence == 3)
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: 1)) } == .changeTokenExpired)
        #expect(try changes(after: ChangeToken(epoch: 1, sequence: 2)).0 == ["b"])
        #expect(try changes(after: .zero).0 == ["c"])
    }

    @Test func aNewEpochExpiresEveryToken() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let (_, old) = try changes(after: .zero)
        try engine.raiseEpoch()
        let head = try engine.group { try $0.head(notes) }
        let epoch = head.token.epoch
        #expect(epoch > 1 && head.token.sequence == 1)
        #expect(code { _ = try changes(after: old) } == .changeTokenExpired)
        #expect(
            try engine.group { try $0.put(notes, [item("b", "1")]) }.token == ChangeToken(epoch: epoch, sequence: 2))
        #expect(try changes(after: head.token).0 == ["b"])
    }

    @Test func aTokenOfTheLostFutureHasExpired() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: 2)) } == .changeTokenExpired)
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: .max)) } == .changeTokenExpired)
    }

    @Test func aPageEndsInsideATransaction() throws {
        for round in 0..<3 {
            try engine.group { _ = try $0.put(notes, (0..<5).map { item("\(round)-\($0)", "x") }) }
        }
        let (items, sizes, head) = try read(FeedBounds(items: 4, bytes: .max))
        #expect(sizes == [4, 4, 4, 3])
        #expect(items.count == 15 && head.token == ChangeToken(epoch: 1, sequence: 3))
    }

    @Test func aPageIsBoundedInBytesAndHoldsOneItemAtLeast() throws {
        let bodies = [10, 10, 500, 10, 10, 10].map { String(repeating: "x", count: $0) }
        for (number, body) in bodies.enumerated() {
            try engine.group { _ = try $0.put(notes, [item(ItemName("\(number)"), body)]) }
        }
        let (items, sizes, _) = try read(FeedBounds(items: 100, bytes: 24))
        #expect(sizes == [2, 1, 2, 1])
        #expect(items.count == 6)
    }

    /// What is written between two pages is in the state that the last page shows.
    @Test func whatChangesMeanwhileIsReadOnceMore() throws {
        try engine.group { _ = try $0.put(notes, (0..<6).map { item(ItemName("\($0)"), "old") }) }
        let (items, _, head) = try read(FeedBounds(items: 2, bytes: .max)) { page in
            guard page <= 2 else { return }
            try engine.group {
                _ = try $0.put(notes, [item("0", "new \(page)"), item("1", "", deleted: true), item("5", "new")])
            }
        }
        let live = items.filter { !$0.value.deleted }.mapValues { String(decoding: $0.body, as: UTF8.self) }
        #expect(live == ["0": "new 2", "2": "old", "3": "old", "4": "old", "5": "new"])
        #expect(head.token.sequence == 3 && head.liveCount == 5)
    }

    @Test func aListingLeavesOutOnlyDeletionsFromBeforeItBegan() throws {
        for round in 0..<6 { try engine.group { _ = try $0.put(notes, [item(ItemName("\(round)"), "x")]) } }
        try engine.group { _ = try $0.put(notes, [item("5", "", deleted: true)]) }
        _ = try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 5000), limit: 9) }
        #expect(try engine.group { try $0.head(notes) }.floor == 7)
        try engine.group { _ = try $0.put(notes, [item("4", "", deleted: true)]) }
        let (items, _, _) = try read(FeedBounds(items: 2, bytes: .max)) { page in
            guard page == 1 else { return }
            try engine.group { _ = try $0.put(notes, [item("0", "", deleted: true)]) }
        }
        #expect(items.mapValues(\.deleted) == ["0": true, "1": false, "2": false, "3": false])
    }

    @Test func deletionsForgottenDuringAReadingEndIt() throws {
        for round in 0..<6 { try engine.group { _ = try $0.put(notes, [item(ItemName("\(round)"), "x")]) } }
        let bounds = FeedBounds(items: 2, bytes: .max)
        func forgetting(_ name: ItemName, after token: ChangeToken) throws {
            _ = try read(after: token, bounds) { page in
                guard page == 1 else { return }
                try engine.group(at: 2000) { _ = try $0.put(notes, [item(name, "", deleted: true)]) }
                _ = try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 5000), limit: 9) }
            }
        }
        #expect(code { try forgetting("0", after: .zero) } == .changeTokenExpired)
        // Begun anew, it comes to its end.
        let (items, _, head) = try read(bounds)
        #expect(items.keys.sorted() == ["1", "2", "3", "4", "5"])
        try engine.group { _ = try $0.put(notes, (3..<6).map { item(ItemName("\($0)"), "y") }) }
        #expect(code { try forgetting("3", after: head.token) } == .changeTokenExpired)
    }

    @Test func aDeletionForgottenInTheTransactionThatAPageEndedInEndsTheReading() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "x"), item("b", "x"), item("c", "x")]) }
        let token = try engine.group { try $0.head(notes) }.token
        try engine.group(at: 2000) {
            _ = try $0.put(notes, [item("a", "y"), item("b", "", deleted: true), item("c", "y")])
        }
        #expect(
            code {
                _ = try read(after: token, FeedBounds(items: 1, bytes: .max)) { _ in
                    _ = try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 5000), limit: 9) }
                }
            } == .changeTokenExpired)
    }

    @Test func aPlaceOfAnotherHistoryHasExpired() throws {
        for round in 0..<6 { try engine.group { _ = try $0.put(notes, [item(ItemName("\(round)"), "x")]) } }
        let bounds = FeedBounds(items: 2, bytes: .max)
        #expect(code { _ = try read(bounds) { _ in try engine.raiseEpoch() } } == .changeTokenExpired)
        // Places that nobody was given.
        var query = FeedQuery(notes)
        let head = try engine.group { try $0.head(notes) }.token
        query.place = FeedPlace(
            start: head, token: ChangeToken(epoch: head.epoch, sequence: .max), name: "\u{10ffff}")
        #expect(code { _ = try page(query) } == .changeTokenExpired)
        query.place = FeedPlace(start: ChangeToken(epoch: head.epoch, sequence: .max), token: head, name: "")
        #expect(code { _ = try page(query) } == .changeTokenExpired)
        query.place = FeedPlace(start: .zero, token: head, name: "")
        #expect(code { _ = try page(query) } == .changeTokenExpired)
    }

    /// A steady writer does not keep a reader from its end, and pages of deletions alone make progress.
    @Test func aReadingEndsWhileOthersWrite() throws {
        // More deletions than a page passes over, and then ten items.
        let count = 2200
        for range in [0..<count, count..<count + 10] {
            try engine.group { _ = try $0.put(notes, range.map { item(ItemName("\($0)"), "x") }) }
        }
        try engine.group { _ = try $0.put(notes, (0..<count).map { item(ItemName("\($0)"), "", deleted: true) }) }
        try engine.group { _ = try $0.put(notes, [item("last", "x")]) }
        let (items, sizes, _) = try read(FeedBounds(items: 3, bytes: .max)) { page in
            try engine.group { _ = try $0.put(notes, [item("busy", "\(page)")]) }
        }
        #expect(sizes.contains(0))
        #expect(items.count == 12 && sizes.count < 12)
    }

    @Test func oneChangeOfManyItemsIsReadInPages() throws {
        let count = 20_000
        let body = String(repeating: "x", count: 200)
        try engine.group { _ = try $0.put(notes, (0..<count).map { item(ItemName("\($0)"), body) }) }
        let (items, sizes, head) = try read(.page)
        #expect(items.count == count && head.liveCount == count)
        #expect(sizes.max() == FeedBounds.page.items)
        let (_, some, _) = try read(FeedBounds(items: .max, bytes: 100_000))
        #expect(try #require(some.max()) * body.utf8.count <= 100_000)
    }

    @Test func aTokenFromBeyondTheHeadHasExpiredAlsoWithAPlace() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        try engine.group { _ = try $0.put(notes, [item("b", "1")]) }
        let head = try engine.group { try $0.head(notes) }.token
        let start = ChangeToken(epoch: head.epoch, sequence: 1)
        var query = FeedQuery(notes, after: start, place: FeedPlace(start: start, token: start, name: "a"))
        #expect(try page(query).0.map(\.name) == ["b"])
        query.after.sequence = 1002
        #expect(code { _ = try page(query) } == .changeTokenExpired)
    }
}
