public import NephosCore

/// What a scope's rows add up to, counted anew.
public struct ScopeRecount: Hashable, Sendable {
    public var digest: SetDigest
    public var liveCount: Int
    public var liveBytes: Int
}

extension Feed {
    /// Counts a scope anew from its rows; equals the head's digest, count and
    /// bytes unless something is broken. Reads every live row.
    public func recount(_ scope: ScopeName) throws -> ScopeRecount {
        var result = ScopeRecount(digest: .empty, liveCount: 0, liveBytes: 0)
        guard let id = try self.scope(scope).id else { return result }
        try query(FeedStatements.liveShares, [.integer(id)]) { row in
            result.digest.add(SetDigest(bytes: row.blob(1)) ?? .empty)
            result.liveCount += 1
            result.liveBytes += Int(row.integer(0))
            return true
        }
        return result
    }

    public func correctHead(_ scope: ScopeName) throws -> SetDigest {
        let sum = try recount(scope)
        let place = try place(of: scope)
        heads.change(scope: place) {
            $0.digest = sum.digest
            $0.liveCount = sum.liveCount
            $0.liveBytes = sum.liveBytes
        }
        return sum.digest
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
