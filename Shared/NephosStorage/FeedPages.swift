public import NephosCore

/// What a reader of a scope asks for: what changed after a token, or everything, and where it has got to.
public struct FeedQuery: Hashable, Sendable {
    public var scope: ScopeName
    /// Sequence 0 asks for everything that lives.
    public var after: ChangeToken
    /// With sequence 0: the head of what the reader holds already.
    public var held: ChangeToken
    /// The epochs by which the reader has come to the one of what it holds, each with how far it and the one before are
    /// the same; that one last.
    public var epochs: [ChangeToken] = []
    /// Where the page before has ended; nil: this is the first.
    public var place: FeedPlace?

    public init(
        _ scope: ScopeName, after: ChangeToken = .zero, held: ChangeToken = .zero, place: FeedPlace? = nil
    ) {
        self.scope = scope
        self.after = after
        self.held = held
        self.place = place
    }

    /// How far the reader knows this history.
    public var known: ChangeToken { after.sequence > 0 ? after : held }
}

/// Where a page of a reading has ended.
public struct FeedPlace: Hashable, Sendable {
    /// Where the reading began: at the reader's token, or where the head was
    /// when everything was asked for. Deletions up to there need not be told.
    public var start: ChangeToken
    /// The last item that was looked at, and where it stands: a token, which proves whether this is its history.
    public var token: ChangeToken
    public var name: ItemName
    /// Where everything was asked for: the digest of what the pages so far had.
    public var digest = SetDigest.empty

    public init(start: ChangeToken, token: ChangeToken, name: ItemName) {
        self.start = start
        self.token = token
        self.name = name
    }
}

/// How much a page may hold.
public struct FeedBounds: Hashable, Sendable {
    public var items: Int
    /// Of names and bodies.
    public var bytes: Int
    /// Whether one item is handed out also if it is larger: else a reading of large items would never end.
    public var admitsOneLarger: Bool

    public init(items: Int, bytes: Int, admitsOneLarger: Bool = true) {
        self.items = items
        self.bytes = bytes
        self.admitsOneLarger = admitsOneLarger
    }

    /// The largest page.
    public static let page = FeedBounds(items: 4096, bytes: 2 << 20)

    /// Rows that are looked at; deletions that a listing leaves out are among them.
    var rows: Int { items < Int.max / 2 ? items + Self.omittedMax : .max }
    private static let omittedMax = 1024
}

/// What is said of a page beside its items.
public struct FeedPage: Hashable, Sendable {
    /// The head of the state that it was read from.
    public var head: ScopeHead
    /// Everything was asked for, and deletions from before that are left out.
    public var isListing: Bool
    /// Nothing of the scope was written since the reading began.
    public var isUnmoved: Bool
    /// With this one the reader has the state at ``head``.
    public var isLast: Bool
    /// Where the next one begins; nil also where not even one item was within the bounds.
    public var next: FeedPlace?
    /// How far the history that the reader knows and this one are the same:
    /// what it holds from after that may have been lost with an old copy.
    public var commonEnd: UInt64
    /// For a reader that knows no history yet, with the last page: the epochs before this one (``FeedReader/partings(in:)``).
    public var epochs: [ChangeToken] = []
}

extension FeedReader {
    /// Hands out the next items of a reading, in the order of (sequence, name).
    ///
    /// An item that changes again moves to the head, where the reading meets it
    /// once more. So whoever keeps the newest state of each item has, after the
    /// last page, the state at that page's head, whatever was written between.
    ///
    /// - Returns: The page without its items.
    /// - Throws: ``CloudError`` `.changeTokenExpired`: the token is of another
    ///   history or of a future that was lost, or deletions that the reader has
    ///   not seen are forgotten. Read from sequence 0, and keep what was not sent.
    public func page(
        _ query: FeedQuery, within bounds: FeedBounds = .page, _ item: (FeedItem) throws -> Void
    ) throws -> FeedPage {
        let partition = query.scope.partition
        let head = try head(query.scope)
        let isListing = query.after.sequence == 0
        let start = query.place?.start ?? (isListing ? head.token : query.after)
        try check(query, from: start, head)

        var last: (sequence: UInt64, name: ItemName)?
        var isLast = true
        var (rows, items, bytes) = (0, 0, 0)
        func take(_ row: FeedRow) throws -> Bool {
            let size = row.name.utf8.count + row.bodyBytes
            let isOmitted = isListing && row.deleted && row.sequence <= start.sequence
            let hasRoom = bytes + size <= bounds.bytes || items == 0 && bounds.admitsOneLarger
            guard rows < bounds.rows, isOmitted || items < bounds.items && hasRoom else {
                isLast = false
                return false
            }
            rows += 1
            last = (row.sequence, row.name)
            guard !isOmitted else { return true }
            items += 1
            bytes += size
            try item(try row.item)
            return true
        }
        try self.rows(query.scope, after: query.place?.token.sequence ?? query.after.sequence, query.place?.name, take)
        var next: FeedPlace?
        if !isLast, let last {
            next = FeedPlace(start: start, token: try token(last.sequence, in: partition), name: last.name)
        }
        return FeedPage(
            head: head, isListing: isListing, isUnmoved: start == head.token, isLast: isLast, next: next,
            commonEnd: Self.commonEnd(
                try judge(query.known, after: query.epochs, in: partition), of: query.known, head: head),
            epochs: isLast && query.known.sequence == 0 ? try partings(in: partition) : [])
    }

    private func check(_ query: FeedQuery, from start: ChangeToken, _ head: ScopeHead) throws {
        let partition = query.scope.partition
        guard query.after.sequence > 0 || query.place != nil else { return }
        // A partition's token may be used too, which can be ahead of the scope's own.
        let newest = try position(ofPartition: partition).sequence
        // Of the place's own sequence only a part may have been read.
        let place = query.place?.token ?? start
        let read =
            query.place == nil ? start.sequence : max(start.sequence, place.sequence == 0 ? 0 : place.sequence - 1)
        var isOfThisHistory = start.epoch == head.token.epoch && place.epoch == head.token.epoch
        if query.after.sequence > 0, query.after.epoch != head.token.epoch { isOfThisHistory = false }
        for token in [query.after, start, place] where token.sequence > 0 {
            if case .lost = try judge(token, in: partition) { isOfThisHistory = false }
        }
        guard isOfThisHistory, read >= head.floor, max(query.after.sequence, start.sequence, place.sequence) <= newest
        else {
            throw CloudError(
                .changeTokenExpired, "The change token has expired. Fetch everything; keep what was not sent.",
                details: ["token": "\(query.after)", "head": "\(head.token)", "floor": "\(head.floor)"])
        }
    }

    /// - Parameter token: The reader's place. Beyond it, it can hold what it was told was stored (its own pushes).
    private static func commonEnd(_ standing: TokenStanding, of token: ChangeToken, head: ScopeHead) -> UInt64 {
        switch standing {
        case .past: token.sequence
        // Where that cannot be said: of deletions after the floor there are tombstones, so that what was deleted is not
        // taken back.
        case .lost(let since, _): since ?? head.floor
        // A reader that does not say where it stood is taken to have followed this history as far as it is one.
        case .unknown: token.sequence > 0 ? min(head.epochStart, token.sequence) : head.epochStart
        }
    }
}
