public import NephosBus
public import NephosCore
public import NephosStorage

/// One of the five services, as its library hands it to the ``ServiceHost``.
///
/// Not `Sendable`: made on the service's loop and used only there.
public protocol CloudService: AnyObject {
    var name: ServiceName { get }
    /// The service's own tables. The host adds the feed's.
    var migrations: [Migration] { get }
    /// Fills the table of methods.
    func register(on router: inout Router)
    /// Which services' events it follows.
    var follows: [Following] { get }
    /// Whether followers that catch up get the feed's items with their bodies.
    /// Only identity's are meant for everyone on the roster.
    var eventsCarryItems: Bool { get }
    /// Called on the loop once storage is open, before the first request.
    func start(_ host: any ServiceRuntime) throws
    /// Called on the loop when the service will stop, once what it has been asked is answered: it takes nothing new at
    /// sockets of its own, and tells those who wait for news.
    func stopsSoon()
    /// Called on the loop when the host closes: closes the sockets that the service opened by itself.
    func stop()
    /// How the caller reads the scope, and follows it, if it may: of its own account, of another, of an app.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, alike for a scope that the caller may not read and one that does
    ///   not exist.
    func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter
    /// What a scope is called in the log.
    var scopeKind: String { get }
    /// Moves an item to the quarantine that does not open (``HandlerTransaction/quarantine(_:of:)``), and takes it out of
    /// what lies beside the items by where each lies, and by what it counts.
    func quarantine(_ item: FeedItem, of scope: ScopeName, in transaction: any HandlerTransaction) throws
    /// Removes some of what lies beside an item that was in quarantine for its time, and is not there again.
    ///
    /// - Returns: Whether there may be more; it is called again in a later group.
    func removeRemains(
        ofItem name: ItemName, in scope: ScopeName, _ transaction: any HandlerTransaction
    ) throws -> Bool
    /// What keeps the service from giving back what it has taken, though it takes requests: a sentence for the operator;
    /// nil: nothing does. It is not ready meanwhile.
    var impediment: String? { get }
    /// Adds to what the service tells in numbers: what there is now, or what is counted beside its loop.
    ///
    /// - Parameter done: To be called once, on any thread, with numbers by the names of the table of metrics.
    func measure(_ done: @escaping @Sendable ([String: Int]) -> Void)
    /// Called with an event of a service that it follows, in a transaction that
    /// also moves the cursor. Must be harmless when called twice with one event.
    /// Identity's directory comes as facts instead. What was missed comes as one event for each scope that has changed,
    /// with its head and without its changes.
    func handle(_ event: ServiceEvent, in transaction: any HandlerTransaction) throws
    /// Called with what identity has said, once that is stored and heeded at the gate.
    func learned(_ fact: DirectoryFact)
    /// What is stored for the account, of a service whose content does not
    /// count on the plan; nil: it counts, and the ledger knows.
    func uncountedUsage(
        of account: AccountID, in transaction: any HandlerTransaction
    ) throws -> [StorageLedger.Usage]?
    /// Removes some of what the service's own tables hold of a closed account.
    /// Its key is destroyed already, and what the feed holds of it the host removes.
    ///
    /// - Returns: Whether there may be more; it is called again in a later group.
    func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool
    /// A followed service's history could not be followed without a hole (it
    /// was restored, or this database is new): what was learned from that
    /// partition before may be outdated. The events of its present state follow.
    func restartFollowing(_ service: ServiceName, partition: Int, in transaction: any HandlerTransaction) throws
}

extension CloudService {
    public var migrations: [Migration] { [] }
    public var follows: [Following] { [] }
    public var eventsCarryItems: Bool { name == .identity }
    public func start(_ host: any ServiceRuntime) throws {}
    public func stopsSoon() {}
    public func stop() {}
    public func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        throw CloudError(.missingEntitlement, "The app has no such scope.")
    }
    public var scopeKind: String { "scope" }
    public func quarantine(_ item: FeedItem, of scope: ScopeName, in transaction: any HandlerTransaction) throws {
        try transaction.quarantine(item, of: scope)
    }
    public func removeRemains(
        ofItem name: ItemName, in scope: ScopeName, _ transaction: any HandlerTransaction
    ) throws -> Bool { false }
    public var impediment: String? { nil }
    public func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) { done([:]) }
    public func handle(_ event: ServiceEvent, in transaction: any HandlerTransaction) throws {}
    public func learned(_ fact: DirectoryFact) {}
    public func uncountedUsage(
        of account: AccountID, in transaction: any HandlerTransaction
    ) throws -> [StorageLedger.Usage]? { nil }
    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool { false }
    public func restartFollowing(
        _ service: ServiceName, partition: Int, in transaction: any HandlerTransaction
    ) throws {}
}

/// A service that another one follows.
public struct Following: Hashable, Sendable {
    public var service: ServiceName
    /// How long applied events may stay without a durable cursor: zero commits
    /// each batch at once. Events after the cursor come again after a crash.
    public var cursorDelay: Duration

    public init(_ service: ServiceName, cursorDelay: Duration = .zero) {
        self.service = service
        self.cursorDelay = cursorDelay
    }
}

/// What the host offers to a service. On the loop only.
public protocol ServiceRuntime: AnyObject {
    var loop: any BusLoop { get }
    /// The time by which old data is purged (``PurgeClock``), not the wall clock's. On any thread.
    var purgeTime: Timestamp { get }
    /// From when on the age of what is stored now counts, by ``purgeTime``. On any thread.
    var retentionStart: Timestamp { get }
    /// The time by which data is purged whose age counts from a time of the wall clock. On any thread.
    var purgeTimeOfWallStamps: Timestamp { get }
    var roster: Roster { get }
    var secrets: ServiceSecrets { get }
    /// What this service's sockets prove who it is with.
    var keys: KeyPair { get }
    /// What this service seals accounts' content with. The host destroys a closed account's key.
    var ownerKeys: OwnerKeys { get }
    /// What this service stores for each owner of a plan, and how much it may.
    var storage: StorageLedger { get }
    /// Why a caller may not go on as it was let in; nil: it may. A request may have waited for its turn since. Whoever
    /// gives something that outlives the request asks when it does.
    func refusal(of caller: Caller) -> CloudError?
    /// Whether what an app has left for others in an account's scope is still given to them: the account is neither
    /// locked nor closed, and the app lists the scope. Asked whenever it is given.
    func serves(_ scope: ScopeName, to app: AppID) -> Bool
    /// What the operator has said that a container is.
    func definition(of container: ItemName) -> ContainerDefinition
    /// Where whoever has asked at the service's own door comes from; nil: that is not known.
    func address(of peer: Peer) -> String?
    /// Runs the body in the next group's transaction, as if it were a request.
    func submit(_ body: @escaping (any HandlerTransaction) throws -> Void)
    /// The same, and then calls the completion: with nil when the group is on disk, or with why nothing of this was
    /// stored. Not if the service is stopped before. A body may run twice: what it finds out it says anew each time.
    func submit(
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: @escaping (CloudError?) -> Void)
    /// Reads beside the loop, on any thread.
    var snapshots: any Snapshots { get }
    /// Something stored in the scope is damaged, as a reader of a snapshot has met it: what does not open is moved to the
    /// quarantine, and wrong digests are put right.
    func found(_ damage: ScopeDamage, in scope: ScopeName)
    /// Devices compare what they have of the scope with what it has now, though nothing has moved in it.
    func askToCompare(_ scope: ScopeName, in transaction: any HandlerTransaction) throws
    /// Calls another service's method, as this service.
    func call(
        _ service: ServiceName, _ method: String, body: Frame, causeID: OperationID?,
        then completion: @escaping (Result<Frame, CloudError>) -> Void)
    /// Opens another socket of the service, behind the same gate, with methods of its own.
    ///
    /// - Parameters:
    ///   - options: With the service's ``keys``.
    ///   - router: Its methods need no storage (``Router/direct(_:access:bytesMax:_:)``).
    ///   - welcome: Called with each connection that is new.
    /// - Returns: The socket, for what is sent without being asked for.
    func openDoor(
        _ options: ReplySocketOptions, _ router: Router, welcome: @escaping (Peer) -> Void
    ) throws -> any ReplySocket
    /// Begins to close an account in this service; in the others the event does.
    func closeAccount(_ account: AccountID, in transaction: any HandlerTransaction) throws
    /// Adds to a counter that `CheckHealth` and the metrics report.
    func count(_ counter: String, by amount: Int)
    /// Sets one of these to what there is now, where it may become less.
    func set(_ counter: String, to amount: Int)
    /// Tells the operator, in the log, of something that is wrong.
    ///
    /// - Parameters:
    ///   - message: A constant sentence.
    ///   - details: No content of a person's.
    func report(_ message: String, details: [String: String])
}
