import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit

struct SettingsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "settings",
        abstract: "Show or change settings, such as ports for metrics and the web.",
        discussion: """
            The file "settings" in the deployment's folder holds them, so they survive nephos down and up. \
            docs/settings.md explains each name. An environment variable of the same name takes precedence \
            when the services start.

            Example: nephos settings set NEPHOS_KEYVALUE_HEALTH_PORT=7491
            """,
        subcommands: [List.self, Set.self, Unset.self], defaultSubcommand: List.self)

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the settings that differ from the defaults.")

        @Flag(help: "List every setting.") var all = false
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let directory = deployment.directory
            try directory.requireDeployment()
            let values = try DeploymentFiles(directory: directory.path).settings().values
            if all {
                let names = SettingNames.all + values.keys.filter { !SettingNames.all.contains($0) }.sorted()
                return try output.print(
                    names,
                    text: names.map { name in values[name].map { "\(name)=\($0)" } ?? name }.joined(separator: "\n"))
            }
            try output.print(values, text: SettingsCommand.text(values))
        }
    }

    struct Set: ParsableCommand, OwnTimeout {
        static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
        static let configuration = CommandConfiguration(
            abstract: "Set one or more settings, and restart the services that read them.",
            discussion: "If a service rejects the new value, the settings stay as they were.")

        @Argument(help: "NAME=VALUE, such as NEPHOS_KEYVALUE_HEALTH_PORT=7491.") var settings: [String]
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let changes = try settings.map { setting -> (name: String, value: String?) in
                guard let equals = setting.firstIndex(of: "=") else {
                    throw CloudError(
                        .invalidArguments, "A setting is NAME=VALUE.", details: ["setting": setting])
                }
                let value = String(setting[setting.index(after: equals)...])
                guard !value.isEmpty else {
                    throw CloudError(
                        .invalidArguments, "The value is empty. To remove a setting use: nephos settings unset NAME",
                        details: ["setting": setting])
                }
                return (String(setting[..<equals]), value)
            }
            try SettingsCommand.change(changes, of: deployment.directory, output)
        }
    }

    struct Unset: ParsableCommand, OwnTimeout {
        static let standardTimeout: Duration? = DeploymentDirectory.restartTimeout
        static let configuration = CommandConfiguration(
            abstract: "Remove settings and restart the services that read them. The defaults apply again.")

        @Argument(help: "The name of a setting.") var names: [String]
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            try SettingsCommand.change(names.map { ($0, nil) }, of: deployment.directory, output)
        }
    }

    private struct Report: Encodable {
        var settings: [String: String]
        /// Services that run with the settings now; the others read them at their next start.
        var restarted: [String]
    }

    /// Writes the settings and restarts the services that read them, if `nephos up` runs them.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` for a name that no service knows; `.configurationInvalid` when a service
    ///   refuses a value. The settings are as before then, and the services run.
    private static func change(
        _ changes: [(name: String, value: String?)], of directory: DeploymentDirectory, _ output: OutputOptions
    ) throws {
        try directory.requireDeployment()
        let files = DeploymentFiles(directory: directory.path)
        let before = try files.settings()
        var after = before
        for (name, value) in changes {
            // A name of a later version may have to be removed.
            guard !SettingNames.services(of: name).isEmpty || value == nil && before.values[name] != nil else {
                throw unknown(name)
            }
            try after.set(name, to: value)
        }
        let concerned = ServiceName.programs.filter { service in
            changes.contains { name, _ in
                before.values[name] != after.values[name] && SettingNames.services(of: name).contains(service)
            }
        }
        try files.write(after)
        let running = directory.supervisor == nil ? [] : concerned
        if !running.isEmpty {
            do { _ = try directory.restart(running) } catch {
                try files.write(before)
                _ = try directory.restart(running, endsAtFailure: false)
                throw error
            }
        }
        let report = Report(settings: after.values, restarted: running.map(\.rawValue))
        let effect =
            running.isEmpty
            ? concerned.isEmpty ? "Nothing has changed." : "The services read them at their next start."
            : "Restarted: \(UpCommand.list(running))."
        try output.print(report, text: "\(text(after.values))\n\(effect)")
    }

    private static func unknown(_ name: String) -> CloudError {
        let nearest = UnknownCommand.nearest(to: name, of: SettingNames.all)
        return CloudError(
            .unknownItem,
            "There is no such setting. " + (nearest.map { "Did you mean: \($0)" } ?? "See: nephos settings list --all"),
            details: ["name": name])
    }

    private static func text(_ values: [String: String]) -> String {
        values.isEmpty
            ? "No settings are set; every default applies."
            : values.sorted { $0.key < $1.key }.map { "\($0.key)=\(inLine($0.value))" }.joined(separator: "\n")
    }
}
