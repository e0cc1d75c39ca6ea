// Also for what it does when it is linked.
internal import CNephosJemalloc
internal import Foundation
public import Logging
public import NephosBus
public import NephosCore
internal import NephosStorage
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
/// Its settings are those of the deployment and of the environment (``Settings``). Its log goes to standard error, at the
/// level of `logLevel`, or else of `NEPHOS_LOG_LEVEL`, or else `info`, in the form that `NEPHOS_LOG_FORMAT` names. The log also says when it answers, and why it ended.
///
/// - Parameters:
///   - deployment: The deployment directory; only the roster and this service's secrets are read.
///   - data: The service's own folder; made if it is not there. The database is `SERVICE.sqlite`.
///   - isSupervised: Whether it ends with the process that started it, and tells that it runs (``RunFolder``).
///   - beside: Begins what tells of the service while it runs; what it returns ends that.
///   - make: Makes the service, on its loop.
/// - Throws: ``LoggedFailure``, for files or values that do not fit, and for what storage or transport throw.
public func runService(
    _ name: ServiceName, deployment: String, data: String, logLevel: String? = nil, isSupervised: Bool = false,
    transport: any Transport,
    beside: @escaping @Sendable (ServiceStanding, Settings) throws -> @Sendable () -> Void = { _, _ in {} },
    make: @escaping @Sendable (ServiceRuntimeConfig) throws -> any CloudService
) async throws {
    try await withLog(of: name, deployment: deployment) { settings, sink in
        try await run(
            name, settings, sink, deployment: deployment, data: data, logLevel: logLevel, isSupervised: isSupervised,
            transport: transport, beside: beside, make: make)
    }
}

/// The configuration of a program beside the services. It is a client of theirs, without secrets of the deployment.
public struct ClientRuntimeConfig: Sendable {
    public var roster: Roster
    public var settings: Settings
    /// The program's own folder.
    public var dataDirectory: String
    public var logger: Logger
}

/// Runs a program beside the services until SIGTERM or SIGINT, with settings, a log and a data folder as services have.
///
/// - Parameters:
///   - name: Its name in settings and log.
///   - begin: Begins its work; what it returns ends that.
/// - Throws: ``LoggedFailure``.
public func runClient(
    _ name: ServiceName, deployment: String, data: String, logLevel: String? = nil,
    isSupervised: Bool = false,
    begin: @escaping @Sendable (ClientRuntimeConfig) async throws -> @Sendable () async -> Void
) async throws {
    try await withLog(of: name, deployment: deployment) { settings, sink in
        let logger = try makeLogger(name, settings, logLevel)
        if isSupervised {
            SupervisedLife.begin(
                holding: try HeldPlace(.service(name), in: RunFolder(deployment: deployment), isExclusive: false))
        }
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        defer { withExtendedLifetime(signals) {} }
        try makeDataFolder(data)
        let end = try await begin(
            ClientRuntimeConfig(
                roster: try DeploymentFiles(directory: deployment).roster(), settings: settings, dataDirectory: data,
                logger: logger))
        for name in settings.unknown {
            logger.warning("There is no such setting; it is ignored.", metadata: ["key": "\(name)"])
        }
        logger.info("It answers.")
        _ = await signals.first { _ in true }
        await end()
        logger.info("It has ended.")
    }
}

/// Runs a program whose log goes to standard error, and says there why it fails.
private func withLog(
    of name: ServiceName, deployment: String, _ body: (Settings, LogSink) async throws -> Void
) async throws {
    StandardStreams.occupy()
    // Whoever reads its log may go. It has more to do than to log.
    signal(SIGPIPE, SIG_IGN)
    let read = Result { () throws(CloudError) in try Settings.of(name, deployment: deployment) }
    let settings = (try? read.get()) ?? .ofEnvironment(name)
    let format = Result { try logFormat(settings) }
    let sink = LogSink((try? format.get()) ?? .text, of: name)
    // Once, before the first logger; every later one goes the same way.
    LoggingSystem.bootstrap { _ in ServiceLog(sink) }
    defer { sink.end() }
    do {
        _ = try read.get()
        _ = try format.get()
        try await body(settings, sink)
    } catch {
        // Whoever has started it needs all of it, such as the path or the value that does not fit.
        let error = CloudError(wrapping: error)
        sink.log(
            .critical, error.message,
            [("code", error.code.description)] + error.details.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        throw LoggedFailure()
    }
}

/// The service cannot run, and its log has said why.
public struct LoggedFailure: Error {}

private func run(
    _ name: ServiceName, _ settings: Settings, _ sink: LogSink, deployment: String, data: String, logLevel: String?,
    isSupervised: Bool, transport: any Transport,
    beside: @escaping @Sendable (ServiceStanding, Settings) throws -> @Sendable () -> Void,
    make: @escaping @Sendable (ServiceRuntimeConfig) throws -> any CloudService
) async throws {
    let logger = try makeLogger(name, settings, logLevel)
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
    try makeDataFolder(data)
    try UnfinishedRestore.require(noneIn: data)
    try UnfinishedRestore.require(noneIn: deployment)
    try await ServiceWorker(name: name, config: config, transport: transport, sink: sink, beside: beside, make: make)
        .run()
}

private func makeLogger(_ name: ServiceName, _ settings: Settings, _ logLevel: String?) throws(CloudError) -> Logger {
    var logger = Logger(label: "nephos.\(name)")
    let level = logLevel ?? settings.text("log_level", for: .all) ?? "info"
    guard let level = Logger.Level(rawValue: level) else {
        throw CloudError(
            .configurationInvalid, "There is no such log level. Use trace, debug, info, notice, warning or error.",
            details: ["log_level": level])
    }
    logger.logLevel = level
    return logger
}

private func makeDataFolder(_ data: String) throws(CloudError) {
    do {
        try FileManager.default.createDirectory(
            atPath: data, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    } catch {
        throw CloudError(
            .configurationInvalid, "The data folder cannot be made. Check its path and owner.",
            details: ["data": data])
    }
    try DeploymentFiles.requirePrivateFolder(data)
}

private func logFormat(_ settings: Settings) throws(CloudError) -> LogFormat {
    let named = settings.text("log_format", for: .all) ?? LogFormat.text.rawValue
    guard let format = LogFormat(rawValue: named) else {
        throw settings.invalid("log_format", "It is text or json.", for: .all)
    }
    return format
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
private struct ServiceWorker {
    let name: ServiceName
    let config: ServiceRuntimeConfig
    let transport: any Transport
    let sink: LogSink
    let beside: @Sendable (ServiceStanding, Settings) throws -> @Sendable () -> Void
    let make: @Sendable (ServiceRuntimeConfig) throws -> any CloudService

    func run() async throws {
        let host = Mutex<LoopBound<ServiceHost>?>(nil)
        // One that comes while it starts is heeded too. They are heard until the end: a second one is no other end.
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        defer { withExtendedLifetime(signals) {} }
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
        }
        var endBeside: (@Sendable () -> Void)?
        do {
            endBeside = try host.withLock { $0 }.map {
                try beside(ServiceStanding(name, $0, on: loop, sink), config.settings)
            }
            for name in config.settings.unknown {
                config.logger.warning("There is no such setting; it is ignored.", metadata: ["key": "\(name)"])
            }
            // No restore is copying: the database is held by this service.
            if let left = UnfinishedRestore.leftCopy(in: config.dataDirectory) {
                config.logger.warning(
                    "A restore that was killed has left a copy, which takes room and is of no use. Remove it.",
                    metadata: ["folder": "\(left)"])
            }
        } catch {
            await close(host.withLock { $0 }, loop)
            throw error
        }
        let signal = await signals.first { _ in true }
        // Whoever asks whether it is ready hears nothing any more.
        endBeside?()
        await close(
            host.withLock { $0 }, loop, because: SupervisedLife.hasEnded ? "supervisor gone" : Self.name(of: signal))
    }

    private static func name(of signal: UnixSignal?) -> String { signal == .sigint ? "SIGINT" : "SIGTERM" }

    /// What is under way may take so long: less than whoever stops services gives them.
    private static let drainTime: Duration = .seconds(3)

    /// - Parameter reason: Why it stops in good order; nil: it does not.
    private func close(_ host: LoopBound<ServiceHost>?, _ loop: any LoopHandle, because reason: String? = nil) async {
        if let bound = host {
            await withCheckedContinuation { done in
                loop.execute { loop in
                    bound.withValue(on: loop) { host in
                        guard let reason else { return host.close { done.resume() } }
                        host.stop(because: reason, within: Self.drainTime) { done.resume() }
                    }
                }
            }
        }
        loop.stop()
    }
}
