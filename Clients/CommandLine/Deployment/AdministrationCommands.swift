import ArgumentParser
import Core
import Foundation
import Wire

/// Where a password comes from; never from the command line itself, which others can see.
struct PasswordOptions: ParsableArguments {
    @Option(name: .long, help: "Read the password from this file's first line.", completion: .file())
    var passwordFile: String?

    @Flag(name: .long, help: "Read the password from standard input.")
    var passwordStdin = false

    /// The password: from the file, standard input, `$NEPHOS_PASSWORD`, or asked for.
    func password() throws(CloudError) -> String {
        if let passwordFile {
            guard let text = try? String(contentsOfFile: passwordFile, encoding: .utf8) else {
                throw CloudError(
                    .invalidArguments, "The password file cannot be read.", details: ["file": passwordFile])
            }
            return String(text.split(separator: "\n", omittingEmptySubsequences: false).first ?? "")
        }
        if passwordStdin { return readLine() ?? "" }
        if let password = ProcessInfo.processInfo.environment["NEPHOS_PASSWORD"] { return password }
        guard isatty(0) == 1, let typed = getpass("Password: ") else {
            throw CloudError(
                .invalidArguments,
                "No password: use --password-file, --password-stdin or $NEPHOS_PASSWORD, or run this in a terminal.")
        }
        return String(cString: typed)
    }
}

struct AccountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "account", abstract: "Accounts of a deployment (needs the operator's secret).",
        subcommands: [Create.self, List.self])

    struct Create: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Create an account.")

        @Argument(help: "The name to sign in with.") var name: String
        @OptionGroup var password: PasswordOptions
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireCreateAccount()
            request.accountName = name
            request.password = try password.password()
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireCreateAccountReply.self)
            try output.print(["account": name, "account_id": reply.accountID], text: "Created the account \(name).")
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the accounts.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        private struct Row: Encodable {
            var account: String
            var accountId: String
            var createdAt: UInt64
            var devices: UInt32
        }

        func run() throws {
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, WireListAccounts(), returning: WireListAccountsReply.self)
            let rows = reply.accounts.map {
                Row(account: $0.accountName, accountId: $0.accountID, createdAt: $0.createdAt, devices: $0.deviceCount)
            }
            try output.print(
                rows,
                text: table(
                    ["ACCOUNT", "CREATED", "DEVICES", "ID"],
                    rows.map {
                        [
                            $0.account, describe(Timestamp(milliseconds: $0.createdAt)), "\($0.devices)", $0.accountId,
                        ]
                    }))
        }
    }
}

struct AppCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "app", abstract: "Apps of a deployment: what each may use (needs the operator's secret).",
        subcommands: [Create.self, List.self])

    private struct Row: Encodable {
        var app: String
        var name: String
        var store: String
        var containers: [String]

        init(_ app: WireApp) {
            self.app = app.appID
            name = app.name
            store = app.storeID
            containers = app.containerIds
        }
    }

    struct Create: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Register an app.")

        @Argument(help: "The app's id, such as com.example.notes.") var id: String
        @Option(help: "A name for people (default: the id).") var name: String?
        @Option(help: "The key-value store's id (default: the app's id). Apps that name the same one share it.")
        var store: String?
        @Option(name: .customLong("container"), help: "A container's id; repeat for more. The first is the default.")
        var containers: [String] = []
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireCreateApp()
            request.app.appID = id
            request.app.name = name ?? id
            request.app.storeID = store ?? id
            request.app.containerIds = containers
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireCreateAppReply.self)
            try output.print(
                Row(reply.app), text: "Registered \(reply.app.appID); its key-value store is \(reply.app.storeID).")
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the apps.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, WireListApps(), returning: WireListAppsReply.self)
            let rows = reply.apps.map(Row.init)
            try output.print(
                rows,
                text: table(
                    ["APP", "STORE", "CONTAINERS"],
                    rows.map { [$0.app, $0.store, $0.containers.isEmpty ? "-" : $0.containers.joined(separator: " ")] })
            )
        }
    }
}
