import ArgumentParser
import NephosCore
import NephosIdentity
import NephosServiceEntry
import NephosServiceKit

@main
struct IdentityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-identity", abstract: "Who may do what: accounts, devices, apps and tokens.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.identity) { IdentityService(configuration: try IdentityConfiguration($0.settings)) }
    }
}
