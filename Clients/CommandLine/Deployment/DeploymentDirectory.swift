import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit

/// A deployment's folder: roster and secrets (see `NephosServiceKit`), and for a
/// local deployment the services' data and logs.
struct DeploymentDirectory {
    let path: String
    /// How long a command waits for the services; nil: as long as it thinks right.
    var timeout: Duration?

    /// How long services may take to start.
    static let restartTimeout: Duration = .seconds(30)

    /// `$NEPHOS_DEPLOYMENT`, or `~/.nephos/deployment`.
    static var standardPath: String {
        ProcessInfo.processInfo.environment["NEPHOS_DEPLOYMENT"]
            ?? FileManager.default.homeDirectoryForCurrentUser.appendingPathComponent(".nephos/deployment").path
    }

    /// Whether there is a deployment in the folder.
    ///
    /// - Throws: ``CloudError`` `.permissionFailure` when this user may not know.
    var exists: Bool {
        get throws(CloudError) {
            var information = stat()
            guard stat(path + "/roster.json", &information) != 0 else { return true }
            guard errno == EACCES else { return false }
            throw CloudError(
                .permissionFailure, "This user may not look into the deployment's folder. Run this as its owner.",
                details: ["deployment": path])
        }
    }

    func data(of service: ServiceName) -> String { "\(path)/data/\(service)" }
    func log(of service: ServiceName) -> String { "\(path)/log/\(service).log" }
    var supervisorLog: String { "\(path)/log/supervisor.log" }

    /// Makes the folders of a local deployment.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` that names the folder which cannot be made.
    func prepare() throws(CloudError) {
        for folder in ["run", "log"] + ServiceName.programs.map({ "data/\($0)" }) {
            do {
                try FileManager.default.createDirectory(
                    atPath: "\(path)/\(folder)", withIntermediateDirectories: true,
                    attributes: [.posixPermissions: 0o700])
            } catch {
                throw CloudError(
                    .configurationInvalid,
                    "A folder of the deployment cannot be made. Is a file in its place, or the disk read-only?",
                    details: ["folder": "\(path)/\(folder)"])
            }
        }
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` when there is no deployment here, `.permissionFailure` when
    ///   this user may not know.
    func requireDeployment() throws(CloudError) {
        guard try !exists else { return }
        try DeploymentFiles(directory: path).requireNoLeftSecrets()
        throw CloudError(
            .configurationInvalid, "There is no deployment in this folder. Make one with: nephos init",
            details: ["deployment": path])
    }
}

// What runs.
extension DeploymentDirectory {
    var runFolder: RunFolder { RunFolder(deployment: path) }

    /// The running supervisor, or nil.
    var supervisor: pid_t? { runFolder.holder(of: .supervisor) }

    /// The service's running process, or nil.
    func pid(of service: ServiceName) -> pid_t? { runFolder.holder(of: .service(service)) }

    /// The services that run, in order, and the web's program.
    var running: [ServiceName] { ServiceName.programs.filter { pid(of: $0) != nil } }

    /// Where the web's program listens; nil: it is switched off.
    var web: (host: String, port: Int)? {
        get throws(CloudError) { try Settings.of(.web, deployment: path).web() }
    }

    /// Its address on this machine.
    var webAddress: String? { (try? Settings.of(.web, deployment: path).webAddress()) ?? nil }

    /// Services whose supervisor is gone end by themselves within this.
    private static let farewell = Supervisor.grace + .seconds(3)

    /// Ends the supervisor and the services, and whatever is left of either; returns when nothing runs any more.
    ///
    /// - Returns: What ran: empty if nothing did.
    /// - Throws: ``CloudError`` `.permissionFailure` when it belongs to another user; `.deadlineExceeded` when even
    ///   SIGKILL does not end it.
    func stopServices() throws(CloudError) -> [RunFolder.Place] {
        let found = RunFolder.Place.all.filter { runFolder.holder(of: $0) != nil }
        if found.contains(.supervisor) {
            // It gives each service its time.
            try end(.supervisor, within: Supervisor.grace * (ServiceName.programs.count + 1))
        }
        try endLeftOvers()
        return found
    }

    /// Waits for services whose supervisor is gone, and ends what does not end by itself.
    ///
    /// - Returns: The services that were left over.
    @discardableResult
    func endLeftOvers() throws(CloudError) -> [ServiceName] {
        let found = running
        guard !found.isEmpty else { return [] }
        // One that was stopped cannot see that its time has come.
        for service in found { try runFolder.signal(.service(service), SIGCONT) }
        _ = waits(within: Self.farewell) { running.isEmpty }
        for service in running { try end(.service(service), within: Supervisor.grace) }
        return found
    }

    private func end(_ place: RunFolder.Place, within limit: Duration) throws(CloudError) {
        let pid = runFolder.holder(of: place)
        try runFolder.signal(place, SIGTERM)
        // One that was stopped hears nothing else.
        try runFolder.signal(place, SIGCONT)
        if waits(within: limit, until: { runFolder.holder(of: place) != pid }) { return }
        if runFolder.holder(of: place) == pid { try runFolder.signal(place, SIGKILL) }
        if waits(within: .seconds(10), until: { runFolder.holder(of: place) != pid }) { return }
        throw CloudError(
            .deadlineExceeded, "A process of the deployment does not end.", details: ["pid": "\(pid ?? 0)"])
    }

    private func waits(within limit: Duration, until isDone: () -> Bool) -> Bool {
        let deadline = ContinuousClock.now + limit
        while !isDone() {
            guard ContinuousClock.now < deadline else { return false }
            usleep(20_000)
        }
        return true
    }
}

/// Which deployment a command is about.
struct DeploymentOptions: ParsableArguments {
    @Option(
        name: .long, help: "The deployment's folder (default: $NEPHOS_DEPLOYMENT, or ~/.nephos/deployment).",
        completion: .directory)
    var deployment: String?
    @OptionGroup var wait: WaitOptions

    var directory: DeploymentDirectory {
        DeploymentDirectory(
            path: URL(fileURLWithPath: deployment ?? DeploymentDirectory.standardPath).standardizedFileURL.path,
            timeout: wait.given)
    }
}
