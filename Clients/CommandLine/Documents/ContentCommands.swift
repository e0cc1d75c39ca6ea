import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Put: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy files into the container: new ones, or new versions of those that are there.",
            discussion: """
                With one name the file gets its own in Documents. A folder that is there takes files in. - reads \
                standard input, and needs a name to be put under.

                What is put is kept on this device until the server has it. Names that end in .nosync stay here: with \
                -r they are left out.

                A SQLite database that is in use, with a -wal, -shm or -journal beside it, is refused, since a copy of \
                its files is torn: put one that sqlite3's .backup or VACUUM INTO has made, or keep the rows in records.
                """)

        @Argument(help: "The files, and at the end where to.") var paths: [String]
        @Flag(name: [.customShort("r"), .long], help: "Also folders, with all that is in them.") var recursive = false
        @Flag(name: [.customShort("p"), .long], help: "Make the folders that are missing.") var parents = false
        @Option(
            help: "Databases in use: skip leaves them out of what -r finds, put takes them as they are, torn or not.")
        var databases: LocalFiles.Databases?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !paths.isEmpty else { throw ValidationError("Name a file.") }
            guard paths != ["-"] else { throw ValidationError("What comes from standard input needs a name.") }
        }

        func run() async throws {
            let files = paths.count == 1 ? paths : paths.dropLast()
            let target = paths.count == 1 ? "" : paths[paths.count - 1]
            try await container.withContainer(network, transfer: transfer) { container, _ in
                let sent = try await SentDocuments(container)
                let there = try await container.item(at: target)
                let isFolder = paths.count == 1 || target.hasSuffix("/") || there?.kind == .folder
                guard isFolder || files.count == 1 else {
                    throw CloudError(.unknownItem, "There is no such folder.", details: ["path": target])
                }
                var collected = LocalFiles(recursive: recursive, databases: databases)
                for file in files {
                    let name = (file as NSString).lastPathComponent
                    if file == "-" {
                        guard !isFolder else {
                            throw CloudError(.invalidArguments, "What comes from standard input needs a name.")
                        }
                        let data = try InputFile.read(file, bytesMax: Self.inputBytesMax, orElse: Self.tooLong)
                        collected.sources.append((.data(data, at: target), 0))
                    } else {
                        try collected.add(file, at: isFolder ? Self.join(target, name) : target)
                    }
                }
                var items: [DocumentEntry] = []
                for batch in collected.batches {
                    for id in try await container.put(batch, makesFolders: parents || recursive) {
                        if let item = try await container.item(id) { items.append(item) }
                    }
                }
                for line in collected.notes { Standard.error("nephos: \(line)") }
                try await sent.wait(
                    items, network, output,
                    done: items.count == 1
                        ? "Put \(inLine(items[0].path)) (\(describe(bytes: items[0].size)))."
                        : "Put \(items.count) items (\(describe(bytes: items.reduce(0) { $0 + $1.size }))).")
            }
        }

        private static let inputBytesMax = 256 << 20
        private static let tooLong = CloudError(
            .limitExceeded, "Standard input has too much. Put it from a file.",
            details: ["bytes_max": "\(inputBytesMax)"])

        private static func join(_ folder: String, _ name: String) -> String {
            folder.isEmpty || folder.hasSuffix("/") ? folder + name : folder + "/" + name
        }
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Copy a file out of the container.",
            discussion: "- writes to standard output. A local file is replaced as a whole, or stays as it is.")

        @Argument(help: "The file.") var path: String
        @Argument(help: "Where to, a file or folder (default: its name, here).", completion: .file()) var target:
            String?
        @Flag(name: [.customShort("r"), .long], help: "Also a folder, with all that is in it.") var recursive = false
        @Option(name: .long, help: "Not the newest version but this one, of nephos docs versions.")
        var versionID: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        struct Report: Encodable {
            var path: String
            var file: String
            var size: UInt64
        }

        func run() async throws {
            let version = try versionID.map { try DocumentID(version: $0) }
            Interrupt.first { LocalParts.removeAll() }
            try await container.withContainer(within: wait.duration, transfer: transfer) { container, _ in
                let item = try await container.requireItem(at: path)
                if target == "-" {
                    return try StandardOutput.write(
                        try await container.read(item.path, version: version, timeout: wait.duration))
                }
                let file = Self.place(target, item)
                guard item.kind == .folder else {
                    try await fetch(item, of: container, to: file, version)
                    return try output.print(
                        [Report(path: item.path, file: file, size: item.size)],
                        text: "Got \(inLine(file)) (\(describe(bytes: item.size))).")
                }
                guard recursive else {
                    throw CloudError(
                        .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                        details: ["path": item.path])
                }
                let reports = try await fetchAll(in: item, of: container, to: file)
                try output.print(
                    reports,
                    text: "Got \(reports.count) files (\(describe(bytes: reports.reduce(0) { $0 + $1.size }))).")
            }
        }

        private func fetch(
            _ item: DocumentEntry, of container: UbiquityContainer, to file: String, _ version: DocumentID? = nil
        ) async throws {
            let line = ProgressLine(isShown: !output.json)
            defer { line.clear() }
            let name = item.name
            try await container.get(item.path, to: file, version: version, timeout: wait.duration) { done, total in
                line.show(done: Int(clamping: done), total: Int(clamping: total), name: name)
            }
        }

        private func fetchAll(
            in folder: DocumentEntry, of container: UbiquityContainer, to file: String
        ) async throws -> [Report] {
            var places = [folder.id: file]
            try Self.makeFolder(file)
            var reports: [Report] = []
            for item in try await container.items(in: folder.path) {
                // Names from outside: one that would lead elsewhere is nobody's honest name.
                guard let parent = places[item.parent], !item.name.contains("/"), item.name != "..", item.name != "."
                else { continue }
                let file = parent + "/" + item.name
                if item.kind == .folder {
                    try Self.makeFolder(file)
                    places[item.id] = file
                } else {
                    try await fetch(item, of: container, to: file)
                    reports.append(Report(path: item.path, file: file, size: item.size))
                }
            }
            return reports
        }

        /// Nothing is written through a link.
        private static func makeFolder(_ path: String) throws {
            if mkdir(path, 0o777) == 0 { return }
            let number = errno
            var status = stat()
            guard number == EEXIST, lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR else {
                throw NSError(
                    domain: NSPOSIXErrorDomain, code: Int(number), userInfo: [NSFilePathErrorKey: path])
            }
        }

        private static func place(_ target: String?, _ item: DocumentEntry) -> String {
            let name = item.name.isEmpty ? "container" : item.name
            guard let target else { return name }
            var isFolder: ObjCBool = false
            guard FileManager.default.fileExists(atPath: target, isDirectory: &isFolder), isFolder.boolValue else {
                return target
            }
            return target.hasSuffix("/") ? target + name : target + "/" + name
        }
    }

    struct Cat: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print files, one after the other, or a part of each.",
            discussion: "Of a part only what it touches is fetched.")

        @Argument(help: "The files.") var paths: [String]
        @Option(help: "Where in each file to begin, in bytes.") var offset: UInt64 = 0
        @Option(help: "How many bytes of each, at most (default: all).") var length: UInt64?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var transfer: TransferOptions
        // It prints what is in them; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(within: wait.duration, transfer: transfer) { container, _ in
                for path in paths { try await write(try await container.requireItem(at: path), of: container) }
            }
        }

        /// What is in memory at a time.
        private static let pieceBytes: UInt64 = 32 << 20

        private func write(_ item: DocumentEntry, of container: UbiquityContainer) async throws {
            let (sum, isBeyond) = offset.addingReportingOverflow(length ?? .max)
            let end = max(offset, min(item.size, isBeyond ? .max : sum))
            var place = offset
            repeat {
                let next = end - place <= Self.pieceBytes ? end : place + Self.pieceBytes
                // One version, whatever is put meanwhile.
                try StandardOutput.write(
                    try await container.read(
                        item.path, range: place..<next, version: item.version, timeout: wait.duration))
                place = next
            } while place < end
        }
    }
}

/// What is put, as it lies on the disk.
struct LocalFiles {
    /// Folders within folders, at most.
    private static let depthMax = 128

    /// What becomes of databases in use.
    enum Databases: String, ExpressibleByArgument {
        case skip, put
    }

    let recursive: Bool
    /// Nil: they are refused.
    let databases: Databases?
    /// With their sizes in bytes.
    var sources: [(source: DocumentSource, size: Int)] = []
    /// What nobody can put.
    private(set) var skipped: [String] = []
    private(set) var skippedDatabases: [String] = []
    /// Of files that somebody got, and that were not got to the end.
    private(set) var leftovers: [String] = []
    /// Files and folders that stay on this device, by their names.
    private(set) var localCount = 0

    init(recursive: Bool, databases: Databases?) {
        self.recursive = recursive
        self.databases = databases
    }

    /// What was left out.
    var notes: [String] {
        var notes = skipped.map { "not put, neither file, folder nor link: \(inLine($0))" }
        notes += skippedDatabases.map { "not put, a database in use or a part of one: \(inLine($0))" }
        notes += leftovers.map { "not put, left by a get that was ended, and to be removed: \(inLine($0))" }
        if localCount > 0 {
            notes.append(
                localCount == 1
                    ? "not put, since its name ends in .nosync: 1 item"
                    : "not put, since their names end in .nosync: \(localCount) items")
        }
        return notes
    }

    mutating func add(_ file: String, at path: String, depth: Int = 0) throws {
        // What is named by hand is refused with a reason.
        if depth > 0, file.hasSuffix(DocumentPath.localSuffix) {
            localCount += 1
            return
        }
        if depth > 0, LocalParts.isPart((file as NSString).lastPathComponent.utf8) { return leftovers.append(file) }
        var status = stat()
        // What is named may be a link to what is meant; within a folder a link is one.
        guard (depth == 0 ? stat(file, &status) : lstat(file, &status)) == 0 else {
            throw NSError(domain: NSPOSIXErrorDomain, code: Int(errno), userInfo: [NSFilePathErrorKey: file])
        }
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            if databases != .put, let refusal = DatabaseFiles.refusal(of: file) {
                guard databases == .skip, depth > 0 else { throw refusal }
                return skippedDatabases.append(file)
            }
            sources.append((.file(file, at: path, allowsOpenDatabase: databases == .put), status.st_size))
        case S_IFLNK:
            let target = try FileManager.default.destinationOfSymbolicLink(atPath: file)
            sources.append((.link(to: target, at: path), target.utf8.count))
        case S_IFDIR:
            guard recursive else {
                throw CloudError(
                    .invalidArguments, "This is a folder. With -r it is put with all that is in it.",
                    details: ["file": file])
            }
            guard depth < Self.depthMax else {
                throw CloudError(
                    .invalidArguments, "Folders lie too deep within each other.", details: ["file": file])
            }
            sources.append((.folder(at: path), 0))
            for name in try FileManager.default.contentsOfDirectory(atPath: file).sorted() {
                try add(file + "/" + name, at: path + "/" + name, depth: depth + 1)
            }
        default:
            guard depth > 0 else {
                throw CloudError(
                    .invalidArguments, "Only files, folders and links can be put.", details: ["file": file])
            }
            skipped.append(file)
        }
    }

    private static let batchCount = 400
    private static let batchBytes = 256 << 20

    /// So many that each is kept soon, and few enough that they are sent together.
    var batches: [[DocumentSource]] {
        var batches: [[DocumentSource]] = []
        var bytes = 0
        for (source, size) in sources {
            if batches.isEmpty || batches[batches.count - 1].count >= Self.batchCount || bytes + size > Self.batchBytes
            {
                batches.append([])
                bytes = 0
            }
            batches[batches.count - 1].append(source)
            bytes += size
        }
        return batches
    }
}
