internal import NephosCore

/// What a database's feed is known to hold without looking: the heads that
/// groups have read and written, and the items that were read or written last.
///
/// Only the feed writes its tables, and through this; when a transaction is
/// rolled back, ``removeAll()`` forgets what it may have written. Made once for a
/// database, and shared by all groups, one at a time.
public final class FeedCache {
    /// Scopes whose heads are kept; with more, they are all read anew.
    private static let scopesMax = 1024

    let heads = FeedHeads()
    let items = ItemCache()
    /// What tokens are checked by; nil: they carry no check.
    public var history: FeedHistory?
    private var epoch: UInt64?

    public init() {}

    /// Once in each group, before anything is asked.
    func begin(epoch: UInt64) {
        if epoch != self.epoch { removeAll() }
        self.epoch = epoch
        if heads.scopes.count > Self.scopesMax { heads.removeAll() }
    }

    /// Forgets everything: a transaction was rolled back, or has changed the tables by itself.
    public func removeAll() {
        heads.removeAll()
        items.removeAll()
    }
}
