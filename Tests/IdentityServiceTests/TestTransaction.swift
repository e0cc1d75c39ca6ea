import Core
import ServiceKit
import Storage

/// A group's transaction over a real engine and a feed in memory.
final class TestTransaction: HandlerTransaction {
    private let transaction: any Transaction
    private let feed: MemoryFeed
    private(set) var events: [OutgoingEvent] = []

    init(_ transaction: any Transaction, _ feed: MemoryFeed) {
        self.transaction = transaction
        self.feed = feed
    }

    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int { try transaction.execute(statement, values) }
    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try transaction.query(statement, values, row)
    }
    func publish(_ event: OutgoingEvent) { events.append(event) }

    func put(_ scope: ScopeName, _ items: [FeedItem]) throws -> ScopeChange {
        feed.sequence += 1
        for item in items { feed.items[item.name] = item }
        return ScopeChange(
            scope: scope, token: ChangeToken(epoch: 1, sequence: feed.sequence),
            previousSequence: feed.sequence - 1, previousPartitionSequence: feed.sequence - 1)
    }
    func head(_ scope: ScopeName) throws -> ScopeHead {
        ScopeHead(
            token: ChangeToken(epoch: 1, sequence: feed.sequence), floor: 0, epochStart: 0, digest: .empty,
            liveCount: feed.items.count, liveBytes: 0, metadata: [])
    }
    func item(_ scope: ScopeName, _ name: String) throws -> FeedItem? { feed.items[name] }
    func setMetadata(_ scope: ScopeName, _ metadata: [UInt8]) throws {}
    func items(_ scope: ScopeName, after sequence: UInt64, _ item: (FeedItem) throws -> Bool) throws {}
    func scopes(inPartition partition: Int, after sequence: UInt64, limit: Int) throws -> [(ScopeName, ScopeHead)] {
        []
    }
    func position(ofPartition partition: Int) throws -> ChangeToken { ChangeToken(epoch: 1, sequence: feed.sequence) }
    func reply(to operation: OperationID, by principal: String) throws -> [UInt8]? { nil }
    func remember(_ reply: [UInt8], of operation: OperationID, by principal: String) throws {}
}

/// One scope's items.
final class MemoryFeed {
    var items: [String: FeedItem] = [:]
    var sequence: UInt64 = 0
}
