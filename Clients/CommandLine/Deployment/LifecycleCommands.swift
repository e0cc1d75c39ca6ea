import ArgumentParser
import Bus
import Core
import Foundation
import ServiceKit
import Wire
import ZeroMQBus

struct InitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "init", abstract: "Make a deployment: roster, keys and one secret file for each service.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The address that the services bind and devices reach.")
    var host = "127.0.0.1"

    @Option(help: "The first of eleven ports: two for each service, and one for subscriptions.")
    var port = 7400

    func run() throws {
        let directory = deployment.directory
        guard !directory.exists else {
            throw CloudError(
                .alreadyExists, "There is a deployment in this folder already. It was left as it is.",
                details: ["deployment": directory.path])
        }
        let made = try Deployment.create(
            directory: directory.path, host: host, basePort: port, transport: ZeroMQTransport())
        try directory.prepare()
        let connection = made.connection.description
        try output.print(
            ["deployment": directory.path, "connection": connection],
            text: "Made a deployment in \(directory.path).\nStart it with: nephos up")
    }
}

struct UpCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "up", abstract: "Start the five services, and keep them running.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Stay in the foreground; end with Ctrl-C.")
    var foreground = false

    func run() throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        try directory.prepare()
        if let pid = directory.supervisor {
            try output.print(["state": "running", "pid": "\(pid)"], text: "It is running already. See: nephos status")
            return
        }
        if foreground {
            try Supervisor(directory: directory).run()
            return
        }
        try requireFreePorts(directory)
        _ = try Spawn.detached(
            Spawn.sibling("nephos"), ["up", "--foreground", "--deployment", directory.path],
            log: directory.supervisorLog)
        do { try waitUntilHealthy(directory) } catch {
            // Nothing is left behind. What went wrong first is what the caller has to hear.
            _ = try? directory.stopServices()
            throw error
        }
        try output.print(
            ["state": "running", "deployment": directory.path],
            text: "The five services are up. Logs: \(directory.path)/log. Stop them with: nephos down")
    }

    private func waitUntilHealthy(_ directory: DeploymentDirectory) throws {
        let deadline = ContinuousClock.now + .seconds(30)
        var waitingFor = ""
        while ContinuousClock.now < deadline {
            let states = try OperatorConnection(directory: directory).health(timeout: .seconds(1))
            guard let missing = states.first(where: { $0.reply == nil }) else { return }
            waitingFor = missing.service.rawValue
            usleep(50_000)
        }
        let log = directory.log(of: ServiceName(waitingFor))
        let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
        throw CloudError(
            .serviceUnavailable, "A service does not answer. Its log says why.",
            details: [
                "service": waitingFor, "log": log,
                "last_line": text.split(separator: "\n").last.map(String.init) ?? "(empty)",
            ])
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` that names the address another program listens at.
    private func requireFreePorts(_ directory: DeploymentDirectory) throws {
        for entry in try DeploymentFiles(directory: directory.path).roster().services {
            for endpoint in [entry.requests, entry.events] + [entry.subscriptions].compactMap({ $0 })
            where !LocalPorts.isFree(endpoint) {
                throw CloudError(
                    .configurationInvalid,
                    "Another program listens at an address of this deployment. Stop it, or make a deployment with another --port.",
                    details: ["address": endpoint, "service": entry.service])
            }
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
        let text = try directory.stopServices() ? "Stopped." : "It is not running."
        try output.print(["state": "stopped"], text: text)
    }
}

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "What runs, how it is, and where devices connect.")

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Print only the connection string.")
    var connection = false

    private struct Report: Encodable {
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
        }
        var connection: String
        var services: [Service]
    }

    func run() throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        let operatorConnection = try OperatorConnection(directory: directory)
        if connection {
            print(try operatorConnection.connectionString)
            return
        }
        let services = try operatorConnection.health(timeout: .seconds(2)).map { health in
            Report.Service(
                service: health.service.rawValue,
                state: health.reply == nil ? "not answering" : "up",
                pid: directory.pid(of: health.service),
                uptimeMilliseconds: health.reply?.uptimeMilliseconds,
                followerLag: health.reply?.followerLag ?? [:],
                counters: health.reply?.counters ?? [:], deviceBudget: health.reply?.deviceBudget.capacity,
                accountBudget: health.reply?.accountBudget.capacity)
        }
        let rows = services.map { service in
            [
                service.service, service.state, service.pid.map { "\($0)" } ?? "-",
                service.uptimeMilliseconds.map { describe(.milliseconds(Int64(clamping: $0))) } ?? "-",
                service.followerLag.isEmpty
                    ? "-"
                    : service.followerLag.sorted { $0.key < $1.key }
                        .map { "\($0.key) \($0.value == 0 ? "in step" : "\($0.value) behind")" }.joined(
                            separator: ", "),
            ]
        }
        let report = Report(connection: try operatorConnection.connectionString.description, services: services)
        try output.print(
            report,
            text: table(["SERVICE", "STATE", "PID", "UP", "FOLLOWS"], rows) + "\n\nconnection  \(report.connection)")
        if services.contains(where: { $0.state != "up" }) { throw ExitCode(5) }
    }
}
