import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    /// A link as `--json` prints it.
    struct LinkRow: Encodable {
        var id: String
        /// Only of the one that was just made.
        var url: String?
        var name: String
        var item: String
        var version: String
        var size: UInt64
        /// Milliseconds since 1970.
        var created: UInt64
        var expires: UInt64
        var device: String
        var damaged: Bool

        init(_ link: PublishedLink) {
            id = link.id.description
            url = link.url?.absoluteString
            name = link.name
            item = link.item.description
            version = link.version.description
            size = link.size
            created = link.created.milliseconds
            expires = link.expires.milliseconds
            device = link.device.rawValue
            damaged = link.isDamaged
        }
    }

    struct Publish: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a link to a file for people without an account.",
            discussion: """
                The link shows the file as it is now, even if it changes later. It works until it expires or you \
                end it with nephos docs unpublish. It is shown once and stored nowhere. The command waits until \
                the server has the content. Exit code 2: there is no such file. Exit code 4: this deployment \
                has no links; its operator can turn them on.
                """)

        @Argument(help: "The file.") var path: DocumentArgument
        @Option(help: "How long the link works: 90s, 30m, 12h, 7d, 4w (default: 7d).") var expires: TimeSpan?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(within: wait.duration) { container, _ in
                let link = try await about(["path": path.text]) {
                    try await container.links.publish(path, expiresAfter: expires?.duration, timeout: wait.duration)
                }
                try output.print(
                    LinkRow(link),
                    text: """
                        \(link.url?.absoluteString ?? "")
                        It is good until \(describe(link.expires)). End it: nephos docs unpublish \(link.id)
                        """)
            }
        }
    }

    struct Links: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the valid links to files, newest first.",
            discussion: """
                The addresses are stored nowhere, so they are not shown. A link is marked as broken if the \
                server has lost a part of its content.
                """)

        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(within: wait.duration) { container, session in
                let links = try await container.links.list(timeout: wait.duration)
                let names = Dictionary(
                    ((try? await session.devices(timeout: wait.duration)) ?? []).map { ($0.id, $0.name) }
                ) { first, _ in first }
                let cells = links.map { link in
                    [
                        describe(link.expires), describe(bytes: link.size), names[link.device] ?? link.device.rawValue,
                        link.id.description,
                        link.name + (link.isDamaged ? "  (broken: the server has lost some of it)" : ""),
                    ]
                }
                try output.print(
                    links.map(LinkRow.init),
                    text: cells.isEmpty
                        ? "There are no links."
                        : table(["EXPIRES", "SIZE", "BY", "LINK", "NAME"], cells)
                            + "\nEnd one: nephos docs unpublish LINK")
            }
        }
    }

    struct Unpublish: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "End a link: it stops working at once.", discussion: "Exit code 2: there is no such link.")

        @Argument(help: "The link's id (nephos docs links).") var link: String
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var state = "ended"
            var id: String
        }

        func run() async throws {
            guard let id = DocumentID(link) else {
                throw CloudError(
                    .invalidArguments, "This is no link. See: nephos docs links", details: ["link": link])
            }
            try await container.withContainer(within: wait.duration) { container, _ in
                guard try await container.links.unpublish(id, timeout: wait.duration) else {
                    throw CloudError(
                        .unknownItem, "There is no such link, or it has ended. See: nephos docs links",
                        details: ["link": link])
                }
                try output.print(Report(id: link), text: "The link has ended.")
            }
        }
    }
}
