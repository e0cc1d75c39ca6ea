import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "ls", abstract: "List a folder.",
            discussion: "Exit code 2: there is no such item.")

        @Argument(help: "The folder, or an item (default: Documents).") var path = DocumentArgument("")
        @Flag(name: [.customShort("r"), .long], help: "Everything in it, however deep.") var recursive = false
        @Flag(help: "Fail if the server does not say what is new.") var fresh = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network, isFresh: fresh) { container, session in
                let item = try await container.requireItem(at: path)
                var entries = [item]
                if item.kind == .folder {
                    entries = try await recursive ? container.items(in: item.id) : container.children(of: item.id)
                }
                let names = await session.names(ofThoseThatSend: entries, network)
                let rows = entries.map { entry in
                    [
                        entry.sizeText, entry.modifiedText, recursive ? entry.path : entry.label,
                        [entry.notes, entry.incomingText(names)].filter { !$0.isEmpty }.joined(separator: ", "),
                    ]
                }
                try output.print(
                    entries.map(DocumentRow.init),
                    text: rows.isEmpty ? "The folder is empty." : table(["SIZE", "MODIFIED", "NAME", ""], rows))
            }
        }
    }

    struct Tree: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show a folder and all that is in it.")

        @Argument(help: "The folder (default: Documents).") var path = DocumentArgument("")
        @Flag(help: "Fail if the server does not say what is new.") var fresh = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network, isFresh: fresh) { container, _ in
                let folder = try await container.requireItem(at: path)
                let entries = try await container.items(in: folder.id)
                let children = Dictionary(grouping: entries, by: \.parent)
                // What nobody put there by hand, but everybody has.
                let fixed =
                    folder.id == .top ? try await container.children(of: "/").filter { $0.id == .documents } : []
                var lines = [folder.path]
                Self.draw(fixed + (children[folder.id] ?? []), children, indent: "", &lines)
                try output.print(entries.map(DocumentRow.init), text: lines.map(inLine).joined(separator: "\n"))
            }
        }

        private static func draw(
            _ entries: [DocumentEntry], _ children: [DocumentID: [DocumentEntry]], indent: String,
            _ lines: inout [String]
        ) {
            for (index, entry) in entries.enumerated() {
                let isLast = index == entries.count - 1
                lines.append(indent + (isLast ? "└── " : "├── ") + entry.label)
                guard entry.kind == .folder else { continue }
                // The container bounds how deep this goes.
                draw(children[entry.id] ?? [], children, indent: indent + (isLast ? "    " : "│   "), &lines)
            }
        }
    }

    struct Deleted: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "What lies in the trash, the newest first; nephos docs undo brings it back.")

        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        struct Row: Encodable {
            var batch: String
            var trashed: UInt64?
            var items: [DocumentRow]
        }

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let batches = try await container.deletedItems()
                let rows = batches.map { batch in
                    [
                        batch.trashed.map { describe($0) } ?? "waits to be sent", batch.batch.description,
                        listed(batch.items.map(\.path)),
                    ]
                }
                try output.print(
                    batches.map { batch in
                        Row(
                            batch: batch.batch.description, trashed: batch.trashed?.milliseconds,
                            items: batch.items.map(DocumentRow.init))
                    },
                    text: rows.isEmpty ? "Nothing lies in the trash." : table(["DELETED", "BATCH", "WHAT"], rows))
            }
        }
    }
}
