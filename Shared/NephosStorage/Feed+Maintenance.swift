public import NephosCore

/// What a scope's rows add up to, counted anew.
public struct ScopeRecount: Hashable, Sendable {
    public var digest: SetDigest
    public var liveCount: Int
    public var liveBytes: Int
}

/// What has come of comparing a head with what was counted.
public enum HeadCorrection: Sendable {
    case wasRight, corrected
    /// The scope was written since: count it again.
    case moved
}

/// A scope that is being counted anew, some rows at a time.
public struct ScopeCount: Sendable {
    public let scope: ScopeName
    /// The head when it began. Where it is another at the end, what was counted is of no state of the scope, unless it was
    /// counted at one go.
    public fileprivate(set) var start: ChangeToken?
    /// What that head says of its rows; nil: not all of them were counted at one go.
    fileprivate var known: ScopeRecount?
    public fileprivate(set) var sum = ScopeRecount(digest: .empty, liveCount: 0, liveBytes: 0)
    /// Whether all rows were counted, and none was written meanwhile.
    public fileprivate(set) var isWhole = false
    /// Whether there are more, and it makes sense to go on.
    public fileprivate(set) var hasMore = true
    private var last = ItemName("")

    public init(_ scope: ScopeName) { self.scope = scope }

    fileprivate mutating func goOn(in feed: Feed, limit: Int) throws {
        let whole = try feed.head(scope)
        let head = whole.token
        let isFirst = start == nil
        let start = self.start ?? head
        self.start = start
        guard start == head else { return hasMore = false }
        var rows = 0
        if let id = try feed.scope(scope).id {
            try feed.query(
                FeedStatements.liveSharesAfter, [.integer(id), .text(last.rawValue), .integer(Int64(limit))]
            ) {
                sum.add($0)
                last = ItemName($0.text(2))
                rows += 1
                return true
            }
        }
        hasMore = rows == limit
        isWhole = !hasMore
        known = isWhole && isFirst ? ScopeRecount(whole) : nil
    }
}

extension ScopeRecount {
    /// What a head says.
    fileprivate init(_ head: ScopeHead) {
        self.init(digest: head.digest, liveCount: head.liveCount, liveBytes: head.liveBytes)
    }

    /// What it lacks of another, and what that lacks of it, goes over to a third.
    fileprivate func corrected(by sum: ScopeRecount, where known: ScopeRecount) -> ScopeRecount {
        var result = self
        result.digest.add(sum.digest)
        result.digest.remove(known.digest)
        result.liveCount += sum.liveCount - known.liveCount
        result.liveBytes += sum.liveBytes - known.liveBytes
        return result
    }

    /// - Parameter row: With the columns size and digest.
    fileprivate mutating func add(_ row: any SQLRow) {
        digest.add(SetDigest(bytes: row.blob(1)) ?? .empty)
        liveCount += 1
        liveBytes += Int(row.integer(0))
    }
}

extension FeedSnapshot {
    /// Counts some rows more.
    public func goOn(_ count: inout ScopeCount, limit: Int) throws { try count.goOn(in: feed, limit: limit) }
}

extension Feed {
    /// Counts a scope anew from its rows; equals the head's digest, count and
    /// bytes unless something is broken. Reads every live row.
    public func recount(_ scope: ScopeName) throws -> ScopeRecount {
        var result = ScopeRecount(digest: .empty, liveCount: 0, liveBytes: 0)
        guard let id = try self.scope(scope).id else { return result }
        try query(FeedStatements.liveShares, [.integer(id)]) { row in
            result.add(row)
            return true
        }
        return result
    }

    public func correctHead(_ scope: ScopeName) throws { try set(recount(scope), of: scope) }

    public func takeOut(_ name: ItemName, of scope: ScopeName) throws {
        let place = try place(of: scope)
        guard let id = heads.scopes[place].id, let stored = try share(ofScopeWithID: id, name) else { return }
        try removeItem(id, name)
        heads.change(scope: place) {
            guard stored.isLive else { return $0.tombstones -= 1 }
            $0.digest.remove(stored.digest)
            $0.liveCount -= 1
            $0.liveBytes -= stored.size
        }
    }

    public func setShares(_ shares: [ItemName: SetDigest], of scope: ScopeName) throws {
        let place = try place(of: scope)
        guard let id = heads.scopes[place].id else { return }
        for (name, digest) in shares {
            guard let stored = try share(ofScopeWithID: id, name), stored.isLive else { continue }
            cache.items.remove(id, name)
            try execute(FeedStatements.setShare, [.integer(id), .text(name.rawValue), .blob(digest.bytes)])
            heads.change(scope: place) {
                $0.digest.remove(stored.digest)
                $0.digest.add(digest)
            }
        }
    }

    public func correctHead(by count: ScopeCount) throws -> HeadCorrection {
        let head = try head(count.scope)
        let now = ScopeRecount(head)
        guard count.isWhole, count.start?.epoch == head.token.epoch,
            let known = count.start == head.token ? now : count.known
        else { return .moved }
        guard known != count.sum else { return .wasRight }
        // What is written changes a head by what it writes: how far it was wrong then it is wrong now.
        try set(now.corrected(by: count.sum, where: known), of: count.scope)
        return .corrected
    }

    private func set(_ sum: ScopeRecount, of scope: ScopeName) throws {
        let place = try place(of: scope)
        heads.change(scope: place) {
            $0.digest = sum.digest
            $0.liveCount = sum.liveCount
            $0.liveBytes = sum.liveBytes
        }
    }

    public func removeAll(of owner: Owner, limit: Int) throws -> Bool {
        // What the group's heads say must not be written over it later.
        try flush()
        guard let scope = try first(FeedStatements.scopeOfOwner, [.text(owner.rawValue)], { $0.integer(0) })
        else { return false }
        _ = try removeAll(ofScopeWithID: scope, limit: limit)
        return true
    }

    public func removeAll(of scope: ScopeName, limit: Int) throws -> Bool {
        try flush()
        guard let id = try self.scope(scope).id else { return false }
        return try removeAll(ofScopeWithID: id, limit: limit)
    }

    /// Bytes of bodies that are removed at once: to give back the pages of large ones takes time.
    private static let removedBytesMax = 8 << 20

    /// - Returns: Whether there may be more of it.
    private func removeAll(ofScopeWithID scope: Int64, limit: Int) throws -> Bool {
        var (count, bytes) = (0, 0)
        try query(FeedStatements.bodyLengths, [.integer(scope), .integer(Int64(max(1, limit)))]) {
            bytes += Int($0.integer(0))
            guard count == 0 || bytes <= Self.removedBytesMax else { return false }
            count += 1
            // What is known of all others stays known: whoever has much removed slows nobody.
            cache.items.remove(scope, ItemName($0.text(1)))
            return true
        }
        guard count == 0 else {
            try execute(FeedStatements.removeBodies, [.integer(scope), .integer(Int64(count))])
            try execute(FeedStatements.removeItems, [.integer(scope), .integer(Int64(count))])
            return true
        }
        try keepHead(ofPartition: Self.partition(ofScopeWithID: scope))
        try execute(FeedStatements.removeScope, [.integer(scope)])
        // As above: the heads of all others stay known.
        cache.heads.forget(scopeWithID: scope)
        return false
    }
}
