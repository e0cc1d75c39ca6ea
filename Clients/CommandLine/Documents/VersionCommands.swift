import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Conflicts: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List undecided conflicts of files, newest first.",
            discussion: """
                Each entry shows the commands that decide it: keep one content, the other, or both. nephos \
                conflicts lists the conflicts of all apps. Exit code 2: there is no such item.
                """)

        @Argument(help: "An item, or a folder with all its content (default: all).") var path: DocumentArgument?
        @Option(help: "List at most this many, up to 1000.") var limit = 20
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard 1...1000 ~= limit else { throw ValidationError("--limit is from 1 to 1000.") }
        }

        func run() async throws {
            try await container.withContainer(network) { container, session in
                let place: String?
                if let path { place = try await container.requireItem(at: path).path } else { place = nil }
                // They are in the items: nobody is asked.
                let all = try await container.scope.conflicts(limit: .max, timeout: network.duration)
                let meant = all.filter { conflict in
                    guard let place else { return true }
                    let name = conflict.name.rawValue
                    return name == place || name.hasPrefix(place == "/" ? place : place + "/")
                }
                let devices =
                    meant.isEmpty || network.offline
                    ? DeviceNames() : await DeviceNames(session, within: network.duration)
                try ConflictList(devices: devices).print(
                    [(container.scope, Array(meant.prefix(limit)))], output, none: "Nothing conflicts.")
            }
        }
    }

    struct Versions: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the versions of a file, newest first, or remove some.",
            discussion: """
                Get one with nephos docs get --version-id ID PATH. Make it the current one with nephos docs \
                restore --version-id ID PATH. Decide conflicts with nephos docs resolve.

                Former versions count on the plan until you remove them: some with --remove, all with --others. \
                This cannot be undone. The current version and conflicts stay. Exit code 2: there is no such \
                file or version.
                """)

        @Argument(help: "The file.") var path: DocumentArgument
        @OptionGroup var container: ContainerOptions
        @Option(parsing: .upToNextOption, help: "Remove these versions forever; name them after the file.")
        var remove: [String] = []
        @Flag(help: "Remove all versions forever, except the current one and conflicts.") var others = false
        @Flag(help: "With --others: remove without asking.") var yes = false
        @OptionGroup var network: DocumentsCommand.NetworkOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard remove.isEmpty || !others else { throw ValidationError("Use --remove or --others.") }
        }

        struct Row: Encodable {
            var version: String
            var standing: String
            var base: String?
            var size: UInt64
            /// Milliseconds since 1970, negative before.
            var modified: Int64
            var committed: UInt64?
            var device: String?
        }

        func run() async throws {
            guard remove.isEmpty, !others else { return try await removeSome() }
            try await container.withContainer(within: network.duration) { container, session in
                let versions = try await container.versions.list(of: path, timeout: network.duration)
                let names = await DeviceNames(session, within: network.duration)
                let cells = versions.map { version in
                    [
                        version.committed.map { describe($0) } ?? "-", describe(bytes: version.size),
                        version.device.map { names[$0] } ?? "-", version.id.description,
                        version.standing == .former ? "" : version.standing.rawValue,
                    ]
                }
                try output.print(
                    versions.map { version in
                        Row(
                            version: version.id.description, standing: version.standing.rawValue,
                            base: version.base?.description, size: version.size,
                            modified: version.modified.milliseconds, committed: version.committed?.milliseconds,
                            device: version.device?.rawValue)
                    },
                    text: Self.text(cells, of: path.text, hasConflict: versions.contains { $0.standing == .conflict }))
            }
        }

        private func removeSome() async throws {
            let versions = Array(Set(try remove.map { try DocumentID(version: $0) })).sorted()
            try await container.withContainer(network) { container, _ in
                let item = try await container.requireItem(at: path)
                if others, !yes {
                    try Confirmation.ask(
                        """
                        Removes all versions of \(inLine(item.path)) but the current one and conflicts, on all devices. \
                        Nothing brings them back.
                        """)
                }
                if !network.offline { try await require(versions, of: item, in: container) }
                let hasOthers = others ? await mayHaveOthers(item, in: container) : true
                let sent = try await SentDocuments(container)
                let changed =
                    others
                    ? try await container.versions.removeOthers(of: item.id)
                    : try await container.versions.remove(versions, of: item.id)
                try await sent.wait(
                    [changed], network, output,
                    done: others
                        ? hasOthers
                            ? "Removed the other versions of \(inLine(item.path))."
                            : "There are no other versions of \(inLine(item.path))."
                        : "Removed \(versions.count) version\(versions.count == 1 ? "" : "s") of \(inLine(item.path)).")
            }
        }

        /// A mistyped one is not said to be removed. Where the server does not say what there is, nobody knows.
        /// As the server says; true where it is not asked or does not answer.
        private func mayHaveOthers(_ item: DocumentEntry, in container: UbiquityContainer) async -> Bool {
            guard !network.offline else { return true }
            let known = try? await container.versions.list(of: item.id, timeout: min(network.duration, .seconds(2)))
            // What it had and this device is about to replace is one, too.
            return known?.contains { $0.standing == .former || $0.id != item.version && $0.standing == .current }
                ?? true
        }

        private func require(
            _ versions: [DocumentID], of item: DocumentEntry, in container: UbiquityContainer
        ) async throws {
            guard !versions.isEmpty,
                let known = try? await container.versions.list(of: item.id, timeout: min(network.duration, .seconds(2)))
            else { return }
            // What is current here and not sent yet, the server does not know.
            let all = Set((known + (try await container.conflicts.versions(of: item.id))).map(\.id))
            guard let unknown = versions.first(where: { !all.contains($0) }) else { return }
            throw CloudError(
                .unknownItem, "The file has no such version, or not any more. See: nephos docs versions",
                details: ["path": item.path, "version": unknown.description])
        }

        private static func text(_ cells: [[String]], of path: String, hasConflict: Bool) -> String {
            guard !cells.isEmpty else { return "There are no versions." }
            let path = ShellCommand.arguments([path])
            return table(["COMMITTED", "SIZE", "BY", "VERSION", ""], cells)
                + "\nMake one current again: nephos docs restore --version-id=VERSION \(path)"
                + (hasConflict
                    ? "\nDecide the conflict: nephos docs resolve --keep=current \(path) (or --keep=VERSION, --keep-both)"
                    : "")
        }
    }

    struct Resolve: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Decide a conflict: choose the content that stays.",
            discussion: """
                The other content stays among the versions, or becomes its own file with --keep-both. No content \
                is sent again. Exit code 2: there is no such file or conflict.
                """)

        @Argument(help: "The file.") var path: DocumentArgument
        @Option(help: "The content to keep: current, or a version (nephos docs versions).") var keep: String?
        @Flag(help: "Save each other content as its own file beside it.") var keepBoth = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard keep != nil || keepBoth else {
                throw ValidationError("Say what stays: --keep=current, --keep=VERSION or --keep-both.")
            }
        }

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let version = try keep.flatMap { try $0 == "current" ? nil : DocumentID(version: $0) }
                let sent = try await SentDocuments(container)
                let items = try await container.conflicts.resolve(path, keeping: version, keepsOthers: keepBoth)
                let others = items.dropFirst().map { inLine($0.path) }
                try await sent.wait(
                    items, network, output,
                    done: "Resolved \(inLine(items[0].path))."
                        + (others.isEmpty ? "" : " Kept beside it: \(listed(others))."))
            }
        }
    }

    struct Restore: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Make an older version of a file the current one.",
            discussion: """
                The present content stays among the versions. No content is sent again. For deleted files use \
                nephos docs undo. Exit code 2: there is no such file or version.
                """)

        @Argument(help: "The file.") var path: DocumentArgument
        @Option(name: .long, help: "The version (nephos docs versions).") var versionID: String
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let version = try DocumentID(version: versionID)
                let sent = try await SentDocuments(container)
                let item = try await container.versions.restore(version, of: path, timeout: network.duration)
                try await sent.wait(
                    [item], network, output,
                    done: "Restored \(inLine(item.path)) (\(describe(bytes: item.size))).")
            }
        }
    }
}

extension DocumentID {
    /// - Parameter version: As a person names one.
    init(version: String) throws {
        guard let id = DocumentID(version) else {
            throw CloudError(
                .invalidArguments, "This is no version. See: nephos docs versions", details: ["version": version])
        }
        self = id
    }
}
