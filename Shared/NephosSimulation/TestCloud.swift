package import Logging
package import NephosBulk
package import NephosBus
package import NephosContent
package import NephosCore
internal import NephosDocuments
internal import NephosIdentity
internal import NephosKeyValue
package import NephosKit
internal import NephosNotifications
package import NephosServiceKit
package import NephosStorage
package import NephosWire
package import SwiftProtobuf
private import Synchronization

/// The whole cloud in one process: identity, key-value and notifications, any
/// number of devices, the lines between them, and the time.
///
/// The same seed gives the same history. Used on one thread; time passes in
/// ``settle(within:)`` and in the network's `run`.
package final class TestCloud {
    /// The services that it runs where a test names no others.
    package static let services: [ServiceName] = [.identity, .keyValue, .notifications]
    /// Makes a service, each time that it starts, from a seed of its own.
    package typealias ServiceFactory = @Sendable (UInt64) throws -> any CloudService
    /// A further service that moves content.
    package struct ContentService: Sendable {
        /// Outlives the service, as a disk does.
        var store: any BlobStore
        var configuration: Transfers.Configuration
        var make: @Sendable (Transfers) throws -> any CloudService

        package init(
            store: any BlobStore, configuration: Transfers.Configuration = Transfers.Configuration(),
            make: @escaping @Sendable (Transfers) throws -> any CloudService
        ) {
            self.store = store
            self.configuration = configuration
            self.make = make
        }
    }

    /// Items of one page of what devices fetch that are started from now on; 0: as many as a service gives.
    package var pageItemsMax: UInt32 = 0
    package let network: SimulatedNetwork
    /// Faults to come, by name.
    package let faults = FaultPlan()
    let transport: InProcessTransport
    let logger: Logger
    private var deployment: Deployment
    /// The state that survives a crash of its service.
    private(set) var disks: [ServiceName: Disk] = [:]
    /// The names of the homes that several processes share, by their devices.
    private var homes: [String: String] = [:]
    /// Databases in memory are found by their names in the whole process of the test.
    private static let homeCount = Atomic<Int>(0)
    private(set) var hosts: [ServiceName: ServiceHost] = [:]
    private let subscriberQueueMax: Int
    private let budgets: BudgetConfiguration
    private let factories: [ServiceName: ServiceFactory]
    private var contentServices: [ServiceName: ContentService]
    private var content: ContentOptions?
    private let storageTurns: StorageTurns
    private var clientCount = 0
    private var generator: SplitMix64
    package private(set) var devices: [TestDevice] = []
    /// Engines of devices that are not made here, by the names of their loops.
    private(set) var guests: [(name: String, engine: WeakEngine)] = []
    private var separated: [(Set<String>, Set<String>)] = []
    /// Services that are to be there.
    private(set) var running: Set<ServiceName> = []
    /// How far the wall clocks of the services' machines are ahead.
    private var clockOffsets: [ServiceName: Duration] = [:]

    /// Starts the services, and creates the account that the devices sign in to.
    ///
    /// - Parameters:
    ///   - subscriberQueueMax: Deliveries that may wait for one device before it lags.
    ///   - budgets: How often devices may ask each service.
    ///   - engines: Databases of services that are not to live in memory.
    ///   - factories: Further services, or others in the place of the real ones.
    ///   - contentServices: Further services that move content.
    ///   - content: With it documents runs, too.
    ///   - storageTurns: When the services' storage completes what it is given.
    /// - Throws: ``CloudError`` when a service does not start.
    package init(
        seed: UInt64, faults: Faults = .none, subscriberQueueMax: Int = 1000,
        budgets: BudgetConfiguration = .unlimited, engines: [ServiceName: SQLiteEngine] = [:],
        factories: [ServiceName: ServiceFactory] = [:], contentServices: [ServiceName: ContentService] = [:],
        content: ContentOptions? = nil,
        storageTurns: StorageTurns = .ofEnvironment, logger: Logger? = nil
    ) throws {
        self.content = content
        self.storageTurns = storageTurns
        self.subscriberQueueMax = subscriberQueueMax
        self.factories = factories
        self.contentServices = contentServices
        self.budgets = budgets
        generator = SplitMix64(seed: seed ^ 0x5eed)
        network = SimulatedNetwork(seed: seed)
        transport = InProcessTransport(network)
        self.logger = logger ?? Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        deployment = try Deployment(host: "127.0.0.1", basePort: 7400, transport: transport)
        if let store = content?.store { self.content?.store = makeStore(over: store, of: .documents) }
        for (service, made) in contentServices {
            self.contentServices[service]?.store = makeStore(over: made.store, of: service)
        }
        for service in ServiceName.all
        where Self.services.contains(service) || factories[service] != nil || contentServices[service] != nil
            || (service == .documents && content != nil)
        {
            disks[service] = makeDisk(try engines[service] ?? SQLiteEngine.inMemory(), of: service)
            try start(service)
        }
        try createAccount()
        network.faults = faults
        network.judge = { [weak self] in self?.fate(at: $0, $1) ?? .passes }
    }

    /// Ends everything. A cloud that is not closed stays in memory.
    package func close() {
        for device in devices { device.stop() }
        for guest in guests { guest.engine.value?.stop() }
        network.close()
        for disk in disks.values { disk.engine.close() }
    }

    // MARK: Services

    /// Ends a service as kill -9 does.
    package func crash(_ service: ServiceName) {
        running.remove(service)
        disks[service]?.isInUse = false
        // What it was completing ends with it.
        disks[service]?.late = nil
        network.crash(service.rawValue)
        // A process has all of its loops, or none.
        network.crash("\(service) bulk")
    }

    /// Sets how far a service's wall clock is ahead, also when it is started again.
    package func setClockOffset(of service: ServiceName, _ offset: Duration) {
        clockOffsets[service] = offset
        network.setClockOffset(service.rawValue, offset)
    }

    /// Lets so much time pass for a service, in which nothing happens: other than by setting its clock, it has really passed.
    package func skip(_ duration: Duration, of service: ServiceName) {
        clockOffsets[service, default: .zero] += duration
        network.skip(duration, of: service.rawValue)
    }

    /// The same for all services, and these devices: hours of their heartbeats would take long to simulate.
    package func skip(_ duration: Duration, with devices: [String] = []) {
        for service in ServiceName.all { skip(duration, of: service) }
        for device in devices { network.skip(duration, of: device) }
    }

    /// Lets no message pass between devices and services, besides those that were separated before.
    package func separate(_ devices: Set<String>, from services: [ServiceName]) {
        separated.append((devices, Set(services.flatMap { [$0.rawValue, "\($0) bulk"] })))
        network.setPartitions(separated)
    }

    package func joinAll() {
        separated = []
        network.setPartitions([])
    }

    /// Starts a crashed service again, on the disk that it left.
    package func start(_ service: ServiceName) throws {
        guard let disk = disks[service],
            let secrets = deployment.secrets.first(where: { $0.service == service.rawValue })
        else { throw CloudError(.unknownItem, "The test cloud has no such service.") }
        let roster = deployment.roster
        let logger = logger
        let seed = generator.next()
        let subscriberQueueMax = subscriberQueueMax
        let storageTurns = storageTurns
        let bound = Unshared(disk)
        let budgets = budgets
        let (content, transport) = (content, transport)
        let moving = contentServices[service].map { made -> ServiceFactory in
            { seed in
                try made.make(
                    Transfers(
                        store: made.store, transport: transport, configuration: made.configuration,
                        generator: SplitMix64(seed: seed ^ 2)))
            }
        }
        let factory =
            factories[service] ?? moving ?? {
                try Self.make(
                    service, seed: $0, subscriberQueueMax: subscriberQueueMax, content: content, transport: transport)
            }
        let made = Unshared(HostHolder())
        let (clock, clockOffset) = (Unshared(network), clockOffsets[service] ?? .zero)
        _ = try transport.startLoop(named: service.rawValue) { loop in
            // It begins with the clock that its machine has.
            clock.value.setClockOffset(service.rawValue, clockOffset)
            bound.value.late = nil
            if case .later(let delay) = storageTurns {
                bound.value.late = LateTurns(on: loop, upTo: delay, seed: seed ^ 0x1a7e)
            }
            let service = try factory(seed)
            made.value.host = try ServiceHost(
                loop: loop, service: service,
                roster: roster, secrets: secrets,
                engine: bound.value, budgets: budgets, logger: logger, generator: SplitMix64(seed: seed))
        }
        hosts[service] = made.value.host
        running.insert(service)
        disk.isInUse = true
    }

    /// Requests that the service has got since it was started last.
    package func requestCount(_ service: ServiceName) -> UInt64 { hosts[service]?.counts["requests"] ?? 0 }

    /// Bytes of requests and answers of the service since it was started last; contents go beside them.
    package func movedBytes(_ service: ServiceName) -> UInt64 { hosts[service]?.movedBytes ?? 0 }

    private final class HostHolder {
        var host: ServiceHost?
    }

    /// A copy of a service's disk as it is now.
    package func copyStorage(of service: ServiceName) throws -> StorageCopy {
        StorageCopy(engine: try storage(of: service).copyInMemory())
    }

    /// Ends a service, and starts it on what it once had on disk. One copy may be brought back any number of times.
    ///
    /// - Parameter copy: Nil: an empty disk.
    package func restore(_ copy: StorageCopy?, of service: ServiceName) throws {
        crash(service)
        try storage(of: service).close()
        disks[service] = makeDisk(try copy?.engine.copyInMemory() ?? SQLiteEngine.inMemory(), of: service)
        try start(service)
    }

    private static func make(
        _ service: ServiceName, seed: UInt64, subscriberQueueMax: Int, content: ContentOptions?,
        transport: InProcessTransport
    ) throws -> any CloudService {
        switch service {
        case .documents:
            guard let content else { throw CloudError(.unknownItem, "The test cloud has no content.") }
            var configuration = DocumentsConfiguration()
            if let bytes = content.streamBytesMax { configuration.streamBytesMax = bytes }
            if let linksMax = content.linksMax {
                var publishing = DocumentsConfiguration.Publishing(url: "http://cloud.test")
                publishing.linksMax = linksMax
                configuration.publishing = publishing
            }
            return DocumentsService(
                Transfers(
                    store: content.store, transport: transport, configuration: content.configuration,
                    generator: SplitMix64(seed: seed ^ 2)), configuration)
        case .identity:
            return IdentityService(configuration: .cheapPasswords, generator: SplitMix64(seed: seed ^ 1))
        case .keyValue:
            return KeyValueService(configuration: KeyValueConfiguration())
        default:
            var configuration = NotificationsConfiguration()
            configuration.subscriberQueueMax = subscriberQueueMax
            return NotificationsService(configuration: configuration)
        }
    }

    /// Replaces keys of the deployment, and starts all services again with them.
    package func changeKeys(
        _ change: (inout Roster, inout [ServiceSecrets], InProcessTransport) throws -> Void
    ) throws {
        var (roster, secrets) = (deployment.roster, deployment.secrets)
        try change(&roster, &secrets, transport)
        deployment.roster = roster
        deployment.secrets = secrets
        for service in disks.keys.sorted() {
            crash(service)
            try start(service)
        }
    }

    // MARK: The account

    /// The account that devices sign in to where a test names no other.
    package static let accountName = "demo"
    package static let password = "correct horse battery"

    /// Creates an account.
    @discardableResult
    package func createAccount(
        _ name: String = accountName, plan: String = "", password: String = TestCloud.password
    ) throws -> AccountID {
        var request = WireCreateAccount()
        request.accountName = name
        request.password = password
        request.planID = plan
        return AccountID(try operate("CreateAccount", request, as: WireCreateAccountReply.self).accountID)
    }

    /// Makes a plan, or changes it.
    package func savePlan(_ name: String, bytes: UInt64) throws {
        var request = WireSavePlan()
        request.plan.planID = name
        request.plan.sizeBytes = bytes
        let _: WireSavePlanReply = try operate("SavePlan", request)
    }

    /// Gives an account a plan of its own, and waits until all services know it.
    package func setPlan(bytes: UInt64, of account: String = accountName) throws {
        try savePlan("plan-of-" + account, bytes: bytes)
        var request = WireSetPlan()
        request.accountName = account
        request.planID = "plan-of-" + account
        try operate("SetPlan", request, as: WireSetPlanReply.self)
        network.run(for: .seconds(10))
    }

    /// Creates an app, whose store and containers it names.
    package func createApp(_ app: WireApp) throws {
        var request = WireCreateApp()
        request.app = app
        try operate("CreateApp", request, as: WireCreateAppReply.self)
    }

    /// Creates an app that has this one's key-value store.
    package func createApp(_ id: AppID, store: AppID, containers: [String] = []) throws {
        var app = WireApp()
        app.containerIds = containers
        app.appID = id.rawValue
        app.storeID = store.rawValue
        try createApp(app)
    }

    /// Calls a method of identity as the operator.
    @discardableResult
    package func operate<Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: some SwiftProtobuf.Message, as _: Reply.Type = Reply.self
    ) throws -> Reply {
        try makeOperator().call(method, request, at: .requests(.identity))
    }

    /// Makes what a service would store fail, as a full disk does, or lets it be stored again.
    package func setCommitsFail(of service: ServiceName, _ fail: Bool) { disks[service]?.failsCommits = fail }

    /// A service's database: what it has on disk.
    package func storage(of service: ServiceName) throws -> SQLiteEngine {
        guard let disk = disks[service] else {
            throw CloudError(.unknownItem, "The test cloud has no such service.")
        }
        return disk.engine
    }

    /// The service forgets what was deleted, so that each token that a device has of a scope has expired.
    package func forgetDeletions(of service: ServiceName) throws {
        crash(service)
        try storage(of: service).write { transaction in
            try transaction.execute(SQL("DELETE FROM feed_items WHERE deleted_at > 0"), [])
            try transaction.execute(SQL("UPDATE feed_scopes SET floor = sequence, tombstones = 0"), [])
        }
        try start(service)
    }

    // MARK: Clients

    package var roster: Roster { deployment.roster }

    /// Where devices sign in.
    package var connection: ConnectionString { get throws { try deployment.roster.connectionString() } }

    /// A bare connection under a key of its own, for what no well-behaved device would say.
    package func makeClient() throws -> TestClient {
        clientCount += 1
        return TestClient(
            name: "client-\(clientCount)", keys: try transport.makeKeyPair(), cloud: self, seed: generator.next())
    }

    /// A connection under a service's own key: what a service would do that is in other hands.
    package func makeClient(asService service: ServiceName) throws -> TestClient {
        clientCount += 1
        let entry = try roster.entry(of: service)
        guard let secrets = deployment.secrets.first(where: { $0.service == service.rawValue }) else {
            throw CloudError(.unknownItem, "The test cloud has no such service.")
        }
        return TestClient(
            name: "client-\(clientCount)", keys: KeyPair(publicKey: try entry.key, secretKey: try secrets.key),
            cloud: self, seed: generator.next())
    }

    /// A further connection under the keys of another: what somebody does who has copied a device.
    package func makeClient(copying client: TestClient) -> TestClient {
        clientCount += 1
        return TestClient(name: "client-\(clientCount)", keys: client.keys, cloud: self, seed: generator.next())
    }

    /// A connection under keys of its own, from the address that another comes from.
    package func makeClient(besides client: TestClient) throws -> TestClient {
        TestClient(name: client.name, keys: try transport.makeKeyPair(), cloud: self, seed: generator.next())
    }

    /// A connection under the operator's keys.
    package func makeOperator() -> TestClient {
        clientCount += 1
        return TestClient(
            name: "operator-\(clientCount)", keys: deployment.operatorKeys, cloud: self, seed: generator.next())
    }

    /// An access token as identity signs it with its first key, with any claims.
    package func makeToken(
        account: AccountID, device: DeviceID, app: AppID, entitlements: Entitlements, key: PublicKey,
        lifetime: Duration
    ) throws -> String {
        guard let secrets = deployment.secrets.first(where: { $0.service == ServiceName.identity.rawValue }) else {
            throw CloudError(.unknownItem, "The test cloud has no identity service.")
        }
        let now = SimulatedNetwork.epoch.advanced(by: network.now)
        return try TokenSigner(secrets: secrets).sign(
            AccessClaims(
                deployment: roster.deployment, account: account, device: device, app: app, entitlements: entitlements,
                deviceKey: key, issued: now, expires: now.advanced(by: lifetime), tokenID: "made by a test"))
    }

    /// A connection that sends any bytes, under a key of its own or one that a test has stolen.
    package func makeRawClient(_ keys: KeyPair? = nil) throws -> RawClient {
        clientCount += 1
        return RawClient(name: "raw-\(clientCount)", keys: try keys ?? transport.makeKeyPair(), cloud: self)
    }

    func address(of door: TestClient.Door) throws -> (entry: Roster.Entry, endpoint: String) {
        switch door {
        case .requests(let service):
            let entry = try roster.entry(of: service)
            return (entry, entry.requests)
        case .subscriptions:
            let entry = try roster.entry(of: .notifications)
            return (entry, entry.subscriptions ?? "")
        case .bulk(let service):
            let entry = try roster.entry(of: service)
            return (entry, entry.bulk ?? "")
        }
    }

    // MARK: Devices

    /// For whatever has a seed of its own.
    package func makeSeed() -> UInt64 { generator.next() }

    /// Takes part from now on, until it ends: the engine of a loop that somebody else has started.
    package func take(_ engine: DeviceEngine, named name: String) {
        guests.removeAll { $0.name == name || $0.engine.value == nil }
        guests.append((name, WeakEngine(engine)))
    }

    /// What somebody has who has copied the device's home: connections under its key, and its refresh token.
    package func makeCopy(of device: TestDevice) throws -> (client: TestClient, refreshToken: String) {
        let kept = device.secrets.load(device.session?.secrets ?? "")
        guard let keys = kept.keys, let refreshToken = kept.refreshToken else {
            throw CloudError(.notSignedIn, "The device is not signed in.")
        }
        clientCount += 1
        return (
            TestClient(name: "client-\(clientCount)", keys: keys, cloud: self, seed: generator.next()), refreshToken
        )
    }

    /// Signs a device in once more, after the server has turned it away.
    package func signInAgain(_ device: TestDevice, to account: String = accountName) throws {
        try device.signIn(as: account)
    }

    /// A new device, signed in to the account.
    ///
    /// - Parameters:
    ///   - clockOffset: How far its wall clock is ahead.
    ///   - isShared: Whether several processes may use its home.
    ///   - isJoined: Whether one of them speaks with the server for all; else each does for itself.
    ///   - fault: Called at each named step between two things that the device saves.
    /// - Throws: ``CloudError`` when it cannot sign in within a virtual minute.
    @discardableResult
    package func addDevice(
        to account: String = accountName, clockOffset: Duration = .zero, isShared: Bool = false, isJoined: Bool = true,
        fault: (@Sendable (String) throws -> Void)? = nil
    ) throws -> TestDevice {
        let name = "device-\(devices.count)"
        if isShared { nameHome(name) }
        let device = try TestDevice(
            name: name, cloud: self, seed: generator.next(), home: homes[name],
            way: isShared && isJoined ? SimulatedHome() : nil, fault: fault)
        devices.append(device)
        device.setClockOffset(clockOffset)
        try device.signIn(as: account)
        return device
    }

    /// Gives a home that several processes share a database of a name that none has had.
    @discardableResult
    func nameHome(_ home: String) -> String {
        let name = "nephos-home-\(Self.homeCount.add(1, ordering: .relaxed).newValue)"
        homes[home] = name
        return name
    }

    /// Another process of a device's home, which was added as one that is shared.
    @discardableResult
    package func addProcess(of device: TestDevice) throws -> TestDevice {
        guard let home = homes[device.name] else {
            throw CloudError(.invalidArguments, "The device's home is not shared.")
        }
        let process = try TestDevice(
            name: "\(device.name).\(devices.count)", cloud: self, seed: generator.next(), home: home, way: device.way,
            sharing: device)
        devices.append(process)
        // One machine has one clock.
        process.setClockOffset(device.clockOffset)
        return process
    }
}

/// A copy of a service's database.
package final class StorageCopy {
    let engine: SQLiteEngine
    init(engine: SQLiteEngine) { self.engine = engine }

    /// Of a database that lies in a file, and that nobody else has open.
    package convenience init(of path: String) throws {
        let engine = try SQLiteEngine(path: path)
        defer { engine.close() }
        self.init(engine: try engine.copyInMemory())
    }
}

/// The configuration of documents.
package struct ContentOptions: Sendable {
    /// Outlives the service, as a disk does.
    package var store: any BlobStore
    package var configuration: Transfers.Configuration
    /// How many links an account may have; nil: nothing is published.
    package var linksMax: Int?
    /// The limit of an account's streams; nil: the usual one.
    package var streamBytesMax: Int?

    package init(
        store: any BlobStore, configuration: Transfers.Configuration = Transfers.Configuration(), linksMax: Int? = nil,
        streamBytesMax: Int? = nil
    ) {
        self.streamBytesMax = streamBytesMax
        self.store = store
        self.configuration = configuration
        self.linksMax = linksMax
    }
}

struct WeakEngine {
    private(set) weak var value: DeviceEngine?
    init(_ engine: DeviceEngine) { value = engine }
}
