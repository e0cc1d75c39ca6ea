public import Core
public import Wire

/// A key-value store as this device keeps it: whose, and which.
public struct StoreScope: Hashable, Sendable {
    /// Nil: what was written while nobody was signed in.
    public var account: AccountID?
    public var store: StoreID

    public init(account: AccountID?, store: StoreID) {
        self.account = account
        self.store = store
    }

    /// The area of an app's content written while signed out. An app's store id
    /// is only known from the server, so the app's own id stands in.
    public static func signedOut(app: AppID) -> StoreScope {
        StoreScope(account: nil, store: StoreID(provisionalPrefix + app.rawValue))
    }

    private static let provisionalPrefix = "app:"

    /// The app whose writes wait under its own name, since the server has not told its store.
    static func provisionalApp(of store: String) -> String? {
        store.hasPrefix(provisionalPrefix) ? String(store.dropFirst(provisionalPrefix.count)) : nil
    }
}

/// How far a store's local copy has come.
struct StoreState {
    var head = ChangeToken.zero
    var digest = SetDigest.empty
    var digestKey: [UInt8] = []
    /// Whether the first pull has finished.
    var synced = false
    var limits = KeyValueLimits.standard
}

/// A write that waits for the server.
public struct PendingOperation: Sendable {
    public enum State: String, Sendable {
        /// Never sent: may still be coalesced with later writes.
        case unsent
        /// Sent at least once under its id, which is frozen with its content.
        case sent
        /// Refused for a reason that only a person can remove.
        case blocked
    }

    public var position: Int64
    public var id: OperationID
    /// The store's head when it was first sent under this id; goes with it, since a repeat is the same to the byte.
    public var head: ChangeToken
    public var state: State
    /// Names the process that wrote it.
    public var writer: Int64
    public var created: Timestamp
    /// How often it was sent, as far as that is known: a process may end before it knows.
    public var attempts: Int
    /// Not before this; 0: at once.
    public var nextAttempt: Timestamp
    public var error: CloudError?
    /// The keys' new states; their sequences are 0.
    public var writes: [KeyValueItem]
    /// While it is on its way: nothing can have been sent under its id before.
    var isFirst = false
    /// While it is on its way: ``attempts`` has it.
    var isCounted = false
}
