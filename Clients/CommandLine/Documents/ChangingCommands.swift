import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Move: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "mv", abstract: "Move or rename items.",
            discussion: """
                If the target is an existing folder, the items move into it. Their content is not sent again.

                With --to-container the items are copied into another container. The originals go to the trash \
                once the server has the whole copy. Items that changed meanwhile, or could not be copied, stay; \
                nephos why lists them.
                """)

        @Argument(help: "The item to move.") var source: DocumentArgument
        @Argument(help: "More items to move, and the target at the end.") var others: [DocumentArgument]
        @Flag(
            name: [.customShort("f"), .long],
            help: "Move an existing file at the target to the trash; in another container it gets a new version.")
        var force = false
        @OptionGroup var target: TargetOptions
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, session in
                let other = try await self.target.open(besides: container, session, network)
                let target = others.last ?? DocumentArgument("")
                let sources = [source] + others.dropLast()
                if sources.count > 1, try await (other ?? container).item(at: target)?.kind != .folder {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target.text])
                }
                if let other { return try await move(sources, to: target, from: container, in: other) }
                let sent = try await SentDocuments(container)
                var moved: [DocumentEntry] = []
                for source in sources {
                    moved.append(try await container.move(source, to: target, replaces: force))
                }
                try await sent.wait(moved, network, output, done: Self.text(moved))
            }
        }

        private func move(
            _ sources: [DocumentArgument], to target: DocumentArgument, from container: UbiquityContainer,
            in other: UbiquityContainer
        ) async throws {
            let (sent, left) = (try await SentDocuments(other), try await SentDocuments(container))
            var items: [DocumentEntry] = []
            var moved: [DocumentEntry] = []
            for source in sources {
                items.append(try await container.requireItem(at: source))
                moved.append(try await container.move(source, to: target, in: other, replaces: force).item)
            }
            try await sent.wait(moved, network, output, leaving: [(items, left)], done: Self.text(moved, in: other))
        }

        private static func text(_ moved: [DocumentEntry], in container: UbiquityContainer? = nil) -> String {
            let place = container.map { " in \($0.id)" } ?? ""
            return moved.count == 1
                ? "Moved to \(inLine(moved[0].path))\(place)." : "Moved \(moved.count) items\(place)."
        }
    }

    struct Copy: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "cp",
            abstract: "Copy items in a container or to another one, without sending their content again.",
            discussion: """
                If the target is an existing folder, the items are copied into it. Up to 500 items reach other \
                devices in one step. More items take several steps, folders first, which continue after an \
                interruption.
                """)

        @Argument(help: "The item to copy.") var source: DocumentArgument
        @Argument(help: "More items to copy, and the target at the end.") var others: [DocumentArgument]
        @Flag(name: [.customShort("r"), .long], help: "Copy folders with all their content.") var recursive = false
        @Flag(
            name: [.customShort("f"), .long],
            help: "Give an existing file at the target a new version.")
        var force = false
        @OptionGroup var target: TargetOptions
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, session in
                let other = try await self.target.open(besides: container, session, network)
                let target = others.last ?? DocumentArgument("")
                let sources = [source] + others.dropLast()
                if sources.count > 1, try await (other ?? container).item(at: target)?.kind != .folder {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target.text])
                }
                for source in sources where !recursive {
                    guard try await container.requireItem(at: source).kind != .folder else {
                        throw CloudError(
                            .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                            details: ["path": source.text])
                    }
                }
                let sent = try await SentDocuments(other ?? container)
                var copies: [DocumentCopy] = []
                for source in sources {
                    copies.append(
                        try await container.copy(source, to: target, in: other ?? container, replaces: force))
                }
                try await sent.wait(copies.map(\.item), network, output, done: Self.text(copies, in: other))
            }
        }

        private static func text(_ copies: [DocumentCopy], in container: UbiquityContainer?) -> String {
            let count = copies.reduce(0) { $0 + $1.itemCount }
            let steps = copies.reduce(0) { $0 + $1.stepCount }
            let place = container.map { " in \($0.id)" } ?? ""
            let what =
                count == 1 ? "Copied to \(inLine(copies[0].item.path))\(place)." : "Copied \(count) items\(place)."
            return steps > copies.count
                ? "\(what) They go in \(steps) steps, so that other devices see them one after the other." : what
        }
    }

    struct MakeFolder: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "mkdir", abstract: "Create folders. An existing folder is not an error.")

        @Argument(help: "The folders.") var paths: [String]
        @Flag(name: [.customShort("p"), .long], help: "Also create missing parent folders.") var parents = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                var made: [DocumentEntry] = []
                // Before anything is made: a later one may lie in an earlier one, or be it.
                var known: Set<DocumentID> = []
                for path in paths { if let item = try? await container.item(at: path) { known.insert(item.id) } }
                for path in paths {
                    let folder = try await container.makeFolder(at: path, makesParents: parents)
                    if !made.contains(where: { $0.id == folder.id }) { made.append(folder) }
                }
                let there = made.filter { known.contains($0.id) }.map(\.path).sorted()
                let new = made.filter { !known.contains($0.id) }.map { inLine($0.path) }
                let sentences = [
                    new.isEmpty ? nil : "Made \(listed(new)).",
                    there.isEmpty ? nil : "There already: \(listed(there.map(inLine))).",
                ]
                try await sent.wait(
                    made, network, output, existing: there,
                    done: sentences.compactMap { $0 }.joined(separator: " "))
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "rm", abstract: "Move items to the trash on all devices.",
            discussion: """
                The items of one command form one batch in the trash; nephos docs undo restores it. They count \
                on the plan until you remove them with --for-good, or their time in the trash ends.

                A file that another device has changed meanwhile stays, and so does a folder with such a change; \
                nephos why lists them.
                """)

        @Argument(help: "The items; with --for-good, batches of nephos docs trash.") var paths: [DocumentArgument]
        @Flag(name: [.customShort("r"), .long], help: "Also delete folders, with all their content.") var recursive =
            false
        @Flag(help: "Remove batches from the trash forever. This cannot be undone.") var forGood = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                if forGood {
                    let batches = try paths.map { try Self.batch($0.text) }
                    let deleted = try await container.trash.list().filter { batches.contains($0.batch) }
                    for batch in batches { try await container.trash.remove(batch) }
                    return try await sent.wait(
                        [], network, output, removed: deleted.flatMap(\.items).map(\.path),
                        done: "Removed for good: \(describe(bytes: deleted.reduce(0) { $0.addingClamped($1.bytes) })).")
                }
                var items: [DocumentEntry] = []
                for path in paths {
                    let item = try await container.requireItem(at: path)
                    guard item.kind != .folder || recursive else {
                        throw CloudError(
                            .invalidArguments, "This is a folder. With -r it is deleted with all that is in it.",
                            details: ["path": item.path])
                    }
                    items.append(item)
                }
                let batch = try await container.trash(items.map(\.id))
                let paths = listed(items.map { inLine($0.path) })
                let bytes = try await container.trash.list().first { $0.batch == batch }?.bytes ?? 0
                try await sent.wait(
                    items, network, output, batch: batch,
                    done:
                        "Moved to the trash: \(paths) (\(describe(bytes: bytes))). Back with: nephos docs undo \(batch)"
                )
            }
        }

        static func batch(_ text: String) throws -> DocumentID {
            guard let batch = DocumentID(text) else {
                throw CloudError(
                    .invalidArguments, "This is no batch of the trash. See: nephos docs trash",
                    details: ["batch": text])
            }
            return batch
        }
    }

    struct Undo: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Restore the items that one command deleted.",
            discussion: """
                If a name is taken meanwhile, the restored item gets another name. Items that were moved to \
                another container need their batch. With --only one file of a deleted folder is restored, and \
                the rest stays in the trash.
                """)

        @Argument(help: "The batch (nephos docs trash; default: the newest).")
        var batch: String?
        @Option(help: "Restore only the item with this path (nephos docs trash BATCH).") var only: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let batch = try batch.map(Remove.batch)
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                let items: [DocumentEntry]
                if let only {
                    items = [try await container.trash.restore(only: DocumentArgument(only).text, from: batch)]
                } else {
                    items = try await container.trash.restore(batch)
                }
                try await sent.wait(
                    items, network, output, done: "Brought back: \(listed(items.map { inLine($0.path) })).")
            }
        }
    }
}
