import ArgumentParser
import Core
import RecordsService
import ServiceEntry

@main
struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-records", abstract: "Typed records in zones and databases.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.records) { _ in RecordsService() }
    }
}
