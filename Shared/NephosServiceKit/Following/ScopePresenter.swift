public import NephosBus
public import NephosCore
public import NephosStorage
public import NephosWire

/// A scope as its readers get it: made in a group, used on any thread.
public protocol ScopePresenter: Sendable {
    /// Who may read the scope like the reader that it was made for; see ``ScopeAudience``.
    var audience: ScopeAudience { get }

    /// Mixed into each item's hash; empty: nothing was written yet, or the service keeps none.
    var digestKey: [UInt8] { get }

    /// What seals where a page has ended. Whoever shows nothing of some items (``ItemShowing``) has one; nil: readers may
    /// know of all.
    var placeSeal: PlaceSeal? { get }

    /// Writes the item's state as readers get it, the fields of a message.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem

    /// What the service says of the scope besides: an encoded message.
    func info(_ head: ScopeHead) throws -> [UInt8]
}

/// For whom it holds that a reader may read a scope.
///
/// Until the service publishes a change of the scope with `access_changed`, others of them are not asked about again.
public enum ScopeAudience: Sendable {
    /// The reader's account, with its app.
    case reader
    /// Every account that has the app: a public database.
    case app
}

extension ScopePresenter {
    public var placeSeal: PlaceSeal? { nil }
    public var audience: ScopeAudience { .reader }
    public var digestKey: [UInt8] { [] }
    public func info(_ head: ScopeHead) throws -> [UInt8] { [] }
}

/// What was found when an item was written for its reader.
public struct PresentedItem: Hashable, Sendable {
    /// Its row does not open, and nothing was written.
    public var isUnreadable: Bool
    /// The item's share in the scope's digest, as its content makes it; nil: nobody looked.
    public var digest: SetDigest?

    public init(isUnreadable: Bool = false, digest: SetDigest? = nil) {
        self.isUnreadable = isUnreadable
        self.digest = digest
    }
}

/// What is wrong with what is stored in a scope, found by reading it.
public struct ScopeDamage: Sendable {
    /// Items whose rows do not open.
    public var items: [FeedItem] = []
    /// Items whose share in the digest is not what their content makes: with the share that it makes.
    var shares: [FeedItem] = []
    /// The scope's digest is not that of its items, or an item's not that of its content.
    var isOutOfStep = false

    public init(items: [FeedItem] = []) { self.items = items }

    var isNone: Bool { items.isEmpty && !isOutOfStep }
    var hasItems: Bool { !items.isEmpty || !shares.isEmpty }
}

/// What a snapshot has given, for its reader.
public struct SnapshotReply: Sendable {
    public var frame: Frame
    public var scope: ScopeName
    /// Items of the scope that do not open: for the reader they are not there.
    public var unreadable: [FeedItem]

    public init(_ frame: Frame, of scope: ScopeName, unreadable: [FeedItem]) {
        self.frame = frame
        self.scope = scope
        self.unreadable = unreadable
    }
}

extension ServiceRuntime {
    /// The frame; what does not open is moved to the quarantine.
    public func finish(_ reply: SnapshotReply) -> Frame {
        if !reply.unreadable.isEmpty { found(ScopeDamage(items: reply.unreadable), in: reply.scope) }
        return reply.frame
    }
}

/// Items as they are stored.
public struct StoredItems: ScopePresenter {
    public init() {}

    public func write(_ item: FeedItem, to body: inout FieldWriter) -> PresentedItem {
        body.append(encoded: item.body)
        return PresentedItem()
    }
}
