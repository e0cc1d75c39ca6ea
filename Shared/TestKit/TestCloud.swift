public import Bus
public import Core
internal import IdentityService
internal import KeyValueService
public import Logging
internal import NephosKit
internal import NotificationsService
internal import ServiceKit
internal import Storage
internal import Wire

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
    private var generator: SplitMix64
    private(set) public var devices: [TestDevice] = []

    /// Starts the services, and creates the account that the devices sign in to.
    ///
    /// - Throws: ``CloudError`` when a service does not start.
    public init(seed: UInt64, faults: Faults = .none, logger: Logger? = nil) throws {
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
        let bound = Unshared(disk)
        _ = try transport.startLoop(named: service.rawValue) { loop in
            _ = try ServiceHost(
                loop: loop, service: Self.make(service, seed: seed), roster: roster, secrets: secrets,
                engine: bound.value, logger: logger, generator: SplitMix64(seed: seed))
        }
    }

    private static func make(_ service: ServiceName, seed: UInt64) throws -> any CloudService {
        switch service {
        case .identity:
            return IdentityService(configuration: .cheapPasswords, generator: SplitMix64(seed: seed ^ 1))
        case .keyValue:
            var configuration = KeyValueConfiguration()
            configuration.budgetCapacity = 0
            return KeyValueService(configuration: configuration)
        default:
            return NotificationsService()
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

    static let accountName = "demo"
    static let password = "correct horse battery"

    private func createAccount() throws {
        let entry = try deployment.roster.entry(of: .identity)
        let keys = deployment.operatorKeys
        let done = Unshared(Answer())
        var request = WireCreateAccount()
        request.accountName = Self.accountName
        request.password = Self.password
        let body = Frame(encoding: request)
        let handle = try transport.startLoop(named: "operator") { loop in
            let client = try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(
                    endpoints: [entry.requests], serverKey: try entry.key, keys: keys),
                generator: SplitMix64(seed: 7))
            client.call("CreateAccount", body: body) { reply in
                withExtendedLifetime(client) { done.value.result = reply.result.map { _ in () } }
            }
        }
        network.run(within: .seconds(30)) { done.value.result != nil }
        handle.stop()
        guard let result = done.value.result else {
            throw CloudError(.serviceUnavailable, "The account was not created in time.")
        }
        try result.get()
    }

    private final class Answer {
        var result: Result<Void, CloudError>?
    }

    // MARK: Devices

    /// A new device, signed in to the account.
    ///
    /// - Throws: ``CloudError`` when it cannot sign in within a virtual minute.
    @discardableResult
    public func addDevice() throws -> TestDevice {
        let device = try TestDevice(
            name: "device-\(devices.count)", cloud: self, seed: generator.next())
        devices.append(device)
        try device.signIn(to: deployment.roster.connectionString())
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
    /// The service is gone; what it stored is not.
    func close() {}
}

/// Carries a value into a closure that the in-process transport runs at once, on this thread.
// Unchecked: a simulation has one thread.
final class Unshared<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}
