public import NephosBus
public import NephosCore

/// A store's progress, and why changes are pending.
public struct StoreStatus: Sendable {
    /// A pending write, and its reason.
    public struct Pending: Sendable {
        /// The write's state.
        public enum State: String, Codable, Sendable {
            /// Will be sent as soon as its precondition holds.
            case waiting
            /// Sent; the answer is on its way.
            case inFlight
            /// Held back so that the budget lasts.
            case deferred
            /// Waits for a user's or operator's action.
            case blocked
        }

        /// The id of the request, which its retries keep.
        public var id: OperationID
        /// Its place among all that waits in this home: that stays, where what was refused goes on under another id.
        package var position: Int64
        /// The keys that it writes, all or none.
        public var keys: [ItemName]
        /// The write's state.
        public var state: State
        /// The reason: a constant sentence.
        public var reason: String
        /// The party that must act before it can continue.
        public var blocker: Blocker
        /// Number of attempts.
        public var attempts: Int
        /// The time of the next attempt, by this device's clock; nil: as soon as possible.
        public var nextAttempt: Timestamp?
        /// When it was written, by this device's clock.
        public var since: Timestamp
        /// The error of the last attempt; nil: none yet.
        public var error: CloudError?
    }

    /// Unsent changes for another scope than the app has now. They are not sent until the user decides about them.
    public struct LeftBehind: Sendable {
        /// The id of the store that the app had then.
        public var place: String
        /// The names that they write.
        public var names: [ItemName]
        /// When the oldest was written, by this device's clock.
        public var since: Timestamp
    }

    /// The first download has finished.
    public var initialSyncFinished: Bool
    /// This device's place in the store's feed.
    public var head: ChangeToken
    /// The digest of this device's copy of the server's content; equal digests mean equal content.
    public var digest: SetDigest
    /// Pending writes, the oldest first; at most 1000.
    public var pending: [Pending]
    /// Writes that the server rejected. Each stays until it is dismissed (``KeyValueStore/dismissRefused(_:)``) or its
    /// key is written again.
    public var refused: [RefusedWrite]
    /// The error that prevents the store as a whole from being current; nil: none.
    public var problem: CloudError?
    /// At the last comparison by digest, the content equalled the server's.
    public var agrees: Bool
    /// The remaining write budget, by the last reply.
    public var budget: Budget?
    /// Whether changes by other devices arrive at once.
    public var isFollowing: Bool
    /// Why they do not; nil: they do, or it is not known yet. Until they do, the copy is as current as the last fetch.
    public var followingProblem: CloudError?
    /// Pending changes for places that the app no longer has.
    public var leftBehind: [LeftBehind] = []
    /// Chunks of documents' contents and of records' assets that the server can no longer read. This does not affect
    /// the sync of the items themselves.
    public var damagedChunkCount = 0
    /// The server reports that all of its contents are missing: only its operator can restore them.
    public var isContentMissing = false
    /// When this device's copy last equalled the server's, by this device's clock; nil: never.
    public var fetched: Timestamp?

    /// No change is pending, nothing is known to be missing, no rejected write is listed, and the content equals the
    /// server's.
    public var isInSync: Bool {
        initialSyncFinished && pending.isEmpty && problem == nil && refused.isEmpty && agrees && leftBehind.isEmpty
    }
}
