public import Bus
public import Core
internal import IdentityService
internal import KeyValueService
public import Logging
internal import NephosKit
internal import NotificationsService
internal import ServiceKit
internal import Storage
internal import SwiftProtobuf
public import Wire

/// The whole cloud in one process: identity, key-value and notifications, any
/// number of devices, the lines between them, and the time.
///
/// The same seed gives the same history. Used on one thread; time passes in
/// ``settle(within:)`` and in the network's `run`.
public final class TestCloud {
    /// The services that it runs.
    public static let services: [ServiceName] = [.identity, .keyValue, .notifications]

    public let network: SimulatedNetwork
    let transport: InProcessTransport
    let logger: Logger
    private let deployment: Deployment
    /// What survives a crash of its service.
    private var disks: [ServiceName: Disk] = [:]
    private let subscriberQueueMax: Int
    private var clientCount = 0
    private var generator: SplitMix64
    private(set) public var devices: [TestDevice] = []

    /// Starts the services, and creates the account that the devices sign in to.
    ///
    /// - Parameter subscriberQueueMax: Deliveries that may wait for one device before it lags.
    /// - Throws: ``CloudError`` when a service does not start.
    public init(
        seed: UInt64, faults: Faults = .none, subscriberQueueMax: Int = 1000, logger: Logger? = nil
    ) throws {
        self.subscriberQueueMax = subscriberQueueMax
        generator = SplitMix64(seed: seed ^ 0x5eed)
        network = SimulatedNetwork(seed: seed)
        transport = InProcessTransport(network)
        self.logger = logger ?? Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        deployment = try Deployment(host: "127.0.0.1", basePort: 7400, transport: transport)
        for service in Self.services {
            disks[service] = Disk(try SQLiteEngine.inMemory())
            try start(service)
        }
        try createAccount()
        network.faults = faults
    }

    /// Ends everything. A cloud that is not closed stays in memory.
    public func close() {
        for device in devices { device.stop() }
        network.close()
        for disk in disks.values { disk.engine.close() }
    }

    // MARK: Services

    /// Ends a service as kill -9 does.
    public func crash(_ service: ServiceName) { network.crash(service.rawValue) }

    /// Starts a crashed service again, on the disk that it left.
    public func start(_ service: ServiceName) throws {
        guard let disk = disks[service],
            let secrets = deployment.secrets.first(where: { $0.service == service.rawValue })
        else { throw CloudError(.unknownItem, "The test cloud has no such service.") }
        let roster = deployment.roster
        let logger = logger
        let seed = generator.next()
        let subscriberQueueMax = subscriberQueueMax
        let bound = Unshared(disk)
        _ = try transport.startLoop(named: service.rawValue) { loop in
            _ = try ServiceHost(
                loop: loop, service: Self.make(service, seed: seed, subscriberQueueMax: subscriberQueueMax),
                roster: roster, secrets: secrets,
                engine: bound.value, logger: logger, generator: SplitMix64(seed: seed))
        }
    }

    private static func make(
        _ service: ServiceName, seed: UInt64, subscriberQueueMax: Int
    ) throws -> any CloudService {
        switch service {
        case .identity:
            return IdentityService(configuration: .cheapPasswords, generator: SplitMix64(seed: seed ^ 1))
        case .keyValue:
            var configuration = KeyValueConfiguration()
            configuration.budgetCapacity = 0
            return KeyValueService(configuration: configuration)
        default:
            var configuration = NotificationsConfiguration()
            configuration.subscriberQueueMax = subscriberQueueMax
            return NotificationsService(configuration: configuration)
        }
    }

    /// Brings back every service and line, and waits until every device is in
    /// sync with the server and with every other.
    ///
    /// - Returns: Whether that happened within the virtual time.
    public func settle(within limit: Duration = .seconds(600)) -> Bool {
        network.run(within: limit) {
            devices.allSatisfy(\.isSettled) && Set(devices.map(\.head)).count <= 1
        }
    }

    // MARK: The account

    /// The account that devices sign in to where a test names no other.
    public static let accountName = "demo"
    public static let password = "correct horse battery"

    /// Creates an account, with ``password``.
    public func createAccount(_ name: String = accountName) throws {
        var request = WireCreateAccount()
        request.accountName = name
        request.password = Self.password
        try operate("CreateAccount", request, as: WireCreateAccountReply.self)
    }

    /// Creates an app, whose store and containers it names.
    public func createApp(_ app: WireApp) throws {
        var request = WireCreateApp()
        request.app = app
        try operate("CreateApp", request, as: WireCreateAppReply.self)
    }

    @discardableResult
    private func operate<Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: some SwiftProtobuf.Message, as _: Reply.Type
    ) throws -> Reply {
        clientCount += 1
        let client = TestClient(
            name: "operator-\(clientCount)", keys: deployment.operatorKeys, cloud: self, seed: generator.next())
        return try client.call(method, request, at: .requests(.identity))
    }

    // MARK: Clients

    var roster: Roster { deployment.roster }

    /// A bare connection under a key of its own, for what no well-behaved device would say.
    public func makeClient() throws -> TestClient {
        clientCount += 1
        return TestClient(
            name: "client-\(clientCount)", keys: try transport.makeKeyPair(), cloud: self, seed: generator.next())
    }

    // MARK: Devices

    /// A new device, signed in to the account.
    ///
    /// - Throws: ``CloudError`` when it cannot sign in within a virtual minute.
    @discardableResult
    public func addDevice(to account: String = accountName) throws -> TestDevice {
        let device = try TestDevice(
            name: "device-\(devices.count)", cloud: self, seed: generator.next())
        devices.append(device)
        try device.signIn(to: deployment.roster.connectionString(), as: account)
        return device
    }
}

/// A database that outlives the service that uses it.
private final class Disk: StorageEngine {
    let engine: SQLiteEngine

    init(_ engine: SQLiteEngine) { self.engine = engine }

    func migrate(_ migrations: [Migration]) throws { try engine.migrate(migrations) }
    func write<Result>(_ body: (any Transaction) throws -> Result) throws -> Result { try engine.write(body) }
    func checkpoint() {}
    func cutLog() throws -> Bool { try engine.cutLog() }
    /// The service is gone; what it stored is not.
    func close() {}
}

/// Carries a value into a closure that the in-process transport runs at once, on this thread.
// Unchecked: a simulation has one thread.
final class Unshared<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}
