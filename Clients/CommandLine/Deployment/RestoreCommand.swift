import ArgumentParser
import Foundation
import NephosBackup
import NephosCore
import NephosServiceKit
import NephosZeroMQ

struct RestoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore", abstract: "Restore a deployment from a snapshot of nephos backup.",
        discussion: """
            The snapshot is checked before any file changes. Existing files are moved aside, and only with \
            --in-place. If the restore is interrupted, run it again; no service starts until it has \
            finished. After the start, devices send again what they have and the snapshot lacks.
            """)

    @Argument(help: "The folder of backups.", completion: .directory) var folder: String
    @Option(help: "The snapshot's name (default: the newest intact one).") var snapshot: String?
    @Flag(help: "Move existing files aside and put the snapshot in their place.") var inPlace = false
    @Flag(help: "Check everything and show the plan; change nothing.") var dryRun = false
    @Flag(help: "Keep the deployment's keys of this host; the recovery key is not needed.") var keepKeys = false
    @Flag(help: "Read the recovery key from standard input (default: ask for it).") var recoveryKeyStdin = false
    @Option(help: "The address that the services listen at on this machine (default: as before).") var host: String?
    @Option(help: "The first of thirteen ports (default: as before).") var port: Int?
    @Flag(help: "Give each service its own host, named after it, as docker compose does.") var hostPerService = false
    @Option(help: "The name or address that devices connect to (default: as before).") var advertise: String?
    @OptionGroup var data: DataOptions
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        try requireNamed(folder: folder)
        guard !keepKeys || !recoveryKeyStdin else {
            throw ValidationError("With --keep-keys no recovery key is needed. Give one of the two options.")
        }
        guard host == nil || !hostPerService else {
            throw ValidationError("--host and --host-per-service contradict each other.")
        }
        guard port.map({ (1...65_535 - Deployment.portCount + 1).contains($0) }) ?? true else {
            throw ValidationError("A deployment takes thirteen ports, and there are 65535.")
        }
    }

    private struct Said: Encodable {
        var snapshot: String
        var createdAt: UInt64
        var deployment: String
        var services: [String: Int]
        var segmentBytes: Int
        var bytes: Int
        var freeBytes: Int?
        var replaced: [String]
        var replacesDeployment: Bool
        var keys: String
        var isDone: Bool
        var connection: String?
        var aside: [String]
    }

    func run() throws {
        // All of it before anybody is asked for anything.
        try advertise.map { try AdvertiseCommand.requireReachable($0) }
        var restore = Restore(
            from: BackupFolder(folder), to: data.place(of: deployment), keys: keepKeys ? .kept : .unknown)
        restore.isInPlace = inPlace
        try restore.requireFree(for: snapshot)
        restore.keys = try keys()
        let (host, port, isPerService, advertise) = (host, port, hostPerService, advertise)
        restore.moving = { roster in
            if host != nil || port != nil || isPerService {
                try roster.move(to: host, isPerService: isPerService, basePort: port)
            }
            if let advertise { try roster.advertise(advertise) }
        }
        restore.checking = { roster in
            try RosterChecks.requireReachable(roster)
            // Those addresses are other hosts'.
            guard host != nil || port != nil, !isPerService, let first = roster.services.first else { return }
            let bound = try ConnectionString(endpoint: first.requests, key: first.key)
            try RosterChecks.requireUsable(roster, at: bound.host, bound.port)
        }
        let bar = BackupBar(isShown: !output.json)
        let now = SystemClock().now
        let plan = try bar.whileShown { try restore.plan(snapshot, $0) }
        let outcome = dryRun ? nil : try bar.whileShown { try restore.run(plan, at: now, $0) }
        if outcome != nil {
            BackupNote(folder: BackupFolder(folder), snapshot: plan.snapshot, madeAt: plan.manifest.createdAt)
                .keep(in: deployment.directory.path)
        }
        try output.print(said(plan, outcome), text: text(plan, outcome, at: now))
    }

    private func keys() throws -> Restore.Keys {
        if keepKeys { return .kept }
        guard !recoveryKeyStdin else {
            let line = try PasswordOptions.firstLine(of: "-", called: "recovery key")
            return .sealed(try RecoveryKey(line))
        }
        guard isatty(0) == 1 else {
            if dryRun { return .unknown }
            throw CloudError(
                .invalidArguments,
                "The recovery key is needed: --recovery-key-stdin, or run this in a terminal. Where this host still has the deployment's files: --keep-keys"
            )
        }
        if dryRun { return .unknown }
        return .sealed(try RecoveryKey(try Terminal.readSecret("Recovery key: ", called: "recovery key")))
    }

    private func said(_ plan: Restore.Plan, _ outcome: Restore.Outcome?) -> Said {
        Said(
            snapshot: plan.snapshot, createdAt: plan.manifest.createdAt, deployment: plan.manifest.deployment,
            services: Dictionary(plan.manifest.databases.map { ($0.service, $0.bytes) }) { first, _ in first },
            segmentBytes: plan.manifest.segmentBytes, bytes: plan.bytes, freeBytes: plan.freeBytes,
            replaced: plan.replaced.map(\.rawValue), replacesDeployment: plan.replacesDeployment, keys: keys(plan),
            isDone: outcome != nil, connection: outcome?.connection, aside: outcome?.aside ?? [])
    }

    private func keys(_ plan: Restore.Plan) -> String {
        keepKeys ? "kept" : plan.manifest.keys?.recoveryKey ?? "none"
    }

    private func text(_ plan: Restore.Plan, _ outcome: Restore.Outcome?, at now: Timestamp) -> String {
        func size(_ bytes: Int) -> String { describe(bytes: UInt64(clamping: bytes)) }
        var lines = [
            "\(outcome == nil ? "Would restore" : "Restored") \(plan.snapshot), made \(describe(plan.manifest.time, before: now)).",
            "Databases: "
                + plan.manifest.databases.map { "\($0.service) \(size($0.bytes))" }.joined(separator: ", ")
                + "; content \(size(plan.manifest.segmentBytes)).",
        ]
        if let outcome {
            if !outcome.aside.isEmpty {
                lines.append("The former files are in:")
                lines += outcome.aside.map { "  " + $0 }
            }
            lines.append("Start it with: nephos up, docker-compose up -d, or ops/install-systemd")
            lines.append("Devices sign in with:\n\(outcome.connection)")
            return lines.joined(separator: "\n")
        }
        lines.append(
            "It is whole. It takes \(size(plan.bytes))"
                + (plan.freeBytes.map { " of \(size($0)) that are free." } ?? "."))
        lines.append(
            keepKeys
                ? "The keys of this host fit, and stay."
                : plan.manifest.keys.map { "The keys in it open with the recovery key \($0.recoveryKey)." }
                    ?? "There are no keys in it: --keep-keys, with the deployment's files in \(deployment.directory.path)."
        )
        if !plan.replaced.isEmpty || plan.replacesDeployment {
            lines.append(
                "Would be moved aside: "
                    + (plan.replaced.map { "data of \($0)" }
                    + (plan.replacesDeployment ? ["the deployment's files"] : []))
                    .joined(separator: ", ") + ".")
        }
        return lines.joined(separator: "\n")
    }
}
