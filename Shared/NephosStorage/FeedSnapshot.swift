public import NephosCore

/// The feed of a snapshot: what a handler gets that reads beside the loop, and cannot write.
public final class FeedSnapshot: FeedReader {
    public private(set) var cost = ReadCost()
    let feed: Feed

    /// - Parameter history: What tokens are checked by.
    public init(_ snapshot: any ReadTransaction, history: FeedHistory?) {
        let cache = FeedCache()
        cache.history = history
        feed = Feed(over: Reading(snapshot), at: Timestamp(milliseconds: 0), cache: cache)
    }

    /// A snapshot where the feed expects a transaction.
    private final class Reading: Transaction {
        private let snapshot: any ReadTransaction

        init(_ snapshot: any ReadTransaction) { self.snapshot = snapshot }

        func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
            try snapshot.query(statement, values, row)
        }

        func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
            throw CloudError(.internalError, "A snapshot cannot be written.")
        }
    }

    public func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try feed.query(statement, values) {
            cost.rows += 1
            return try row($0)
        }
    }

    public func head(_ scope: ScopeName) throws -> ScopeHead {
        cost.rows += 1
        return try feed.head(scope)
    }

    public func item(_ scope: ScopeName, _ name: ItemName) throws -> FeedItem? {
        cost.rows += 1
        let item = try feed.item(scope, name)
        cost.bytes += item?.body.count ?? 0
        return item
    }

    public func share(_ scope: ScopeName, _ name: ItemName) throws -> FeedShare? {
        cost.rows += 1
        return try feed.share(scope, name)
    }

    public func rows(
        _ scope: ScopeName, after sequence: UInt64, _ name: ItemName?, _ row: (FeedRow) throws -> Bool
    ) throws {
        try feed.rows(scope, after: sequence, name) {
            let wasWanted = try row($0)
            cost.note($0, wasWanted: wasWanted)
            return wasWanted
        }
    }

    public func rows(_ scope: ScopeName, afterName name: ItemName, _ row: (FeedRow) throws -> Bool) throws {
        try feed.rows(scope, afterName: name) {
            let wasWanted = try row($0)
            cost.note($0, wasWanted: wasWanted)
            return wasWanted
        }
    }

    public func scopes(
        inPartition partition: Int, after sequence: UInt64, limit: Int
    ) throws -> [(ScopeName, ScopeHead)] {
        let scopes = try feed.scopes(inPartition: partition, after: sequence, limit: limit)
        cost.rows += scopes.count
        return scopes
    }

    public func scopeSizes(of owner: Owner) throws -> [(path: ItemName, bytes: Int)] {
        let sizes = try feed.scopeSizes(of: owner)
        cost.rows += sizes.count
        return sizes
    }

    public func positions() throws -> [(partition: Int, token: ChangeToken)] {
        let positions = try feed.positions()
        cost.rows += positions.count
        return positions
    }

    public func position(ofPartition partition: Int) throws -> ChangeToken {
        try feed.position(ofPartition: partition)
    }

    public func token(_ sequence: UInt64, in partition: Int) throws -> ChangeToken {
        try feed.token(sequence, in: partition)
    }

    public func judge(_ token: ChangeToken, after epochs: [ChangeToken], in partition: Int) throws -> TokenStanding {
        try feed.judge(token, after: epochs, in: partition)
    }

    public func historyBegan() throws -> Timestamp { try feed.historyBegan() }

    public func partings(in partition: Int) throws -> [ChangeToken] { try feed.partings(in: partition) }
}
