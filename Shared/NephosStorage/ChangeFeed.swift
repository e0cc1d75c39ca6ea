public import NephosCore

// The change feed: what every storing service keeps its state in.
//
// A *scope* is one store, zone or directory of one owner. It holds *items*,
// each with one live row: writing an item moves its row to the scope's head.
// Each scope lies in one of 1024 *partitions*, all of an account's in the same; a partition has one
// sequence, and each transaction that changes something takes one number of
// it. So a reader with a token gets every item changed after it, once, in
// order, and never half a transaction.
//
// Tables: feed_partitions, feed_scopes, feed_items, feed_operations (see ChangeFeedSchema).

/// A scope's place in the feed and what is known of it without reading its items.
public struct ScopeHead: Hashable, Sendable {
    public var token: ChangeToken
    /// Tokens below it have expired: tombstones were removed.
    public var floor: UInt64
    /// The head at which the current epoch began.
    public var epochStart: UInt64
    public var digest: SetDigest
    public var liveCount: Int
    public var liveBytes: Int
    /// Whatever the service keeps with the scope (a wrapped digest key, say).
    public var metadata: [UInt8]

    public init(
        token: ChangeToken, floor: UInt64, epochStart: UInt64, digest: SetDigest, liveCount: Int, liveBytes: Int,
        metadata: [UInt8]
    ) {
        self.token = token
        self.floor = floor
        self.epochStart = epochStart
        self.digest = digest
        self.liveCount = liveCount
        self.liveBytes = liveBytes
        self.metadata = metadata
    }
}

/// What readers of a scope's changes get to see of an item. One of which they see nothing, or its absence alone, has no
/// share in the scope's digest.
public enum ItemShowing: Sendable {
    case item
    /// They may have it from before: that it is gone.
    case absence
    /// It is in no page, and nothing that a page costs, or where it ends, tells of it.
    case nothing
}

/// An item's live row.
public struct FeedItem: Hashable, Sendable {
    public var name: ItemName
    public var sequence: UInt64
    public var deleted: Bool
    /// The item's share in the scope's digest; of no meaning when deleted.
    public var digest: SetDigest
    /// Bytes that count toward the scope's ``ScopeHead/liveBytes``.
    public var size: Int
    public var body: [UInt8]
    /// Of one that was deleted: whether its deletion is shown.
    public var showing: ItemShowing

    public init(
        name: ItemName, sequence: UInt64 = 0, deleted: Bool, digest: SetDigest, size: Int, body: [UInt8],
        showing: ItemShowing = .item
    ) {
        self.showing = showing
        self.name = name
        self.sequence = sequence
        self.deleted = deleted
        self.digest = digest
        self.size = size
        self.body = body
    }
}

/// An item's row, valid during the call that hands it out. Its body is read when it is asked for.
public struct FeedRow {
    private let row: any SQLRow
    private let transaction: any ReadTransaction
    public let name: ItemName
    public let sequence: UInt64
    public let deleted: Bool
    public let showing: ItemShowing
    public let bodyBytes: Int
    private let hasBody: Bool

    /// From the columns of ``FeedStatements/itemsAfter``.
    ///
    /// - Parameter isTold: It is read for those who get to see no more of it than they may: an absence has no body.
    init(_ row: any SQLRow, of transaction: any ReadTransaction, isTold: Bool = false) {
        self.row = row
        self.transaction = transaction
        name = ItemName(row.text(0))
        let stored = StoredShowing(row, 1)
        (sequence, deleted, showing) = (stored.sequence, stored.deleted, stored.showing)
        hasBody = !isTold || stored.showing == .item
        bodyBytes = hasBody ? Int(row.integer(7)) : 0
    }

    /// With its body.
    public var item: FeedItem { get throws { try FeedItem(row: row, of: transaction, hasBody: hasBody) } }
}

/// What was read of a database, for what requests are charged.
public struct ReadCost: Hashable, Sendable {
    public var rows = 0
    /// Bytes of bodies, sent or not.
    public var bytes = 0

    public init() {}

    public static func - (left: ReadCost, right: ReadCost) -> ReadCost {
        var difference = left
        difference.rows -= right.rows
        difference.bytes -= right.bytes
        return difference
    }

    public mutating func note(_ row: FeedRow, wasWanted: Bool) {
        rows += 1
        if wasWanted { bytes += row.bodyBytes }
    }
}

/// What is known of an item without its body.
public struct FeedShare: Hashable, Sendable {
    public var isLive: Bool
    /// Its share in the scope's digest; of no meaning when it was deleted.
    public var digest: SetDigest
}

/// What one request changed in one scope; becomes the event that is published after the commit.
public struct ScopeChange: Sendable {
    public var scope: ScopeName
    public var partition: Int
    /// The scope's and the partition's head after the change.
    public var token: ChangeToken
    /// The scope's head before it.
    public var previousSequence: UInt64
    /// The partition's head before it.
    public var previousPartitionSequence: UInt64
    /// The scope's digest after the change.
    public var digest: SetDigest

    public init(
        scope: ScopeName, partition: Int, token: ChangeToken, previousSequence: UInt64,
        previousPartitionSequence: UInt64, digest: SetDigest
    ) {
        self.scope = scope
        self.partition = partition
        self.token = token
        self.previousSequence = previousSequence
        self.previousPartitionSequence = previousPartitionSequence
        self.digest = digest
    }
}

/// The feed, as it is read.
public protocol FeedReader: ReadTransaction {
    /// The scope's head; a scope never written has sequence 0 and is empty.
    func head(_ scope: ScopeName) throws -> ScopeHead
    func item(_ scope: ScopeName, _ name: ItemName) throws -> FeedItem?

    /// What is known of the item without reading its body; nil: it has no row.
    func share(_ scope: ScopeName, _ name: ItemName) throws -> FeedShare?

    /// The row of every item changed after the sequence, tombstones included, in the order of (sequence, name). Those of
    /// which readers see nothing are left out, and an absence comes without its body; see ``ItemShowing``.
    ///
    /// - Parameters:
    ///   - name: Of one of them; given, those after it: for a reader that goes on.
    ///   - row: Returns false to stop; what such a row holds was not wanted, and is not read.
    func rows(_ scope: ScopeName, after sequence: UInt64, _ name: ItemName?, _ row: (FeedRow) throws -> Bool) throws

    /// The row of every item with a greater name, tombstones included, in the order of names.
    ///
    /// - Parameters:
    ///   - name: Empty: of all.
    ///   - row: As of ``rows(_:after:_:_:)``.
    func rows(_ scope: ScopeName, afterName name: ItemName, _ row: (FeedRow) throws -> Bool) throws

    /// Heads of the partition's scopes changed after the sequence, in the order of their heads.
    func scopes(inPartition partition: Int, after sequence: UInt64, limit: Int) throws -> [(ScopeName, ScopeHead)]

    /// The bytes of each of the owner's scopes.
    func scopeSizes(of owner: Owner) throws -> [(path: ItemName, bytes: Int)]

    /// The heads of all partitions that have ever changed, in their order.
    func positions() throws -> [(partition: Int, token: ChangeToken)]

    /// The partition's head; (current epoch, 0) if nothing was written there.
    func position(ofPartition partition: Int) throws -> ChangeToken

    /// The token of a sequence that this history has, of a reply that is given again, say.
    func token(_ sequence: UInt64, in partition: Int) throws -> ChangeToken

    /// What a token that somebody shows says of this history.
    ///
    /// - Parameter epochs: Those by which they have come to the token's epoch, which is the last, each with how far it and
    ///   the one before are the same. Of more than 16 the last 16 are looked at.
    func judge(_ token: ChangeToken, after epochs: [ChangeToken], in partition: Int) throws -> TokenStanding

    /// The epochs before the present one, at most 15, in their order, each with how far it and what there was before are
    /// the same.
    func partings(in partition: Int) throws -> [ChangeToken]

    /// When the history began that the present epoch is of: what is from before was in the copy that the service came back
    /// from, if it did, or is lost.
    func historyBegan() throws -> Timestamp
}

extension FeedReader {
    /// The same of who does not say how they have come to its epoch.
    public func judge(_ token: ChangeToken, in partition: Int) throws -> TokenStanding {
        try judge(token, after: [], in: partition)
    }

    /// Every item changed after the sequence, tombstones included, in the order of (sequence, name).
    public func items(_ scope: ScopeName, after sequence: UInt64, _ item: (FeedItem) throws -> Bool) throws {
        try rows(scope, after: sequence, nil) { try item(try $0.item) }
    }
}

/// The feed within one group's transaction. Heads are read once and written
/// once per group, however many requests of the group touch them; so the host
/// makes one for each group, and calls ``Feed/flush()`` before it commits.
public protocol FeedTransaction: Transaction, FeedReader {
    /// Writes items as one change: takes one sequence, stores the rows, and
    /// keeps head, digest, count and bytes. The items' own sequences are ignored.
    func put(_ scope: ScopeName, _ items: [FeedItem]) throws -> ScopeChange

    /// Sets the scope's metadata, without a change in the feed.
    func setMetadata(_ scope: ScopeName, _ metadata: [UInt8]) throws

    /// Takes an item's row out, with its share of the digest, the count and the bytes. No change in the feed: readers are
    /// not told.
    func takeOut(_ name: ItemName, of scope: ScopeName) throws

    /// Sets what live items have in the scope's digest, here and in the head. No change in the feed.
    func setShares(_ shares: [ItemName: SetDigest], of scope: ScopeName) throws

    /// Sets the scope's digest, count and bytes to what its rows add up to: something was damaged. No change in the
    /// feed.
    func correctHead(_ scope: ScopeName) throws

    /// The same, by what was counted beside: a scope of very many rows holds nobody up. No change in the feed.
    func correctHead(by count: ScopeCount) throws -> HeadCorrection

    /// Forgets the scope's oldest deletions if it has more than so many, and some more: no scope keeps more than
    /// ``Feed/tombstonesMax(of:)`` in any case, and nobody's plan counts them. A reader whose token is from before them has to fetch everything.
    func keepTombstones(of scope: ScopeName, atMost max: Int) throws

    /// A seal on bytes by which this service knows its own words again, also
    /// when its database has come back from an old copy. Nil where there is no key.
    func seal(_ bytes: [UInt8]) throws -> UInt64?

    /// Removes some of what the feed holds of an owner, for good: readers are not told.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    func removeAll(of owner: Owner, limit: Int) throws -> Bool

    /// Removes some of what the feed holds of a scope, for good, and in the end the scope: readers are not told.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    func removeAll(of scope: ScopeName, limit: Int) throws -> Bool

    /// The stored reply of this caller's operation, or nil if it is new.
    ///
    /// - Throws: ``CloudError`` `.operationReused` if it was another request that had this id.
    func reply(to operation: OperationID, by principal: String, request: RequestFingerprint) throws -> [UInt8]?
    func remember(
        _ reply: [UInt8], of operation: OperationID, by principal: String, request: RequestFingerprint) throws
}
