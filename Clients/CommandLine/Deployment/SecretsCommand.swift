import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ

struct SecretsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "secrets", abstract: "Replace a deployment's keys; devices stay signed in.",
        discussion: "docs/security.md lists each key and the consequences of its loss.",
        subcommands: [
            RotateSigningKey.self, RotateMasterKeys.self, RotateServiceKeys.self, RotateOperatorKey.self,
        ])

    struct RotateSigningKey: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Sign access tokens with a new key. No restart; devices notice nothing.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        /// Times are in milliseconds since 1970.
        private struct Rotation: Encodable {
            var keyId: String
            var signsFrom: UInt64
            var previousUntil: UInt64
        }

        func run() throws {
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, WireRotateSigningKey(), returning: WireRotateSigningKeyReply.self)
            let from = Timestamp(milliseconds: reply.signsFrom)
            let until = Timestamp(milliseconds: reply.previousUntil)
            try output.print(
                Rotation(keyId: reply.keyID, signsFrom: reply.signsFrom, previousUntil: reply.previousUntil),
                text: """
                    The key \(reply.keyID) signs from \(describe(from)) on.
                    The keys before it are void from \(describe(until)) on.
                    """)
        }
    }

    struct RotateMasterKeys: ParsableCommand, OwnTimeout {
        private static let waits: Duration = .seconds(600)
        static let standardTimeout: Duration? = waits
        static let configuration = CommandConfiguration(
            abstract: "Encrypt all accounts' keys with new master keys, one service after another.",
            discussion: """
                Each service restarts with both keys, encrypts the accounts' keys again, and then forgets the \
                old master key. If it is interrupted, run it again. An older backup needs the older secret \
                files: keep them with it.

                If the services do not run under `nephos up`, the command stops after the first step. Restart \
                the services yourself, then run it with --restarted.
                """)

        @Option(name: .customLong("service"), help: "Only this service; repeat for more (default: all).")
        var services: [String] = []
        @Flag(help: "The services have been restarted after the first step.") var restarted = false
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            for service in services where !ServiceName.all.contains(ServiceName(service)) {
                throw ValidationError(
                    "There is no service \(service). There are: \(ServiceName.all.map(\.rawValue).joined(separator: ", "))."
                )
            }
        }

        func run() throws {
            let directory = deployment.directory
            try directory.requireDeployment()
            let files = DeploymentFiles(directory: directory.path)
            let chosen = services.isEmpty ? ServiceName.all : services.map { ServiceName($0) }
            // What an interrupted run has begun is finished before anything is added.
            for service in chosen where try !restarted && !files.isRotatingMasterKey(of: service) {
                try files.addMasterKey(of: service)
            }
            guard restarted || directory.supervisor != nil else {
                return try output.print(
                    ["state": "added", "services": chosen.map(\.rawValue).joined(separator: " ")],
                    text: """
                        Added a master key for: \(chosen.map(\.rawValue).joined(separator: ", ")).
                        Where each service has a folder of its own, hand the keys out: nephos init --if-missing --hand-out FOLDER
                        Start these services again, then run:
                        nephos secrets rotate-master-keys --restarted
                        """)
            }
            for service in chosen {
                if !restarted { _ = try directory.restart([service]) }
                try wait(for: service, toUse: files.newestMasterKey(of: service))
                try files.removeOldMasterKeys(of: service)
                if !output.json { try StandardOutput.line("\(service): everything is wrapped with its new master key") }
            }
            try output.print(["services": chosen.map(\.rawValue)], text: "")
        }

        /// - Throws: ``CloudError`` `.constraintViolation` when it runs with the key from before, which it needs then.
        private func wait(for service: ServiceName, toUse key: String) throws {
            let connection = try OperatorConnection(directory: deployment.directory)
            let deadline = ContinuousClock.now + (deployment.directory.timeout ?? Self.waits)
            while ContinuousClock.now < deadline {
                let health = try? connection.call(
                    service, WireCheckHealth(), returning: WireCheckHealthReply.self,
                    timeout: min(.seconds(2), ContinuousClock.now.duration(to: deadline)))
                guard let health, health.newestMasterKey == key else {
                    guard health == nil else { throw Self.runsWithOldKey(service) }
                    usleep(100_000)
                    continue
                }
                if health.usesNewestMasterKey { return }
                usleep(100_000)
            }
            throw CloudError(
                .deadlineExceeded, "The service has not wrapped everything yet. Run this again; nothing is lost.",
                details: ["service": service.rawValue, "log": deployment.directory.log(of: service)])
        }

        private static func runsWithOldKey(_ service: ServiceName) -> CloudError {
            CloudError(
                .constraintViolation,
                "The service has not read its new master key. The old one stays. Where the service has a folder of its own, hand the key out (nephos init --if-missing --hand-out FOLDER); start the service again, and run this again.",
                details: ["service": service.rawValue])
        }
    }

    struct RotateServiceKeys: ParsableCommand, OwnTimeout {
        static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
        static let configuration = CommandConfiguration(
            abstract: "Replace the services' CURVE keys: announce new keys, then switch to them.",
            discussion: """
                Devices in use learn an announced key within ten minutes. The switch is possible once identity \
                has announced the keys for an hour. Use --force only if another person may know a key. A device \
                that was away meanwhile finds another key and reports it. Sign it in again with the new \
                connection string; its data stays.
                """)

        @Flag(name: .customLong("switch"), help: "Switch to the announced keys.") var switches = false
        @Flag(
            name: .customLong("force"),
            help: "Switch at once; devices that do not know the new keys must sign in again.") var isForced = false
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            if isForced, !switches { throw ValidationError("--force belongs to --switch.") }
        }

        func run() throws {
            let directory = deployment.directory
            try directory.requireDeployment()
            let files = DeploymentFiles(directory: directory.path)
            let now = SystemClock().now
            if switches {
                if try !isForced && files.awaitsSwitch() { try requireTold(try files.roster()) }
                try files.switchKeys(at: now, forced: isForced)
            } else {
                try files.announceKeys(ZeroMQTransport(), at: now)
            }
            let isRestarted = try directory.restart(ServiceName.all)
            let connection = try files.roster().connectionString().description
            try output.print(
                ["state": switches ? "switched" : "announced", "connection": connection],
                text: (isRestarted ? "" : "Start the services again now; they read their keys when they start.\n")
                    + (switches
                        ? "The services have new keys. New devices sign in with:\n\(connection)"
                        : """
                        The next keys are announced. Devices learn them while they are used; in an hour or later, run:
                        nephos secrets rotate-service-keys --switch
                        """))
        }

        private func requireTold(_ roster: Roster) throws {
            let health: WireCheckHealthReply
            do {
                health = try OperatorConnection(directory: deployment.directory)
                    .call(.identity, WireCheckHealth(), returning: WireCheckHealthReply.self)
            } catch let error as CloudError where ExitStatus.of(error) == .unreachable {
                throw CloudError(
                    error.code,
                    "Identity does not answer, and only it tells devices of the next keys: nobody knows whether they have learned them. Start it, and switch an hour later, or with --force."
                )
            }
            try KeyRotation.requireTold(roster, by: health)
        }
    }

    struct RotateOperatorKey: ParsableCommand, OwnTimeout {
        static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
        static let configuration = CommandConfiguration(
            abstract: "Replace the operator's key. The old key stops working at once.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let directory = deployment.directory
            try directory.requireDeployment()
            try DeploymentFiles(directory: directory.path).replaceOperatorKey(ZeroMQTransport())
            let isRestarted = try directory.restart(ServiceName.all)
            try output.print(
                ["state": "replaced"],
                text: "The operator has a new key."
                    + (isRestarted ? "" : " Start the services again now; they learn it when they start."))
        }
    }
}

extension DeploymentDirectory {
    /// Restarts services that `nephos up` runs, so that they read their files again; returns when they answer.
    ///
    /// - Parameter endsAtFailure: Whether a service that logs why it cannot start ends the waiting.
    /// - Returns: False when `nephos up` does not run them; nothing was done.
    /// - Throws: ``CloudError`` that a service ended with; `.serviceUnavailable` when they do not come back in time.
    func restart(_ services: [ServiceName], endsAtFailure: Bool = true) throws -> Bool {
        guard supervisor != nil else { return false }
        let before = services.map { pid(of: $0) }
        let logs = services.map { LogTail(log(of: $0)) }
        for service in services { try runFolder.signal(.service(service), SIGTERM) }
        let connection = try OperatorConnection(directory: self)
        let deadline = ContinuousClock.now + (timeout ?? Self.restartTimeout)
        while ContinuousClock.now < deadline {
            usleep(100_000)
            if endsAtFailure, let failure = logs.lazy.compactMap(\.failure).first { throw failure }
            if zip(services, before).contains(where: { $1 != nil && pid(of: $0) == $1 }) { continue }
            let left = ContinuousClock.now.duration(to: deadline)
            let health = try connection.health(timeout: min(.seconds(1), max(left, .milliseconds(1))))
            if health.allSatisfy({ !services.contains($0.service) || $0.reply != nil }) { return true }
        }
        throw CloudError(.serviceUnavailable, "The services did not come back. See: nephos status")
    }
}
