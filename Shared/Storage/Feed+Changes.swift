public import Core

/// Some of a scope's changes, in order; it ends between two transactions.
public struct FeedPage: Sendable {
    public var items: [FeedItem]
    /// What to ask with next. While a first listing goes on it is good for
    /// nothing else: the reader keeps it apart from the tokens it compares.
    public var token: ChangeToken
    /// Whether there is more after ``token`` already.
    public var hasMore: Bool
}

/// Marks the epoch of a token in the middle of a first listing. Such a reader
/// began with nothing, so tombstones that went before do not concern it, and
/// the floor does not end it. (One that went during the listing would; the
/// retention has to be longer than any listing takes.)
private let listingMark: UInt64 = 1 << 63

extension Feed {
    /// Hands out what changed in the scope after the token, in the order of
    /// (sequence, name). A reader from the beginning (sequence 0, of any
    /// epoch) gets no tombstones: it holds nothing that they could remove.
    ///
    /// - Returns: The scope's head, whose token is the next one to ask with
    ///   when `item` has taken everything.
    /// - Throws: ``CloudError`` `.changeTokenExpired`: the token is of another
    ///   epoch, of a future that was lost, or below the floor. Fetch
    ///   everything from sequence 0, and keep unsent changes.
    @discardableResult
    public func changes(
        in scope: ScopeName, after token: ChangeToken, _ item: (FeedItem) throws -> Bool
    ) throws -> ScopeHead {
        let head = try self.head(scope)
        let isFromBeginning = token.sequence == 0
        if !isFromBeginning {
            let isListing = token.epoch == head.token.epoch | listingMark
            // A partition's token may be used too, which can be ahead of the scope's own.
            let newest = try partition(scope.partition).sequence
            guard isListing || token.epoch == head.token.epoch && token.sequence >= head.floor,
                token.sequence <= newest
            else {
                throw CloudError(
                    .changeTokenExpired,
                    "The change token has expired. Fetch everything from the beginning; keep what was not sent.",
                    details: ["token": "\(token)", "head": "\(head.token)", "floor": "\(head.floor)"]
                )
            }
        }
        try items(scope, after: token.sequence) {
            if isFromBeginning && $0.deleted { return true }
            return try item($0)
        }
        return head
    }

    /// The next changes after the token: at least `limit` if there are so many,
    /// and more only to end between two transactions.
    ///
    /// - Throws: as ``changes(in:after:_:)``.
    public func page(of scope: ScopeName, after token: ChangeToken, limit: Int) throws -> FeedPage {
        var page = FeedPage(items: [], token: token, hasMore: false)
        let head = try changes(in: scope, after: token) { item in
            if page.items.count >= max(1, limit), let last = page.items.last, last.sequence != item.sequence {
                page.hasMore = true
                return false
            }
            page.items.append(item)
            return true
        }
        let isListing = token.sequence == 0 || token.epoch & listingMark != 0
        page.token = head.token
        if page.hasMore, let last = page.items.last {
            page.token.sequence = last.sequence
            if isListing { page.token.epoch |= listingMark }
        }
        // A reader never goes back.
        page.token.sequence = max(page.token.sequence, token.sequence)
        return page
    }
}
