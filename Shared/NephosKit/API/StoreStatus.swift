public import Bus
public import Core

/// Where a store stands, and why anything in it waits.
public struct StoreStatus: Sendable {
    /// A write that waits, and why.
    public struct Pending: Sendable {
        public enum State: String, Sendable {
            /// Will be sent as soon as what it waits for is there.
            case waiting
            /// Sent; the answer is on its way.
            case inFlight
            /// Held back so that the budget lasts.
            case deferred
            /// Waits for a person.
            case blocked
        }

        public var id: OperationID
        public var keys: [ItemName]
        public var state: State
        /// A constant sentence.
        public var reason: String
        public var blocker: Blocker
        public var attempts: Int
        public var nextAttempt: Timestamp?
        public var since: Timestamp
        public var error: CloudError?
    }

    /// The first download has finished.
    public var initialSyncFinished: Bool
    public var head: ChangeToken
    public var digest: SetDigest
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

    /// Nothing waits, nothing is known to be missing, nothing was refused that nobody has dismissed, and the content
    /// is the server's.
    public var isInSync: Bool {
        initialSyncFinished && pending.isEmpty && problem == nil && refused.isEmpty && agrees
    }
}
