import ArgumentParser
import Foundation
import NephosBackup
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ

struct InitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "init", abstract: "Create a deployment: its keys, secrets and list of services.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The address that the services listen at; 0.0.0.0 or :: for all addresses of this machine.")
    var host = "127.0.0.1"

    @Option(help: "The name or address that devices connect to (default: --host).")
    var advertise: String?

    @Option(help: "The first of thirteen ports: two for each service, one for subscriptions, two for content.")
    var port = 7400

    @Option(help: "The web's port (default: --port and 80); 0 for none. Change it later: nephos settings")
    var webPort: Int?

    @Flag(
        help:
            "Give each service its own host, named after it (identity, keyvalue, documents, records, notifications), as docker compose does. Devices connect to --advertise (if empty: to the former address, or 127.0.0.1)."
    )
    var hostPerService = false

    @Flag(
        help:
            "Keep an existing deployment, except for --advertise and --hand-out. For scripts that run at each start."
    )
    var ifMissing = false

    @Option(
        help:
            "Also write a folder for each service into this folder, with the roster and that service's secrets only.",
        completion: .directory)
    var handOut: String?

    @Option(
        help:
            "The public half of an existing recovery key (nephos recovery-key new --only-print); then none is created (default: $NEPHOS_RECOVERY_KEY)."
    )
    var recoveryKey: String?

    func validate() throws {
        guard (0...65_535).contains(webPort ?? 0) else { throw ValidationError("--web-port is 0 to 65535.") }
        guard !hostPerService || advertise != nil else {
            throw ValidationError("--host-per-service needs --advertise: devices do not know those names.")
        }
    }

    func run() throws {
        let directory = deployment.directory
        // An empty one is none, as compose files hand on what is not set.
        let said = advertise.flatMap { $0.isEmpty ? nil : $0 }
        try said.map { try AdvertiseCommand.requireReachable($0) }
        if ifMissing, try directory.exists { return try keep(directory, advertising: said) }
        guard try !directory.exists else {
            throw CloudError(
                .alreadyExists, "There is a deployment in this folder already. It was left as it is.",
                details: ["deployment": directory.path])
        }
        guard said != nil || hostPerService || !LocalPorts.isWildcard(host) else {
            throw RosterChecks.standsForAll(host)
        }
        let (half, recovery) = try makeRecoveryKey()
        let made: Deployment
        do {
            made = try Deployment.create(
                directory: directory.path, host: hostPerService ? nil : host,
                advertisedHost: said ?? (hostPerService ? "127.0.0.1" : nil), basePort: port,
                transport: ZeroMQTransport(),
                // Those addresses are other hosts'.
                checking: { if !hostPerService { try RosterChecks.requireUsable($0, at: host, port) } },
                completing: { files in
                    try files.write(half)
                    // Elsewhere nephos up does not start it.
                    let isHere = !hostPerService && handOut == nil && port + 80 <= 65_535
                    let port = webPort ?? (isHere ? port + 80 : 0)
                    guard port > 0 else { return }
                    var settings = try files.settings()
                    try settings.set("NEPHOS_WEB_PORT", to: "\(port)")
                    try files.write(settings)
                })
        } catch let error as CloudError where ifMissing && error.code == .alreadyExists {
            // Another has made it meanwhile.
            return try keep(directory, advertising: said)
        }
        if !hostPerService, handOut == nil { try directory.prepare() }
        _ = try handOut.map { try DeploymentFiles(directory: directory.path).handOut(to: $0) }
        let connection = made.connection.description
        var told = ["deployment": directory.path, "connection": connection, "recovery_key_id": half.id]
        told["recovery_key"] = recovery?.text
        try output.print(
            told,
            text: "Created a deployment in \(directory.path).\n"
                + (recovery.map { RecoveryKeyCommand.text(of: $0) + "\n\n" } ?? "")
                + (hostPerService || handOut != nil
                    ? "Devices sign in with:\n\(connection)" : "Next, start it: nephos up"))
    }

    /// What backups are sealed to: what was given, or a key that is printed once.
    private func makeRecoveryKey() throws -> (PublicRecoveryKey, RecoveryKey?) {
        let environment = ProcessInfo.processInfo.environment["NEPHOS_RECOVERY_KEY"]
        if let given = recoveryKey ?? environment, !given.isEmpty { return (try PublicRecoveryKey(given), nil) }
        let key = RecoveryKey()
        return (key.publicKey, key)
    }

    /// What is said at each start of a deployment that is there.
    private func keep(_ directory: DeploymentDirectory, advertising host: String?) throws {
        try UnfinishedRestore.require(noneIn: directory.path)
        let files = DeploymentFiles(directory: directory.path)
        if let host, try files.roster().connectionString().host != host { try files.advertise(host) }
        let changed = try handOut.map { try files.handOut(to: $0) } ?? []
        let connection = try files.roster().connectionString().description
        try output.print(
            [
                "deployment": directory.path, "connection": connection,
                "changed": changed.map(\.rawValue).joined(separator: " "),
            ],
            text: (changed.isEmpty ? "" : "Handed out again: \(UpCommand.list(changed)). Restart them.\n")
                + "Devices sign in with:\n\(connection)")
    }
}

struct AdvertiseCommand: ParsableCommand, OwnTimeout {
    static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
    static let configuration = CommandConfiguration(
        commandName: "advertise", abstract: "Change the name or address that devices connect to.",
        discussion: """
            Devices in use learn the new address within ten minutes, as long as the old one works. New \
            devices sign in with the connection string that this command prints. A device that no longer \
            finds the server signs in again with it, without a password.
            """)

    @Argument(help: "A host name or an address.") var host: String
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func run() throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        try Self.requireReachable(host)
        let files = DeploymentFiles(directory: directory.path)
        try files.advertise(host)
        let isTold = try directory.restart([.identity])
        let connection = try files.roster().connectionString().description
        try output.print(
            ["connection": connection],
            text: (isTold ? "" : "Start identity again, if something else than nephos up runs it.\n")
                + "New devices sign in with:\n\(connection)")
    }

    /// - Throws: ``CloudError`` `.invalidArguments` for what no device can connect to.
    static func requireReachable(_ host: String) throws {
        guard !LocalPorts.isWildcard(host) else {
            throw CloudError(.invalidArguments, "No device can connect to this address.", details: ["host": host])
        }
        guard ConnectionString.isHost(host) else {
            throw CloudError(
                .invalidArguments, "This is no host. It is a name or an address, such as cloud.example.org.",
                details: ["host": host])
        }
    }
}

struct UpCommand: ParsableCommand, OwnTimeout {
    static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
    static let configuration = CommandConfiguration(
        commandName: "up", abstract: "Start the five services and keep them running.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Stay in the foreground until Ctrl-C.")
    var foreground = false

    @Flag(help: "Without the program for browsers and WebDAV.")
    var noWeb = false

    @Flag(help: "With --foreground: also end when standard input ends, for programs that start a deployment.")
    var supervised = false

    func validate() throws {
        guard foreground || !supervised else { throw ValidationError("--supervised goes with --foreground.") }
    }

    func run() throws {
        let directory = deployment.directory
        try UnfinishedRestore.require(noneIn: directory.path)
        try directory.requireDeployment()
        try directory.prepare()
        if directory.supervisor == nil {
            let left = try directory.endLeftOvers()
            if !left.isEmpty {
                Standard.error(
                    "An earlier run was ended from outside. What was left of it has ended: \(Self.list(left)).")
            }
        }
        if foreground {
            // Else those would be told of who listen for this very deployment.
            if let running = directory.supervisor { throw Self.runsAlready(running, directory) }
            try requireSecrets(directory)
            do { try requireFreePorts(directory) } catch {
                // Somebody else may have started it since.
                throw directory.supervisor.map { Self.runsAlready($0, directory) } ?? error
            }
            try Supervisor(
                directory: directory, isSupervised: supervised, runsWeb: !noWeb && directory.web != nil
            ).run()
            return
        }
        let isNew = try start(directory)
        try output.print(
            ["state": "running", "deployment": directory.path],
            text: isNew
                ? "The five services are up. Logs: nephos logs. Stop them with: nephos down"
                    + (noWeb ? "" : directory.webAddress.map { "\nIn a browser: \($0)" } ?? "")
                    + Terminal.hint(nextStep(directory))
                : "It is running already. See: nephos status")
    }

    /// A deployment without accounts needs one.
    private func nextStep(_ directory: DeploymentDirectory) -> String {
        let reply = try? OperatorConnection(directory: directory)
            .call(.identity, WireListAccounts(), returning: WireListAccountsReply.self)
        return reply?.accounts.isEmpty == true ? "\nNext, create an account: nephos account create NAME" : ""
    }

    /// - Returns: False when another one runs it already.
    private func start(_ directory: DeploymentDirectory) throws -> Bool {
        // Interrupted, it takes back what it has begun.
        Interrupt.hold()
        if directory.supervisor != nil {
            try waitUntilHealthy(directory, started: nil)
            return false
        }
        try requireSecrets(directory)
        do { try requireFreePorts(directory) } catch {
            // Somebody else may have started it since.
            guard directory.supervisor != nil else { throw error }
            try waitUntilHealthy(directory, started: nil)
            return false
        }
        let log = LogTail(directory.supervisorLog)
        let pid = try Spawn.detached(
            Spawn.sibling("nephos"),
            ["up", "--foreground", "--deployment", directory.path] + (noWeb ? ["--no-web"] : []),
            log: directory.supervisorLog)
        do { try waitUntilHealthy(directory, started: (pid, log)) } catch {
            // Nothing is left behind. What went wrong first is what the caller has to hear.
            if waitpid(pid, nil, WNOHANG) == 0 {
                kill(pid, SIGTERM)
                waitpid(pid, nil, 0)
            }
            _ = try? directory.endLeftOvers()
            throw error
        }
        return directory.supervisor == pid
    }

    /// - Parameter started: The supervisor that was started, and its log from then on; nil: one that ran before.
    private func waitUntilHealthy(_ directory: DeploymentDirectory, started: (pid: pid_t, log: LogTail)?) throws {
        let deadline = ContinuousClock.now + (directory.timeout ?? DeploymentDirectory.restartTimeout)
        var waitingFor: ServiceName?
        let connection = try OperatorConnection(directory: directory)
        while ContinuousClock.now < deadline {
            try Interrupt.check()
            let states = try connection.health(timeout: .seconds(1))
            guard let missing = states.first(where: { $0.reply == nil })?.service ?? silentWeb(directory) else {
                return try Interrupt.check()
            }
            waitingFor = missing
            if let started {
                // Its own end is only an end if nobody else was quicker.
                if waitpid(started.pid, nil, WNOHANG) != 0, directory.supervisor == nil {
                    throw CloudError(
                        .serviceUnavailable, "The services could not be started. The log says why.",
                        details: ["log": directory.supervisorLog, "last_line": started.log.lastLine])
                }
                // What cannot start does not start the third time either.
                if let failing = ServiceName.programs.first(where: { started.log.count(of: "\($0) ") > 1 }) {
                    throw Self.cannotStart(failing, directory)
                }
            }
            usleep(50_000)
        }
        let service = waitingFor ?? .identity
        guard let pid = directory.pid(of: service) else { throw Self.cannotStart(service, directory) }
        throw CloudError(
            .serviceUnavailable, "A service runs, and does not answer.",
            details: [
                "service": service.rawValue, "pid": "\(pid)", "log": directory.log(of: service),
                "last_line": LogTail(whole: directory.log(of: service)).lastLine,
            ])
    }

    /// The web's program, if it is to run and does not listen yet.
    private func silentWeb(_ directory: DeploymentDirectory) -> ServiceName? {
        guard !noWeb, let (host, port) = try? directory.web else { return nil }
        return LocalPorts.isFree("tcp://\(host.contains(":") ? "[\(host)]" : host):\(port)") ? .web : nil
    }

    private static func cannotStart(_ service: ServiceName, _ directory: DeploymentDirectory) -> CloudError {
        let log = directory.log(of: service)
        if var failure = LogTail(whole: log).failure {
            failure.details.merge(["service": service.rawValue, "log": log]) { own, _ in own }
            return failure
        }
        return CloudError(
            .serviceUnavailable, "A service does not start. Its log says why.",
            details: ["service": service.rawValue, "log": log, "last_line": LogTail(whole: log).lastLine])
    }

    private static func runsAlready(_ supervisor: pid_t, _ directory: DeploymentDirectory) -> CloudError {
        CloudError(
            .alreadyExists, "It runs already. See: nephos status",
            details: ["deployment": directory.path, "pid": "\(supervisor)"])
    }

    static func list(_ services: [ServiceName]) -> String { services.map(\.rawValue).joined(separator: ", ") }

    /// Before anything is started that could only end again.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` that names the file which is missing, damaged, or readable by
    ///   others.
    private func requireSecrets(_ directory: DeploymentDirectory) throws {
        let files = DeploymentFiles(directory: directory.path)
        for service in ServiceName.all { _ = try files.secrets(of: service) }
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` that names the address another program listens at.
    private func requireFreePorts(_ directory: DeploymentDirectory) throws {
        for entry in try DeploymentFiles(directory: directory.path).roster().services {
            for endpoint in entry.endpoints
            where !LocalPorts.isFree(endpoint) {
                throw CloudError(
                    .configurationInvalid,
                    "Another program listens at an address of this deployment. Stop it, or make a deployment with another --port.",
                    details: ["address": endpoint, "service": entry.service])
            }
        }
        guard !noWeb, let (host, port) = try directory.web else { return }
        guard LocalPorts.isFree("tcp://\(host.contains(":") ? "[\(host)]" : host):\(port)") else {
            throw CloudError(
                .configurationInvalid,
                "Another program listens at the port for browsers and WebDAV. Use another one (nephos settings set NEPHOS_WEB_PORT=8080), or none (nephos up --no-web).",
                details: ["address": "\(host):\(port)"])
        }
    }
}

struct DownCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "down", abstract: "Stop the services.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func run() throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        let stopped = try directory.stopServices()
        let services = stopped.compactMap { if case .service(let name) = $0 { name } else { nil } }
        let text: String
        if stopped.contains(.supervisor) {
            text = "Stopped."
        } else if !stopped.isEmpty {
            text = "Its supervisor had ended before. What was left of it has ended: \(UpCommand.list(services))."
        } else {
            try requireSilence(directory)
            text = "It is not running."
        }
        try output.print(["state": "stopped"], text: text)
    }

    /// - Throws: ``CloudError`` `.constraintViolation` when services answer that something else has started.
    private func requireSilence(_ directory: DeploymentDirectory) throws {
        let answering = try OperatorConnection(directory: directory).health(timeout: .seconds(1))
            .filter { $0.reply != nil }.map(\.service)
        guard !answering.isEmpty else { return }
        throw CloudError(
            .constraintViolation,
            "Services of this deployment answer that nephos up has not started here. Stop them where they were started.",
            details: ["services": UpCommand.list(answering)])
    }
}
