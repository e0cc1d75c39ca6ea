public import NephosBus
public import NephosCore
public import NephosStorage
public import SwiftProtobuf

/// Who may call a method.
public enum Access: Sendable {
    /// Anyone who completes the CURVE handshake.
    case anyone
    /// A device with a valid access token, bound to the connection's key.
    case device
    /// The same, and whoever has an access token without an account (``Caller/appToken``).
    case publicReader
    /// A device with a valid access token for its own account, or the operator for a named one.
    case account
    /// A device with a valid access token, for its own account, or a service on the roster or the operator, for any; and
    /// whoever has an access token without an account.
    case reader
    /// A connection with the operator's key.
    case operatorOnly
    /// A connection with the key of a service on the roster, or the operator's.
    case service

    /// Whether whoever has no account is let in.
    var admitsPublic: Bool { self == .publicReader || self == .reader }
}

/// What a handler knows of its request besides the body.
public struct RequestContext: Sendable {
    public var id: OperationID
    public var causeID: OperationID?
    public var peer: Peer
    /// Set when the method's access is ``Access/device``, or ``Access/account`` or ``Access/reader`` and it is neither
    /// the operator nor a service who calls.
    public var caller: Caller?
    /// The server's wall clock when the group began.
    public var now: Timestamp
    /// What is asked for; of methods that change something.
    public var fingerprint: RequestFingerprint

    public init(
        id: OperationID, causeID: OperationID?, peer: Peer, caller: Caller?, now: Timestamp,
        fingerprint: RequestFingerprint = .none
    ) {
        self.fingerprint = fingerprint
        self.id = id
        self.causeID = causeID
        self.peer = peer
        self.caller = caller
        self.now = now
    }

    /// Whom a reply is stored for.
    var principal: String { caller?.device.rawValue ?? peer.publicKey.z85 }

    /// The caller of a ``Access/device`` method.
    ///
    /// - Throws: ``CloudError`` `.notAuthenticated` if there is none.
    public func requireCaller() throws(CloudError) -> Caller {
        guard let caller else { throw CloudError(.notAuthenticated, "The request carries no access token. Sign in.") }
        return caller
    }
}

/// What a verified access token says.
///
/// An object, because it goes along with every request, and copying it would
/// count references to each of its parts.
public final class Caller: Sendable {
    public let account: AccountID
    public let device: DeviceID
    public let app: AppID
    public let entitlements: Entitlements
    /// When the token ends, or the key that has signed it, as far as is known.
    public let expires: Timestamp
    /// The key that has signed the token; empty: another service has looked at it.
    public let keyID: String
    /// It has no account, and sees what everyone may see of the one container that the entitlements have: which token of
    /// its app's has let it in. Then the account names the address that it came from, and the device its key: for budgets
    /// alone.
    public let appToken: String?
    /// Whether it has no account.
    public var isPublic: Bool { appToken != nil }
    /// Whether it may do less than its app: it has no account, or has signed in with an app password.
    public let isNarrow: Bool

    public init(
        account: AccountID, device: DeviceID, app: AppID, entitlements: Entitlements, expires: Timestamp,
        keyID: String, appToken: String? = nil, isNarrow: Bool = false
    ) {
        self.appToken = appToken
        self.isNarrow = isNarrow || appToken != nil
        self.keyID = keyID
        self.account = account
        self.device = device
        self.app = app
        self.entitlements = entitlements
        self.expires = expires
    }
}

/// How a read goes on that may be large.
public enum BulkStep<Plan: Sendable> {
    /// It was small.
    case done(Frame)
    /// This is read from a snapshot.
    case read(Plan)
}

/// A group's transaction as handlers see it: the feed, and the events to
/// publish once the group is on disk.
public protocol HandlerTransaction: FeedTransaction {
    /// Whether the disk is full: only what makes room may be written.
    var isShortOfRoom: Bool { get }
    /// Charges the caller for work that is not seen in rows read and written, as if it were so many.
    func charge(rows: Int)
    /// Notes that so many bytes more are stored for owners of plans; below zero: less.
    func noteStored(_ bytes: Int64)
    /// Publishes after the commit, before the reply; dropped if the group is rolled back.
    func publish(_ event: OutgoingEvent)
    /// Publishes after the group, also when this request then fails: for an
    /// event that stores nothing (a refusal that the device is told of).
    func publishRegardless(_ event: OutgoingEvent)
    /// Runs the action once the group is on disk, before its replies go out; dropped if it is rolled back.
    /// What a service keeps in memory of its tables changes here alone, or what was undone would stay in force.
    func afterCommit(_ action: @escaping () -> Void)
    /// Moves an item whose row does not open to the quarantine: it is not in its scope any more. Nothing moves in the feed;
    /// once the group is on disk the host says in the log that it was moved, and devices compare. It stays moved though the
    /// request fails that has met it.
    func quarantine(_ item: FeedItem, of scope: ScopeName) throws
    /// Whether an item that is not there is in quarantine: what the service keeps beside an item is there still.
    func isQuarantined(_ name: ItemName, of scope: ScopeName) throws -> Bool
}

/// An event of this service, before the host fills in its name.
public struct OutgoingEvent: Sendable {
    public var scope: ScopeName
    public var partition: Int
    public var position: ChangeToken
    public var previousSequence: UInt64
    /// An encoded `Notification`.
    public var notification: Frame
    /// The request that it comes from; nil: the service's own work. The host fills it in.
    var causeID: OperationID?

    /// What one request has changed in a scope.
    public init(_ change: ScopeChange, notification: Frame) {
        scope = change.scope
        partition = change.partition
        position = change.token
        previousSequence = change.previousPartitionSequence
        self.notification = notification
    }

    /// What stores nothing: the partition stays where it is.
    public init(in scope: ScopeName, at position: ChangeToken, notification: Frame) {
        self.scope = scope
        partition = scope.partition
        self.position = position
        previousSequence = position.sequence
        self.notification = notification
    }
}

/// The table of a service: message -> handler.
///
/// A method's name is its message's name (`PushKeys`), and a handler is a
/// synchronous function of a request and the group's transaction. It checks and
/// decides before its first write; when it throws before writing anything, only
/// its own request fails, otherwise the host rolls the group back and runs its
/// requests one by one.
public struct Router {
    /// How long an operation id is remembered; an older one is refused.
    public static let operationRetention: Duration = .seconds(24 * 3600)

    typealias Run = (Frame, RequestContext, any HandlerTransaction) throws -> Frame

    /// Answers when it can, and needs no storage.
    typealias Direct = (Frame, RequestContext, @escaping DirectAnswer<Frame>) throws -> Void

    /// Long work between two transactions. The host runs `begin` in a group, as
    /// a read; then, off the loop, what it returned; then `finish` in a later
    /// group, with what the work returned.
    struct Prepared {
        typealias Work = @Sendable () throws -> any Sendable
        var begin: (Frame, RequestContext, any HandlerTransaction) throws -> Work
        var finish: (any Sendable, RequestContext, any HandlerTransaction) throws -> Frame
    }

    /// A read that may be large. The host runs `begin` in a group; if that does
    /// not answer, what it returned reads a snapshot off the loop, of the same
    /// or a later state; and the last part is run on the loop again.
    struct Bulk {
        struct Reading {
            var read: @Sendable (FeedSnapshot) throws -> any Sendable
            var finish: (any Sendable) throws -> Frame
        }

        enum Step {
            case done(Frame)
            case read(Reading)
        }

        var begin: (Frame, RequestContext, any HandlerTransaction) throws -> Step
    }

    /// How a method is carried out.
    enum Way {
        /// Within a group, as a whole.
        case inGroup(Run)
        case direct(Direct)
        case prepared(Prepared)
        case bulk(Bulk)
    }

    /// An object: every request holds its own.
    final class Method {
        let name: String
        let access: Access
        let mutates: Bool
        /// Whether the reply is stored under the operation id. False only where it
        /// holds a secret; the handler then recognises repeats by itself.
        let remembersReply: Bool
        /// Whether an operation id that is too old or too far ahead is refused.
        let idsAge: Bool
        let bytesMax: Int
        /// What is taken from the caller's budget before it runs, in calls; what it did not cost is given back.
        let reserves: Int
        /// Rows that a body will read and write at least; nil: few.
        let rows: ((Frame) -> Int)?
        /// Whether it is carried out while the disk is full.
        let makesRoom: Bool
        let way: Way
        let isBulk: Bool
        let isPrepared: Bool
        let isDirect: Bool
        let figures = MethodFigures()

        init(
            name: String, access: Access, mutates: Bool, remembersReply: Bool, idsAge: Bool, bytesMax: Int,
            reserves: Int, makesRoom: Bool, rows: ((Frame) -> Int)?, way: Way
        ) {
            self.name = name
            self.access = access
            self.mutates = mutates
            self.remembersReply = remembersReply
            self.idsAge = idsAge
            self.bytesMax = bytesMax
            self.reserves = reserves
            self.makesRoom = makesRoom
            self.rows = rows
            self.way = way
            isBulk = if case .bulk = way { true } else { false }
            isPrepared = if case .prepared = way { true } else { false }
            isDirect = if case .direct = way { true } else { false }
        }
    }

    private(set) var methods: [String: Method] = [:]
    /// Bytes of a method's name, at most.
    static let nameBytesMax = 64

    public init() {}

    /// A method that reads.
    ///
    /// - Parameter reserves: What it may cost, in calls (``RequestCost``), where
    ///   that is much: so that nobody has more of them carried out at once than
    ///   the budget pays for.
    /// - Parameter rows: How many rows a body may read, by a look at it, as for
    ///   ``write(_:access:bytesMax:remembersReply:idsAge:makesRoom:rows:decoding:encoding:)``.
    public mutating func read<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, reserves: Int = 1,
        rows: ((Frame) -> Int)? = nil,
        _ handler: @escaping (Request, RequestContext, any HandlerTransaction) throws -> Response
    ) {
        add(
            request, access: access, mutates: false, remembersReply: false, bytesMax: bytesMax, reserves: reserves,
            rows: rows, .inGroup { Frame(encoding: try handler($0.decode(Request.self), $1, $2)) })
    }

    /// The same for a handler that encodes its reply itself.
    public mutating func read<Request: SwiftProtobuf.Message>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, reserves: Int = 1,
        encoding handler: @escaping (Request, RequestContext, any HandlerTransaction) throws -> Frame
    ) {
        add(
            request, access: access, mutates: false, remembersReply: false, bytesMax: bytesMax, reserves: reserves,
            .inGroup { try handler($0.decode(Request.self), $1, $2) })
    }

    /// A method that reads, and may read much: it does so off the loop, from a
    /// snapshot, which it cannot write to. No reader makes the loop wait, and
    /// what its connection sends meanwhile waits for it.
    ///
    /// - Parameters:
    ///   - reserves: As for ``read(_:access:bytesMax:reserves:_:)``.
    ///   - begin: Runs in a group: checks what the caller may, and answers if that is quickly done.
    ///   - read: Reads, of the state in which `begin` ran or a later one.
    ///   - finish: Answers, on the loop.
    public mutating func bulk<Request: SwiftProtobuf.Message, Plan: Sendable, Output: Sendable>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, reserves: Int = 1,
        begin: @escaping (Request, RequestContext, any HandlerTransaction) throws -> BulkStep<Plan>,
        read: @escaping @Sendable (Plan, any FeedReader) throws -> Output,
        finish: @escaping (Output) throws -> Frame
    ) {
        add(
            request, access: access, mutates: false, remembersReply: false, bytesMax: bytesMax, reserves: reserves,
            .bulk(
                Bulk { frame, context, transaction in
                    switch try begin(frame.decode(Request.self), context, transaction) {
                    case .done(let reply): return .done(reply)
                    case .read(let plan):
                        return .read(
                            Bulk.Reading(
                                read: { try read(plan, $0) },
                                finish: { output in
                                    guard let output = output as? Output else {
                                        throw CloudError(.internalError, "A bulk read returned another type.")
                                    }
                                    return try finish(output)
                                }))
                    }
                }))
    }

    /// A method that needs no storage: what it says is in memory, or is asked for elsewhere.
    ///
    /// - Parameter handler: Calls its last argument once, at once or later.
    public mutating func direct<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10,
        _ handler: @escaping (Request, RequestContext, @escaping DirectAnswer<Response>) throws -> Void
    ) {
        add(
            request, access: access, mutates: false, remembersReply: false, bytesMax: bytesMax,
            .direct { frame, context, answer in
                try handler(frame.decode(Request.self), context) { result, rows in
                    answer(result.map { Frame(encoding: $0) }, rows)
                }
            })
    }

    /// How a direct method answers: with what it cost elsewhere, as if it were rows.
    public typealias DirectAnswer<Response> = (_ result: Result<Response, CloudError>, _ rows: Int) -> Void

    /// A method that changes something. Its reply is remembered under the
    /// operation id, so that a repeat gets the first reply.
    ///
    /// - Parameter remembersReply: False where the reply holds a secret that must
    ///   not lie on disk; then the handler itself answers a repeat like the first call.
    /// - Parameter idsAge: False where the handler knows a repeat however late it comes, and a device may have slept
    ///   for weeks over it.
    /// - Parameter makesRoom: Whether it is carried out while the disk is full: it
    ///   removes something, or whoever wants to remove something needs it.
    public mutating func write<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, remembersReply: Bool = true,
        idsAge: Bool = true, makesRoom: Bool = false,
        _ handler: @escaping (Request, RequestContext, any HandlerTransaction) throws -> Response
    ) {
        add(
            request, access: access, mutates: true, remembersReply: remembersReply, idsAge: idsAge, bytesMax: bytesMax,
            makesRoom: makesRoom, .inGroup { Frame(encoding: try handler($0.decode(Request.self), $1, $2)) })
    }

    /// The same for a handler that decodes its request and encodes its reply itself.
    ///
    /// - Parameter rows: How many rows a body will read and write at least, by a look at it: they are paid for
    ///   beforehand, and who has many of them waits behind smaller requests.
    public mutating func write<Request: SwiftProtobuf.Message, Decoded>(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, remembersReply: Bool = true,
        idsAge: Bool = true, makesRoom: Bool = false, rows: ((Frame) -> Int)? = nil,
        decoding decode: @escaping (Frame) throws -> Decoded,
        encoding handler: @escaping (Decoded, RequestContext, any HandlerTransaction) throws -> Frame
    ) {
        add(
            request, access: access, mutates: true, remembersReply: remembersReply, idsAge: idsAge, bytesMax: bytesMax,
            makesRoom: makesRoom, rows: rows, .inGroup { try handler(decode($0), $1, $2) })
    }

    /// A method with long work (password hashing) between reading and writing.
    ///
    /// What the work needs must be read before it, and may have changed after
    /// it: `finish` checks again whatever its decision rests on.
    ///
    /// - Parameters:
    ///   - remembersReply: As for ``write(_:access:bytesMax:remembersReply:_:)``.
    ///   - begin: Reads, in a transaction. When it throws, the request fails and nothing else runs.
    ///   - work: Runs off the loop.
    ///   - finish: Checks, writes and answers, in a later transaction.
    public mutating func prepared<
        Request: SwiftProtobuf.Message, Input: Sendable, Output: Sendable, Response: SwiftProtobuf.Message
    >(
        _ request: Request.Type, access: Access = .device, bytesMax: Int = 64 << 10, remembersReply: Bool = true,
        idsAge: Bool = true, makesRoom: Bool = false,
        begin: @escaping (Request, RequestContext, any HandlerTransaction) throws -> Input,
        work: @escaping @Sendable (Request, Input) throws -> Output,
        finish: @escaping (Request, Output, RequestContext, any HandlerTransaction) throws -> Response
    ) {
        add(
            request, access: access, mutates: true, remembersReply: remembersReply, idsAge: idsAge, bytesMax: bytesMax,
            makesRoom: makesRoom,
            .prepared(
                Prepared(
                    begin: { frame, context, transaction in
                        let message = try frame.decode(Request.self)
                        let input = try begin(message, context, transaction)
                        return { (message, try work(message, input)) }
                    },
                    finish: { result, context, transaction in
                        guard let (message, output) = result as? (Request, Output) else {
                            throw CloudError(.internalError, "The work of a prepared method returned another type.")
                        }
                        return Frame(encoding: try finish(message, output, context, transaction))
                    })))
    }

    private mutating func add<Request: SwiftProtobuf.Message>(
        _ request: Request.Type, access: Access, mutates: Bool, remembersReply: Bool, idsAge: Bool = true,
        bytesMax: Int, reserves: Int = 1, makesRoom: Bool = false, rows: ((Frame) -> Int)? = nil,
        _ way: Way
    ) {
        let name = Self.name(of: request)
        precondition(name.utf8.count <= Self.nameBytesMax, "A longer name is never looked up.")
        methods[name] = Method(
            name: name, access: access, mutates: mutates, remembersReply: remembersReply, idsAge: idsAge,
            bytesMax: bytesMax, reserves: reserves, makesRoom: makesRoom, rows: rows, way: way)
    }

    private static func name<Request: SwiftProtobuf.Message>(of request: Request.Type) -> String {
        // "nephos.PushKeys" -> "PushKeys"
        String(Request.protoMessageName.split(separator: ".").last ?? "")
    }
}
