import ArgumentParser
import NephosCore
import NephosRecords
import NephosServiceEntry
import NephosServiceKit
import NephosZeroMQ

@main
struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-records", abstract: "Typed records in zones and databases.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.records) { try RecordsService.make($0, on: ZeroMQTransport()) }
    }
}
