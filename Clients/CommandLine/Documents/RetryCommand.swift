import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send rejected changes again, once the reason is gone.",
            discussion: """
                Several contents of one file become its versions, the newest last. If another device has changed the file \
                meanwhile, both versions are kept as a conflict (docs resolve). nephos why lists rejected changes with the \
                reason. Changes that you dropped yourself, and those of files in the trash, are sent only by their path. \
                Exit code 2: no change of this path was rejected.
                """)

        @Argument(help: "Paths of rejected changes (default: all).") var paths: [String] = []
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let names = paths.map { ItemName(container.scope.itemName(typed: $0)) }
                let rejected = try await container.conflicts.rejected().map(\.key)
                if let missing = names.first(where: { !rejected.contains($0) }) {
                    throw CloudError(
                        .unknownItem, "No change of this path was rejected. See: nephos why",
                        details: ["path": missing.rawValue])
                }
                guard !rejected.isEmpty else {
                    return try output.print(["retried": [String]()], text: "There is nothing to send again.")
                }
                let sent = try await SentDocuments(container)
                let retried = try await container.conflicts.retryRejected(names.isEmpty ? nil : names)
                let left = Set(names.isEmpty ? rejected : names).subtracting(retried).sorted()
                if !left.isEmpty {
                    let those = listed(left.map { inLine($0.rawValue) })
                    Standard.error("nephos: Not sent again: \(those). See: nephos why")
                }
                var items: [DocumentEntry] = []
                // A file in a folder that this device has not yet is left out of the report.
                for name in retried {
                    if let item = try? await container.item(at: DocumentArgument(name.rawValue)) { items.append(item) }
                }
                let text = retried.map { inLine($0.rawValue) }
                try await sent.wait(
                    items, network, output, isPut: true,
                    done: retried.isEmpty ? "Nothing was sent again." : "Sent again: \(listed(text)).")
            }
        }
    }
}
