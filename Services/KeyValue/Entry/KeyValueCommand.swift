import ArgumentParser
import Core
import KeyValueService
import ServiceKit
import ZeroMQBus

@main
struct KeyValueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-keyvalue", abstract: "Property-list values of every account, kept in step on its devices.")

    @Option(help: "The deployment's folder: roster.json and keyvalue.secret.json.", completion: .directory)
    var deployment: String

    @Option(help: "This service's own folder, for its database.", completion: .directory)
    var data: String

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    func run() async throws {
        try await runService(
            .keyValue, deployment: deployment, data: data, logLevel: logLevel,
            isSupervised: supervised, transport: ZeroMQTransport(busyPollMax: serviceBusyPollMax)
        ) { KeyValueService(configuration: try KeyValueConfiguration($0.configuration)) }
    }
}
