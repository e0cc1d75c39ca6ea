import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension DocumentsCommand {
    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy a file out of the container.",
            discussion: """
                An existing local file is replaced only if it is unchanged since this device got or put it. A \
                file that you changed, or that was never fetched, stays and is listed (exit code 6): put it, or \
                use --overwrite. Files that are up to date are not downloaded again. With -r, local files follow \
                moves in the container.

                Use - to write to standard output. A local file is replaced completely or not at all. A package \
                becomes a folder; use --replace to replace a folder that has content. Name a file in a package \
                like a file in a folder.
                """)

        @Argument(help: "The file, or a file in a package.") var path: DocumentArgument
        @Argument(help: "The local file or folder (default: the same name, here).", completion: .file()) var target:
            String?
        @Flag(name: [.customShort("r"), .long], help: "Also get folders, with all their content.") var recursive = false
        @Option(name: .long, help: "This version (nephos docs versions) instead of the newest.")
        var versionID: String?
        @Flag(help: "Replace an existing folder with the package.") var replace = false
        @Flag(help: "Replace local files even if you changed them.") var overwrite = false
        @Flag(help: "Skip local files that you changed, without an error.") var update = false
        @Flag(help: "Show what would be copied; change nothing.") var dryRun = false
        @Option(help: "This rendition of the file instead of its content.") var rendition: String?
        @Flag(
            help:
                "Move the file to the trash once its newest content is here, unless it changed meanwhile. Needs the server."
        )
        var move = false
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        var wait: WaitOptions { network.wait }

        /// Which local files are replaced.
        var replacing: LocalReplacing { overwrite ? .all : .recorded }

        func validate() throws {
            guard !overwrite || !update else { throw ValidationError("Either --overwrite or --update.") }
            guard !dryRun || !move && rendition == nil && target != "-" else {
                throw ValidationError("--dry-run is about files that are got as they are: no --move, --rendition or -.")
            }
            guard rendition == nil || versionID == nil && !recursive else {
                throw ValidationError("A further content has no versions, and nothing in it.")
            }
            guard !move || !network.offline else {
                throw ValidationError(
                    "--move asks the server whether it has something newer. Give it without --offline.")
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
            /// Whether the file had the bytes already; nil: it was written.
            var unchanged: Bool?
            /// Where the local file was before it was moved to where its item is now.
            var movedFrom: String?
            /// Why it is not there; nil: it is.
            var failure: ItemFailures.Row?
            /// Extended attributes that the disk did not take.
            var unkeptAttributes: [String]?
            /// Of what was moved: whether the server knows (`sent`), or will (`queued`).
            var state: String?
            /// What it was deleted with.
            var batch: String?
            /// Why the server does not know yet.
            var reason: String?
        }

        func run() async throws {
            let version = try versionID.map { try DocumentID(version: $0) }
            Interrupt.first { LocalParts.removeAll() }
            if move { return try await moveOut() }
            try await container.withContainer(
                network.refresh, isOffline: network.offline, transfer: transfer
            ) { container, session in
                if try await container.item(at: path) == nil,
                    let place = try await container.packages.place(at: path, version: version, timeout: wait.duration)
                {
                    return try await getMember(place, of: container)
                }
                let item = try await container.requireItem(at: path)
                if let rendition { return try await fetch(rendition, of: item, in: container) }
                if target == "-" {
                    guard item.kind != .package else {
                        throw CloudError(
                            .invalidArguments, "A package is a folder, and goes to no standard output. Name a place.",
                            details: ["path": item.path])
                    }
                    return try await about(["path": item.path]) {
                        let stream = try await container.streams.read(item.id, version: version, timeout: wait.duration)
                        for try await piece in stream { try StandardOutput.write(piece) }
                    }
                }
                let (name, size) = try await self.name(of: version, item, in: container, session)
                let place = try Self.place(target, name, item)
                guard item.kind == .folder else {
                    if dryRun { return try await compare([(item, place)], of: container, followsLinks: true, version) }
                    return try await getOne(item, of: container, to: place, version, size: size)
                }
                guard recursive else {
                    throw CloudError(
                        .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                        details: ["path": item.path])
                }
                try await fetchAll(in: item, of: container, to: Self.folder(target, item.id.description, place))
            }
        }

        private func getOne(
            _ item: DocumentEntry, of container: UbiquityContainer, to place: LocalPath, _ version: DocumentID?,
            size: UInt64
        ) async throws {
            let got: GotDocument
            do {
                got = try await about(["path": item.path]) {
                    try await fetch(item, of: container, to: place, followsLinks: true, version)
                }
            } catch let error as CloudError where update && error.isKept {
                return try output.print(
                    [Report(path: item.path, file: place.text, size: size, failure: .init(item.path, error))],
                    text: "Left as it is here: \(inLine(place.text)).")
            }
            got.unkept.list()
            try output.print(
                [
                    Report(
                        path: item.path, file: place.text, size: size, unchanged: got.isUpToDate ? true : nil,
                        unkeptAttributes: got.unkept.names)
                ],
                text: got.isUpToDate
                    ? "Up to date: \(inLine(place.text))."
                    : "Got \(inLine(place.text)) (\(describe(bytes: size))).")
        }

        /// Says what would be got.
        private func compare(
            _ items: [(item: DocumentEntry, place: LocalPath)], of container: UbiquityContainer, followsLinks: Bool,
            _ version: DocumentID? = nil
        ) async throws {
            var listing = DifferenceListing()
            for (item, place) in items {
                do throws(CloudError) {
                    let kind = try await container.localFiles.exports.compare(
                        item.id, version: version, with: place, followsLinks: followsLinks, replacing: replacing,
                        replacesFolder: replace, timeout: wait.duration)
                    listing.add(kind, item.path, place)
                } catch {
                    guard update, error.isKept else { listing.add(item.path, Self.advised(error, item)); continue }
                    listing.add(.same, item.path, place)
                }
            }
            try listing.print(output, as: .get)
        }

        /// The local name and the size; a former version gets a name of its own beside the current file.
        private func name(
            of version: DocumentID?, _ item: DocumentEntry, in container: UbiquityContainer, _ session: Session
        ) async throws -> (name: Data, size: UInt64) {
            guard let version, version != item.version, item.kind != .folder else {
                return (item.nameBytes.isEmpty ? Data("container".utf8) : item.nameBytes, item.size)
            }
            let found = try await container.versions.version(version, of: item.id, timeout: wait.duration)
            let names = await DeviceNames(session, within: min(wait.duration, .seconds(2)))
            let copy = found.copyName(of: item.nameBytes, device: found.device.flatMap { names.known($0) })
            return (copy, found.size)
        }

        func fetch(
            _ item: DocumentEntry, of container: UbiquityContainer, to file: LocalPath, followsLinks: Bool,
            _ version: DocumentID? = nil
        ) async throws(CloudError) -> GotDocument {
            let line = ProgressLine("fetching", isShown: !output.json)
            defer { line.clear() }
            let name = item.name
            do throws(CloudError) {
                return try await container.localFiles.exports.get(
                    item.id, to: file, followsLinks: followsLinks, version: version, replacing: replacing,
                    replacesFolder: replace,
                    timeout: wait.duration
                ) { done, total in
                    line.show(done: Int(clamping: done), total: Int(clamping: total), name: name)
                }
            } catch { throw Self.advised(error, item) }
        }

        /// Says what a person can do.
        fileprivate static func advised(_ error: CloudError, _ item: DocumentEntry) -> CloudError {
            if error.isKept {
                var error = error
                error.message = error.message.replacing(
                    "have it replaced (overwrite)", with: "replace it with --overwrite")
                return error
            }
            guard error.code == .alreadyExists, item.kind == .package else { return error }
            return CloudError(
                .alreadyExists,
                "A folder is there, and something is in it. Take it away, or have it replaced with --replace.",
                details: error.details)
        }

        /// Gets a further content.
        private func fetch(_ rendition: String, of item: DocumentEntry, in container: UbiquityContainer) async throws {
            let subject = ["path": item.path, "rendition": rendition]
            if target == "-" {
                let data = try await about(subject) {
                    try await container.renditions.read(named: rendition, of: item.id, timeout: wait.duration)
                }
                return try StandardOutput.write(data)
            }
            let found = try await container.renditions.list(of: item.id).first { $0.name == rendition }
            let place = try Self.place(target, Data("\(item.name).\(rendition)".utf8), item)
            let line = ProgressLine("fetching", isShown: !output.json)
            defer { line.clear() }
            try await about(subject) {
                try await container.renditions.get(
                    named: rendition, of: item.id, to: place, timeout: wait.duration
                ) { done, total in
                    line.show(done: Int(clamping: done), total: Int(clamping: total), name: rendition)
                }
            }
            line.clear()
            let size = found?.size ?? 0
            try output.print(
                [Report(path: item.path, file: place.text, size: size)],
                text: "Got \(inLine(place.text)) (\(describe(bytes: size))).")
        }

        private func fetchAll(
            in folder: DocumentEntry, of container: UbiquityContainer, to top: FolderPlace
        ) async throws {
            if dryRun { return try await compareAll(in: folder, of: container, at: top.place) }
            try top.make()
            var places = [folder.id: top.place]
            var dates = [(top.place, folder.modified)]
            // What lies in the top beside Documents is among its items; Documents itself is none.
            for child in try await container.children(of: folder.id) where child.id.isFixed {
                let file = top.place.appending(child.nameBytes)
                try file.makeFolder()
                places[child.id] = file
            }
            let items = try await container.items(in: folder.id)
            var gets = Gets(
                of: container, replacing: replacing, leavesChanged: update, replacesFolders: replace,
                timeout: wait.duration,
                total: items.reduce(0) { $0.addingClamped($1.size) }, showsProgress: !output.json)
            for item in items {
                // What is in a folder that could not be made fails with it.
                guard gets.end == nil, let parent = places[item.parent] else { continue }
                let file = parent.appending(item.nameBytes)
                do throws(CloudError) {
                    // Names from outside: one that would lead elsewhere is nobody's honest name.
                    try DocumentPath.check(item.nameBytes, of: item.path)
                    if item.kind == .folder {
                        try file.makeFolder()
                        places[item.id] = file
                        dates.append((file, item.modified))
                    } else {
                        if !overwrite,
                            let old = try container.localFiles.records.moveFile(
                                of: item.id, to: file, within: top.place)
                        {
                            gets.moves[file] = old
                        }
                        await gets.add(item, at: file)
                    }
                } catch { gets.failures.add(item.path, error) }
            }
            await gets.finish()
            try container.localFiles.records.record(
                folders: places.filter { !$0.key.isFixed }.map { ($0.key, $0.value) })
            for (file, old) in gets.moves.sorted(by: { $0.key.text < $1.key.text }) {
                Standard.error("nephos: moved, as in the container: \(inLine(old.text)) to \(inLine(file.text))")
            }
            gets.failures.list("not got")
            gets.unkept.list()
            let failed = gets.failures.rows.map { Report(path: $0.path, file: "", size: 0, failure: $0) }
            try output.print(
                gets.reports + failed, text: Self.text(gets.reports, gets.leftCount))
            if let end = gets.end { throw end }
            try gets.failures.end()
            try top.end()
            // Writing into a folder changes its date, so dates are set last.
            for case (let place, let date?) in dates { place.setModified(date) }
        }

        /// Files that are got, many at a time.
        private struct Gets {
            /// So many that to flush them takes no time of its own, and few enough that little is lost with the process.
            private static let batchCount = 128
            private static let batchBytes: UInt64 = 256 << 20

            private struct Placing {
                let batch: [(item: DocumentEntry, file: LocalPath)]
                let outcomes: Task<[Result<GotDocument, CloudError>?], Never>
            }

            private let container: UbiquityContainer
            private let replacing: LocalReplacing
            /// Whether what was changed here stays without a word.
            private let leavesChanged: Bool
            private let replacesFolders: Bool
            private let timeout: Duration
            /// Over all of them.
            private let line: ProgressLine
            private let total: UInt64
            /// Of the batches before.
            private var bytesBefore: UInt64 = 0
            private var batch: [(item: DocumentEntry, file: LocalPath)] = []
            private var bytes: UInt64 = 0
            private(set) var reports: [Report] = []
            /// Those before, which take their places.
            private var placing: Placing?
            var failures = ItemFailures()
            /// Where files were before they were moved to where their items are.
            var moves: [LocalPath: LocalPath] = [:]
            /// Files that were changed here and stay.
            private(set) var leftCount = 0
            private(set) var unkept: [UnkeptAttribute] = []
            /// Why no other is tried.
            private(set) var end: CloudError?

            /// - Parameter total: Bytes of all that will be got.
            init(
                of container: UbiquityContainer, replacing: LocalReplacing, leavesChanged: Bool,
                replacesFolders: Bool, timeout: Duration, total: UInt64,
                showsProgress: Bool
            ) {
                self.container = container
                self.replacing = replacing
                self.leavesChanged = leavesChanged
                self.replacesFolders = replacesFolders
                self.timeout = timeout
                self.total = total
                line = ProgressLine("fetching", isShown: showsProgress)
            }

            mutating func add(_ item: DocumentEntry, at file: LocalPath) async {
                batch.append((item, file))
                bytes = bytes.addingClamped(item.size)
                if batch.count >= Self.batchCount || bytes >= Self.batchBytes { await fetch() }
            }

            mutating func finish() async {
                await fetch()
                line.clear()
                await noteOutcomes()
            }

            /// Fetches the batch, while those of the one before are flushed and take their places.
            private mutating func fetch() async {
                let (batch, before, total, line) = (batch, bytesBefore, total, line)
                bytesBefore = bytesBefore.addingClamped(bytes)
                (self.batch, bytes) = ([], 0)
                let done = Mutex<[Int: UInt64]>([:])
                let fetched = await container.localFiles.exports.fetchEach(
                    batch.map { ($0.item.id, $0.file) }, replacing: replacing, replacesFolders: replacesFolders,
                    timeout: timeout,
                    endsAll: ItemFailures.concernsAll
                ) { number, bytes in
                    let sum = done.withLock { done in
                        done[number] = bytes
                        return done.values.reduce(before) { $0.addingClamped($1) }
                    }
                    line.show(done: Int(clamping: sum), total: Int(clamping: total), name: batch[number].item.name)
                }
                await noteOutcomes()
                placing = Placing(
                    batch: batch, outcomes: Task { [container] in await container.localFiles.exports.place(fetched) })
                if fetched.isEnded { await noteOutcomes() }
            }

            private mutating func noteOutcomes() async {
                guard let placing else { return }
                self.placing = nil
                for ((item, file), outcome) in zip(placing.batch, await placing.outcomes.value) {
                    switch outcome {
                    case nil: break
                    case .success(let got):
                        reports.append(
                            Report(
                                path: item.path, file: file.text, size: item.size,
                                unchanged: got.isUpToDate ? true : nil, movedFrom: moves[file]?.text,
                                unkeptAttributes: got.unkept.names))
                        unkept += got.unkept
                    case .failure(let error) where leavesChanged && error.isKept: leftCount += 1
                    case .failure(let error):
                        failures.add(item.path, advised(error, item))
                        if ItemFailures.concernsAll(error) { end = end ?? error }
                    }
                }
            }
        }

        private func compareAll(
            in folder: DocumentEntry, of container: UbiquityContainer, at top: LocalPath
        ) async throws {
            var places = [folder.id: top]
            for child in try await container.children(of: folder.id) where child.id.isFixed {
                places[child.id] = top.appending(child.nameBytes)
            }
            var files: [(item: DocumentEntry, place: LocalPath)] = []
            for item in try await container.items(in: folder.id) {
                guard let parent = places[item.parent] else { continue }
                try DocumentPath.check(item.nameBytes, of: item.path)
                let place = parent.appending(item.nameBytes)
                if item.kind == .folder { places[item.id] = place } else { files.append((item, place)) }
            }
            try await compare(files, of: container, followsLinks: false)
        }

        static func text(_ reports: [Report], _ leftCount: Int) -> String {
            let got = reports.filter { $0.unchanged != true }
            let bytes = got.reduce(UInt64(0)) { $0.addingClamped($1.size) }
            let same = reports.count - got.count
            let rest =
                (same > 0 ? " Up to date: \(same)." : "")
                + (leftCount > 0 ? " Left as changed here: \(leftCount)." : "")
            return "Got \(got.count) \(got.count == 1 ? "file" : "files") (\(describe(bytes: bytes))).\(rest)"
        }

        static func place(_ target: String?, _ item: DocumentEntry) throws -> LocalPath {
            try place(target, item.nameBytes.isEmpty ? Data("container".utf8) : item.nameBytes, item)
        }

        static func place(_ target: String?, _ name: Data, _ item: DocumentEntry) throws -> LocalPath {
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
}

extension CloudError {
    /// Whether a local file stays, since it was changed here or is another.
    fileprivate var isKept: Bool { code == .storeOutOfStep && details["file"] != nil }
}
