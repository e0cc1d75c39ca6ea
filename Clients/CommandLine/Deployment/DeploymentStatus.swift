import Foundation
import NephosCore
import NephosServiceKit
import NephosWire

/// What runs of a deployment, how it is, and where devices connect.
struct DeploymentStatus: Encodable {
    struct Service: Encodable {
        var service: String
        var state: String
        var pid: Int32?
        var uptimeMilliseconds: UInt64?
        var followerLag: [String: UInt64]
        var counters: [String: UInt64]
        /// Requests that each device, and each account, may make at once; 0: no limit.
        var deviceBudget: UInt32?
        var accountBudget: UInt32?
        /// The history that the database is in.
        var epoch: UInt64?
    }

    var connection: String
    /// Where browsers and programs for WebDAV reach it; nil: it is switched off.
    var web: String?
    /// `up`, `stopped`, or `foreign`: services answer that something else than `nephos up` runs.
    var state: String
    var supervisorPid: Int32?
    var services: [Service]
    var figures: DeploymentFigures
    /// Settings that differ from their defaults.
    var settings: [String: String]

    /// The state of a service that answers, and takes only what makes room.
    private static let full = "disk full"
    /// Of one that does not find the files of its contents.
    private static let missing = "content missing"
    /// Of one that cannot read some of its contents, or has keys, records or documents in quarantine.
    private static let damaged = "damaged"
    /// Of one that was not started.
    private static let stopped = "stopped"
    /// The state of a service that should answer and does not.
    private static let silent = "not answering"

    /// How a service is that answers.
    private static func state(of health: WireCheckHealthReply) -> String {
        if health.shortOfRoom { return full }
        if health.counters["content.missing"] ?? 0 > 0 { return missing }
        return ["chunks.damaged", quarantined].contains { health.counters[$0] ?? 0 > 0 } ? damaged : "up"
    }

    /// By this name services count what is in quarantine.
    private static let quarantined = "quarantine.now"

    private static func isAnswering(_ service: Service) -> Bool {
        ["up", full, missing, damaged].contains(service.state)
    }

    init(_ directory: DeploymentDirectory) throws {
        let operatorConnection = try OperatorConnection(directory: directory)
        let supervisor = directory.supervisor
        let answers = try operatorConnection.health(timeout: directory.timeout ?? .seconds(2))
        services = answers.map { health in
            let pid = directory.pid(of: health.service)
            return Service(
                service: health.service.rawValue,
                state: health.reply.map(Self.state)
                    ?? (pid == nil && supervisor == nil ? Self.stopped : Self.silent),
                pid: pid,
                uptimeMilliseconds: health.reply?.uptimeMilliseconds,
                followerLag: health.reply?.followerLag ?? [:],
                counters: health.reply?.counters ?? [:], deviceBudget: health.reply?.deviceBudget.capacity,
                accountBudget: health.reply?.accountBudget.capacity, epoch: health.reply?.epoch)
        }
        figures = DeploymentFigures(directory, answers.compactMap(\.reply), isSupervised: supervisor != nil)
        settings = try DeploymentFiles(directory: directory.path).settings().values
        let isSomethingUp = services.contains(where: Self.isAnswering)
        connection = try operatorConnection.connectionString.description
        web = directory.webAddress.map { directory.pid(of: .web) == nil ? "\($0) (stopped)" : $0 }
        supervisorPid = supervisor
        state = supervisorPid != nil ? "up" : isSomethingUp ? "foreign" : "stopped"
    }

    /// - Parameter isVerbose: Whether epochs and every followed service are listed, not only what is behind.
    func text(_ directory: DeploymentDirectory, isVerbose: Bool) -> String {
        guard services.contains(where: { $0.state != Self.stopped }) else {
            return "The deployment is stopped. Start it with: nephos up\n\nconnection  \(connection)"
        }
        let follows = services.map { service in
            service.followerLag.sorted { $0.key < $1.key }.filter { isVerbose || $0.value > 0 }
                .map { "\($0.key) \($0.value == 0 ? "in step" : "\($0.value) behind")" }.joined(separator: ", ")
        }
        var heading = ["SERVICE", "STATE", "PID", "UP"]
        if isVerbose { heading.append("EPOCH") }
        let showsFollows = follows.contains { !$0.isEmpty }
        if showsFollows { heading.append("FOLLOWS") }
        let rows = zip(services, follows).map { service, follows in
            var row = [
                service.service, service.state, service.pid.map { "\($0)" } ?? "-",
                service.uptimeMilliseconds.map { describe(.milliseconds(Int64(clamping: $0))) } ?? "-",
            ]
            if isVerbose { row.append(service.epoch.map { "\($0)" } ?? "-") }
            if showsFollows { row.append(follows.isEmpty ? "-" : follows) }
            return row
        }
        let set = settings.sorted { $0.key < $1.key }.map { "setting     \($0.key)=\(inLine($0.value))" }
        return [
            figures.sentence(trouble), table(heading, rows), hint(directory),
            (set + ["connection  \(connection)"] + (web.map { ["web         \($0)"] } ?? [])).joined(separator: "\n"),
        ]
        .filter { !$0.isEmpty }.joined(separator: "\n\n")
    }

    /// Why the deployment is not healthy; empty: it is.
    private var trouble: [String] {
        services.filter { $0.state != "up" }.map { "\($0.service) is \($0.state)" }
    }

    /// - Throws: ``ExitStatus`` when a service does not answer, has no room, or has lost some of its contents.
    func end() throws(ExitStatus) {
        if !services.allSatisfy(Self.isAnswering) { throw ExitStatus.unreachable }
        if services.contains(where: { $0.state != "up" }) { throw ExitStatus.files }
    }

    /// What a person should know or do.
    private func hint(_ directory: DeploymentDirectory) -> String {
        let silent = services.filter { !Self.isAnswering($0) }
        let isFull = services.contains { $0.state == Self.full }
        let room = "Where the disk is full only deletes are taken. Make room there; then all goes on by itself."
        return [isFull ? room : "", missingContent, damage, purgeClocks, cause(silent, directory)].filter {
            !$0.isEmpty
        }
        .joined(
            separator: "\n")
    }

    /// Whose files of content are not there.
    private var missingContent: String {
        let missing = services.filter { $0.counters["content.missing"] ?? 0 > 0 }.map(\.service)
        guard !missing.isEmpty else { return "" }
        return
            "\(missing.joined(separator: " and ")) cannot find, or read, the files of contents: the folder \"content\" of "
            + "the service's data. Mount its disk, or bring it back from a backup; what devices have of it is not asked for. "
            + "Is it lost for good: make an empty file \"accept-loss\" in that folder, and devices bring back what they have."
    }

    /// The services whose purge clock is not with the wall clock.
    private var purgeClocks: String {
        let name = "purge.clock_offset_seconds"
        let apart = services.filter { $0.counters[name] ?? 0 >= 3600 }
        guard let most = apart.compactMap({ $0.counters[name] }).max() else { return "" }
        let names = apart.map(\.service).joined(separator: " and ")
        return
            "The clock of \(names) was set by \(describe(.seconds(Int64(clamping: most)))), or nothing ran for so long: "
            + "old data (trash, histories) is purged by the service's own clock, which comes to the same time slowly. Set "
            + "the clock right if it is wrong."
    }

    /// What the disk has lost.
    private var damage: String {
        let chunks = loss(
            by: "chunks.damaged", "chunk of content cannot be read any more",
            "chunks of content cannot be read any more")
        let items = loss(
            by: Self.quarantined, "key, record or document is in quarantine: its row did not open",
            "keys, records or documents are in quarantine: their rows did not open")
        return [
            chunks.isEmpty
                ? "" : chunks + "Devices that have the files send them again (nephos docs status); look at the disk.",
            items.isEmpty
                ? ""
                : items
                    + "Devices bring back what they have as soon as they synchronise; what none has is kept for 30 days. "
                    + "Look at the disk.",
        ].filter { !$0.isEmpty }.joined(separator: "\n")
    }

    /// - Parameter counter: By which services count it.
    private func loss(by counter: String, _ one: String, _ many: String) -> String {
        let damaged = services.filter { $0.counters[counter] ?? 0 > 0 }
        let count = damaged.reduce(0) { $0 + ($1.counters[counter] ?? 0) }
        guard count > 0 else { return "" }
        let names = damaged.map(\.service).joined(separator: " and ")
        let logs = damaged.count == 1 ? "the log of \(names) names" : "the logs of \(names) name"
        return "\(count) \(count == 1 ? one : many); \(logs) the accounts. "
    }

    private func cause(_ missing: [Service], _ directory: DeploymentDirectory) -> String {
        guard supervisorPid == nil else {
            let ended = missing.filter { $0.pid == nil }.map { "  " + directory.log(of: ServiceName($0.service)) }
            let silent = missing.compactMap { service in
                service.pid.map { Self.silence(service.service, $0, directory) }
            }
            return
                (silent
                + (ended.isEmpty
                    ? [] : ["Services that end are restarted. They ended because:"] + ended))
                .joined(separator: "\n")
        }
        if !directory.running.isEmpty {
            return "nephos up was ended from outside. The services end by themselves; start them again with: nephos up"
        }
        return "Something else than nephos up runs these services."
    }

    /// Of a service that has not ended, and is therefore not started again.
    private static func silence(_ service: String, _ pid: pid_t, _ directory: DeploymentDirectory) -> String {
        let cure =
            isStopped(pid)
            ? "It was stopped from outside; it goes on with: kill -CONT \(pid)"
            : "It is started again if it is ended: kill \(pid)\n  " + directory.log(of: ServiceName(service))
        return "\(service) (process \(pid)) runs, and does not answer. \(cure)"
    }

    /// Whether a signal has stopped the process.
    private static func isStopped(_ pid: pid_t) -> Bool {
        // The state is the first field after the name, which may have parentheses of its own.
        guard let data = FileManager.default.contents(atPath: "/proc/\(pid)/stat") else { return false }
        let text = String(decoding: data, as: UTF8.self)
        guard let end = text.lastIndex(of: ")") else { return false }
        return text[end...].split(separator: " ").dropFirst().first == "T"
    }
}
