import Bus
import Core
import Storage
import SwiftProtobuf
import Wire

import struct Foundation.Data

@testable import IdentityService
@testable import ServiceKit

/// An identity service on a database in memory, called the way its host calls it:
/// each request a transaction, rolled back when it throws.
final class IdentityHouse {
    let service: IdentityService
    let runtime: StubRuntime
    let engine: SQLiteEngine
    /// What was published and committed.
    private(set) var events: [OutgoingEvent] = []
    var now = Timestamp(milliseconds: 1_700_000_000_000)
    private var router = Router()
    private var verifier: TokenVerifier
    private var random = SplitMix64(seed: 7)

    init(_ configuration: IdentityConfiguration = .cheapPasswords, engine: SQLiteEngine? = nil) throws {
        service = IdentityService(configuration: configuration)
        runtime = try StubRuntime()
        verifier = try TokenVerifier(roster: runtime.roster)
        self.engine = try engine ?? .inMemory()
        try self.engine.migrate(ChangeFeedSchema.migrations + AccountKeys.migrations + service.migrations)
        service.register(on: &router)
        try service.start(runtime)
        try runSubmitted()
    }

    func newKey() -> PublicKey {
        let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        return PublicKey(bytes: bytes) ?? runtime.operatorKey
    }

    func newOperation() -> OperationID { OperationID(at: now, using: &random) }

    /// Calls a method as a host does. With a token, as that device.
    func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ request: Request, by key: PublicKey, token: String? = nil, id: OperationID? = nil,
        beforeFinish: () throws -> Void = {}, replying: Reply.Type = Reply.self
    ) throws -> Reply {
        let name = String(Request.protoMessageName.split(separator: ".").last ?? "")
        guard let method = router.methods[name] else { throw CloudError(.unknownMethod, "No such method.") }
        let peer = Peer(connection: UInt64(key.bytes[0]) << 8 | UInt64(key.bytes[1]), publicKey: key)
        var caller: Caller?
        switch method.access {
        case .anyone: break
        case .account where token == nil && key == runtime.operatorKey: break
        case .device, .account: caller = try verifier.verify(token ?? "", of: peer, now: now)
        default:
            guard key == runtime.operatorKey else { throw CloudError(.permissionFailure, "Operator only.") }
        }
        let context = RequestContext(id: id ?? newOperation(), causeID: nil, peer: peer, caller: caller, now: now)
        defer { try? runSubmitted() }
        let frame = Frame(encoding: request)
        if let prepared = method.prepared {
            let work = try group { try prepared.begin(frame, context, $0) }
            let result = try work()
            try beforeFinish()
            return try group { try prepared.finish(result, context, $0) }.decode(Reply.self)
        }
        guard let run = method.run else { throw CloudError(.internalError, "A method without a body.") }
        return try group { try run(frame, context, $0) }.decode(Reply.self)
    }

    /// A transaction of the test's own, each statement of which is committed by itself.
    func transaction() -> any Transaction { EachAlone(engine) }

    private func group<Result>(_ body: (any HandlerTransaction) throws -> Result) throws -> Result {
        let (result, published) = try engine.write { transaction in
            let handler = GroupTransaction(transaction, at: now)
            let result = try body(handler)
            try handler.flush()
            return (result, handler.events)
        }
        events += published
        // As its host does.
        for event in published where event.account == directoryScope.account {
            var wire = WireEvent()
            wire.notification = try event.notification.decode(WireNotification.self)
            for fact in Directory.items(in: wire, of: .identity).compactMap(Directory.fact) { verifier.learn(fact) }
        }
        return result
    }

    private func runSubmitted() throws {
        while !runtime.submitted.isEmpty {
            let body = runtime.submitted.removeFirst()
            try group(body)
        }
    }

    // MARK: Short forms

    @discardableResult
    func createAccount(_ name: String, _ password: String = "correct horse") throws -> AccountID {
        var request = WireCreateAccount()
        request.accountName = name
        request.password = password
        return AccountID(try call(request, by: runtime.operatorKey, replying: WireCreateAccountReply.self).accountID)
    }

    func signIn(
        _ name: String, _ password: String = "correct horse", by key: PublicKey, app: String = "",
        id: OperationID? = nil
    ) throws -> WireSignInReply {
        var request = WireSignIn()
        request.accountName = name
        request.password = password
        request.deviceName = "Desk"
        request.appID = app
        return try call(request, by: key, id: id)
    }

    func refresh(_ token: String, by key: PublicKey, id: OperationID? = nil) throws -> WireRefreshTokenReply {
        var request = WireRefreshToken()
        request.refreshToken = token
        return try call(request, by: key, id: id)
    }

    /// The states in an event, by item.
    func deviceStates(in event: OutgoingEvent) throws -> [WireDeviceState] {
        try event.notification.decode(WireNotification.self).changes
            .filter { $0.item.hasPrefix("device/") }
            .map { try WireDeviceState(serializedBytes: $0.body) }
    }
}

/// The code that the body throws, or nil if it throws none.
func code(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return CloudError(wrapping: error).code }
    return nil
}

/// Runs each statement in a transaction of its own.
private final class EachAlone: Transaction {
    private let engine: SQLiteEngine

    init(_ engine: SQLiteEngine) { self.engine = engine }

    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        try engine.write { try $0.execute(statement, values) }
    }

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try engine.write { try $0.query(statement, values, row) }
    }
}
