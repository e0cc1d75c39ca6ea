import Crypto
import Foundation
import Logging
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// Keeps accounts' names in its feed, which is enough to see what the host does.
final class NotebookService: CloudService {
    let name: ServiceName
    var following: [Following] = []
    private(set) var handled: [ServiceEvent] = []
    private(set) var restarts: [Int] = []
    private(set) var preparations = 0
    private(set) var runs = 0
    /// What their contexts said the time was.
    private(set) var times: [Timestamp] = []
    /// Bytes that what is told of a new account has besides.
    var eventBytes = 0
    /// What `WhoAmI` costs besides.
    var rows = 0
    /// Handling an event throws while this is set.
    var refusesEvents = false

    /// Closed accounts of which something was to be removed, in that order.
    private(set) var closing: [AccountID] = []
    /// Removing what this one left throws.
    var stuck: AccountID?
    /// Reporting that this one is gone throws.
    var refusedReport: AccountID?

    init(_ name: ServiceName) { self.name = name }

    var follows: [Following] { following }

    static let account = AccountID("acc_one")
    static let scope = ScopeName(account, "directory")

    func register(on router: inout Router) {
        router.write(WireCreateAccount.self, access: .anyone, bytesMax: 1024) {
            [unowned self] request, context, group in
            runs += 1
            times.append(context.now)
            if request.accountName == "refused" { throw CloudError(.invalidArguments, "Refused.") }
            let change = try write(request.accountName, [1], group)
            if request.accountName == "half" { throw CloudError(.constraintViolation, "Too late.") }
            var notification = WireNotification(name, change)
            if eventBytes > 0 { notification.changes = [.with { $0.body = Data(count: eventBytes) }] }
            group.publish(OutgoingEvent(change, notification: Frame(encoding: notification)))
            var reply = WireCreateAccountReply()
            reply.accountID = "\(change.token.sequence)"
            return reply
        }
        router.write(WireRevokeDevice.self, access: .operatorOnly) { [unowned self] request, _, group in
            var state = WireDeviceState()
            state.deviceID = request.deviceID
            state.revoked = true
            let item = "device/\(request.deviceID)"
            let change = try write(item, state.serializedBytes(), group, in: directoryScope)
            var notification = WireNotification(name, change)
            var wire = WireChange()
            wire.item = item
            wire.body = try state.serializedData()
            notification.changes = [wire]
            group.publish(OutgoingEvent(change, notification: Frame(encoding: notification)))
            return WireRevokeDeviceReply()
        }
        router.read(WireListAccounts.self, access: .anyone) { _, _, group in
            var reply = WireListAccountsReply()
            try group.items(Self.scope, after: 0) {
                var account = WireAccount()
                account.accountName = $0.name.rawValue
                reply.accounts.append(account)
                return true
            }
            return reply
        }
        router.write(WireReportClosure.self, access: .service) { [unowned self] request, _, _ in
            if request.accountID == refusedReport?.rawValue { throw CloudError(.internalError, "Refused.") }
            return WireReportClosureReply()
        }
        router.read(WireWhoAmI.self) { [unowned self] _, context, group in
            group.charge(rows: rows)
            var reply = WireWhoAmIReply()
            reply.accountID = try context.requireCaller().account.rawValue
            return reply
        }
        router.prepared(WireSignIn.self, access: .anyone) { _, _, _ in
            0
        } work: { request, _ in
            request.accountName.uppercased()
        } finish: { [unowned self] _, name, _, group in
            preparations += 1
            _ = try write(name, [], group)
            var reply = WireSignInReply()
            reply.accountName = name
            return reply
        }
    }

    private func write(
        _ name: String, _ body: [UInt8], _ group: any HandlerTransaction, in scope: ScopeName = NotebookService.scope
    ) throws -> ScopeChange {
        try group.put(
            scope,
            [FeedItem(name: ItemName(name), deleted: false, digest: SetDigest(ofItem: name.utf8), size: 1, body: body)])
    }

    func handle(_ event: ServiceEvent, in transaction: any HandlerTransaction) throws {
        if refusesEvents { throw CloudError(.internalError, "Refused.") }
        handled.append(event)
    }

    func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        closing.append(account)
        if account == stuck { throw CloudError(.internalError, "Damaged.") }
        return false
    }

    func restartFollowing(_ service: ServiceName, partition: Int, in transaction: any HandlerTransaction) throws {
        restarts.append(partition)
    }
}

/// An engine whose commits can be made to fail, or to wait.
final class FaultyEngine: StorageEngine {
    private let base: SQLiteEngine
    var failsCommits = false
    /// Groups that are begun stay under way until the test goes on.
    var holds = false
    private var held: [() -> Void] = []
    private(set) var isClosed = false
    private(set) var commits = 0

    init() throws { base = try SQLiteEngine.inMemory() }

    private struct Lost: Error {}

    func migrate(_ migrations: [Migration]) throws { try base.migrate(migrations) }
    var snapshots: any Snapshots { base.snapshots }

    func run<Value>(
        _ work: @escaping (any Transaction) throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        guard holds else { return completion(Result { try write(work) }) }
        #expect(held.isEmpty, "A group was begun while another is under way.")
        held.append { [self] in completion(Result { try write(work) }) }
    }

    /// Whether a group is under way.
    var isHolding: Bool { !held.isEmpty }

    /// Carries out and completes the group that is under way.
    func goOn() { if isHolding { held.removeFirst()() } }

    func write<Result>(_ body: (any Transaction) throws -> Result) throws -> Result {
        try base.write { transaction in
            let counting = WriteCount(transaction)
            let result = try body(counting)
            if failsCommits, counting.writes > 0 {
                throw CloudError(.storageFailure, "The disk is full. Nothing was stored.")
            }
            commits += 1
            return result
        }
    }

    func checkpoint() {}
    func cutLog() throws -> Bool { true }
    /// Kept open: a test starts another host on it.
    func close() { isClosed = true }
}

private final class WriteCount: Transaction {
    private let base: any Transaction
    private(set) var writes = 0

    init(_ base: any Transaction) { self.base = base }

    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        let changed = try base.execute(statement, values)
        writes += changed
        return changed
    }

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        try base.query(statement, values, row)
    }
}

/// Identity and notifications, both notebooks, on one bus.
struct TestHouse {
    let bus = InstantBus()
    let roster: Roster
    let signer: TokenSigner
    let identity = NotebookService(.identity)
    let notifications = NotebookService(.notifications)
    let identityEngine: FaultyEngine
    let notificationsEngine: FaultyEngine
    let identityHost: ServiceHost
    private(set) var notificationsHost: ServiceHost?
    let operatorKeys: KeyPair
    private let secrets: [ServiceSecrets]
    private let logger: Logger

    init(
        withFollower: Bool = false, budgets: BudgetConfiguration = .unlimited, logger: Logger = .quiet
    ) throws {
        self.logger = logger
        let deployment = try Deployment(host: "127.0.0.1", basePort: 7000, transport: KeysOnly())
        // Nobody else answers here.
        var roster = deployment.roster
        roster.services.removeAll { $0.service != "identity" && $0.service != "notifications" }
        self.roster = roster
        secrets = deployment.secrets
        operatorKeys = deployment.operatorKeys
        signer = try TokenSigner(secrets: secrets[0])
        identityEngine = try FaultyEngine()
        notificationsEngine = try FaultyEngine()
        identityHost = try ServiceHost(
            loop: bus.loop, service: identity, roster: roster, secrets: secrets[0], engine: identityEngine,
            budgets: budgets, logger: logger, generator: SplitMix64(seed: 1))
        if withFollower { try startFollower() }
    }

    mutating func startFollower(cursorDelay: Duration = .zero) throws {
        notifications.following = [Following(.identity, cursorDelay: cursorDelay)]
        notificationsHost = try ServiceHost(
            loop: bus.loop, service: notifications, roster: roster, secrets: secrets[4], engine: notificationsEngine,
            logger: logger, generator: SplitMix64(seed: 2))
    }

    func client(
        _ keys: KeyPair? = nil, to service: ServiceName = .identity, policy: RequestClient.Policy = .init()
    ) throws -> RequestClient {
        let entry = try roster.entry(of: service)
        // It is connected when it is used.
        defer { bus.settle() }
        return try RequestClient(
            loop: bus.clients,
            socket: RequestSocketOptions(
                endpoints: [entry.requests], serverKey: try entry.key, keys: try keys ?? KeysOnly().makeKeyPair()),
            policy: policy, generator: SplitMix64(seed: 3))
    }

    /// To identity, for what no client would say, and for answers as they come.
    func rawSocket(
        _ keys: KeyPair? = nil, _ handler: @escaping ([NephosBus.Message]) -> Void
    ) throws -> any RequestSocket {
        let entry = try roster.entry(of: .identity)
        let options = RequestSocketOptions(
            endpoints: [entry.requests], serverKey: try entry.key, keys: try keys ?? KeysOnly().makeKeyPair())
        var isGreeted = false
        let socket = try bus.clients.makeRequestSocket(options) { if isGreeted { handler($0) } }
        bus.settle()
        isGreeted = true
        return socket
    }

    func token(
        for keys: KeyPair, account: String = "acc_one", device: String = "dev_one", deployment: String? = nil,
        issued: Duration = .zero,
        lifetime: Duration = .seconds(900), signer: TokenSigner? = nil
    ) throws -> String {
        let issued = bus.clock.now.advanced(by: issued)
        return try (signer ?? self.signer).sign(
            AccessClaims(
                deployment: deployment ?? roster.deployment, account: AccountID(account), device: DeviceID(device),
                app: AppID("com.example.notes"),
                entitlements: Entitlements(store: nil, containers: ["one"]), deviceKey: keys.publicKey,
                issued: issued, expires: issued.advanced(by: lifetime), tokenID: "1"))
    }
}

/// Makes keys that are no keys: the simulation believes what it is told.
struct KeysOnly: Transport {
    func startLoop(
        named name: String, for _: LoopWork, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        throw CloudError(.internalError, "There is no loop here.")
    }

    func makeKeyPair() throws -> KeyPair {
        let bytes = (0..<32).map { _ in UInt8.random(in: 0...255) }
        let secret = try #require(SecretKey(bytes: bytes))
        return KeyPair(publicKey: try Self.publicKey(of: secret), secretKey: secret)
    }

    /// Nothing is enciphered with these; but which belong together can be told.
    static func publicKey(of secret: SecretKey) throws -> PublicKey {
        try #require(PublicKey(bytes: secret.bytes.map { ~$0 }))
    }
}

extension Logger {
    static var quiet: Logger { Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }
}

extension RequestClient {
    /// Calls and settles; nil without an answer.
    func ask<Request: SwiftProtobuf.Message>(
        _ request: Request, on bus: InstantBus, token: String = "", id: OperationID? = nil
    ) -> Result<Frame, CloudError>? {
        var result: Result<Frame, CloudError>?
        send(request, token: token, id: id) { result = $0 }
        bus.settle()
        return result
    }

    func send<Request: SwiftProtobuf.Message>(
        _ request: Request, token: String = "", id: OperationID? = nil,
        _ completion: @escaping (Result<Frame, CloudError>) -> Void = { _ in }
    ) {
        let name = Request.protoMessageName.split(separator: ".").last.map(String.init) ?? ""
        call(name, body: Frame(encoding: request), accessToken: token, id: id) { completion($0.result) }
    }
}

extension Result where Success == Frame, Failure == CloudError {
    var code: CloudError.Code? { if case .failure(let error) = self { error.code } else { nil } }
}

func createAccount(_ name: String) -> WireCreateAccount {
    var request = WireCreateAccount()
    request.accountName = name
    return request
}
