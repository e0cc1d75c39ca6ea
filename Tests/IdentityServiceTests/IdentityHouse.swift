import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Synchronization

@testable import NephosIdentity

/// A whole cloud in one process, of which identity is asked: every request comes through the host's door, with its
/// token and its budget.
final class IdentityHouse {
    let cloud: TestCloud
    let engine: SQLiteEngine
    let operatorKey: PublicKey
    /// What identity has published and committed, in order.
    var events: [WireEvent] { listener.events }
    private let configuration: Box
    private var clients: [PublicKey: TestClient] = [:]
    private let listener: EventListener
    private var offset = Duration.zero
    private var random = SplitMix64(seed: 7)

    private final class Box: Sendable {
        let value: Mutex<IdentityConfiguration>
        init(_ value: IdentityConfiguration) { self.value = Mutex(value) }
    }

    init(_ configuration: IdentityConfiguration = .cheapPasswords) throws {
        let box = Box(configuration)
        self.configuration = box
        cloud = try TestCloud(
            seed: 7, budgets: BudgetConfiguration(),
            factories: [
                .identity: { seed in
                    IdentityService(configuration: box.value.withLock { $0 }, generator: SplitMix64(seed: seed))
                }
            ])
        engine = try cloud.storage(of: .identity)
        let client = cloud.makeOperator()
        operatorKey = client.keys.publicKey
        clients[operatorKey] = client
        listener = try cloud.makeListener(to: .identity)
    }

    deinit { cloud.close() }

    /// Identity's wall clock.
    var now: Timestamp {
        get { SimulatedNetwork.epoch.advanced(by: cloud.network.now + offset) }
        set {
            offset += newValue.since(now)
            cloud.network.setClockOffset(ServiceName.identity.rawValue, offset)
        }
    }

    /// Lets much time pass, in which nothing happens.
    func skip(_ duration: Duration) {
        offset += duration
        cloud.network.skip(duration, of: ServiceName.identity.rawValue)
    }

    /// Ends identity as kill -9 does, and starts it again on the same disk.
    func restart(_ configuration: IdentityConfiguration? = nil) throws {
        if let configuration { self.configuration.value.withLock { $0 = configuration } }
        cloud.crash(.identity)
        try cloud.start(.identity)
        cloud.network.setClockOffset(ServiceName.identity.rawValue, offset)
    }

    func newKey() throws -> PublicKey {
        let client = try cloud.makeClient()
        // A refusal is what is asked about here.
        client.policy.waitMax = .zero
        clients[client.keys.publicKey] = client
        return client.keys.publicKey
    }

    func newOperation() -> OperationID { OperationID(at: now, using: &random) }

    func client(_ key: PublicKey) throws -> TestClient {
        guard let client = clients[key] else { throw CloudError(.unknownItem, "This house has not made the key.") }
        return client
    }

    /// Calls a method on a connection with this key. With a token, as that device.
    func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ request: Request, by key: PublicKey, token: String? = nil, id: OperationID? = nil,
        replying: Reply.Type = Reply.self
    ) throws -> Reply {
        let name = String(Request.protoMessageName.split(separator: ".").last ?? "")
        defer { cloud.network.run(for: .milliseconds(20)) }
        return try client(key).call(
            name, request, at: .requests(.identity), accessToken: token ?? "", id: id ?? newOperation())
    }

    /// What identity has counted since it started.
    func counter(_ name: String) throws -> UInt64 {
        let reply: WireCheckHealthReply = try call(WireCheckHealth(), by: operatorKey)
        return reply.counters[name] ?? 0
    }

    /// A transaction of the test's own, each statement of which is committed by itself.
    func transaction() -> any Transaction { EachAlone(engine) }

    // MARK: Short forms

    @discardableResult
    func createAccount(_ name: String, _ password: String = "correct horse") throws -> AccountID {
        var request = WireCreateAccount()
        request.accountName = name
        request.password = password
        return AccountID(try call(request, by: operatorKey, replying: WireCreateAccountReply.self).accountID)
    }

    func signInRequest(
        _ name: String, _ password: String = "correct horse", app: String = "", code: String = ""
    ) -> WireSignIn {
        var request = WireSignIn()
        request.accountName = name
        request.password = password
        request.deviceName = "Desk"
        request.appID = app
        request.code = code
        return request
    }

    func signIn(
        _ name: String, _ password: String = "correct horse", by key: PublicKey, app: String = "", code: String = "",
        id: OperationID? = nil
    ) throws -> WireSignInReply {
        try call(signInRequest(name, password, app: app, code: code), by: key, id: id)
    }

    func refresh(_ token: String, by key: PublicKey, id: OperationID? = nil) throws -> WireRefreshTokenReply {
        var request = WireRefreshToken()
        request.refreshToken = token
        return try call(request, by: key, id: id)
    }

    /// The states in an event, by item.
    func deviceStates(in event: WireEvent) throws -> [WireDeviceState] {
        try event.notification.changes
            .filter { $0.item.hasPrefix("device/") }
            .map { try WireDeviceState(serializedBytes: $0.body) }
    }
}

/// The code that the body throws, or nil if it throws none.
func code(_ body: () throws -> Void) -> CloudError.Code? { failure(body)?.code }

/// The error that the body throws, or nil if it throws none.
func failure(_ body: () throws -> Void) -> CloudError? {
    do { try body() } catch { return CloudError(wrapping: error) }
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
