public import Bus
public import Core
public import Storage
public import Wire

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
    /// Called on the loop when the host closes: closes the sockets that the service opened by itself.
    func stop()
    /// Called with an event of a service that it follows, in a transaction that
    /// also moves the cursor. Must be harmless when called twice with one event.
    func handle(_ event: WireEvent, in transaction: any HandlerTransaction) throws
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
    public func stop() {}
    public func handle(_ event: WireEvent, in transaction: any HandlerTransaction) throws {}
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
    var roster: Roster { get }
    var secrets: ServiceSecrets { get }
    /// Runs the body in the next group's transaction, as if it were a request.
    func submit(_ body: @escaping (any HandlerTransaction) throws -> Void)
    /// Calls another service's method, as this service.
    func call(
        _ service: ServiceName, _ method: String, body: Frame, causeID: OperationID?,
        then completion: @escaping (Result<Frame, CloudError>) -> Void)
    /// Verifies a token for sockets that the service serves by itself.
    func verify(accessToken: String, of peer: Peer) throws(CloudError) -> Caller
    /// From now on the device's requests are refused with `.deviceRevoked`.
    func revoke(_ device: DeviceID)
    /// Adds to a counter that `CheckHealth` and the metrics report.
    func count(_ counter: String, by amount: Int)
}
