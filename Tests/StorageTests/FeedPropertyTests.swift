import Core
import Storage
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

    /// A reader that follows a scope by its token alone.
    struct Follower {
        var token = ChangeToken.zero
        var items: [ItemName: [UInt8]] = [:]
    }

    static let seeds = Array(UInt64(1)...300)

    @Test(arguments: seeds) func feedAgreesWithADictionary(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let engine = try SQLiteEngine.fresh()
        let cache = FeedCache()
        let scopes = (0..<3).map { ScopeName(account: "account_\($0 / 2)", name: "scope_\($0)") }
        var models = scopes.map { _ in Model() }
        var followers = scopes.map { _ in Follower() }
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
            try agree(engine, scopes, models, seed)
            try agree(engine, cache, scopes, models, seed)
            let place = Int.random(in: 0..<scopes.count, using: &random)
            try follow(engine, scopes[place], models[place], &followers[place], seed)
        }
    }

    private func request(
        _ feed: Feed, _ scopes: [ScopeName], _ models: inout [Model], _ random: inout SplitMix64
    ) throws {
        let place = Int.random(in: 0..<scopes.count, using: &random)
        var items: [FeedItem] = []
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let name = "item_\(Int.random(in: 0..<8, using: &random))" as ItemName
            let text = "\(random.next() % 100_000)"
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

    /// After any number of steps a follower that reads pages holds what the scope holds.
    private func follow(
        _ engine: SQLiteEngine, _ scope: ScopeName, _ model: Model, _ follower: inout Follower, _ seed: UInt64
    ) throws {
        var more = true
        while more {
            let token = follower.token
            do {
                let page = try engine.group { try $0.page(of: scope, after: token, limit: 2) }
                for item in page.items {
                    #expect(item.sequence > token.sequence, "seed \(seed)")
                    follower.items[item.name] = item.deleted ? nil : item.body
                }
                (follower.token, more) = (page.token, page.hasMore)
            } catch let error as CloudError where error.code == .changeTokenExpired {
                #expect(token.sequence < model.floor, "seed \(seed)")
                follower = Follower()
            }
        }
        let live = model.items.filter { !$0.value.deleted }.mapValues(\.body)
        #expect(follower.items == live, "seed \(seed)")
    }
}
