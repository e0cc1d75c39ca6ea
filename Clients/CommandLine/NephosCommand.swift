import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit

@main
struct NephosCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos",
        abstract: "Your own iCloud: a deployment, and the devices that use it.",
        discussion: """
            A device is a folder, its home: $NEPHOS_HOME, or ~/.nephos. Two devices on one machine are two homes.

            Exit codes: \(ExitStatus.sentence)

            Characters that cannot be seen, or that a terminal takes for commands, are printed as \\u{...}.
            """,
        version: serviceKitVersion,
        subcommands: [],
        groupedSubcommands: [
            CommandGroup(
                name: "Deployment",
                subcommands: [
                    InitCommand.self, UpCommand.self, DownCommand.self, LogsCommand.self, AdvertiseCommand.self,
                    SettingsCommand.self,
                ]),
            CommandGroup(
                name: "Administration",
                subcommands: [
                    AppCommand.self, ContainerCommand.self, PlanCommand.self, SecretsCommand.self, BackupCommand.self,
                    RestoreCommand.self, RecoveryKeyCommand.self, ScrubCommand.self,
                ]),
            CommandGroup(
                name: "Account",
                subcommands: [AccountCommand.self, DevicesCommand.self, StorageCommand.self]),
            CommandGroup(
                name: "Device",
                subcommands: [
                    SignInCommand.self, SignOutCommand.self, WhoAmICommand.self, StatusCommand.self, WipeCommand.self,
                ]),
            CommandGroup(
                name: "Data",
                subcommands: [
                    KeyValueCommand.self, DocumentsCommand.self, RecordsCommand.self, WatchCommand.self,
                    WhyCommand.self, VerifyCommand.self,
                    ConflictsCommand.self, HistoryCommand.self,
                    DiscardCommand.self,
                ]),
        ]
    )

    static func main() async {
        StandardStreams.occupy()
        // Ctrl-C: the default action ends the process at once. That is safe at
        // any instant, since every change is one transaction on disk.
        do {
            try requireText()
            var command = try parseAsRoot()
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch {
            exit(reporting: error)
        }
    }

    /// Swift puts other characters where the bytes are no text, and what is stored would not be what was meant.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` that says which argument, or which variable of the environment.
    private static func requireText() throws(CloudError) {
        for index in 1..<max(1, Int(CommandLine.argc)) {
            guard let argument = CommandLine.unsafeArgv[index], String(validatingCString: argument) == nil else {
                continue
            }
            throw CloudError(
                .invalidArguments, "An argument is not text in UTF-8. Values of other bytes: --type data, --from FILE",
                details: ["argument": "\(index): \(String(cString: argument))"])
        }
        for name in ["NEPHOS_PASSWORD", "NEPHOS_HOME", "NEPHOS_DEPLOYMENT", "NEPHOS_DATA_ROOT", "NEPHOS_RECOVERY_KEY"] {
            guard let value = getenv(name), String(validatingCString: value) == nil else { continue }
            throw CloudError(
                .invalidArguments, "A variable of the environment is not text in UTF-8.", details: ["variable": name])
        }
    }
}
