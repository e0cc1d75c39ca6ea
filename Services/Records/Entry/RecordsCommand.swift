import ArgumentParser
import Core
import RecordsService
import ServiceKit
import ZeroMQBus

@main
struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-records", abstract: "Typed records in zones and databases.")

    @Option(help: "The deployment's folder: roster.json and records.secret.json.", completion: .directory)
    var deployment: String

    @Option(help: "This service's own folder, for its database.", completion: .directory)
    var data: String

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    func run() async throws {
        try await runService(
            .records, deployment: deployment, data: data, logLevel: logLevel,
            isSupervised: supervised, transport: ZeroMQTransport(busyPollMax: serviceBusyPollMax)
        ) { _ in RecordsService() }
    }
}
