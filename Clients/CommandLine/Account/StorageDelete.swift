import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension StorageCommand {
    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Make room: delete data of a container on all devices.",
            discussion: """
                Deleted items go to the trash as one batch. They count on the plan until they are removed \
                forever; nephos docs undo restores them. With --now they are removed forever at once. An app's \
                files outside Documents are deleted all together, because only the app knows how they depend on \
                each other.
                """)

        @Flag(help: "All files that the app keeps outside Documents.") var hidden = false
        @Option(help: "An item in Documents; a folder with all its content.") var documents: DocumentArgument?
        @Flag(help: "Everything in the trash. This cannot be undone.") var trash = false
        @Flag(help: "All former versions in the container. This cannot be undone.") var versions = false
        @Flag(help: "With --versions: in all containers that this device uses.") var all = false
        @Flag(help: "Remove it forever instead of moving it to the trash.") var now = false
        @Flag(help: "Delete without asking.") var yes = false
        @OptionGroup var container: DocumentsCommand.ContainerOptions
        @OptionGroup var network: DocumentsCommand.NetworkOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard [hidden, documents != nil, trash, versions].filter({ $0 }).count == 1 else {
                throw ValidationError("Name what is deleted: --hidden, --documents PATH, --trash or --versions.")
            }
            guard versions || !all else { throw ValidationError("--all goes with --versions.") }
        }

        func run() async throws {
            try await container.withContainer(network) { container, session in
                if versions { return try await removeVersions(of: container, session) }
                let usage = try await container.usage()
                let sent = try await SentDocuments(container)
                if trash { return try await emptyTrash(of: container, usage, sent, session) }
                let items = try await items(of: container)
                guard !items.isEmpty else {
                    return try output.print(["state": "unchanged"], text: "There is nothing to delete.")
                }
                let bytes = try await size(of: items, in: container, usage)
                try await confirm(listed(items.map { inLine($0.path) }), bytes, of: container, session)
                let batch = try await container.trash(items.map(\.id))
                guard now else {
                    _ = try await sent.wait(
                        items, network, output, batch: batch,
                        done: """
                            Moved to the trash, where it counts until it is removed for good: nephos storage delete \
                            --trash. Back with: nephos docs undo \(batch)
                            """)
                    return
                }
                try await container.trash.remove(batch)
                try await sent.wait(items, network, output, done: "Removed for good: \(describe(bytes: bytes)).")
            }
        }

        private func items(of container: UbiquityContainer) async throws -> [DocumentEntry] {
            guard let documents else {
                return try await container.children(of: "/").filter { $0.id != .documents }
            }
            let item = try await container.requireItem(at: documents)
            guard item.path.hasPrefix("/Documents/") else {
                throw CloudError(
                    .invalidArguments,
                    "This is not in Documents: what an app keeps beside it is deleted as a whole, with --hidden.",
                    details: ["path": item.path])
            }
            return [item]
        }

        private func size(
            of items: [DocumentEntry], in container: UbiquityContainer, _ usage: ContainerUsage
        ) async throws -> UInt64 {
            guard documents != nil else { return usage.hidden.bytes }
            var bytes: UInt64 = 0
            for item in items {
                bytes = bytes.addingClamped(item.size)
                guard item.kind == .folder else { continue }
                for child in try await container.items(in: item.id) { bytes = bytes.addingClamped(child.size) }
            }
            return bytes
        }

        private func emptyTrash(
            of container: UbiquityContainer, _ usage: ContainerUsage, _ sent: SentDocuments, _ session: Session
        ) async throws {
            let batches = try await container.trash.list()
            guard !batches.isEmpty else {
                return try output.print(["state": "unchanged"], text: "Nothing lies in the trash.")
            }
            let items = batches.flatMap(\.items)
            try await confirm(
                "what lies in the trash (\(listed(items.map { inLine($0.path) })))", usage.trash.bytes, of: container,
                session)
            for batch in batches { try await container.trash.remove(batch.batch) }
            let bytes = batches.reduce(UInt64(0)) { $0.addingClamped($1.bytes) }
            try await sent.wait(items, network, output, done: "Removed for good: \(describe(bytes: bytes)).")
        }

        /// Says what goes, and from where, before it does.
        private func confirm(
            _ what: String, _ bytes: UInt64, of container: UbiquityContainer, _ session: Session
        ) async throws {
            guard !yes else { return }
            let isForGood = trash || now
            let frees = "About \(describe(bytes: bytes))" + (isForGood ? "" : ", once the trash is emptied")
            try Confirmation.ask(
                """
                Deletes from \(inLine(container.id)): \(what). \(frees).
                It goes from \(try await devices(session)).\(isForGood ? " Nothing brings it back." : "")
                """)
        }

        // MARK: Versions

        private func removeVersions(of container: UbiquityContainer, _ session: Session) async throws {
            let containers = all ? try await Self.containers(of: session) : [container]
            var bytes: UInt64 = 0
            for container in containers {
                bytes = bytes.addingClamped(try await container.usage().versionBytes)
            }
            if !yes {
                try Confirmation.ask(
                    """
                    Removes all former versions from \(listed(containers.map { inLine($0.id) })): about \
                    \(describe(bytes: bytes)).
                    They go from \(try await devices(session)). Nothing brings them back.
                    """)
            }
            var sent: [SentDocuments] = []
            for container in containers {
                sent.append(try await SentDocuments(container))
                try await container.versions.removeOthers()
            }
            try await sent.first?.wait(
                [], network, output, leaving: sent.dropFirst().map { ([], $0) },
                done: "Removed the former versions from \(listed(containers.map { inLine($0.id) })).")
        }

        /// Those that this home uses, of whichever app.
        private static func containers(of session: Session) async throws -> [UbiquityContainer] {
            try await session.scopes().filter { $0.id.service == .documents }.each(in: session) {
                try await session.container($0.id.name, app: $0.id.app)
            }
        }

        /// - Returns: In words: offline nobody here knows which there are.
        private func devices(_ session: Session) async throws -> String {
            guard !network.offline, let devices = try? await session.devices(timeout: network.duration) else {
                return "all devices of the account"
            }
            return listed(devices.filter { !$0.isRevoked }.map { inLine($0.name) })
        }
    }
}
