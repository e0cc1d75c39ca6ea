import ArgumentParser
import NephosCore
import NephosRecords
import NephosServiceEntry

@main
struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-records", abstract: "Typed records in zones and databases.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.records) { _ in RecordsService() }
    }
}
