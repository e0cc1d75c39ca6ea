import ArgumentParser
import NephosCore
import NephosNotifications
import NephosServiceEntry
import NephosServiceKit

@main
struct NotificationsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-notifications", abstract: "Tells devices at once what has changed.")

    @OptionGroup var options: ServiceOptions

    func run() async throws {
        try await options.run(.notifications, busyPollMax: .zero) {
            NotificationsService(configuration: try NotificationsConfiguration($0.settings))
        }
    }
}
