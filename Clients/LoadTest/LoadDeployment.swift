import Foundation
import NephosCore
import NephosServiceKit

/// The deployment under load: a given one, or one of its own.
///
/// Its own has no budgets of requests (but where they are what is measured), the cheapest password hash that is
/// allowed, tokens that outlive a long run, and as many connections for one device as
/// there are subscribers; everything that is measured (CURVE, fsync before each
/// acknowledgement, sealing) is as always.
final class LoadDeployment: Sendable {
    let directory: String
    /// Whether it goes with the run, and all accounts in it.
    let isOwn: Bool
    /// Removes what is its own; nil: nothing is.
    private let cleanup: Int?

    init(directory given: String?, tokenLifetime: Duration = .seconds(86_400), hasBudgets: Bool = false) throws {
        if let given {
            directory = given
            isOwn = false
            cleanup = nil
            return
        }
        isOwn = true
        for service in ["IDENTITY", "KEYVALUE", "DOCUMENTS", "RECORDS", "NOTIFICATIONS"] where !hasBudgets {
            setenv("NEPHOS_\(service)_BUDGET_CAPACITY", "0", 1)
            setenv("NEPHOS_\(service)_ACCOUNT_BUDGET_CAPACITY", "0", 1)
        }
        setenv("NEPHOS_IDENTITY_SCRYPT_ROUNDS", "16384", 1)
        setenv("NEPHOS_IDENTITY_ACCESS_TOKEN_LIFETIME_SECONDS", "\(tokenLifetime.components.seconds)", 1)
        setenv("NEPHOS_NOTIFICATIONS_CONNECTIONS_PER_DEVICE_MAX", "50000", 1)
        let made = try TemporaryDeployment()
        let cleanup = Cleanup.shared.add { made.close() }
        self.cleanup = cleanup
        do { directory = try made.start() } catch {
            Cleanup.shared.run(cleanup)
            throw error
        }
    }

    /// Stops and removes a deployment of our own.
    func close() {
        if let cleanup { Cleanup.shared.run(cleanup) }
    }

    /// The process that a service runs as.
    ///
    /// - Throws: ``CloudError`` `.serviceUnavailable` when it runs as none.
    func processID(of service: ServiceName) throws(CloudError) -> pid_t {
        guard let pid = RunFolder(deployment: directory).holder(of: .service(service)), pid > 0 else {
            throw CloudError(
                .serviceUnavailable, "The service does not run.", details: ["service": service.rawValue])
        }
        return pid
    }

    /// Resident bytes of a service's process.
    func residentBytes(of service: ServiceName) -> Int? {
        guard let pid = try? processID(of: service) else { return nil }
        let bytes = Memory(of: pid).resident
        return bytes > 0 ? bytes : nil
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
}
