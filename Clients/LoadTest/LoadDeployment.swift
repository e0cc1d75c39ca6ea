import Core
import Foundation
import ServiceKit

/// The deployment under load: a given one, or one of its own.
///
/// Its own has no budgets of requests, the cheapest password hash that is allowed,
/// tokens that outlive a long run, and as many connections for one device as
/// there are subscribers; everything that is measured (CURVE, fsync before each
/// acknowledgement, sealing) is as always.
final class LoadDeployment: Sendable {
    let directory: String
    private let isOwn: Bool

    init(directory given: String?, tokenLifetime: Duration = .seconds(86_400)) throws {
        if let given {
            directory = given
            isOwn = false
            return
        }
        isOwn = true
        directory = NSTemporaryDirectory() + "nephos-load-\(getpid())"
        for service in ["IDENTITY", "KEYVALUE", "NOTIFICATIONS"] {
            setenv("NEPHOS_\(service)_BUDGET_CAPACITY", "0", 1)
            setenv("NEPHOS_\(service)_ACCOUNT_BUDGET_CAPACITY", "0", 1)
        }
        setenv("NEPHOS_IDENTITY_SCRYPT_ROUNDS", "16384", 1)
        setenv("NEPHOS_IDENTITY_ACCESS_TOKEN_LIFETIME_SECONDS", "\(tokenLifetime.components.seconds)", 1)
        setenv("NEPHOS_NOTIFICATIONS_CONNECTIONS_PER_DEVICE_MAX", "50000", 1)
        guard let port = LocalPorts.firstFree(from: 20_000 + Int(getpid()) % 10_000) else {
            throw CloudError(.serviceUnavailable, "No free ports were found on this machine.")
        }
        try Self.nephos(["init", "--deployment", directory, "--port", "\(port)"])
        do { try Self.nephos(["up", "--deployment", directory]) } catch {
            close()
            throw error
        }
    }

    /// Stops and removes a deployment of our own.
    func close() {
        guard isOwn else { return }
        try? Self.nephos(["down", "--deployment", directory])
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// The process that a service runs as.
    ///
    /// - Throws: ``CloudError`` `.serviceUnavailable` when it runs as none.
    func processID(of service: ServiceName) throws(CloudError) -> pid_t {
        guard let text = try? String(contentsOfFile: "\(directory)/run/\(service).pid", encoding: .utf8),
            let pid = pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)), kill(pid, 0) == 0
        else {
            throw CloudError(
                .serviceUnavailable, "The service does not run.", details: ["service": service.rawValue])
        }
        return pid
    }

    /// Resident bytes of a service's process.
    func residentBytes(of service: ServiceName) -> Int? {
        guard let pid = try? processID(of: service),
            let status = try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8),
            let line = status.split(separator: "\n").first(where: { $0.hasPrefix("VmRSS:") }),
            let kilobytes = Int(line.split(separator: " ").dropFirst().first ?? "")
        else { return nil }
        return kilobytes * 1024
    }

    /// Processor time that a service's process has used.
    func processorTime(of service: ServiceName) -> Duration {
        guard let pid = try? processID(of: service) else { return .zero }
        return Self.processorTime(ofProcess: "\(pid)")
    }

    /// Processor time of this process, the load's generator.
    static var ownProcessorTime: Duration { processorTime(ofProcess: "self") }

    private static func processorTime(ofProcess pid: String) -> Duration {
        // The fields after the name, which may have spaces, in ticks of 1/100 s: user and system time.
        guard let text = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8),
            let end = text.lastIndex(of: ")")
        else { return .zero }
        let fields = text[end...].split(separator: " ")
        guard fields.count > 13, let user = Int(fields[12]), let system = Int(fields[13]) else { return .zero }
        return .milliseconds((user + system) * 10)
    }

    private static func nephos(_ arguments: [String]) throws {
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let program = URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent("nephos").path
        // Not Foundation's Process: it waits for all that the command leaves running, too.
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        var words = ([program] + arguments).map { strdup($0) } + [nil]
        defer { words.forEach { free($0) } }
        var pid = pid_t()
        var status: Int32 = -1
        let started = posix_spawn(&pid, program, &actions, nil, &words, environ) == 0
        guard started, waitpid(pid, &status, 0) == pid, status == 0 else {
            throw CloudError(
                .serviceUnavailable, "The deployment under load could not be started or stopped.",
                details: ["command": "nephos " + arguments.joined(separator: " ")])
        }
    }
}
