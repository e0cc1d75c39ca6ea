import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Move: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "mv", abstract: "Move or rename items.",
            discussion: "A folder that is there takes them in. The content is not sent again.")

        @Argument(help: "What is moved.") var source: DocumentArgument
        @Argument(help: "What else is moved, and at the end where to.") var others: [DocumentArgument]
        @Flag(name: [.customShort("f"), .long], help: "A file that is in the way goes to the trash.") var force = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let target = others.last ?? DocumentArgument("")
                let sources = [source] + others.dropLast()
                if sources.count > 1, try await container.item(at: target)?.kind != .folder {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target.text])
                }
                let sent = try await SentDocuments(container)
                var moved: [DocumentEntry] = []
                for source in sources {
                    moved.append(try await container.move(source, to: target, replaces: force))
                }
                try await sent.wait(
                    moved, network, output,
                    done: moved.count == 1
                        ? "Moved to \(inLine(moved[0].path))." : "Moved \(moved.count) items.")
            }
        }
    }

    struct Copy: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "cp", abstract: "Copy items within the container. Their contents are not sent again.",
            discussion: """
                A folder that is there takes them in. Up to 500 items reach the other devices as a whole; more of them \
                in several steps, folders first, which go on by themselves after whatever cuts them off.
                """)

        @Argument(help: "What is copied.") var source: DocumentArgument
        @Argument(help: "What else is copied, and at the end where to.") var others: [DocumentArgument]
        @Flag(name: [.customShort("r"), .long], help: "Also folders, with all that is in them.") var recursive = false
        @Flag(
            name: [.customShort("f"), .long],
            help: "A file that is in the way gets the content as a new version.")
        var force = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let target = others.last ?? DocumentArgument("")
                let sources = [source] + others.dropLast()
                if sources.count > 1, try await container.item(at: target)?.kind != .folder {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target.text])
                }
                for source in sources where !recursive {
                    guard try await container.requireItem(at: source).kind != .folder else {
                        throw CloudError(
                            .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                            details: ["path": source.text])
                    }
                }
                let sent = try await SentDocuments(container)
                var copies: [DocumentCopy] = []
                for source in sources {
                    copies.append(try await container.copy(source, to: target, replaces: force))
                }
                try await sent.wait(copies.map(\.item), network, output, done: Self.text(copies))
            }
        }

        private static func text(_ copies: [DocumentCopy]) -> String {
            let count = copies.reduce(0) { $0 + $1.itemCount }
            let steps = copies.reduce(0) { $0 + $1.stepCount }
            let what = count == 1 ? "Copied to \(inLine(copies[0].item.path))." : "Copied \(count) items."
            return steps > copies.count
                ? "\(what) They go in \(steps) steps, so that other devices see them one after the other." : what
        }
    }

    struct MakeFolder: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "mkdir", abstract: "Make folders; one that is there stays as it is.")

        @Argument(help: "The folders.") var paths: [String]
        @Flag(name: [.customShort("p"), .long], help: "Make also those that they are in.") var parents = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                var made: [DocumentEntry] = []
                for path in paths {
                    made.append(try await container.makeFolder(at: path, makesParents: parents))
                }
                try await sent.wait(made, network, output, done: "Made \(listed(made.map { inLine($0.path) })).")
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "rm", abstract: "Move items to the trash, on all devices; nephos docs undo brings them back.",
            discussion: """
                What is deleted with one command lies in the trash as one batch, and is brought back as one. It still \
                counts on the plan until it is removed for good (--for-good), or its time in the trash is over.

                A file that another device has changed since, and a folder in which something has changed, stays: \
                nephos why says so.
                """)

        @Argument(help: "The items; with --for-good, batches of nephos docs deleted.") var paths: [DocumentArgument]
        @Flag(name: [.customShort("r"), .long], help: "Also folders, with all that is in them.") var recursive = false
        @Flag(help: "Remove batches from the trash for good: nothing brings them back.") var forGood = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                if forGood {
                    for batch in try paths.map({ try Self.batch($0.text) }) { try await container.remove(batch) }
                    return try await sent.wait([], network, output, done: "Removed for good.")
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
                try await sent.wait(
                    items, network, output, batch: batch,
                    done: "Moved to the trash: \(paths). Back with: nephos docs undo \(batch)")
            }
        }

        static func batch(_ text: String) throws -> DocumentID {
            guard let batch = DocumentID(text) else {
                throw CloudError(
                    .invalidArguments, "This is no batch of the trash. See: nephos docs deleted",
                    details: ["batch": text])
            }
            return batch
        }
    }

    struct Undo: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Bring back what was deleted with one command.",
            discussion: "Where something has taken a name meanwhile, what comes back gets another.")

        @Argument(help: "The batch, as nephos docs deleted lists it (default: what was deleted last).")
        var batch: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let batch = try batch.map(Remove.batch)
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                let items = try await container.restore(batch)
                try await sent.wait(
                    items, network, output, done: "Brought back: \(listed(items.map { inLine($0.path) })).")
            }
        }
    }
}
