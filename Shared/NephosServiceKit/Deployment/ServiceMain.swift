// Also for what it does when it is linked.
internal import CJemalloc
internal import Foundation
public import Logging
public import NephosBus
public import NephosCore
internal import NephosStorage
internal import ServiceLifecycle
internal import Synchronization
internal import UnixSignals

/// What a service is made from.
public struct ServiceRuntimeConfig: Sendable {
    public var roster: Roster
    public var secrets: ServiceSecrets
    public var settings: Settings
    /// The service's own folder.
    public var dataDirectory: String
    public var logger: Logger
}

/// How long the loop of a service that answers requests looks for news before it sleeps; what Linux takes for a
/// virtual processor. Notifications does not: nobody waits for its answer, and what it is told of comes between two
/// commits, when others need the processor.
public let serviceBusyPollMax: Duration = .microseconds(200)

/// Runs one service until SIGTERM or SIGINT: what the five executables call.
///
/// Prints one line when the service answers. Logs go to standard error, at the
/// level of `logLevel`, or else of `NEPHOS_LOG_LEVEL`, or else `info`.
///
/// - Parameters:
///   - deployment: The deployment directory; only the roster and this service's secrets are read.
///   - data: The service's own folder; made if it is not there. The database is `SERVICE.sqlite`.
///   - isSupervised: Whether it ends with the process that started it, and tells that it runs (``RunFolder``).
///   - beside: Begins what tells of the service while it runs; what it returns ends that.
///   - make: Makes the service, on its loop.
/// - Throws: ``CloudError`` `.configurationInvalid` for files or values that do not fit,
///   and what storage or transport throw.
public func runService(
    _ name: ServiceName, deployment: String, data: String, logLevel: String? = nil, isSupervised: Bool = false,
    transport: any Transport,
    beside: @escaping @Sendable (ServiceStanding, Settings) throws -> @Sendable () -> Void = { _, _ in {} },
    make: @escaping @Sendable (ServiceRuntimeConfig) throws -> any CloudService
) async throws {
    StandardStreams.occupy()
    // Once, before the first logger; every later one goes the same way.
    LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
    let settings = Settings.ofEnvironment(name)
    var logger = Logger(label: "nephos.\(name)")
    let level = logLevel ?? settings.text("log_level", for: .all) ?? "info"
    guard let level = Logger.Level(rawValue: level) else {
        throw CloudError(
            .configurationInvalid, "There is no such log level. Use trace, debug, info, notice, warning or error.",
            details: ["log_level": level])
    }
    logger.logLevel = level
    try limitMemory(settings)

    if isSupervised {
        let place = RunFolder.Place.service(name)
        SupervisedLife.begin(
            holding: try HeldPlace(place, in: RunFolder(deployment: deployment), isExclusive: false))
    }
    let files = DeploymentFiles(directory: deployment)
    var config = ServiceRuntimeConfig(
        roster: try files.roster(), secrets: try files.secrets(of: name), settings: settings, dataDirectory: data,
        logger: logger)
    if let host = settings.text("listen_host", for: .all) {
        guard LocalPorts.isAddress(host) else {
            throw settings.invalid("listen_host", "It is an address of this machine, such as 0.0.0.0.", for: .all)
        }
        try config.roster.bind(name, at: host)
    }
    do {
        try FileManager.default.createDirectory(
            atPath: data, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    } catch {
        throw CloudError(
            .configurationInvalid, "The data folder cannot be made. Check its path and owner.",
            details: ["data": data])
    }
    try DeploymentFiles.requirePrivateFolder(data)
    try UnfinishedRestore.require(noneIn: data)
    try UnfinishedRestore.require(noneIn: deployment)
    let worker = ServiceWorker(name: name, config: config, transport: transport, beside: beside, make: make)
    let group = ServiceGroup(
        configuration: ServiceGroupConfiguration(
            services: [worker], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
    try await group.run()
}

/// What a service may have of memory that is its own, where its operator says nothing: about ten times what it needs.
private let memoryBytesMax = 2 << 30

/// A last bound beside all the others: a service that passes it ends, and is started again, before the machine has no
/// memory left for anybody.
private func limitMemory(_ settings: Settings) throws {
    let limit = try settings.integer("memory_bytes_max", default: memoryBytesMax, in: 0...1 << 50, for: .all)
    // 0: as much as there is.
    guard limit != 0 else { return }
    guard limit >= 256 << 20, nephos_limit_memory(UInt(limit)) == 0 else {
        throw settings.invalid(
            "memory_bytes_max", "A service needs at least 268435456 bytes. Use 0 for no limit.", for: .all)
    }
}

/// Keeps one service running on a loop until it is told to stop.
struct ServiceWorker: Service {
    let name: ServiceName
    let config: ServiceRuntimeConfig
    let transport: any Transport
    let beside: @Sendable (ServiceStanding, Settings) throws -> @Sendable () -> Void
    let make: @Sendable (ServiceRuntimeConfig) throws -> any CloudService

    func run() async throws {
        let host = Mutex<LoopBound<ServiceHost>?>(nil)
        let endpoint = Mutex("")
        let loop = try transport.startLoop(named: name.rawValue) { [name, config, make] loop in
            let made = try ServiceHost(
                loop: loop, service: try make(config), roster: config.roster, secrets: config.secrets,
                engine: try SQLiteEngine(
                    path: "\(config.dataDirectory)/\(name).sqlite",
                    // Devices bring back what the others kept; accounts and who may sign in only identity knows.
                    ifLost: name == .identity ? .refuse : .beginAnew, logger: config.logger),
                budgets: try BudgetConfiguration(config.settings),
                logger: config.logger)
            let bound = LoopBound(made, to: loop)
            host.withLock { $0 = bound }
            endpoint.withLock { $0 = made.endpoint }
        }
        var endBeside: (@Sendable () -> Void)?
        do {
            endBeside = try host.withLock { $0 }.map {
                try beside(ServiceStanding(name, $0, on: loop), config.settings)
            }
            for name in config.settings.unknown(in: ProcessInfo.processInfo.environment.keys) {
                config.logger.warning("There is no such setting; it is ignored.", metadata: ["key": "\(name)"])
            }
            // No restore is copying: the database is held by this service.
            if let left = UnfinishedRestore.leftCopy(in: config.dataDirectory) {
                config.logger.warning(
                    "A restore that was killed has left a copy, which takes room and is of no use. Remove it.",
                    metadata: ["folder": "\(left)"])
            }
            // Whoever reads this relies on it: nothing of the start can fail any more.
            print("nephos-\(name) answers at \(endpoint.withLock { $0 })")
            fflush(nil)
            // Ends with the graceful stop, or with the task.
            try? await gracefulShutdown()
        } catch {
            await close(host.withLock { $0 }, loop)
            throw error
        }
        endBeside?()
        await close(host.withLock { $0 }, loop)
    }

    private func close(_ host: LoopBound<ServiceHost>?, _ loop: any LoopHandle) async {
        if let bound = host {
            await withCheckedContinuation { done in
                loop.execute { loop in
                    bound.withValue(on: loop) { $0.close { done.resume() } }
                }
            }
        }
        loop.stop()
    }
}
