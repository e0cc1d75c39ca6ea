import ArgumentParser
import Core
import Foundation

/// A deployment's folder: roster and secrets (see `ServiceKit`), and for a
/// local deployment the services' data, logs and process ids.
struct DeploymentDirectory {
    let path: String

    /// `$NEPHOS_DEPLOYMENT`, or `~/.nephos/deployment`.
    static var standardPath: String {
        ProcessInfo.processInfo.environment["NEPHOS_DEPLOYMENT"]
            ?? FileManager.default.homeDirectoryForCurrentUser.appendingPathComponent(".nephos/deployment").path
    }

    var exists: Bool { FileManager.default.fileExists(atPath: path + "/roster.json") }

    func data(of service: ServiceName) -> String { "\(path)/data/\(service)" }
    func log(of service: ServiceName) -> String { "\(path)/log/\(service).log" }
    var supervisorLog: String { "\(path)/log/supervisor.log" }

    /// Makes the folders of a local deployment.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` that names the folder which cannot be made.
    func prepare() throws(CloudError) {
        for folder in ["run", "log"] + ServiceName.all.map({ "data/\($0)" }) {
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

    /// - Throws: ``CloudError`` `.configurationInvalid` when there is no deployment here.
    func requireDeployment() throws(CloudError) {
        guard exists else {
            throw CloudError(
                .configurationInvalid, "There is no deployment in this folder. Make one with: nephos init",
                details: ["deployment": path])
        }
    }
}

// Process ids.
extension DeploymentDirectory {
    private func pidFile(_ name: String) -> String { "\(path)/run/\(name).pid" }

    private func readPid(_ name: String) -> pid_t? {
        guard let text = try? String(contentsOfFile: pidFile(name), encoding: .utf8),
            let pid = pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)), Spawn.isRunning(pid)
        else { return nil }
        return pid
    }

    /// The running supervisor, or nil.
    var supervisor: pid_t? { readPid("supervisor") }

    /// Ends the supervisor, and with it the services; returns when they have ended.
    ///
    /// - Returns: False if nothing was running.
    /// - Throws: ``CloudError`` `.deadlineExceeded` after 30 seconds.
    func stopServices() throws(CloudError) -> Bool {
        guard let pid = supervisor else { return false }
        kill(pid, SIGTERM)
        let deadline = ContinuousClock.now + .seconds(30)
        while Spawn.isRunning(pid), ContinuousClock.now < deadline { usleep(20_000) }
        guard !Spawn.isRunning(pid) else {
            throw CloudError(
                .deadlineExceeded, "The services did not stop within 30 seconds.", details: ["pid": "\(pid)"])
        }
        return true
    }

    /// The service's running process, or nil.
    func pid(of service: ServiceName) -> pid_t? { readPid(service.rawValue) }

    func write(pid: pid_t, of service: ServiceName) throws {
        try "\(pid)\n".write(toFile: pidFile(service.rawValue), atomically: true, encoding: .utf8)
    }

    func write(pid: pid_t) throws {
        try "\(pid)\n".write(toFile: pidFile("supervisor"), atomically: true, encoding: .utf8)
    }

    func removePid() {
        for name in ["supervisor"] + ServiceName.all.map(\.rawValue) {
            try? FileManager.default.removeItem(atPath: pidFile(name))
        }
    }
}

/// Which deployment a command is about.
struct DeploymentOptions: ParsableArguments {
    @Option(
        name: .long, help: "The deployment's folder (default: $NEPHOS_DEPLOYMENT, or ~/.nephos/deployment).",
        completion: .directory)
    var deployment: String?

    var directory: DeploymentDirectory {
        DeploymentDirectory(
            path: URL(fileURLWithPath: deployment ?? DeploymentDirectory.standardPath).standardizedFileURL.path)
    }
}
