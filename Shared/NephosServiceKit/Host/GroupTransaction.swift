internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// The transaction of one group: the feed, the events to publish after the
/// commit, and a note of whether anything was written.
final class GroupTransaction: HandlerTransaction {
    /// Set by every write but ``lasting(_:)``. A request that throws with this unset has left nothing half-done.
    var wrote = false
    /// Rows that were read or written, for what requests are charged.
    private(set) var cost = ReadCost()
    /// Replies that were stored for repeats, in units; see ``RequestCost/unitsOfReply(bytes:)``.
    private(set) var replyUnits = 0
    /// What is published once the group is on disk.
    private(set) var events: [OutgoingEvent] = []
    /// The heads of the partitions that the group changed.
    private(set) var heads: [Int: ChangeToken] = [:]
    /// A token that has shown that the database is an old copy.
    private(set) var proof: ChangeToken?
    /// What changes in memory once the group is on disk.
    private(set) var commitActions: [() -> Void] = []
    /// What is stored for owners of plans, more than before. It goes with rows, so that what is rolled back takes it along.
    private(set) var storedBytes: Int64 = 0
    /// Items that were moved to the quarantine.
    private(set) var quarantined: [QuarantinedItems.Moved] = []
    /// An item came back that was there.
    private(set) var hasReturned = false
    private let quarantine: QuarantineNote
    private var notices: [OutgoingEvent] = []
    /// The request that is being carried out; nil: work of the service's own.
    var request: OperationID?
    let isShortOfRoom: Bool
    /// When it began.
    let now: Timestamp
    private let feed: Feed

    init(
        _ transaction: any Transaction, at now: Timestamp, operations: OperationMemory? = nil,
        cache: FeedCache = FeedCache(), quarantine: QuarantineNote, isShortOfRoom: Bool = false
    ) {
        self.quarantine = quarantine
        self.isShortOfRoom = isShortOfRoom
        self.now = now
        feed = Feed(over: transaction, at: now, operations: operations, cache: cache)
    }

    func charge(rows: Int) { cost.rows += max(0, rows) }

    func noteStored(_ bytes: Int64) { storedBytes &+= bytes }

    /// Writes what the feed keeps in memory. The last thing before the commit.
    func flush() throws { try feed.flush() }

    /// Forgets, in bounded steps, what nobody can ask for any more. Returns whether there is more.
    func prune(operationsBefore operation: OperationID, tombstonesBefore time: Timestamp) throws -> Bool {
        let moreOperations = try feed.pruneOperations(before: operation, limit: 2000)
        let moreTombstones = try feed.compactTombstones(before: time, limit: 500)
        return moreOperations || moreTombstones
    }

    /// How far the group has come.
    struct Mark {
        fileprivate var events: Int
        fileprivate var commitActions: Int
    }

    var mark: Mark { Mark(events: events.count, commitActions: commitActions.count) }

    /// Drops what a request that failed would have had done after the commit.
    func drop(after mark: Mark) {
        events.removeLast(events.count - mark.events)
        commitActions.removeLast(commitActions.count - mark.commitActions)
    }

    func publish(_ event: OutgoingEvent) { events.append(caused(event)) }

    func publish(_ notices: [OutgoingEvent]) { events += notices }

    func publishRegardless(_ event: OutgoingEvent) { notices.append(caused(event)) }

    private func caused(_ event: OutgoingEvent) -> OutgoingEvent {
        var event = event
        event.causeID = request
        return event
    }

    func afterCommit(_ action: @escaping () -> Void) { commitActions.append(action) }

    /// What the request that just ran leaves behind, failed or not.
    func takeNotices() -> [OutgoingEvent] {
        defer { notices = [] }
        return notices
    }

    // MARK: Writes

    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        wrote = true
        cost.rows += 1
        return try feed.execute(statement, values)
    }

    func lasting<Result>(_ write: () throws -> Result) rethrows -> Result {
        let hadWritten = wrote
        let result = try write()
        wrote = hadWritten
        return result
    }

    func put(_ scope: ScopeName, _ items: [FeedItem]) throws -> ScopeChange {
        wrote = true
        cost.rows += items.count
        let change = try feed.put(scope, items)
        heads[change.partition] = change.token
        for item in items {
            guard try isQuarantined(item.name, of: scope) else { continue }
            let place = QuarantinedItems.Place(scope: scope, name: item.name)
            // One that was deleted goes with what lies beside it, in the next round.
            guard !item.deleted else {
                try QuarantinedItems.endTime(of: place, in: feed)
                continue
            }
            try QuarantinedItems.remove(place, in: feed)
            hasReturned = true
        }
        return change
    }

    func quarantine(_ item: FeedItem, of scope: ScopeName) throws {
        let place = QuarantinedItems.Place(scope: scope, name: item.name)
        try lasting {
            try QuarantinedItems.add(item, at: place, found: quarantine.clock.retentionStart, in: feed)
            try takeOut(item.name, of: scope)
        }
        quarantine.hasItems = true
        quarantined.append(QuarantinedItems.Moved(scope: scope, sequence: item.sequence))
    }

    func isQuarantined(_ name: ItemName, of scope: ScopeName) throws -> Bool {
        guard quarantine.hasItems else { return false }
        cost.rows += 1
        return try QuarantinedItems.has(QuarantinedItems.Place(scope: scope, name: name), in: feed)
    }

    func takeOut(_ name: ItemName, of scope: ScopeName) throws {
        wrote = true
        quarantine.quietChanges += 1
        try feed.takeOut(name, of: scope)
    }

    func setShares(_ shares: [ItemName: SetDigest], of scope: ScopeName) throws {
        wrote = true
        quarantine.quietChanges += 1
        cost.rows += shares.count
        try feed.setShares(shares, of: scope)
    }

    func setMetadata(_ scope: ScopeName, _ metadata: [UInt8]) throws {
        wrote = true
        try feed.setMetadata(scope, metadata)
    }

    func keepTombstones(of scope: ScopeName, atMost max: Int) throws {
        wrote = true
        try feed.keepTombstones(of: scope, atMost: max)
    }

    func correctHead(_ scope: ScopeName) throws {
        wrote = true
        try feed.correctHead(scope)
    }

    func correctHead(by count: ScopeCount) throws -> HeadCorrection {
        wrote = true
        return try feed.correctHead(by: count)
    }

    func removeAll(of owner: Owner, limit: Int) throws -> Bool {
        wrote = true
        return try feed.removeAll(of: owner, limit: limit)
    }

    func removeAll(of scope: ScopeName, limit: Int) throws -> Bool {
        wrote = true
        return try feed.removeAll(of: scope, limit: limit)
    }

    func remember(
        _ reply: [UInt8], of operation: OperationID, by principal: String, request: RequestFingerprint
    ) throws {
        wrote = true
        replyUnits += RequestCost.unitsOfReply(bytes: reply.count)
        try feed.remember(reply, of: operation, by: principal, request: request)
    }

    // MARK: Reads

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try feed.query(statement, values) {
            cost.rows += 1
            return try row($0)
        }
    }

    func head(_ scope: ScopeName) throws -> ScopeHead { try feed.head(scope) }

    func item(_ scope: ScopeName, _ name: ItemName) throws -> FeedItem? {
        cost.rows += 1
        return try feed.item(scope, name)
    }

    func share(_ scope: ScopeName, _ name: ItemName) throws -> FeedShare? {
        cost.rows += 1
        return try feed.share(scope, name)
    }

    func rows(
        _ scope: ScopeName, after sequence: UInt64, _ name: ItemName?, _ row: (FeedRow) throws -> Bool
    ) throws {
        try feed.rows(scope, after: sequence, name) {
            let wasWanted = try row($0)
            cost.note($0, wasWanted: wasWanted)
            return wasWanted
        }
    }

    func rows(_ scope: ScopeName, afterName name: ItemName, _ row: (FeedRow) throws -> Bool) throws {
        try feed.rows(scope, afterName: name) {
            let wasWanted = try row($0)
            cost.note($0, wasWanted: wasWanted)
            return wasWanted
        }
    }

    func scopes(inPartition partition: Int, after sequence: UInt64, limit: Int) throws -> [(ScopeName, ScopeHead)] {
        let scopes = try feed.scopes(inPartition: partition, after: sequence, limit: limit)
        cost.rows += scopes.count
        return scopes
    }

    func scopeSizes(of owner: Owner) throws -> [(path: ItemName, bytes: Int)] {
        let sizes = try feed.scopeSizes(of: owner)
        cost.rows += sizes.count
        return sizes
    }

    func positions() throws -> [(partition: Int, token: ChangeToken)] { try feed.positions() }

    func position(ofPartition partition: Int) throws -> ChangeToken { try feed.position(ofPartition: partition) }

    func token(_ sequence: UInt64, in partition: Int) throws -> ChangeToken { try feed.token(sequence, in: partition) }

    func seal(_ bytes: [UInt8]) throws -> UInt64? { try feed.seal(bytes) }

    func historyBegan() throws -> Timestamp { try feed.historyBegan() }

    func partings(in partition: Int) throws -> [ChangeToken] { try feed.partings(in: partition) }

    func judge(_ token: ChangeToken, after epochs: [ChangeToken], in partition: Int) throws -> TokenStanding {
        let standing = try feed.judge(token, after: epochs, in: partition)
        if case .lost(_, isNews: true) = standing, token.epoch >= proof?.epoch ?? 0 { proof = token }
        return standing
    }

    func reply(to operation: OperationID, by principal: String, request: RequestFingerprint) throws -> [UInt8]? {
        let looked = feed.packsLooked
        defer { cost.rows += feed.packsLooked - looked }
        return try feed.reply(to: operation, by: principal, request: request)
    }
}
