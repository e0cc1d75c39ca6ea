import NephosCore
import Testing

@testable import NephosStorage

@Suite struct FeedTests {
    let engine: SQLiteEngine

    init() throws { engine = try .fresh() }

    func names(after sequence: UInt64 = 0) throws -> [ItemName] { try engine.all(notes, after: sequence).map(\.name) }

    @Test func anAccountsScopesLieInOnePartitionAndAnAppsAreSpread() throws {
        let account = AccountID("account_a")
        let app = Owner(AppID("T.notes"))
        let paths = (0..<64).map { ItemName("zone_\($0)") }
        #expect(Set(paths.map { ScopeName(account, $0).partition }).count == 1)
        #expect(Set(paths.map { ScopeName(app, $0).partition }).count > 50)
        // Fixed for the life of a deployment, and in every language the same.
        #expect(ScopeName(Owner(AppID("T.notes")), "public").description == "app/T.notes/public")
        #expect(app.app == AppID("T.notes") && app.account == nil && Owner(account).account == account)

        try engine.group { for path in paths { _ = try $0.put(ScopeName(app, path), [item("x", "1")]) } }
        let heads = try engine.group { try $0.positions() }
        #expect(try engine.group { try $0.scopeSizes(of: app) }.count == paths.count)
        while try engine.group({ try $0.removeAll(of: app, limit: 1) }) {}
        // Each partition goes on from where it was.
        #expect(try engine.group { try $0.scopeSizes(of: app) }.isEmpty)
        #expect(try engine.group { try $0.positions() }.map(\.partition) == heads.map(\.partition))
        for path in paths {
            let change = try engine.group { try $0.put(ScopeName(app, path), [item("x", "2")]) }
            let before = try #require(heads.first { $0.partition == change.partition })
            #expect(change.token.sequence > before.token.sequence)
        }
    }

    @Test func largeItemsAreRemovedFewAtATime() throws {
        let body = String(repeating: "x", count: 1 << 20)
        try engine.group { feed in
            _ = try feed.put(
                notes, (0..<20).map { item("large\($0)", body) } + (0..<50).map { item("small\($0)", "x") })
        }
        var left: [Int64] = []
        while try engine.group({ try $0.removeAll(of: notes, limit: 500) }) {
            left.append(
                try engine.group {
                    try $0.first(SQL("SELECT COUNT(*) FROM feed_items"), []) { $0.integer(0) } ?? -1
                })
        }
        #expect(left == [62, 54, 0])
    }

    /// Whoever has much removed slows nobody else.
    @Test func whatIsRemovedLetsNothingElseBeForgotten() throws {
        let cache = FeedCache()
        let other = ScopeName(AccountID("other"), "notes")
        func known(_ scope: ScopeName) throws -> Bool {
            try engine.group(cache: cache) { feed in cache.items.entry(try #require(feed.scope(scope).id), "a") != nil }
        }
        for scope in [notes, other] {
            _ = try engine.group(cache: cache) { try $0.put(scope, [item("a", "1"), item("b", "1")]) }
        }
        #expect(try engine.group(cache: cache) { try $0.removeAll(of: notes, limit: 1) })
        #expect(try !known(notes) && known(other))
        #expect(try engine.group(cache: cache) { try $0.item(notes, "b") != nil && $0.item(notes, "a") == nil })
        while try engine.group(cache: cache, { try $0.removeAll(of: notes, limit: 1) }) {}
        #expect(try engine.group(cache: cache) { try $0.head(notes).metadata.isEmpty && $0.head(notes).liveCount == 0 })
    }

    @Test func aScopeNeverWrittenIsEmpty() throws {
        let head = try engine.group { try $0.head(notes) }
        #expect(head.token == ChangeToken(epoch: 1, sequence: 0))
        #expect(head.digest == .empty && head.liveCount == 0 && head.floor == 0 && head.metadata.isEmpty)
        #expect(try engine.group { try $0.item(notes, "a") } == nil)
        #expect(try names().isEmpty)
    }

    @Test func eachItemAppearsOnceAtItsNewestPlace() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1"), item("b", "1")]) }
        try engine.group { _ = try $0.put(notes, [item("c", "1")]) }
        try engine.group { _ = try $0.put(notes, [item("a", "2")]) }
        let items = try engine.all(notes)
        #expect(items.map(\.name) == ["b", "c", "a"])
        #expect(items.map(\.sequence) == [1, 2, 3])
        #expect(try names(after: 2) == ["a"])
        #expect(try names(after: 3).isEmpty)
        #expect(try names(after: .max).isEmpty)
    }

    @Test func sequencesOnlyRiseAndAreSharedByAPartition() throws {
        let other = try #require(
            (0..<50_000).lazy.map { ScopeName("account_\($0)", "x") }
                .first { $0.partition == notes.partition })
        let changes = try engine.group { feed in
            [
                try feed.put(notes, [item("a", "1")]), try feed.put(other, [item("a", "1")]),
                try feed.put(notes, [item("a", "2")]),
            ]
        }
        #expect(changes.map(\.token.sequence) == [1, 2, 3])
        #expect(changes.map(\.previousSequence) == [0, 0, 1])
        #expect(changes.map(\.previousPartitionSequence) == [0, 1, 2])
        let (position, scopes) = try engine.group { feed in
            _ = try feed.put(other, [item("a", "2")])
            return (
                try feed.position(ofPartition: notes.partition),
                try feed.scopes(inPartition: notes.partition, after: 0, limit: 10)
            )
        }
        #expect(position.sequence == 4)
        #expect(scopes.map(\.0) == [notes, other])
        #expect(scopes.map(\.1.token.sequence) == [3, 4])
        #expect(try engine.group { try $0.scopes(inPartition: notes.partition, after: 3, limit: 10) }.count == 1)
        #expect(try engine.group { try $0.scopes(inPartition: notes.partition, after: 0, limit: 1) }.count == 1)
    }

    @Test func aPartitionsSequenceOutlivesItsScopes() throws {
        for text in ["1", "2", "3"] { try engine.group { _ = try $0.put(notes, [item("a", text)]) } }
        while try engine.group({ try $0.removeAll(of: notes.owner, limit: 1) }) {}
        #expect(try engine.group { try $0.position(ofPartition: notes.partition) }.sequence == 3)
        #expect(try engine.group { try $0.put(notes, [item("a", "4")]) }.token.sequence == 4)
        #expect(try engine.group { try $0.position(ofPartition: notes.partition) }.sequence == 4)
    }

    @Test(arguments: [0, 1, 255, 256, 257, 70_000, 1 << 20])
    func whatIsStoredComesBackWhateverItsSize(_ size: Int) throws {
        let names: [ItemName] = ["", "a", "caf\u{e9}", ItemName(String(repeating: "n", count: size))]
        for name in names + names.reversed() {
            let body = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            let item = FeedItem(name: name, deleted: false, digest: .empty, size: size, body: body)
            try engine.group { _ = try $0.put(notes, [item]) }
            let stored = try engine.group { try $0.item(notes, name) }
            #expect(stored?.name == name && stored?.body == body)
        }
    }

    @Test func namesThatOnlyLookAlikeAreDifferent() throws {
        let composed = ScopeName("a", "caf\u{e9}")
        let decomposed = ScopeName("a", "cafe\u{301}")
        try engine.group { feed in
            _ = try feed.put(composed, [item("x\u{e9}", "1"), item("xe\u{301}", "1")])
            #expect(try feed.head(decomposed).token.sequence == 0)
            _ = try feed.put(decomposed, [item("x", "1")])
        }
        #expect(try engine.group { try $0.head(composed) }.liveCount == 2)
        #expect(try engine.group { try $0.head(decomposed) }.liveCount == 1)
    }

    @Test func aTombstoneTakesTheItemsPlaceAndShare() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "one"), item("b", "two")]) }
        try engine.group { _ = try $0.put(notes, [item("a", "", deleted: true)]) }
        let head = try engine.group { try $0.head(notes) }
        #expect(head.liveCount == 1 && head.liveBytes == 3)
        #expect(head.digest == item("b", "two").digest)
        let items = try engine.all(notes)
        #expect(items.map(\.name) == ["b", "a"] && items.map(\.deleted) == [false, true])
        #expect(try engine.group { try $0.item(notes, "a") }?.deleted == true)
    }

    @Test func aGroupThatThrowsLeavesNothing() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let failed = code {
            try engine.group { feed in
                _ = try feed.put(notes, [item("a", "2"), item("b", "2")])
                try feed.flush()
                throw CloudError(.operationCancelled, "Stop.")
            }
        }
        #expect(failed == .operationCancelled)
        #expect(try names() == ["a"])
        #expect(try engine.group { try $0.put(notes, [item("c", "1")]) }.token.sequence == 2)
    }

    @Test func aGroupThatThrowsLeavesNothingBehindInMemoryEither() throws {
        let cache = FeedCache()
        try engine.group(cache: cache) { _ = try $0.put(notes, [item("a", "1")]) }
        let failed = code {
            try engine.group(cache: cache) { feed in
                _ = try feed.put(notes, [item("a", "2"), item("b", "2")])
                _ = try feed.put(ScopeName("new", "new"), [item("x", "1")])
                try feed.setMetadata(notes, [1])
                try feed.flush()
                throw CloudError(.quotaExceeded, "Too much.")
            }
        }
        #expect(failed == .quotaExceeded)
        try engine.group(cache: cache) { feed throws in
            #expect(try feed.head(notes).token.sequence == 1)
            #expect(try feed.head(ScopeName("new", "new")).liveCount == 0)
            #expect(try feed.item(notes, "a")?.body == Array("1".utf8))
            #expect(try feed.put(notes, [item("c", "1")]).token.sequence == 2)
        }
        #expect(try names() == ["a", "c"])
        let head = try engine.group { try $0.head(notes) }
        #expect(head.liveCount == 2 && head.metadata.isEmpty)
        #expect(try engine.group { try $0.recount(notes) }.digest == head.digest)
    }

    @Test func moreScopesThanAreKeptInMemory() throws {
        let cache = FeedCache()
        let scopes = (0..<1500).map { ScopeName("account_\($0 % 7)", "scope_\($0)") }
        for round in 1...2 {
            for place in stride(from: 0, to: scopes.count, by: 100) {
                try engine.group(cache: cache) { feed in
                    for scope in scopes[place..<place + 100] { _ = try feed.put(scope, [item("a", "\(round)")]) }
                }
            }
        }
        try engine.group(cache: cache) { feed throws in
            for scope in scopes { #expect(try feed.head(scope).liveCount == 1) }
        }
        #expect(try engine.group { feed in try scopes.allSatisfy { try feed.item($0, "a")?.body == [50] } })
    }

    @Test func metadataIsKeptWithoutAChange() throws {
        try engine.group { try $0.setMetadata(notes, [1, 2]) }
        let head = try engine.group { try $0.head(notes) }
        #expect(head.metadata == [1, 2] && head.token.sequence == 0)
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        #expect(try engine.group { try $0.head(notes) }.metadata == [1, 2])
    }

    @Test func anEmptyChangeIsRefused() {
        #expect(code { try engine.group { _ = try $0.put(notes, []) } } == .invalidArguments)
    }

    @Test func anOperationsFirstReplyIsKeptPerPrincipal() throws {
        let operation = OperationID(at: Timestamp(milliseconds: 5000))
        try engine.group { feed in
            #expect(try feed.reply(to: operation, by: "one", request: .none) == nil)
            try feed.remember([1, 2, 3], of: operation, by: "one", request: .none)
        }
        try engine.group { try $0.remember([], of: operation, by: "two", request: .none) }
        #expect(try engine.group { try $0.reply(to: operation, by: "one", request: .none) } == [1, 2, 3])
        #expect(try engine.group { try $0.reply(to: operation, by: "two", request: .none) } == [])
        #expect(try engine.group { try $0.reply(to: operation, by: "three", request: .none) } == nil)
        let again = code { try engine.group { try $0.remember([9], of: operation, by: "one", request: .none) } }
        #expect(again == .constraintViolation)
    }

    @Test func operationsArePrunedInSteps() throws {
        let operations = (0..<25).map { OperationID(at: Timestamp(milliseconds: 1000 + 10 * $0)) }
        try engine.group { feed in for id in operations { try feed.remember([], of: id, by: "p", request: .none) } }
        let bound = OperationID.lowerBound(at: Timestamp(milliseconds: 1200))
        var steps = 1
        while try engine.group({ try $0.pruneOperations(before: bound, limit: 8) }) { steps += 1 }
        #expect(steps == 3)
        for (index, id) in operations.enumerated() {
            #expect(try engine.group { try $0.reply(to: id, by: "p", request: .none) } == (index < 20 ? nil : []))
        }
    }
}
