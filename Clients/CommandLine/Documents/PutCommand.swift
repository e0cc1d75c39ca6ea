import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension DocumentsCommand {
    struct Put: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy files into the container, as new files or new versions.",
            discussion: """
                With one argument the file goes into Documents under its own name. An existing folder as the \
                target takes the files in. Use - to read standard input; then name the target.

                The device remembers the version of each file that it got or put. Unchanged files are not sent \
                again; a changed file becomes a new version. If another device has changed the item meanwhile, \
                both versions are kept as a conflict (docs resolve; exit code 6). With -r, files that were \
                deleted in the container are skipped and listed (exit code 6), and moved ones are put at their \
                new place. If it is not clear whether a file was moved, it is skipped and listed. A new folder \
                with the old name of a moved one is put as a new folder. --overwrite turns these checks off.

                With --package a folder becomes one item that always changes as a whole. With -r an existing \
                package stays a package. With --rendition NAME the file becomes a rendition of the existing \
                item.

                Files stay on this device until the server has them. With -r, names that end in .nosync are left \
                out. A SQLite database in use (with -wal, -shm or -journal beside it) is rejected, because its \
                copy may be damaged. Put a copy made with sqlite3's .backup or VACUUM INTO, or keep the rows in \
                records.
                """)

        @Argument(help: "The files, and the target at the end.") var paths: [String]
        @Flag(name: [.customShort("r"), .long], help: "Also put folders, with all their content.") var recursive = false
        @Flag(name: [.customShort("p"), .long], help: "Create missing folders.") var parents = false
        @Flag(
            help:
                "Delete each local file once the server has its content, unless it changed meanwhile. Folders and links stay."
        )
        var move = false
        @Flag(
            help: "Read every file, even if all its times are unchanged.")
        var checksum = false
        @Flag(
            help:
                "Replace the newest version at each path without looking for conflicts, and put deleted or moved items again."
        )
        var overwrite = false
        @Flag(help: "Show what would be put; change nothing.") var dryRun = false
        @Option(
            help: "SQLite databases in use: skip leaves them out with -r, put sends them even if they may be damaged.")
        var databases: LocalFiles.Databases?
        @Flag(help: "Put each folder as one package.") var package = false
        @Option(help: "Put the file as a rendition of the item, under this name.") var rendition: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        /// Batches that are read at a time.
        private static let preparedMax = 2
        /// How long the server may be waited for, to ask whether it has still what need not be put.
        private static let askingTime: Duration = .seconds(3)

        /// `docs put *.txt` names two files where a shell finds two: the second is not the first one's new name.
        private func requireTarget(_ target: String, isThere: Bool, of files: some Collection<String>)
            throws(CloudError)
        {
            guard !isThere, let file = files.first, files.count == 1, rendition == nil, !target.hasPrefix("/") else {
                return
            }
            var (other, source) = (stat(), stat())
            guard lstat(target, &other) == 0, other.st_mode & S_IFMT == S_IFREG, lstat(file, &source) == 0,
                (other.st_dev, other.st_ino) != (source.st_dev, source.st_ino)
            else { return }
            throw CloudError(
                .invalidArguments,
                "The last name is a local file, too. To put both, add a folder: nephos docs put FILE FILE /Documents. To put "
                    + "the first under that name, write its whole path: /Documents/NAME.",
                details: ["path": target])
        }

        func validate() throws {
            guard !paths.isEmpty else { throw ValidationError("Name a file.") }
            guard !move || !paths.contains("-") else {
                throw ValidationError("Standard input cannot be removed.")
            }
            guard paths != ["-"] else { throw ValidationError("Standard input needs a name: give the target.") }
            guard rendition == nil || paths.count == 2 && !package && !recursive else {
                throw ValidationError("With --rendition name one file, and the item that it belongs to.")
            }
            guard rendition == nil || !overwrite && !dryRun, !dryRun || !move && !paths.contains("-") else {
                throw ValidationError(
                    "--overwrite and --dry-run are about files that become items, and with --dry-run nothing is moved.")
            }
            guard rendition == nil || paths[0] != "-" else {
                throw ValidationError("A further content is put from a file.")
            }
        }

        func run() async throws {
            // From the first write on it is not known what of it was kept at that moment.
            let hasBegun = Mutex(false)
            Interrupt.first {
                ProgressLine("reading", isShown: true).clear()
                Standard.error(
                    hasBegun.withLock { $0 }
                        ? "nephos: Interrupted. What was put so far is kept on this device. Put the same again, and it goes on."
                        : "nephos: Interrupted. Nothing was put.")
            }
            try await put { hasBegun.withLock { $0 = true } }
        }

        /// - Parameter onBegin: Called before anything is put.
        private func put(_ onBegin: @Sendable () -> Void) async throws {
            if let rendition { return try await put(rendition, onBegin) }
            let files = paths.count == 1 ? paths : paths.dropLast()
            let target = paths.count == 1 ? "" : paths[paths.count - 1]
            try await container.withContainer(network, transfer: transfer) { container, _ in
                let sent = try await SentDocuments(container)
                let there = try await container.item(at: DocumentArgument(target))
                let isFolder = paths.count == 1 || target.hasSuffix("/") || there?.kind == .folder
                guard isFolder || files.count == 1 else {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target])
                }
                try requireTarget(target, isThere: there != nil, of: files)
                let place = try await container.localFiles.imports.path(DocumentArgument(target))
                var collected = LocalFiles(
                    recursive: recursive, packages: package, databases: databases,
                    key: try await container.localFiles.imports.nameKey()
                ) { path throws(CloudError) in try container.packages.isPackage(at: path) }
                var items: [DocumentEntry] = []
                var summary = PutSummary()
                var only: PutDocument.Outcome?
                var moved: [(file: LocalPath, item: DocumentEntry, outcome: PutDocument.Outcome)] = []
                for file in files {
                    if file == "-" {
                        guard !isFolder else {
                            throw CloudError(.invalidArguments, "Standard input needs a name: give the target.")
                        }
                        let item = try await putInput(at: place, of: container, onBegin)
                        items.append(item)
                        summary.add(input: item)
                    } else {
                        let file = LocalPath(file).named
                        // A copy of the folder that everybody has goes where that is.
                        let isDocuments = target.isEmpty && file.name == Array("Documents".utf8)
                        collected.add(
                            file, at: isFolder && !isDocuments ? place.appending(Data(file.name)) : place)
                    }
                }
                if dryRun { return try await compare(collected, with: container) }
                var failures = collected.failures
                // The next two are read while these are put: while one is flushed, the other goes on.
                let batches = collected.batches
                let (readsAll, basis) = (checksum, basis)
                let limit = network.limit.map { min($0, Self.askingTime) }
                let (line, total) = (ProgressLine("reading", isShown: !output.json), collected.byteCount)
                defer { line.clear() }
                // A server that does not answer is waited for once.
                let prepare = { @Sendable [container] (batch: [LocalFiles.Source], limit: Duration?) in
                    let sources = batch.map(\.source)
                    return Task {
                        try await container.localFiles.imports.prepareEach(
                            sources, basis: basis, readsAll: readsAll, askingWithin: limit
                        ) { count in
                            line.advance(by: count, of: total)
                        }
                    }
                }
                var ahead = batches.prefix(Self.preparedMax).map { prepare($0, limit) }
                for (number, batch) in batches.enumerated() {
                    let prepared = try await ahead.removeFirst().value
                    let next = number + Self.preparedMax
                    if next < batches.count { ahead.append(prepare(batches[next], nil)) }
                    onBegin()
                    let results = try await container.localFiles.imports.put(
                        prepared, makesFolders: parents || recursive)
                    for (put, result) in zip(batch, results) {
                        switch result {
                        case .failure(var error):
                            // Of those that stay here each is named.
                            if error.code == .storeOutOfStep { error.details["file"] = put.name }
                            failures.add(put.name, error)
                        case .success((let item, let document)):
                            items.append(item)
                            summary.add(item, document)
                            only = document.outcome
                            if move, let file = put.source.localFile { moved.append((file, item, document.outcome)) }
                        }
                    }
                }
                line.clear()
                for line in collected.notes + summary.notes { Standard.error("nephos: \(line)") }
                try failures.requireMore(than: items.count)
                failures.list("not put")
                let text = summary.text(items, only)
                try await sent.wait(
                    items, network, output, failures: failures, isPut: true,
                    then: move ? { await Self.remove(moved, of: container) } : nil, put: summary,
                    done: failures.isEmpty ? text : text + " Not put: \(failures.count).")
                try failures.end()
            }
        }

        private var basis: PutBasis { overwrite ? .newest : .record }

        /// Says what would be put.
        private func compare(_ files: LocalFiles, with container: UbiquityContainer) async throws {
            for line in files.notes { Standard.error("nephos: \(line)") }
            var listing = DifferenceListing(files.failures)
            try await listing.add(files.all, of: container, basis: basis, readsAll: checksum)
            try listing.print(output, as: .put)
        }

        private func put(_ rendition: String, _ onBegin: () -> Void) async throws {
            try await container.withContainer(network, transfer: transfer) { container, _ in
                let sent = try await SentDocuments(container)
                onBegin()
                let item = try await container.renditions.set(
                    fileAt: URL(fileURLWithPath: paths[0]), named: rendition, of: DocumentArgument(paths[1]))
                try await sent.wait(
                    [item], network, output, done: "Put \(inLine(rendition)) of \(inLine(item.path)).")
            }
        }

        /// - Returns: Why files are still there.
        private static func remove(
            _ moved: [(file: LocalPath, item: DocumentEntry, outcome: PutDocument.Outcome)],
            of container: UbiquityContainer
        ) async -> [String] {
            var kept: [String] = []
            for (file, item, outcome) in moved {
                let name = inLine(file.text)
                switch outcome {
                case .outdated:
                    kept.append("\(name) stays here: \(inLine(item.path)) is newer in the container.")
                    continue
                case .conflict:
                    kept.append("\(name) stays here: \(inLine(item.path)) is in conflict.")
                    continue
                case .made, .changed, .unchanged: break
                }
                do throws(CloudError) {
                    switch try await container.localFiles.records.removeFile(file, sentAs: item.id) {
                    case .removed: break
                    case .unsent: kept.append("\(name) stays here: the server does not have it yet.")
                    case .lost:
                        kept.append(
                            "\(name) stays here: the server has lost bytes of it, or may have (nephos docs status).")
                    case .changed: kept.append("\(name) was changed meanwhile, and stays here.")
                    case .link: kept.append("\(name) is a link: it stays here, and so does what it leads to.")
                    }
                } catch { kept.append("\(name) stays here: \(error.message)") }
            }
            return kept
        }

        private func putInput(
            at place: DocumentPath, of container: UbiquityContainer, _ onBegin: () -> Void
        ) async throws -> DocumentEntry {
            let writer = try container.localFiles.imports.makeWriter(at: place, makesFolders: parents || recursive)
            try await InputFile.readInput { try await writer.write($0) }
            onBegin()
            return try await writer.finish()
        }
    }
}
