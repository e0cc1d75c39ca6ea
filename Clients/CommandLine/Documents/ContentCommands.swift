import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension DocumentsCommand {
    struct Put: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy files into the container: new ones, or new versions of those that are there.",
            discussion: """
                With one name the file gets its own in Documents. A folder that is there takes files in. - reads \
                standard input, and needs a name to be put under.

                With --package a folder is put as one item that changes as one, such as a document that is a folder; with \
                -r a folder stays one that is one there already. With --rendition NAME a file becomes a further content \
                of the item that is there, in place of the one of that name.

                What is put is kept on this device until the server has it. Names that end in .nosync stay here: with \
                -r they are left out.

                A SQLite database that is in use, with a -wal, -shm or -journal beside it, is refused, since a copy of \
                its files is torn: put one that sqlite3's .backup or VACUUM INTO has made, or keep the rows in records.
                """)

        @Argument(help: "The files, and at the end where to.") var paths: [String]
        @Flag(name: [.customShort("r"), .long], help: "Also folders, with all that is in them.") var recursive = false
        @Flag(name: [.customShort("p"), .long], help: "Make the folders that are missing.") var parents = false
        @Flag(
            help: """
                Remove each file here once the server has its content, unless it was changed meanwhile. Folders and links stay.
                """)
        var move = false
        @Flag(
            help: "Read every file, also those that are as they were when they were put last, by all their times.")
        var checksum = false
        @Option(
            help: "Databases in use: skip leaves them out of what -r finds, put takes them as they are, torn or not.")
        var databases: LocalFiles.Databases?
        @Flag(help: "Each folder as one item that changes as one.") var package = false
        @Option(help: "The file as a further content of the item, under this name.") var rendition: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !paths.isEmpty else { throw ValidationError("Name a file.") }
            guard !move || !paths.contains("-") else {
                throw ValidationError("What comes from standard input cannot be removed.")
            }
            guard paths != ["-"] else { throw ValidationError("What comes from standard input needs a name.") }
            guard rendition == nil || paths.count == 2 && !package && !recursive else {
                throw ValidationError("With --rendition name one file, and the item that it belongs to.")
            }
            guard rendition == nil || paths[0] != "-" else {
                throw ValidationError("A further content is put from a file.")
            }
        }

        func run() async throws {
            if let rendition { return try await put(rendition) }
            let files = paths.count == 1 ? paths : paths.dropLast()
            let target = paths.count == 1 ? "" : paths[paths.count - 1]
            try await container.withContainer(network, transfer: transfer) { container, _ in
                let sent = try await SentDocuments(container)
                let there = try await container.item(at: DocumentArgument(target))
                let isFolder = paths.count == 1 || target.hasSuffix("/") || there?.kind == .folder
                guard isFolder || files.count == 1 else {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target])
                }
                let place = try await container.path(DocumentArgument(target))
                var collected = LocalFiles(
                    recursive: recursive, packages: package, databases: databases, key: try await container.nameKey()
                ) { path throws(CloudError) in try container.isPackage(at: path) }
                var items: [DocumentEntry] = []
                var moved: [(file: LocalPath, item: DocumentEntry)] = []
                for file in files {
                    if file == "-" {
                        guard !isFolder else {
                            throw CloudError(.invalidArguments, "What comes from standard input needs a name.")
                        }
                        items.append(try await putInput(at: place, of: container))
                    } else {
                        let file = LocalPath(file).named
                        // A copy of the folder that everybody has goes where that is.
                        let isDocuments = target.isEmpty && file.name == Array("Documents".utf8)
                        collected.add(
                            file, at: isFolder && !isDocuments ? place.appending(Data(file.name)) : place)
                    }
                }
                var failures = collected.failures
                // The next are read while these are put.
                let batches = collected.batches
                let readsAll = checksum
                let prepare = { [container] (batch: [LocalFiles.Source]) in
                    let sources = batch.map(\.source)
                    return Task { try await container.prepareEach(sources, readsAll: readsAll) }
                }
                var next = batches.first.map(prepare)
                for (number, batch) in batches.enumerated() {
                    guard let prepared = try await next?.value else { break }
                    next = number + 1 < batches.count ? prepare(batches[number + 1]) : nil
                    let results = try await container.put(prepared, makesFolders: parents || recursive)
                    for (put, result) in zip(batch, results) {
                        switch result {
                        case .failure(let error): failures.add(put.name, error)
                        case .success(let item):
                            items.append(item)
                            if move, let file = put.source.localFile { moved.append((file, item)) }
                        }
                    }
                }
                for line in collected.notes { Standard.error("nephos: \(line)") }
                try failures.requireMore(than: items.count)
                failures.list("not put")
                try await sent.wait(
                    items, network, output, failures: failures,
                    then: move ? { await Self.remove(moved, of: container) } : nil,
                    done: items.count == 1
                        ? "Put \(inLine(items[0].path)) (\(describe(bytes: items[0].size)))."
                        : "Put \(items.count) items (\(describe(bytes: items.reduce(UInt64(0)) { $0.addingClamped($1.size) })))."
                )
                try failures.end()
            }
        }

        private func put(_ rendition: String) async throws {
            try await container.withContainer(network, transfer: transfer) { container, _ in
                let sent = try await SentDocuments(container)
                let item = try await container.setRendition(
                    file: paths[0], named: rendition, of: DocumentArgument(paths[1]))
                try await sent.wait(
                    [item], network, output, done: "Put \(inLine(rendition)) of \(inLine(item.path)).")
            }
        }

        /// - Returns: Why files are still there.
        private static func remove(
            _ moved: [(file: LocalPath, item: DocumentEntry)], of container: UbiquityContainer
        ) async -> [String] {
            var kept: [String] = []
            for (file, item) in moved {
                do throws(CloudError) {
                    let isGone = try await container.removeLocalFile(file, sentAs: item.id)
                    if !isGone { kept.append("\(inLine(file.text)) was changed meanwhile, and stays here.") }
                } catch { kept.append("\(inLine(file.text)) stays here: \(error.message)") }
            }
            return kept
        }

        private func putInput(at place: DocumentPath, of container: UbiquityContainer) async throws -> DocumentEntry {
            let writer = try container.makeWriter(at: place, makesFolders: parents || recursive)
            try await InputFile.readInput { try await writer.write($0) }
            return try await writer.finish()
        }
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy a file out of the container.",
            discussion: """
                - writes to standard output. A local file is replaced as a whole, or stays as it is. A package becomes a \
                folder; one that is there and has something in it is replaced as a whole with --replace, and else stays.
                """)

        @Argument(help: "The file.") var path: DocumentArgument
        @Argument(help: "Where to, a file or folder (default: its name, here).", completion: .file()) var target:
            String?
        @Flag(name: [.customShort("r"), .long], help: "Also a folder, with all that is in it.") var recursive = false
        @Option(name: .long, help: "Not the newest version but this one, of nephos docs versions.")
        var versionID: String?
        @Flag(help: "A folder that is there gives way to a package, with all that is in it.") var replace = false
        @Option(help: "Not the content but the further one of this name.") var rendition: String?
        @Flag(help: "Move the file to the container's trash once it is here, unless it was changed meanwhile.")
        var move = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard rendition == nil || versionID == nil && !recursive else {
                throw ValidationError("A further content has no versions, and nothing in it.")
            }
            guard !move || !recursive && versionID == nil && rendition == nil && target != "-" else {
                throw ValidationError(
                    "With --move one file is got, as it is now, into a file: no -r, --version-id, --rendition or -.")
            }
        }

        struct Report: Encodable {
            var path: String
            var file: String
            var size: UInt64
            /// Why it is not there; nil: it is.
            var failure: ItemFailures.Row?
        }

        func run() async throws {
            let version = try versionID.map { try DocumentID(version: $0) }
            Interrupt.first { LocalParts.removeAll() }
            try await container.withContainer(within: wait.duration, transfer: transfer) { container, _ in
                let item = try await container.requireItem(at: path)
                if let rendition { return try await fetch(rendition, of: item, in: container) }
                if target == "-" {
                    guard item.kind != .package else {
                        throw CloudError(
                            .invalidArguments, "A package is a folder, and goes to no standard output. Name a place.",
                            details: ["path": item.path])
                    }
                    return try StandardOutput.write(
                        try await container.read(item.id, version: version, timeout: wait.duration))
                }
                let place = try Self.place(target, item)
                guard item.kind == .folder else {
                    let got = move ? item.version : version
                    try await fetch(item, of: container, to: place, followsLinks: true, got)
                    if move { return try await finishMove(of: item, to: place, in: container) }
                    return try output.print(
                        [Report(path: item.path, file: place.text, size: item.size)],
                        text: "Got \(inLine(place.text)) (\(describe(bytes: item.size))).")
                }
                guard recursive else {
                    throw CloudError(
                        .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                        details: ["path": item.path])
                }
                try await fetchAll(in: item, of: container, to: place)
            }
        }

        private func fetch(
            _ item: DocumentEntry, of container: UbiquityContainer, to file: LocalPath, followsLinks: Bool,
            _ version: DocumentID? = nil
        ) async throws(CloudError) {
            let line = ProgressLine(isShown: !output.json)
            defer { line.clear() }
            let name = item.name
            do throws(CloudError) {
                try await container.get(
                    item.id, to: file, followsLinks: followsLinks, version: version, replacesFolder: replace,
                    timeout: wait.duration
                ) { done, total in
                    line.show(done: Int(clamping: done), total: Int(clamping: total), name: name)
                }
            } catch { throw Self.advised(error, item) }
        }

        /// Says what a person can do.
        fileprivate static func advised(_ error: CloudError, _ item: DocumentEntry) -> CloudError {
            guard error.code == .alreadyExists, item.kind == .package else { return error }
            return CloudError(
                .alreadyExists,
                "A folder is there, and something is in it. Take it away, or have it replaced with --replace.",
                details: error.details)
        }

        /// Gets a further content.
        private func fetch(_ rendition: String, of item: DocumentEntry, in container: UbiquityContainer) async throws {
            if target == "-" {
                return try StandardOutput.write(
                    try await container.rendition(named: rendition, of: item.id, timeout: wait.duration))
            }
            let found = try await container.renditions(of: item.id).first { $0.name == rendition }
            let place = try Self.place(target, Data("\(item.name).\(rendition)".utf8), item)
            let line = ProgressLine(isShown: !output.json)
            defer { line.clear() }
            try await container.getRendition(
                named: rendition, of: item.id, to: place, timeout: wait.duration
            ) { done, total in
                line.show(done: Int(clamping: done), total: Int(clamping: total), name: rendition)
            }
            line.clear()
            let size = found?.size ?? 0
            try output.print(
                [Report(path: item.path, file: place.text, size: size)],
                text: "Got \(inLine(place.text)) (\(describe(bytes: size))).")
        }

        /// The file here is whole and flushed: now the item may go.
        private func finishMove(
            of item: DocumentEntry, to file: LocalPath, in container: UbiquityContainer
        ) async throws {
            try file.flushPlace()
            let batch = try await container.trash(item.id, ifVersion: item.version)
            try? await container.scope.waitUntilSent(timeout: wait.duration, isImpatient: true)
            if let refusal = try await container.scope.status().refused.last(where: { $0.key.rawValue == item.path }) {
                throw refusal.error
            }
            try output.print(
                [Report(path: item.path, file: file.text, size: item.size)],
                text:
                    "Moved to \(inLine(file.text)) (\(describe(bytes: item.size))). Back with: nephos docs undo \(batch)"
            )
        }

        private func fetchAll(in folder: DocumentEntry, of container: UbiquityContainer, to place: LocalPath)
            async throws
        {
            try place.makeFolder()
            var places = [folder.id: place]
            // What lies in the top beside Documents is among its items; Documents itself is none.
            for child in try await container.children(of: folder.id) where child.id.isFixed {
                let file = place.appending(child.nameBytes)
                try file.makeFolder()
                places[child.id] = file
            }
            var gets = Gets(
                of: container, replacesFolders: replace, timeout: wait.duration, showsProgress: !output.json)
            for item in try await container.items(in: folder.id) {
                // What is in a folder that could not be made fails with it.
                guard gets.end == nil, let parent = places[item.parent] else { continue }
                let file = parent.appending(item.nameBytes)
                do throws(CloudError) {
                    // Names from outside: one that would lead elsewhere is nobody's honest name.
                    try DocumentPath.check(item.nameBytes, of: item.path)
                    if item.kind == .folder {
                        try file.makeFolder()
                        places[item.id] = file
                    } else {
                        await gets.add(item, at: file)
                    }
                } catch { gets.failures.add(item.path, error) }
            }
            await gets.finish()
            gets.failures.list("not got")
            let bytes = gets.reports.reduce(UInt64(0)) { $0.addingClamped($1.size) }
            let failed = gets.failures.rows.map { Report(path: $0.path, file: "", size: 0, failure: $0) }
            try output.print(
                gets.reports + failed, text: "Got \(gets.reports.count) files (\(describe(bytes: bytes))).")
            if let end = gets.end { throw end }
            try gets.failures.end()
        }

        /// Files that are got, many at a time.
        private struct Gets {
            /// So many that to flush them takes no time of its own, and few enough that little is lost with the process.
            private static let batchCount = 128
            private static let batchBytes: UInt64 = 256 << 20

            private struct Placing {
                let batch: [(item: DocumentEntry, file: LocalPath)]
                let outcomes: Task<[Result<Void, CloudError>?], Never>
            }

            private let container: UbiquityContainer
            private let replacesFolders: Bool
            private let timeout: Duration
            private let showsProgress: Bool
            private var batch: [(item: DocumentEntry, file: LocalPath)] = []
            private var bytes: UInt64 = 0
            private(set) var reports: [Report] = []
            /// Those before, which take their places.
            private var placing: Placing?
            var failures = ItemFailures()
            /// Why no other is tried.
            private(set) var end: CloudError?

            init(of container: UbiquityContainer, replacesFolders: Bool, timeout: Duration, showsProgress: Bool) {
                self.container = container
                self.replacesFolders = replacesFolders
                self.timeout = timeout
                self.showsProgress = showsProgress
            }

            mutating func add(_ item: DocumentEntry, at file: LocalPath) async {
                batch.append((item, file))
                bytes = bytes.addingClamped(item.size)
                if batch.count >= Self.batchCount || bytes >= Self.batchBytes { await fetch() }
            }

            mutating func finish() async {
                await fetch()
                await noteOutcomes()
            }

            /// Fetches the batch, while those of the one before are flushed and take their places.
            private mutating func fetch() async {
                let (batch, total) = (batch, bytes)
                (self.batch, bytes) = ([], 0)
                let line = ProgressLine(isShown: showsProgress)
                let done = Mutex<[Int: UInt64]>([:])
                let fetched = await container.fetchEach(
                    batch.map { ($0.item.id, $0.file) }, replacesFolders: replacesFolders, timeout: timeout,
                    endsAll: ItemFailures.concernsAll
                ) { number, bytes in
                    let sum = done.withLock { done in
                        done[number] = bytes
                        return done.values.reduce(UInt64(0)) { $0.addingClamped($1) }
                    }
                    line.show(done: Int(clamping: sum), total: Int(clamping: total), name: batch[number].item.name)
                }
                line.clear()
                await noteOutcomes()
                placing = Placing(batch: batch, outcomes: Task { [container] in await container.place(fetched) })
                if fetched.isEnded { await noteOutcomes() }
            }

            private mutating func noteOutcomes() async {
                guard let placing else { return }
                self.placing = nil
                for ((item, file), outcome) in zip(placing.batch, await placing.outcomes.value) {
                    switch outcome {
                    case nil: break
                    case .success: reports.append(Report(path: item.path, file: file.text, size: item.size))
                    case .failure(let error):
                        failures.add(item.path, advised(error, item))
                        if ItemFailures.concernsAll(error) { end = end ?? error }
                    }
                }
            }
        }

        private static func place(_ target: String?, _ item: DocumentEntry) throws -> LocalPath {
            try place(target, item.nameBytes.isEmpty ? Data("container".utf8) : item.nameBytes, item)
        }

        private static func place(_ target: String?, _ name: Data, _ item: DocumentEntry) throws -> LocalPath {
            try DocumentPath.check(name, of: item.path)
            guard let target else { return LocalPath(bytes: name) }
            let place = LocalPath(target)
            // What cannot be looked at is said where it is written to.
            guard let status = try? place.status(followsLinks: true), status.st_mode & S_IFMT == S_IFDIR else {
                return place
            }
            return place.appending(name)
        }
    }

    struct Cat: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print files, one after the other, or a part of each.",
            discussion: """
                Of a part only what it touches is fetched. What lies in a package is named as if that were a folder: \
                nephos docs cat Letters/a.bundle/Contents/a.txt
                """)

        @Argument(help: "The files, or members of packages.") var paths: [DocumentArgument]
        @Option(help: "Where in each file to begin, in bytes.") var offset: UInt64 = 0
        @Option(help: "How many bytes of each, at most (default: all).") var length: UInt64?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var transfer: TransferOptions
        // It prints what is in them; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(within: wait.duration, transfer: transfer) { container, _ in
                for path in paths { try await write(path, of: container) }
            }
        }

        private func write(_ path: DocumentArgument, of container: UbiquityContainer) async throws {
            let (sum, isBeyond) = offset.addingReportingOverflow(length ?? .max)
            let range = offset..<(isBeyond ? .max : sum)
            let stream: DocumentStream
            if try await container.item(at: path) == nil,
                let (item, member) = try await container.packageMember(at: path, timeout: wait.duration)
            {
                stream = try await container.stream(member, of: item.id, range: range, timeout: wait.duration)
            } else {
                let item = try await container.requireItem(at: path)
                guard item.kind != .package else {
                    throw CloudError(
                        .invalidArguments, "This is a package. Name a file in it.", details: ["path": item.path])
                }
                stream = try await container.stream(item.id, range: range, timeout: wait.duration)
            }
            for try await piece in stream { try StandardOutput.write(piece) }
        }
    }
}
