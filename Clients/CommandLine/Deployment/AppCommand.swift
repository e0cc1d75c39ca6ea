import ArgumentParser
import Foundation
import NephosCore
import NephosWire

struct AppCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "app", abstract: "Create apps and set the services that each may use.",
        subcommands: [Create.self, Update.self, Remove.self, List.self, Token.self])

    private struct Row: Encodable {
        var app: String
        var name: String
        var store: String
        var containers: [String]
        var capabilities: [String]

        init(_ app: WireApp) {
            self.app = app.appID
            name = app.name
            store = app.storeID
            containers = app.containerIds
            capabilities = Capability.allCases.filter { app.capabilities.contains($0.wire) }.map(\.rawValue)
        }
    }

    /// What an app may use.
    enum Capability: String, CaseIterable, ExpressibleByArgument {
        case keyValue = "key-value"
        case documents
        case records

        var wire: WireCapability {
            switch self {
            case .keyValue: .keyValue
            case .documents: .documents
            case .records: .records
            }
        }
    }

    /// What a new app is entitled to.
    struct Entitlements: ParsableArguments {
        @Argument(help: "The app's id: a team's prefix and a name, such as A1B2C3.com.example.notes.") var id: String
        @Option(help: "A name for people to read (default: the id).") var name: String?
        @Option(
            help:
                "The key-value store's id (default: the app's id). Apps of one team that name the same id share the store."
        )
        var store: String?
        @Option(
            name: .customLong("container"), help: "A container's id; repeat for more. The first one is the default.")
        var containers: [String] = []
        @Option(
            name: .customLong("capability"),
            help: "key-value, documents or records; repeat for more (default: all three).")
        var capabilities: [Capability] = []

        var app: WireApp {
            var app = WireApp()
            app.appID = id
            app.name = name ?? id
            app.storeID = store ?? id
            app.containerIds = containers
            app.capabilities = capabilities.map(\.wire)
            return app
        }
    }

    struct Create: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Register an app.")

        @OptionGroup var entitlements: Entitlements
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireCreateApp()
            request.app = entitlements.app
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireCreateAppReply.self)
            try output.print(
                Row(reply.app), text: "Registered \(reply.app.appID); its key-value store is \(reply.app.storeID).")
        }
    }

    struct Update: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Change an app. Running services apply the change within seconds.")

        @Argument(help: "The app's id.") var id: String
        @Option(help: "The new name for people to read.") var name: String?
        @Option(help: "The new key-value store's id.") var store: String?
        @Option(
            name: .customLong("container"), help: "A container's id; repeat for more. They replace the app's list.")
        var containers: [String] = []
        @Flag(help: "Remove all containers from the app's list.") var noContainers = false
        @Option(
            name: .customLong("capability"),
            help: "key-value, documents or records; repeat for more. They replace the app's list.")
        var capabilities: [Capability] = []
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !noContainers || containers.isEmpty else {
                throw ValidationError("--no-containers and --container contradict each other.")
            }
            guard name != nil || store != nil || noContainers || !containers.isEmpty || !capabilities.isEmpty else {
                throw ValidationError(
                    "Nothing to change. Give --name, --store, --container, --no-containers or --capability.")
            }
        }

        func run() throws {
            var request = WireUpdateApp()
            request.appID = id
            if let name { request.name = name }
            if let store { request.storeID = store }
            if noContainers || !containers.isEmpty { request.containers.ids = containers }
            if !capabilities.isEmpty { request.capabilities.values = capabilities.map(\.wire) }
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireUpdateAppReply.self)
            try output.print(Row(reply.app), text: "Changed \(reply.app.appID).")
        }
    }

    struct Remove: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Take all entitlements from an app. Its data stays.")

        @Argument(help: "The app's id.") var id: String
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireRemoveApp()
            request.appID = id
            _ = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireRemoveAppReply.self)
            try output.print(["app": id], text: "Removed \(id). What it stored is still there.")
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the apps.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let connection = try OperatorConnection(directory: deployment.directory)
            var request = WireListApps()
            var rows: [Row] = []
            while true {
                let reply = try connection.call(.identity, request, returning: WireListAppsReply.self)
                rows += reply.apps.map(Row.init)
                guard reply.more, let last = reply.apps.last else { break }
                request.after = last.appID
            }
            try output.print(
                rows,
                text: table(
                    ["APP", "STORE", "MAY USE", "CONTAINERS"],
                    rows.map {
                        [
                            $0.app, $0.store, $0.capabilities.joined(separator: " "),
                            $0.containers.isEmpty ? "-" : $0.containers.joined(separator: " "),
                        ]
                    })
            )
        }
    }
}
