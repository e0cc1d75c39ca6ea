import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Pause: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Pause files: local changes are not sent, and other devices' changes are not fetched.",
            discussion: """
                The pause lasts until nephos docs resume, also over restarts. Names and places stay in sync. \
                Folders cannot be paused. Exit code 5: a change of the file is being sent; try again.
                """)

        @Argument(help: "The files.") var paths: [DocumentArgument]
        @OptionGroup var container: ContainerOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(within: nil) { container, _ in
                var items: [DocumentEntry] = []
                for path in paths {
                    let id = try await container.requireItem(at: path).id
                    try await container.pauses.pause(id)
                    if let item = try await container.item(id) { items.append(item) }
                }
                try output.print(
                    items.map(DocumentRow.init),
                    text: "Paused: \(listed(items.map { inLine($0.path) })). Go on with: nephos docs resume")
            }
        }
    }

    struct Resume: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Resume paused files: their local changes are sent.",
            discussion: """
                If another device has changed a file meanwhile, the two changes are a conflict. With \
                --fail-on-conflict such a file stays paused (exit code 1). With --drop the local change is not \
                sent. Its content stays on this device like a rejected change (nephos why) until you dismiss it.
                """)

        @Argument(help: "The files.") var paths: [DocumentArgument]
        @Flag(help: "Send local changes only if no other device has changed the file; otherwise it stays paused.")
        var failOnConflict = false
        @Flag(help: "Do not send the local changes.") var drop = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !failOnConflict || !drop else {
                throw ValidationError(
                    "Local changes are sent or dropped: give --fail-on-conflict or --drop, not both.")
            }
        }

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let sent = try await SentDocuments(container)
                var (items, idle): ([DocumentEntry], [DocumentEntry]) = ([], [])
                var failures = ItemFailures()
                var isAnyDropped = false
                for path in paths {
                    do throws(CloudError) {
                        var found = try await container.item(at: path)
                        if found == nil { found = try await container.pauses.deletedItem(at: path) }
                        let item = if let found { found } else { try await container.requireItem(at: path) }
                        guard item.isPaused else {
                            idle.append(item)
                            continue
                        }
                        items.append(try await resume(item, of: container))
                        isAnyDropped = isAnyDropped || item.pending != .none
                    } catch {
                        guard !ItemFailures.concernsAll(error) else { throw error }
                        failures.add(path.text, error)
                    }
                }
                try failures.requireMore(than: items.count + idle.count)
                failures.list("not resumed")
                let done = [("Resumed", items), ("Not paused", idle)].filter { !$0.1.isEmpty }.map { what, items in
                    "\(what): \(listed(items.map { inLine($0.path) }))."
                }.joined(separator: " ")
                guard drop else {
                    try await sent.wait(items + idle, network, output, failures: failures, done: done)
                    return try failures.end()
                }
                let kept = isAnyDropped ? " What was changed here is kept: nephos why" : ""
                try output.print((items + idle).map(DocumentRow.init), text: done + kept)
                try failures.end()
            }
        }

        private func resume(
            _ item: DocumentEntry, of container: UbiquityContainer
        ) async throws(CloudError) -> DocumentEntry {
            do throws(CloudError) {
                return try await container.pauses.resume(
                    item.id, with: behavior, timeout: network.offline ? .zero : network.duration) ?? item
            } catch {
                // What the server says counts when it does.
                if error.code == .deadlineExceeded { return try await container.item(item.id) ?? item }
                guard failOnConflict, error.code == .constraintViolation else { throw error }
                let path = ShellCommand.arguments([item.path])
                throw CloudError(
                    .constraintViolation,
                    "Another device has changed the file meanwhile, so it stays paused. Send it anyway, as a conflict: nephos docs resume \(path), or give up what was changed here, with --drop.",
                    details: ["path": item.path])
            }
        }

        private var behavior: ResumeBehavior {
            drop ? .dropLocalChanges : failOnConflict ? .afterUploadWithFailOnConflict : .preserveLocalChanges
        }
    }
}
