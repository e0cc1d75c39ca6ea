import ArgumentParser
import NephosCore
import NephosKeyValue
import NephosServiceEntry
import NephosServiceKit

@main
struct KeyValueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-keyvalue", abstract: "Property-list values of every account, kept in step on its devices.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.keyValue) { KeyValueService(configuration: try KeyValueConfiguration($0.settings)) }
    }
}
