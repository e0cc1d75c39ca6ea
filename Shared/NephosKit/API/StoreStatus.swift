public import NephosBus
public import NephosCore

/// Where a store stands, and why anything in it waits.
public struct StoreStatus: Sendable {
    /// A write that waits, and why.
    public struct Pending: Sendable {
        /// How far it is.
        public enum State: String, Codable, Sendable {
            /// Will be sent as soon as what it waits for is there.
            case waiting
            /// Sent; the answer is on its way.
            case inFlight
            /// Held back so that the budget lasts.
            case deferred
            /// Waits for a person.
            case blocked
        }

        /// The request's, under which it is repeated.
        public var id: OperationID
        /// Its place among all that waits in this home: that stays, where what was refused goes on under another id.
        package var position: Int64
        /// What it writes, all or none.
        public var keys: [ItemName]
        /// How far it is.
        public var state: State
        /// A constant sentence.
        public var reason: String
        /// Who has to do something before it can go on.
        public var blocker: Blocker
        /// How often it was sent.
        public var attempts: Int
        /// When it is tried again, by this device's clock; nil: as soon as it can be.
        public var nextAttempt: Timestamp?
        /// When it was written, by this device's clock.
        public var since: Timestamp
        /// What came of the last attempt; nil: nothing yet.
        public var error: CloudError?
    }

    /// Changes that were written for another scope than the app has now, and never sent. Nothing sends them until
    /// somebody decides what becomes of them.
    public struct LeftBehind: Sendable {
        /// What the app had then: a store's id.
        public var place: String
        /// What they write.
        public var names: [ItemName]
        /// When the oldest was written, by this device's clock.
        public var since: Timestamp
    }

    /// The first download has finished.
    public var initialSyncFinished: Bool
    /// This device's place in the store's feed.
    public var head: ChangeToken
    /// Of what this device has from the server; equal digests mean equal content.
    public var digest: SetDigest
    /// Writes that wait, the oldest first; at most 1000 of them.
    public var pending: [Pending]
    /// Writes that the server refused. Each stays until it is dismissed (``KeyValueStore/dismissRefused(_:)``) or its
    /// key is written again.
    public var refused: [RefusedWrite]
    /// What keeps the store as a whole from being current; nil: nothing.
    public var problem: CloudError?
    /// The content was compared with the server's, by digest, and was the same.
    public var agrees: Bool
    /// What is left of the write budget, by the last reply.
    public var budget: Budget?
    /// Whether changes by other devices arrive at once.
    public var isFollowing: Bool
    /// Why they do not; nil: they do, or it is not known yet. What is fetched is as current as the last look.
    public var followingProblem: CloudError?
    /// What waits in places that the app no longer has.
    public var leftBehind: [LeftBehind] = []
    /// Chunks of which the server has said that it cannot read them any more: of contents of documents, and of assets of
    /// records. The items themselves are in sync all the same.
    public var damagedChunkCount = 0
    /// The server has said that it finds none of its contents: only its operator can bring them back.
    public var isContentMissing = false
    /// When this device's copy last was the server's, by this device's clock; nil: never.
    public var fetched: Timestamp?

    /// Nothing waits, nothing is known to be missing, nothing was refused that nobody has dismissed, and the content
    /// is the server's.
    public var isInSync: Bool {
        initialSyncFinished && pending.isEmpty && problem == nil && refused.isEmpty && agrees && leftBehind.isEmpty
    }
}
