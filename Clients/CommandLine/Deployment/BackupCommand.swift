import ArgumentParser
import Foundation
import NephosBackup
import NephosCore
import NephosServiceKit
import NephosZeroMQ

struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Back up a deployment into a folder.",
        discussion: """
            The services may run meanwhile. A snapshot holds the databases of one moment, the content that \
            they name, and the deployment's secrets, encrypted for its recovery key. Content is copied once \
            for all snapshots. nephos restore restores a snapshot.
            """,
        subcommands: [Make.self, Verify.self, List.self], defaultSubcommand: Make.self)

    struct Make: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "make", abstract: "Create a snapshot, read it back, and remove old ones.")

        @Argument(
            help: "The folder for backups: empty, or with backups of this deployment. Use another disk.",
            completion: .directory)
        var folder: String
        @Option(
            help:
                "Snapshots to keep: the last ones, and the newest of each day, week and month (default: last=3,daily=7,weekly=4,monthly=6), or all."
        )
        var keep: String?
        @Flag(
            help: "Leave out the deployment's secrets. Keep a copy elsewhere: without them the backup cannot be read.")
        var withoutKeys = false
        @OptionGroup var data: DataOptions
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            try requireNamed(folder: folder)
            if let keep, keep != "all" {
                do { _ = try Retention(keep) } catch { throw ValidationError(error.message) }
            }
        }

        private struct Made: Encodable {
            var snapshot: String
            var databaseBytes: Int
            var segments: Int
            var segmentBytes: Int
            var copiedSegments: Int
            var copiedBytes: Int
            var recoveryKey: String?
            var heldMilliseconds: Int64
            var removed: [String]
            var removedBytes: Int
            var leftCopies: [String]
            var damagedChunks: Int
            var damagedFiles: [String]
            var damagedCopies: [String]
        }

        func run() throws {
            try deployment.directory.requireDeployment()
            var backup = Backup(of: data.place(of: deployment), into: BackupFolder(folder))
            backup.leavesOutKeys = withoutKeys
            backup.retention = keep == "all" ? nil : try keep.map { try Retention($0) } ?? .standard
            let bar = BackupBar(isShown: !output.json)
            let outcome = try bar.whileShown { try backup.run(at: SystemClock().now, $0) }
            let manifest = outcome.manifest
            let note = BackupNote(
                folder: BackupFolder(folder), snapshot: outcome.snapshot, madeAt: manifest.createdAt)
            if !note.keep(in: deployment.directory.path) {
                Standard.error(
                    "nephos: The deployment's folder takes no note of this backup, so status does not show it.")
            }
            let made = Made(
                snapshot: outcome.snapshot, databaseBytes: manifest.databaseBytes, segments: manifest.segments.count,
                segmentBytes: manifest.segmentBytes, copiedSegments: outcome.copiedSegments,
                copiedBytes: outcome.copiedBytes, recoveryKey: manifest.keys?.recoveryKey,
                heldMilliseconds: outcome.held.milliseconds, removed: outcome.removed,
                removedBytes: outcome.removedBytes, leftCopies: outcome.leftCopies,
                damagedChunks: outcome.damagedChunks,
                damagedFiles: outcome.damagedFiles, damagedCopies: outcome.damagedCopies)
            var text = """
                Made \(outcome.snapshot): databases of \(size(manifest.databaseBytes)), content of \
                \(size(manifest.segmentBytes)), of which \(size(outcome.copiedBytes)) were copied. What was copied was read back.
                """
            text +=
                manifest.keys.map { "\nThe keys in it open with the recovery key \($0.recoveryKey)." }
                ?? "\nThere are no keys in it: keep a copy of the deployment's secrets elsewhere."
            if outcome.damagedChunks > 0 {
                text +=
                    "\n\(counted(outcome.damagedChunks, "chunk")) of content cannot be read any more, and the snapshot has no "
                    + "better: a device that has it heals it (nephos docs status), or a snapshot before may have it whole."
            }
            if !outcome.removed.isEmpty {
                text += "\nRemoved: \(listed(outcome.removed)); \(size(outcome.removedBytes)) are free again."
            }
            if !outcome.leftCopies.isEmpty {
                text += "\nA restore is under way, or was killed and has left a copy of no use. Then remove: "
                text += outcome.leftCopies.joined(separator: " ")
            }
            try output.print(made, text: text)
            Self.warn(outcome)
        }

        private static func warn(_ outcome: Backup.Outcome) {
            func say(_ paths: [String], _ what: String) {
                guard !paths.isEmpty else { return }
                Standard.error("\(counted(paths.count, "file")) of content \(what):")
                for path in paths.prefix(20) { Standard.error("  " + path) }
                if paths.count > 20 { Standard.error("  and \(paths.count - 20) more") }
            }
            say(
                outcome.damagedFiles,
                "in the deployment cannot be read whole, or lack chunks that they had before: its disk may be failing. All "
                    + "copies of each are kept, and a restore takes each chunk from one that has it whole")
            say(
                outcome.damagedCopies,
                "in the folder of backups were damaged or gone, and were made again: look at its disk")
        }
    }

    struct Verify: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Read snapshots and check that they are intact. Needs no key.")

        @Argument(help: "The folder of backups.", completion: .directory) var folder: String
        @Option(help: "Only this snapshot, by name (default: all).") var snapshot: String?
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws { try requireNamed(folder: folder) }

        private struct Row: Encodable {
            var snapshot: String
            var whole: Bool
            var damage: [Damage]
            var differingCopies: [[String]]
        }

        private struct Damage: Encodable {
            var message: String
            var file: String?
        }

        func run() throws {
            let bar = BackupBar(isShown: !output.json)
            let findings = try bar.whileShown { try Verification(of: BackupFolder(folder)).run(snapshot, $0) }
            if snapshot == nil, !findings.isEmpty, findings.allSatisfy({ $0.failures.isEmpty }) {
                BackupNote.keepVerification(
                    of: BackupFolder(folder), at: SystemClock().now.milliseconds, in: deployment.directory.path)
            }
            let rows = findings.map { finding in
                Row(
                    snapshot: finding.snapshot, whole: finding.failures.isEmpty,
                    damage: finding.failures.map { Damage(message: $0.message, file: $0.details["file"]) },
                    differingCopies: finding.differingCopies)
            }
            func some(_ lines: [String]) -> String {
                lines.prefix(10).map { "\n  " + $0 }.joined()
                    + (lines.count > 10 ? "\n  and \(lines.count - 10) more" : "")
            }
            let lines = rows.map { row in
                let copies = row.differingCopies.map {
                    "Copies of one file differ, and a restore takes each chunk from one that has it whole: "
                        + $0.joined(separator: " ")
                }
                guard !row.whole else { return "\(row.snapshot) is whole" + some(copies) }
                return "\(row.snapshot) is damaged:"
                    + some(row.damage.map { "\($0.message)\($0.file.map { " " + $0 } ?? "")" }) + some(copies)
            }
            try output.print(rows, text: lines.isEmpty ? "There are no snapshots." : lines.joined(separator: "\n"))
            if rows.contains(where: { !$0.whole }) { throw ExitStatus.files }
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the snapshots, oldest first.")

        @Argument(help: "The folder of backups.", completion: .directory) var folder: String
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func validate() throws { try requireNamed(folder: folder) }

        private struct Row: Encodable {
            var snapshot: String
            /// Milliseconds since 1970.
            var createdAt: UInt64?
            var deployment: String?
            var databaseBytes: Int?
            var segmentBytes: Int?
            var recoveryKey: String?
            var state: String
        }

        func run() throws {
            let now = SystemClock().now
            let snapshots = try BackupFolder(folder).snapshots()
            let rows = snapshots.map { snapshot in
                Row(
                    snapshot: snapshot.name, createdAt: snapshot.manifest?.createdAt,
                    deployment: snapshot.manifest?.deployment, databaseBytes: snapshot.manifest?.databaseBytes,
                    segmentBytes: snapshot.manifest?.segmentBytes, recoveryKey: snapshot.manifest?.keys?.recoveryKey,
                    state: snapshot.manifest == nil ? "unreadable" : snapshot.isKnownDamaged ? "damaged" : "made")
            }
            let lines = zip(snapshots, rows).map { snapshot, row in
                [
                    row.snapshot, snapshot.manifest.map { tableTime($0.time, now: now) } ?? "-",
                    row.databaseBytes.map { size($0) } ?? "-", row.segmentBytes.map { size($0) } ?? "-",
                    snapshot.manifest == nil ? "-" : row.recoveryKey ?? "none", row.state,
                ]
            }
            try output.print(
                rows,
                text: rows.isEmpty
                    ? "There are no snapshots."
                    : table(["SNAPSHOT", "MADE", "DATABASES", "CONTENT", "RECOVERY KEY", "STATE"], lines))
        }
    }
}

/// What a script's unset variable gives is not the folder that one happens to be in.
func requireNamed(folder: String) throws {
    guard !folder.isEmpty else { throw ValidationError("The name of the folder of backups is empty.") }
}

private func size(_ bytes: Int) -> String { describe(bytes: UInt64(clamping: bytes)) }

/// Where the services of a deployment keep their data.
struct DataOptions: ParsableArguments {
    @Option(
        help:
            "The folder with the services' data folders (default: $NEPHOS_DATA_ROOT, or data in the deployment's folder).",
        completion: .directory)
    var data: String?

    func place(of deployment: DeploymentOptions) -> DeploymentPlace {
        let directory = deployment.directory.path
        let said = data ?? ProcessInfo.processInfo.environment["NEPHOS_DATA_ROOT"].flatMap { $0.isEmpty ? nil : $0 }
        return DeploymentPlace(
            deployment: directory,
            dataFolder: said.map { URL(fileURLWithPath: $0).standardizedFileURL.path } ?? directory + "/data")
    }
}

/// How far a backup, a verification or a restore is, on a terminal; and Ctrl-C, which ends it in good order.
final class BackupBar {
    private let isShown: Bool
    private let begun = ContinuousClock.now
    private var shownAt: ContinuousClock.Instant?
    private var phase: (name: BackupProgress.Phase, begun: ContinuousClock.Instant)?

    init(isShown: Bool) { self.isShown = isShown && isatty(2) == 1 }

    func whileShown<Result>(_ body: (@escaping BackupObserver) throws -> Result) throws -> Result {
        Interrupt.hold()
        defer {
            if shownAt != nil { _ = Standard.write(Array("\r\u{1b}[K".utf8), to: 2) }
            Interrupt.release()
        }
        let result = try body { [self] progress in
            try Interrupt.check()
            show(progress)
        }
        return result
    }

    private func show(_ progress: BackupProgress) {
        guard isShown else { return }
        let now = ContinuousClock.now
        if phase?.name != progress.phase { phase = (progress.phase, now) }
        if let shownAt, shownAt.duration(to: now) < .milliseconds(200) { return }
        shownAt = now
        let elapsed = (phase?.begun ?? begun).duration(to: now)
        let rate = Double(progress.bytesDone) / max(0.001, Double(elapsed.milliseconds) / 1000)
        var line = "\(progress.phase.rawValue): \(size(progress.bytesDone))"
        if let total = progress.bytesTotal { line += " of \(size(total))" }
        line += ", \(size(Int(rate)))/s"
        if let total = progress.bytesTotal, rate > 0, elapsed > .seconds(1), total > progress.bytesDone {
            line += ", \(describe(Duration.milliseconds(Int64(Double(total - progress.bytesDone) / rate * 1000)))) left"
        }
        _ = Standard.write(Array("\r\u{1b}[K\(line)".utf8), to: 2)
    }
}
