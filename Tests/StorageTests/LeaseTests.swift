import NephosCore
import NephosStorage
import Testing

/// Several instances over one database, each with what it remembers: partitions pass from one to another, and whoever
/// loses one drops what it knows of it.
@Suite struct LeaseTests {
    private final class Instance {
        let cache = FeedCache()
        let operations = OperationMemory(newest: nil)
    }

    private static let start = Timestamp(milliseconds: 1_700_000_000_000)

    @Test(arguments: 1...20)
    func whoeverHasAPartitionKnowsWhatOthersHaveWritten(_ seed: UInt64) throws {
        var generator = SplitMix64(seed: seed)
        let engine = try SQLiteEngine.inMemory()
        try engine.migrate(ChangeFeedSchema.migrations)
        let instances = [Instance(), Instance()]
        let scopes = (0..<6).map { ScopeName("account_\($0)", "x") }
        var holders: [Int: Int] = [:]
        var sequences: [Int: UInt64] = [:]
        var bodies: [ScopeName: [ItemName: [UInt8]]] = [:]
        var known: [(id: OperationID, scope: ScopeName)] = []
        var now = Duration.zero

        for _ in 0..<600 {
            now += .milliseconds(Int64.random(in: 0...50, using: &generator))
            let scope = try #require(scopes.randomElement(using: &generator))
            let partition = scope.partition
            if Int.random(in: 0..<4, using: &generator) == 0 {
                instances[holders[partition] ?? 0].cache.drop(partition: partition)
                let next = Int.random(in: 0..<2, using: &generator)
                holders[partition] = next
                instances[next].operations.recall(newest: try engine.write { try Feed.newestOperation(in: $0) })
            }
            let instance = instances[holders[partition] ?? 0]
            try engine.write { transaction in
                let feed = Feed(
                    over: transaction, at: Self.start.advanced(by: now), operations: instance.operations,
                    cache: instance.cache)
                // What was carried out, by whomever, is known.
                if let past = known.filter({ $0.scope.partition == partition }).randomElement(using: &generator) {
                    #expect(try feed.reply(to: past.id, by: "device", request: .none) == [7])
                }
                let name = ItemName("item \(Int.random(in: 0..<5, using: &generator))")
                #expect(try feed.item(scope, name)?.body ?? [] == bodies[scope]?[name] ?? [])
                let isDeleted = Int.random(in: 0..<3, using: &generator) == 0
                let body = isDeleted ? [] : [UInt8](repeating: UInt8(generator.next() % 200), count: 9)
                let change = try feed.put(
                    scope,
                    [
                        FeedItem(
                            name: name, deleted: isDeleted, digest: SetDigest(ofItem: body), size: body.count,
                            body: body)
                    ])
                #expect(change.token.sequence == (sequences[partition] ?? 0) + 1)
                sequences[partition] = change.token.sequence
                bodies[scope, default: [:]][name] = body
                let id = OperationID(at: Self.start.advanced(by: now), using: &generator)
                try feed.remember([7], of: id, by: "device", request: .none)
                known.append((id, scope))
                try feed.flush()
            }
        }
        try engine.write { transaction in
            let feed = Feed(over: transaction)
            for scope in scopes {
                let (head, sum) = (try feed.head(scope), try feed.recount(scope))
                #expect(head.digest == sum.digest && head.liveCount == sum.liveCount && head.liveBytes == sum.liveBytes)
            }
        }
    }
}
