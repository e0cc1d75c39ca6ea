import ArgumentParser

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
        version: "0.1.0",
        subcommands: [],
        groupedSubcommands: [
            CommandGroup(
                name: "Deployment",
                subcommands: [
                    InitCommand.self, UpCommand.self, DownCommand.self, StatusCommand.self, AdvertiseCommand.self,
                ]),
            CommandGroup(
                name: "Administration", subcommands: [AppCommand.self, PlanCommand.self, SecretsCommand.self]),
            CommandGroup(
                name: "Account",
                subcommands: [AccountCommand.self, DevicesCommand.self, StorageCommand.self]),
            CommandGroup(
                name: "Device", subcommands: [SignInCommand.self, SignOutCommand.self, WhoAmICommand.self]),
            CommandGroup(
                name: "Data",
                subcommands: [KeyValueCommand.self, WatchCommand.self, WhyCommand.self, VerifyCommand.self]),
        ]
    )

    static func main() async {
        // Ctrl-C: the default action ends the process at once. That is safe at
        // any instant, since every change is one transaction on disk.
        do {
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
}
