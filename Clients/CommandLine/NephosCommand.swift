import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit

@main
struct NephosCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos",
        abstract: "Your own iCloud: run a server, and keep data in sync on your devices.",
        discussion: "More about a topic: nephos help TOPIC (\(HelpTopic.list)).",
        version: serviceKitVersion,
        subcommands: [],
        groupedSubcommands: [
            CommandGroup(
                name: "Your data",
                subcommands: [
                    AgentCommand.self, ConsoleCommand.self, DocumentsCommand.self, KeyValueCommand.self,
                    RecordsCommand.self, WatchCommand.self,
                ]),
            CommandGroup(
                name: "This device",
                subcommands: [
                    SignInCommand.self, SignOutCommand.self, StatusCommand.self, WhoAmICommand.self, WipeCommand.self,
                ]),
            CommandGroup(
                name: "Your account",
                subcommands: [AccountCommand.self, DevicesCommand.self, StorageCommand.self]),
            CommandGroup(
                name: "Conflicts and problems",
                subcommands: [
                    ConflictsCommand.self, HistoryCommand.self, WhyCommand.self, DiscardCommand.self,
                    VerifyCommand.self,
                ]),
            CommandGroup(
                name: "Run a server",
                subcommands: [
                    InitCommand.self, UpCommand.self, DownCommand.self, LogsCommand.self, AdvertiseCommand.self,
                    SettingsCommand.self,
                ]),
            CommandGroup(
                name: "Manage a server",
                subcommands: [
                    AppCommand.self, ContainerCommand.self, PlanCommand.self, SecretsCommand.self, BackupCommand.self,
                    RestoreCommand.self, RecoveryKeyCommand.self, ScrubCommand.self,
                ]),
            CommandGroup(name: "Shell", subcommands: [CompletionsCommand.self]),
        ]
    )

    static func main() async {
        StandardStreams.occupy()
        // Ctrl-C: the default action ends the process at once. That is safe at
        // any instant, since every change is one transaction on disk.
        do {
            try requireText()
            if let name = expanded.stoodFor, !arguments.contains("--json") { Standard.error("This runs \(name).") }
            if let topic = HelpTopic(in: arguments) { return try explain(topic) }
            var command = try parseAsRoot(arguments)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch {
            exit(reporting: error)
        }
    }

    private static let expanded = Synonyms.expand(Array(CommandLine.arguments.dropFirst()))
    /// The typed arguments, with the command that a synonym stands for.
    static var arguments: [String] { expanded.arguments }

    /// The topic, and the page of the command that is called so.
    private static func explain(_ topic: HelpTopic) throws {
        var text = topic.text
        if let command = subcommand(topic.rawValue) {
            text += "\n\n" + HelpPage(helpMessage(for: command, columns: Terminal.width), for: [topic.rawValue]).text
        }
        try StandardOutput.write(text + "\n")
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
