import ArgumentParser
import Foundation
import NephosBackup
import NephosCore
import NephosServiceKit

struct RecoveryKeyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "recovery-key",
        abstract: "Manage the key that opens a backup's secrets.",
        discussion: """
            Each backup encrypts the deployment's secrets with the public half of the recovery key, which \
            lies in the deployment's folder. Only the recovery key opens them. It is printed once and stored \
            nowhere: write it on paper, and keep it away from the server and the backups.
            """,
        subcommands: [New.self, Set.self, Show.self])

    private struct Row: Encodable {
        var id: String
        var publicKey: String
        var recoveryKey: String?
        /// The key before it, which opens the snapshots from its time.
        var before: String?
    }

    /// What is said of a key that was made just now.
    static func text(of key: RecoveryKey) -> String {
        """
        The recovery key is shown only once and stored nowhere. Write it down:

            \(key.text)

        With this key and a backup, anyone can read all data. Without it, a backup cannot be read.
        """
    }

    private static func text(before: PublicRecoveryKey?) -> String {
        before.map {
            "\nSnapshots made until now open with the one before (\($0.id)): keep it for as long as you keep them."
        } ?? ""
    }

    struct New: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a new recovery key and print it once. Older snapshots need the older key.")

        @Flag(help: "Print a key and its public half for a deployment elsewhere, and change nothing.")
        var onlyPrint = false
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let key = RecoveryKey()
            let half = key.publicKey
            var before: PublicRecoveryKey?
            if !onlyPrint {
                try deployment.directory.requireDeployment()
                let files = DeploymentFiles(directory: deployment.directory.path)
                _ = try files.roster()
                // One that is damaged is replaced.
                before = try? files.recoveryKey()
                // Printed first: one that could not be printed is not used.
                try output.print(
                    Row(id: half.id, publicKey: half.text, recoveryKey: key.text, before: before?.id),
                    text: RecoveryKeyCommand.text(of: key) + RecoveryKeyCommand.text(before: before))
                return try files.write(half)
            }
            try output.print(
                Row(id: half.id, publicKey: half.text, recoveryKey: key.text),
                text: RecoveryKeyCommand.text(of: key) + "\n\nIts public half, for NEPHOS_RECOVERY_KEY:\n\(half.text)")
        }
    }

    struct Set: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Use an existing key (see nephos recovery-key new --only-print).")

        @Argument(help: "The key's public half.") var key: String
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            try deployment.directory.requireDeployment()
            let files = DeploymentFiles(directory: deployment.directory.path)
            _ = try files.roster()
            let half = try PublicRecoveryKey(key)
            let before = try? files.recoveryKey()
            try files.write(half)
            try output.print(
                Row(id: half.id, publicKey: half.text, before: before?.id),
                text: "Backups are sealed to \(half.id) from now on."
                    + (before == half ? "" : RecoveryKeyCommand.text(before: before)))
        }
    }

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Show the public half and the short name of the key.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            try deployment.directory.requireDeployment()
            let files = DeploymentFiles(directory: deployment.directory.path)
            _ = try files.roster()
            guard let key = try files.recoveryKey() else {
                throw CloudError(
                    .unknownItem, "This deployment has no recovery key. Make one: nephos recovery-key new",
                    details: ["deployment": files.directory])
            }
            try output.print(
                Row(id: key.id, publicKey: key.text), text: "Backups are sealed to \(key.id):\n\(key.text)")
        }
    }
}
