public import NephosCore

/// The change feed over one group's transaction; see ``FeedTransaction``.
///
/// Make one for each group, and call ``flush()`` before the transaction ends.
/// When the transaction is rolled back, empty the cache.
public final class Feed: FeedTransaction {
    let transaction: any Transaction
    /// When this group runs, for the age of its tombstones.
    private let now: Timestamp
    let operations: OperationMemory?
    /// Replies of this group that are not stored yet.
    var waitingReplies: [WaitingReply] = []
    /// Rows of several replies that were looked through in this group.
    public internal(set) var packsLooked = 0
    private var knownEpoch: UInt64?
    let heads: FeedHeads
    let cache: FeedCache

    /// An item's share in its scope's head.
    struct Share {
        var isLive: Bool
        var digest: SetDigest
        var size: Int
        /// Its body, where it is apart; else 0.
        var body: Int64 = 0
    }

    /// - Parameters:
    ///   - now: The time recorded with deletions.
    ///   - operations: What is known of operations without looking; the same for all groups.
    ///   - cache: What is known of heads and items without looking; the same for all groups.
    public init(
        over transaction: any Transaction, at now: Timestamp, operations: OperationMemory? = nil,
        cache: FeedCache = FeedCache()
    ) {
        self.cache = cache
        heads = cache.heads
        self.transaction = transaction
        self.now = now
        self.operations = operations
        operations?.advance(to: now)
    }

    /// A feed on the system's clock.
    public convenience init(over transaction: any Transaction) {
        self.init(over: transaction, at: .ofSystem)
    }

    @discardableResult
    public func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        try transaction.execute(statement, values)
    }

    public func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try transaction.query(statement, values, row)
    }

    // MARK: Heads

    /// Asked for before anything else of the heads: what is known of another epoch is forgotten.
    func epoch() throws -> UInt64 {
        if let knownEpoch { return knownEpoch }
        let epoch = try first(FeedStatements.epoch) { UInt64(bitPattern: $0.integer(0)) } ?? 1
        cache.begin(epoch: epoch)
        knownEpoch = epoch
        return epoch
    }

    func partition(_ number: Int) throws -> PartitionState {
        _ = try epoch()
        if let state = heads.partitions[number] { return state }
        let state =
            try first(FeedStatements.partition, [.integer(Int64(number))], Self.partitionState) ?? PartitionState()
        heads.add(state, at: number)
        return state
    }

    /// Reads what is known of all partitions, at once. Those that have no row have never changed.
    func loadPartitions() throws {
        _ = try epoch()
        guard !heads.hasAllPartitions else { return }
        let stored = try all(FeedStatements.partitions) { (Int($0.integer(4)), Self.partitionState($0)) }
        for (number, state) in stored where heads.partitions.indices.contains(number) {
            if heads.partitions[number] == nil { heads.add(state, at: number) }
        }
        heads.noteAllPartitions()
    }

    private static func partitionState(_ row: any SQLRow) -> PartitionState {
        // Its own row says more only when the scope that was ahead is gone.
        PartitionState(
            sequence: UInt64(bitPattern: max(row.integer(0), row.integer(3))),
            epochStart: UInt64(bitPattern: row.integer(1)), scopeCount: row.integer(2))
    }

    /// Where the scope lies among the group's heads; reads it when it is not there yet.
    func place(of name: ScopeName) throws -> Int {
        _ = try epoch()
        if let place = heads.place(of: name) { return place }
        let stored = try first(
            FeedStatements.scope, [.text(name.owner.rawValue), .text(name.path.rawValue)], scopeState)
        return heads.add(stored ?? ScopeState(name: name, partition: name.partition))
    }

    private func scopeState(_ row: any SQLRow) -> ScopeState {
        let name = ScopeName(Owner(row.text(7)), ItemName(row.text(8)))
        return ScopeState(
            name: name, partition: name.partition, id: row.integer(0), isStored: true,
            sequence: UInt64(bitPattern: row.integer(1)), floor: UInt64(bitPattern: row.integer(2)),
            digest: SetDigest(bytes: row.blob(3)) ?? .empty, liveCount: Int(row.integer(4)),
            liveBytes: Int(row.integer(5)), tombstones: Int(row.integer(9)), metadata: row.blob(6))
    }

    func scope(_ name: ScopeName) throws -> ScopeState {
        let place = try place(of: name)
        return heads.scopes[place]
    }

    private func head(_ scope: ScopeState) throws -> ScopeHead {
        ScopeHead(
            token: try token(scope.sequence, in: scope.partition), floor: scope.floor,
            epochStart: try partition(scope.partition).epochStart, digest: scope.digest,
            liveCount: scope.liveCount, liveBytes: scope.liveBytes, metadata: scope.metadata)
    }

    /// The scope's id; gives it one when it has none.
    private func identify(_ place: Int) throws -> Int64 {
        if let id = heads.scopes[place].id { return id }
        let number = heads.scopes[place].partition
        let id = try partition(number).scopeCount * Int64(partitionCount) + Int64(number) + 1
        heads.change(partition: number) {
            $0.scopeCount += 1
        }
        heads.change(scope: place) { $0.id = id }
        return id
    }

    /// A scope's id says where it lies.
    static func partition(ofScopeWithID id: Int64) -> Int { Int((id - 1) % Int64(partitionCount)) }

    public func head(_ scope: ScopeName) throws -> ScopeHead { try head(self.scope(scope)) }

    public func setMetadata(_ scope: ScopeName, _ metadata: [UInt8]) throws {
        let place = try place(of: scope)
        _ = try identify(place)
        heads.change(scope: place) {
            $0.metadata = metadata
        }
    }

    public func positions() throws -> [(partition: Int, token: ChangeToken)] {
        try loadPartitions()
        return try heads.partitions.indices.compactMap { number in
            guard let sequence = heads.partitions[number]?.sequence, sequence > 0 else { return nil }
            return (number, try token(sequence, in: number))
        }
    }

    public func position(ofPartition partition: Int) throws -> ChangeToken {
        try token(try self.partition(partition).sequence, in: partition)
    }

    /// The token of this sequence, with its check.
    public func token(_ sequence: UInt64, in partition: Int) throws -> ChangeToken {
        var token = ChangeToken(epoch: try epoch(), sequence: sequence)
        if let history = cache.history { token.check = history.check(of: token, in: partition) }
        return token
    }

    public func seal(_ bytes: [UInt8]) throws -> UInt64? { cache.history?.seal(bytes) }

    public func judge(_ token: ChangeToken, after epochs: [ChangeToken], in partition: Int) throws -> TokenStanding {
        guard let history = cache.history else { return .unknown }
        let head = ChangeToken(epoch: try epoch(), sequence: try self.partition(partition).sequence)
        return history.judge(token, after: epochs, in: partition, at: head)
    }

    public func historyBegan() throws -> Timestamp { try cache.history?.began ?? Self.beginning(ofEpoch: epoch()) }

    public func partings(in partition: Int) throws -> [ChangeToken] { cache.history?.partings(in: partition) ?? [] }

    public func scopes(
        inPartition partition: Int, after sequence: UInt64, limit: Int
    ) throws -> [(ScopeName, ScopeHead)] {
        // The rows have to say what the group's heads say before they are searched.
        try flush()
        let values: [SQLValue] = [
            .integer(Int64(partition)), .integer(Int64(clamping: sequence)), .integer(Int64(max(0, limit))),
        ]
        return try all(FeedStatements.scopesAfter, values, scopeState).map { ($0.name, try head($0)) }
    }

    /// Writes the heads that have changed, and replies; the group's last call before the commit.
    public func flush() throws {
        try flushReplies()
        for place in heads.changedScopes {
            let scope = heads.scopes[place]
            guard let id = scope.id else { continue }
            var values: [SQLValue] = [
                .integer(id), .integer(Int64(bitPattern: scope.sequence)), .integer(Int64(bitPattern: scope.floor)),
                .blob(scope.digest.bytes), .integer(Int64(scope.liveCount)), .integer(Int64(scope.liveBytes)),
                .blob(scope.metadata), .integer(Int64(scope.tombstones)),
            ]
            if scope.isStored {
                try execute(FeedStatements.updateScope, values)
            } else {
                values += [
                    .text(scope.name.owner.rawValue), .text(scope.name.path.rawValue),
                    .integer(Int64(scope.partition)),
                ]
                try execute(FeedStatements.insertScope, values)
            }
        }
        for number in heads.changedPartitions {
            guard let state = heads.partitions[number] else { continue }
            let values: [SQLValue] = [
                .integer(Int64(number)), .integer(Int64(bitPattern: state.sequence)),
                .integer(Int64(bitPattern: state.epochStart)), .integer(state.scopeCount),
            ]
            try execute(FeedStatements.storePartition, values)
        }
        heads.noteStored()
    }

    public func scopeSizes(of owner: Owner) throws -> [(path: ItemName, bytes: Int)] {
        try flush()
        return try all(FeedStatements.sizes, [.text(owner.rawValue)]) { (ItemName($0.text(0)), Int($0.integer(1))) }
    }

    // MARK: Items

    public func item(_ scope: ScopeName, _ name: ItemName) throws -> FeedItem? {
        guard let id = try self.scope(scope).id else { return nil }
        switch cache.items.entry(id, name) {
        case .item(let item): return item
        case ItemCache.Entry.none?: return nil
        case nil:
            let item = try first(FeedStatements.item, [.integer(id), .text(name.rawValue)]) {
                try FeedItem(row: $0, of: transaction)
            }
            cache.items.store(item, id, name)
            return item
        }
    }

    public func share(_ scope: ScopeName, _ name: ItemName) throws -> FeedShare? {
        guard let id = try self.scope(scope).id, let share = try share(ofScopeWithID: id, name) else { return nil }
        return FeedShare(isLive: share.isLive, digest: share.digest)
    }

    /// The stored item's share, or nil when there is no row.
    func share(ofScopeWithID id: Int64, _ name: ItemName) throws -> Share? {
        switch cache.items.entry(id, name) {
        case .item(let item): return Share(isLive: !item.deleted, digest: item.digest, size: item.size)
        case ItemCache.Entry.none?: return nil
        case nil: break
        }
        return try first(FeedStatements.itemShare, [.integer(id), .text(name.rawValue)]) {
            Share(
                isLive: $0.integer(0) <= 0, digest: SetDigest(bytes: $0.blob(2)) ?? .empty,
                size: Int($0.integer(1)), body: $0.integer(3))
        }
    }

    public func put(_ scope: ScopeName, _ items: [FeedItem]) throws -> ScopeChange {
        guard !items.isEmpty else { throw CloudError(.invalidArguments, "A change needs at least one item.") }
        let place = try place(of: scope)
        let id = try identify(place)
        let number = heads.scopes[place].partition
        let before = try partition(number).sequence
        let sequence = before + 1

        var digest = heads.scopes[place].digest
        var liveCount = heads.scopes[place].liveCount
        var liveBytes = heads.scopes[place].liveBytes
        var tombstones = heads.scopes[place].tombstones
        for item in items {
            let stored = try share(ofScopeWithID: id, item.name)
            if let stored, stored.isLive {
                digest.remove(stored.digest)
                liveCount -= 1
                liveBytes -= stored.size
            }
            if stored?.isLive == false { tombstones -= 1 }
            if item.deleted {
                tombstones += 1
            } else {
                digest.add(item.digest)
                liveCount += 1
                liveBytes += item.size
            }
            let body = try FeedBodies.replace(stored?.body ?? 0, by: item.body, in: self)
            let (order, deletedAt) = StoredShowing.columns(of: item, sequence, at: now)
            let values: [SQLValue] = [
                .integer(id), .text(item.name.rawValue), .integer(order), .integer(deletedAt),
                .integer(Int64(item.size)),
                .blob(item.deleted ? [] : item.digest.bytes), .blob(body.inline), .integer(body.id),
            ]
            try execute(stored == nil ? FeedStatements.insertItem : FeedStatements.updateItem, values)
            var written = item
            written.sequence = sequence
            if item.deleted {
                written.digest = .empty
                if item.showing == .absence { written.showing = .item }
            }
            cache.items.store(written, id, item.name)
        }

        let previous = heads.scopes[place].sequence
        heads.change(scope: place) {
            $0.sequence = sequence
            $0.digest = digest
            $0.liveCount = liveCount
            $0.liveBytes = liveBytes
            $0.tombstones = tombstones
        }
        heads.advance(partition: number, to: sequence)
        try forgetTombstones(ofScopeAt: place, id, beyond: Self.tombstonesMax(of: scope))
        return ScopeChange(
            scope: scope, partition: number, token: try token(sequence, in: number),
            previousSequence: previous, previousPartitionSequence: before, digest: digest)
    }

    public func rows(
        _ scope: ScopeName, after sequence: UInt64, _ name: ItemName?, _ row: (FeedRow) throws -> Bool
    ) throws {
        guard let id = try self.scope(scope).id else { return }
        var values: [SQLValue] = [.integer(id), .integer(Int64(clamping: sequence))]
        if let name { values.append(.text(name.rawValue)) }
        try query(name == nil ? FeedStatements.itemsAfter : FeedStatements.itemsAfterItem, values) {
            try row(FeedRow($0, of: transaction, isTold: true))
        }
    }

    public func rows(_ scope: ScopeName, afterName name: ItemName, _ row: (FeedRow) throws -> Bool) throws {
        guard let id = try self.scope(scope).id else { return }
        try query(FeedStatements.itemsByName, [.integer(id), .text(name.rawValue)]) {
            try row(FeedRow($0, of: transaction))
        }
    }

    // MARK: For maintenance

    func removeItem(_ scope: Int64, _ name: ItemName) throws {
        cache.items.remove(scope, name)
        let values: [SQLValue] = [.integer(scope), .text(name.rawValue)]
        try execute(FeedStatements.removeBodyOfItem, values)
        try execute(FeedStatements.removeItem, values)
    }

    /// Stores the partition's head by itself, before the scope goes that says it.
    func keepHead(ofPartition number: Int) throws {
        _ = try partition(number)
        heads.change(partition: number) { _ in }
        try flush()
    }

    /// What readers of other epochs hold in the partition above the sequence was lost.
    func beginEpoch(inPartition number: Int, at start: UInt64) throws {
        _ = try partition(number)
        heads.change(partition: number) {
            $0.epochStart = start
        }
    }

    /// Raises the scope's floor: tombstones up to this sequence are gone.
    func raiseFloor(ofScopeWithID id: Int64, to floor: UInt64, forgetting tombstones: Int) throws {
        guard let stored = try first(FeedStatements.scopeByID, [.integer(id)], scopeState) else { return }
        let place = try place(of: stored.name)
        heads.change(scope: place) {
            $0.floor = max($0.floor, floor)
            $0.tombstones -= tombstones
        }
    }
}

extension FeedItem {
    /// From the columns name, sequence, deleted_at, size, digest, body_id, body.
    init(row: any SQLRow, of transaction: any ReadTransaction, hasBody: Bool = true) throws {
        let stored = StoredShowing(row, 1)
        self.init(
            name: ItemName(row.text(0)), sequence: stored.sequence, deleted: stored.deleted,
            digest: SetDigest(bytes: row.blob(4)) ?? .empty, size: Int(row.integer(3)),
            body: hasBody ? try FeedBodies.body(of: row, from: 5, in: transaction) : [], showing: stored.showing)
    }
}
