import NephosCore
import NephosStorage
import Testing

/// The feed against a dictionary: random groups of puts, deletions, groups that
/// fail, and compactions.
@Suite struct FeedPropertyTests {
    /// What a scope should be.
    struct Model {
        var items: [ItemName: FeedItem] = [:]
        var floor: UInt64 = 0
        var head: UInt64 = 0
    }

    struct Sabotage: Error {}

    /// A reader that follows a scope by its token, a page at a time.
    struct Follower {
        var query: FeedQuery
        var items: [ItemName: [UInt8]] = [:]
        /// What pages have brought, until all have come.
        var staged: [ItemName: FeedItem] = [:]

        init(_ scope: ScopeName) { query = FeedQuery(scope) }
    }

    static let seeds = Array(UInt64(1)...300)

    @Test(arguments: seeds) func feedAgreesWithADictionary(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let engine = try SQLiteEngine.fresh()
        let cache = FeedCache()
        let scopes = (0..<3).map { ScopeName("account_\($0 / 2)", "scope_\($0)") }
        var models = scopes.map { _ in Model() }
        var followers = scopes.map(Follower.init)
        var time: UInt64 = 1000

        for _ in 0..<12 {
            time += 10
            let before = models
            do {
                try engine.group(at: time, cache: cache) { feed in
                    for _ in 0..<Int.random(in: 1...6, using: &random) {
                        try request(feed, scopes, &models, &random)
                    }
                    if Int.random(in: 0..<4, using: &random) == 0 { throw Sabotage() }
                }
            } catch is Sabotage { models = before }

            if Int.random(in: 0..<4, using: &random) == 0 {
                try compact(engine, cache, before: time - 20, scopes, &models)
            }
            if Int.random(in: 0..<12, using: &random) == 0 {
                // An owner goes, with all that it has.
                while try engine.group(cache: cache, { try $0.removeAll(of: scopes[2].owner, limit: 2) }) {}
                models[2] = Model()
                followers[2] = Follower(scopes[2])
            }
            try agree(engine, scopes, models, seed)
            try agree(engine, cache, scopes, models, seed)
            let place = Int.random(in: 0..<scopes.count, using: &random)
            try follow(engine, models[place], &followers[place], &random, seed)
        }
    }

    private func request(
        _ feed: Feed, _ scopes: [ScopeName], _ models: inout [Model], _ random: inout SplitMix64
    ) throws {
        let place = Int.random(in: 0..<scopes.count, using: &random)
        var items: [FeedItem] = []
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let name = "item_\(Int.random(in: 0..<8, using: &random))" as ItemName
            var text = "\(random.next() % 100_000)"
            // Some have their body apart.
            if Int.random(in: 0..<3, using: &random) == 0 { text += String(repeating: "x", count: 4096) }
            items.append(item(name, text, deleted: Int.random(in: 0..<3, using: &random) == 0))
        }
        let change = try feed.put(scopes[place], items)
        #expect(change.previousSequence == models[place].head)
        #expect(change.token.sequence > change.previousPartitionSequence)
        for var item in items {
            item.sequence = change.token.sequence
            models[place].items[item.name] = item
        }
        models[place].head = change.token.sequence
        if Int.random(in: 0..<5, using: &random) == 0 { try feed.flush() }
    }

    private func compact(
        _ engine: SQLiteEngine, _ cache: FeedCache, before time: UInt64, _ scopes: [ScopeName], _ models: inout [Model]
    ) throws {
        let bound = Timestamp(milliseconds: time)
        while try engine.group(cache: cache, { try $0.compactTombstones(before: bound, limit: 2) }) {}
        for (place, scope) in scopes.enumerated() {
            let left = Set(try engine.all(scope).map(\.name))
            let gone = models[place].items.values.filter { !left.contains($0.name) }
            let live = gone.filter { !$0.deleted }
            #expect(live.isEmpty)
            models[place].floor = max(models[place].floor, gone.map(\.sequence).max() ?? 0)
            for item in gone { models[place].items[item.name] = nil }
        }
    }

    private func agree(_ engine: SQLiteEngine, _ scopes: [ScopeName], _ models: [Model], _ seed: UInt64) throws {
        for (scope, model) in zip(scopes, models) {
            let (head, recount) = try engine.group { (try $0.head(scope), try $0.recount(scope)) }
            let live = model.items.values.filter { !$0.deleted }
            var digest = SetDigest.empty
            for item in live { digest.add(item.digest) }
            #expect(head.digest == digest && recount.digest == digest, "seed \(seed)")
            #expect(head.liveCount == live.count && recount.liveCount == live.count, "seed \(seed)")
            let liveBytes = live.map(\.size).reduce(0, +)
            #expect(head.liveBytes == liveBytes, "seed \(seed)")
            #expect(head.liveBytes == recount.liveBytes, "seed \(seed)")
            #expect(head.token.sequence == model.head && head.floor == model.floor, "seed \(seed)")
            let expected = model.items.values.sorted { ($0.sequence, $0.name) < ($1.sequence, $1.name) }
            let found = try engine.all(scope)
            let isSame = zip(found, expected).allSatisfy {
                $0.name == $1.name && $0.sequence == $1.sequence && $0.deleted == $1.deleted && $0.body == $1.body
            }
            #expect(found.count == expected.count && isSame, "seed \(seed)")
        }
        let large = models.reduce(0) { $0 + $1.items.values.filter { $0.body.count > 4096 }.count }
        try expectBodies(engine, large, "seed \(seed)")
    }

    /// There is a body for each item that names one, and no other.
    private func expectBodies(_ engine: SQLiteEngine, _ count: Int, _ comment: Comment) throws {
        let bodies = SQL("SELECT id FROM feed_bodies ORDER BY id")
        let named = SQL("SELECT body_id FROM feed_items WHERE body_id <> 0 ORDER BY body_id")
        let (found, expected) = try engine.write { transaction in
            (try transaction.all(bodies) { $0.integer(0) }, try transaction.all(named) { $0.integer(0) })
        }
        #expect(found == expected && found.count == count, comment)
    }

    /// What is known without looking is what is there.
    private func agree(
        _ engine: SQLiteEngine, _ cache: FeedCache, _ scopes: [ScopeName], _ models: [Model], _ seed: UInt64
    ) throws {
        try engine.group(cache: cache) { feed in
            for (scope, model) in zip(scopes, models) {
                for name in (0..<8).map({ ItemName("item_\($0)") }) {
                    let found = try feed.item(scope, name)
                    let expected = model.items[name]
                    let isSame =
                        found?.sequence == expected?.sequence && found?.deleted == expected?.deleted
                        && found?.body == expected?.body && found?.size == expected?.size
                    #expect(isSame, "seed \(seed)")
                }
            }
        }
    }

    /// After the last page, whatever was written since the first, a follower holds what the scope holds.
    private func follow(
        _ engine: SQLiteEngine, _ model: Model, _ follower: inout Follower, _ random: inout SplitMix64, _ seed: UInt64
    ) throws {
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let query = follower.query
            let bytes = Bool.random(using: &random) ? 1...60 : 60...9000
            let bounds = FeedBounds(
                items: .random(in: 1...3, using: &random), bytes: .random(in: bytes, using: &random))
            do {
                let page = try engine.group { feed in
                    try feed.page(query, within: bounds) { follower.staged[$0.name] = $0 }
                }
                if let next = page.next {
                    #expect((query.place?.token ?? query.after).sequence <= next.token.sequence, "seed \(seed)")
                    follower.query.place = next
                    continue
                }
                if page.isListing { follower.items = [:] }
                for item in follower.staged.values { follower.items[item.name] = item.deleted ? nil : item.body }
                follower.staged = [:]
                follower.query = FeedQuery(query.scope, after: page.head.token)
                let live = model.items.filter { !$0.value.deleted }.mapValues(\.body)
                #expect(follower.items == live, "seed \(seed)")
            } catch let error as CloudError where error.code == .changeTokenExpired {
                // Never without need: of the transaction that a page ended in, a deletion may have been left.
                let read = query.place.map { max($0.start.sequence, $0.token.sequence - 1) } ?? query.after.sequence
                #expect(read < model.floor, "seed \(seed)")
                follower = Follower(query.scope)
            }
        }
    }
}
