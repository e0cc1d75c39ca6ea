import ArgumentParser
import NephosCore
import NephosDocuments
import NephosServiceEntry
import NephosServiceKit
import NephosZeroMQ

@main
struct DocumentsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-documents", abstract: "Files and folders of ubiquity containers.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.documents) { try DocumentsService.make($0, on: ZeroMQTransport()) }
    }
}
