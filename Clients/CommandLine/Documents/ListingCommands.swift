import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "ls", abstract: "List a folder or a package.",
            discussion: """
                Marks after the names: / a folder, # a package, @ a link, * an executable file. The file list of \
                a package is downloaded if it is not here. Exit code 2: there is no such item.
                """)

        @Argument(help: "The folder, package or file (default: Documents).") var path = DocumentArgument("")
        @Flag(name: [.customShort("r"), .long], help: "Also list subfolders.") var recursive = false
        @Flag(name: [.customShort("d"), .long], help: "List the folder or package itself instead of its content.")
        var directory = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, session in
                let item = try await container.item(at: path)
                if !directory, item == nil || item?.kind == .package,
                    let place = try await container.packages.place(
                        at: path, timeout: network.limit)
                {
                    return try list(place)
                }
                let entry = try await container.requireItem(at: path)
                var entries = [entry]
                if entry.kind == .folder, !directory {
                    entries = try await recursive ? container.items(in: entry.id) : container.children(of: entry.id)
                }
                let coming =
                    entry.kind == .folder && !directory
                    ? try await container.downloads.coming(in: entry.id, isDeep: recursive) : []
                let names = await session.names(
                    ofThoseThatSend: entries.flatMap(\.incoming) + coming.map(\.content), network)
                var rows = entries.map { entry in
                    [
                        entry.sizeText, entry.modifiedText, recursive ? entry.path + entry.marker : entry.label,
                        [entry.notes, entry.incomingText(names)].filter { !$0.isEmpty }.joined(separator: ", "),
                    ]
                }
                rows += coming.map {
                    [$0.content.sizeText, "-", inLine(recursive ? $0.path : $0.name), $0.text(names)]
                }
                try output.print(
                    entries.map(DocumentRow.init),
                    text: rows.isEmpty ? "The folder is empty." : table(["SIZE", "MODIFIED", "NAME", ""], rows))
            }
        }

        private func list(_ place: PackagePlace) throws {
            let members = place.listed(isDeep: recursive)
            let rows = members.map { member in
                [
                    member.kind == .file ? describe(bytes: member.size) : "-",
                    member.modified.map { describe($0) } ?? "-",
                    (recursive ? place.item.path(of: member) : member.name) + member.marker,
                ]
            }
            let empty = place.member == nil ? "The package is empty." : "The folder is empty."
            try output.print(
                members.map { MemberRow($0, of: place.item) },
                text: rows.isEmpty ? empty : table(["SIZE", "MODIFIED", "NAME"], rows))
        }
    }

    struct Tree: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show a folder or a package as a tree.",
            discussion: "Marks after the names: / a folder, # a package, @ a link, * an executable file.")

        @Argument(help: "The folder or package (default: Documents).") var path = DocumentArgument("")
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        /// A line of it.
        private struct Node {
            var label: String
            /// What those that are in it are found by; nil: nothing is.
            var folder: Data?
        }

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let item = try await container.item(at: path)
                if item == nil || item?.kind == .package,
                    let place = try await container.packages.place(
                        at: path, timeout: network.limit)
                {
                    return try draw(place)
                }
                let folder = try await container.requireItem(at: path)
                let entries = try await container.items(in: folder.id)
                // What nobody put there by hand, but everybody has.
                let fixed =
                    folder.id == .top ? try await container.children(of: "/").filter { $0.id == .documents } : []
                let children = Dictionary(grouping: fixed + entries) { Data($0.parent.bytes) }.mapValues { entries in
                    entries.map { Node(label: $0.label, folder: $0.kind == .folder ? Data($0.id.bytes) : nil) }
                }
                try print(folder.path, Data(folder.id.bytes), children, entries.map(DocumentRow.init))
            }
        }

        private func draw(_ place: PackagePlace) throws {
            let members = place.listed(isDeep: true)
            let children = Dictionary(grouping: members, by: \.folder).mapValues { members in
                members.map { Node(label: $0.name + $0.marker, folder: $0.kind == .folder ? $0.pathBytes : nil) }
            }
            let top = place.member.map { place.item.path(of: $0) + $0.marker } ?? place.item.path + place.item.marker
            let isFolder = place.member.map { $0.kind == .folder } ?? true
            try print(
                top, place.member?.pathBytes ?? Data(), isFolder ? children : [:],
                members.map { MemberRow($0, of: place.item) })
        }

        private func print(
            _ top: String, _ folder: Data, _ children: [Data: [Node]], _ rows: [some Encodable]
        ) throws {
            var lines = [top]
            Self.draw(children[folder] ?? [], children, indent: "", &lines)
            try output.print(rows, text: lines.map(inLine).joined(separator: "\n"))
        }

        private static func draw(
            _ nodes: [Node], _ children: [Data: [Node]], indent: String, _ lines: inout [String]
        ) {
            for (index, node) in nodes.enumerated() {
                let isLast = index == nodes.count - 1
                lines.append(indent + (isLast ? "└── " : "├── ") + node.label)
                guard let folder = node.folder else { continue }
                // The container, and the form of packages, bound how deep this goes.
                draw(children[folder] ?? [], children, indent: indent + (isLast ? "    " : "│   "), &lines)
            }
        }
    }

    struct Trash: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the trash, newest first.",
            discussion: """
                With a batch: list its items. nephos docs undo restores a batch, or one of its items with \
                --only. SIZE is the size of the content without former versions. Exit code 2: there is no such \
                batch.
                """,
            aliases: ["deleted"])

        @Argument(help: "A batch (default: all, one a line).") var batch: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        struct Row: Encodable {
            var batch: String
            var trashed: UInt64?
            /// When it is removed for good.
            var expires: UInt64?
            /// Of contents, without former versions.
            var bytes: UInt64
            var device: String?
            var deviceName: String?
            /// The container that it was moved to.
            var movedTo: String?
            var items: [DocumentRow]
        }

        func run() async throws {
            let named = try batch.map(Remove.batch)
            try await container.withContainer(network) { container, session in
                let batches = try await container.trash.list()
                if let named { return try await list(named, among: batches, in: container) }
                let names =
                    network.offline || batches.isEmpty
                    ? DeviceNames() : await DeviceNames(session, within: min(network.duration, .seconds(2)))
                let rows = batches.map { batch in
                    [
                        batch.trashed.map { tableTime($0) } ?? "pending",
                        batch.expires.map { String(describe($0).prefix(10)) } ?? "-",
                        batch.device.map { inLine(names[$0]) } ?? "-", describe(bytes: batch.bytes),
                        batch.batch.description,
                        listed(batch.items.map(\.path)) + (batch.movedTo.map { ", moved to \(inLine($0))" } ?? ""),
                    ]
                }
                try output.print(
                    batches.map { batch in
                        Row(
                            batch: batch.batch.description, trashed: batch.trashed?.milliseconds,
                            expires: batch.expires?.milliseconds, bytes: batch.bytes, device: batch.device?.rawValue,
                            deviceName: batch.device.flatMap { names.known($0) }, movedTo: batch.movedTo,
                            items: batch.items.map(DocumentRow.init))
                    },
                    text: rows.isEmpty
                        ? "Nothing lies in the trash."
                        : table(["DELETED", "KEPT UNTIL", "BY", "SIZE", "BATCH", "WHAT"], rows))
            }
        }

        private func list(
            _ named: DocumentID, among batches: [DeletedDocuments], in container: UbiquityContainer
        ) async throws {
            guard let batch = batches.first(where: { $0.batch == named }) else {
                throw CloudError(
                    .unknownItem, "Nothing that was deleted so lies in the trash.", details: ["batch": "\(named)"])
            }
            var entries: [DocumentEntry] = []
            for item in batch.items {
                entries.append(item)
                if item.kind == .folder { entries += try await container.trash.items(in: item.id) }
            }
            try output.print(
                entries.map(DocumentRow.init),
                text: table(
                    ["SIZE", "MODIFIED", "NAME"], entries.map { [$0.sizeText, $0.modifiedText, $0.path + $0.marker] }))
        }
    }
}
