import ArgumentParser
import Core
import NotificationsService
import ServiceKit
import ZeroMQBus

@main
struct NotificationsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-notifications", abstract: "Tells devices at once what has changed.")

    @Option(help: "The deployment's folder: roster.json and notifications.secret.json.", completion: .directory)
    var deployment: String

    @Option(help: "This service's own folder, for its database.", completion: .directory)
    var data: String

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    func run() async throws {
        try await runService(
            .notifications, deployment: deployment, data: data, logLevel: logLevel, transport: ZeroMQTransport()
        ) { NotificationsService(configuration: try NotificationsConfiguration($0.configuration)) }
    }
}
