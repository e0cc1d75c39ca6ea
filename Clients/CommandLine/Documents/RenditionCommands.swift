import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Renditions: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List or remove renditions of an item, such as a small picture of a large one.",
            discussion: """
                Put one with nephos docs put --rendition NAME FILE PATH, get it with nephos docs get --rendition \
                NAME PATH. Exit code 2: there is no such item or rendition.
                """)

        @Argument(help: "The item.") var path: DocumentArgument
        @Option(help: "Remove the rendition with this name.") var remove: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        struct Row: Encodable {
            var name: String
            var size: UInt64
            /// Milliseconds since 1970.
            /// Milliseconds since 1970, negative before.
            var modified: Int64
            var device: String?
            var version: String?
            /// The version of the item's content that it was made from.
            var madeFrom: String?
            /// Whether that is its content as it is now.
            var current: Bool
        }

        func run() async throws {
            // A list is a read, which a revoked device gets only with --offline.
            let refresh = CopyRefresh(limit: network.limit, isWriting: remove != nil)
            try await container.withContainer(refresh, isOffline: network.offline) { container, _ in
                if let remove { return try await take(remove, from: container) }
                let renditions = try await container.renditions.list(of: path)
                let cells = renditions.map { rendition in
                    [
                        describe(bytes: rendition.size), describe(rendition.modified), rendition.name,
                        rendition.isCurrent ? "" : "of another version",
                    ]
                }
                try output.print(
                    renditions.map { rendition in
                        Row(
                            name: rendition.name, size: rendition.size, modified: rendition.modified.milliseconds,
                            device: rendition.device?.rawValue, version: rendition.version?.description,
                            madeFrom: rendition.madeFrom?.description, current: rendition.isCurrent)
                    },
                    text: cells.isEmpty
                        ? "There are no further contents." : table(["SIZE", "MODIFIED", "NAME", ""], cells))
            }
        }

        private func take(_ name: String, from container: UbiquityContainer) async throws {
            let sent = try await SentDocuments(container)
            let item = try await container.renditions.remove(named: name, of: path)
            try await sent.wait(
                [item], network, output, done: "Took \(inLine(name)) away from \(inLine(item.path)).")
        }
    }
}
