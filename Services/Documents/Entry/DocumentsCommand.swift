import ArgumentParser
import Core
import DocumentsService
import ServiceKit
import ZeroMQBus

@main
struct DocumentsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-documents", abstract: "Files and folders of ubiquity containers.")

    @Option(help: "The deployment's folder: roster.json and documents.secret.json.", completion: .directory)
    var deployment: String

    @Option(help: "This service's own folder, for its database.", completion: .directory)
    var data: String

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    func run() async throws {
        try await runService(
            .documents, deployment: deployment, data: data, logLevel: logLevel, isSupervised: supervised,
            transport: ZeroMQTransport(busyPollMax: serviceBusyPollMax)
        ) { try DocumentsService.make($0, on: ZeroMQTransport()) }
    }
}
