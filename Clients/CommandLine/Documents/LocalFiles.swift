import ArgumentParser
import Foundation
import NephosCore
import NephosKit

/// Local files and folders that a command puts.
struct LocalFiles {
    /// Folders within folders, at most.
    private static let depthMax = 128

    /// Databases in use are left out, or put as they are.
    enum Databases: String, ExpressibleByArgument {
        case skip, put
    }

    /// A source, and its name in a message about a failure.
    typealias Source = (source: DocumentSource, name: String)

    private let recursive: Bool
    /// Whether the folders that are named are put as packages.
    private let packages: Bool
    private let isPackage: (DocumentPath) throws(CloudError) -> Bool
    /// Nil: they are refused.
    private let databases: Databases?
    /// The key by which two names clash in the container.
    private let key: ([UInt8]) -> [UInt8]
    /// With their sizes in bytes.
    private var sources: [(put: Source, size: Int)] = []
    /// Paths in the container that sources take, by the keys of their names.
    private var taken: [[[UInt8]]: DocumentPath] = [:]
    /// Files that could not be read.
    private(set) var failures = ItemFailures()
    /// Sockets, devices and the like.
    private var skipped: [String] = []
    private var skippedDatabases: [String] = []
    /// Parts of files that an interrupted `get` left behind.
    private var leftovers: [String] = []
    /// Files and folders that stay on this device, by their names.
    private var localCount = 0

    /// - Parameter isPackage: Whether the container has a package at the path: a folder stays one there.
    init(
        recursive: Bool, packages: Bool, databases: Databases?, key: @escaping ([UInt8]) -> [UInt8],
        isPackage: @escaping (DocumentPath) throws(CloudError) -> Bool
    ) {
        self.recursive = recursive
        self.packages = packages
        self.isPackage = isPackage
        self.databases = databases
        self.key = key
    }

    /// A sentence for each source that was left out.
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

    /// Takes in what is there, and what is in it.
    mutating func add(_ file: LocalPath, at path: DocumentPath) { add(file, at: path, depth: 0) }

    private mutating func add(_ file: LocalPath, at path: DocumentPath, depth: Int) {
        let name = file.name
        // What is named by hand is refused with a reason.
        if depth > 0, name.suffix(DocumentPath.localSuffix.utf8.count).elementsEqual(DocumentPath.localSuffix.utf8) {
            localCount += 1
            return
        }
        if depth > 0, LocalParts.isPart(name) { return leftovers.append(file.text) }
        do throws(CloudError) { try look(at: file, path, depth) } catch { failures.add(file.text, error) }
    }

    private mutating func look(at file: LocalPath, _ path: DocumentPath, _ depth: Int) throws(CloudError) {
        try claim(path)
        // What is named may be a link to what is meant; within a folder a link is one.
        guard let status = try file.status(followsLinks: depth == 0) else {
            throw CloudError(.unknownItem, "There is no such file.", details: ["file": file.text])
        }
        if packages, depth == 0 {
            return append(.package(file, allowsOpenDatabase: databases == .put), file, path, 0, depth)
        }
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            if databases != .put, let refusal = DatabaseFiles.refusal(of: file) {
                guard databases == .skip, depth > 0 else { throw refusal }
                return skippedDatabases.append(file.text)
            }
            append(.file(file, allowsOpenDatabase: databases == .put), file, path, status.st_size, depth)
        case S_IFLNK:
            let target = try file.destination()
            append(.link(Data(target)), file, path, target.count, depth)
        case S_IFDIR where recursive:
            if try isPackage(path) {
                return append(.package(file, allowsOpenDatabase: databases == .put), file, path, 0, depth)
            }
            try enter(file, path, depth)
        case S_IFDIR:
            throw CloudError(
                .invalidArguments,
                "This is a folder. With -r it is put with all that is in it, with --package as one item.",
                details: ["file": file.text])
        default:
            guard depth > 0 else {
                throw CloudError(
                    .invalidArguments, "Only files, folders and links can be put.", details: ["file": file.text])
            }
            skipped.append(file.text)
        }
    }

    private mutating func enter(_ folder: LocalPath, _ path: DocumentPath, _ depth: Int) throws(CloudError) {
        guard depth < Self.depthMax else {
            throw CloudError(
                .invalidArguments, "Folders lie too deep within each other.", details: ["file": folder.text])
        }
        // One that cannot be read is not there as an empty one.
        let names = try folder.names()
        append(nil, folder, path, 0, depth)
        for name in names { add(folder.appending(name), at: path.appending(Data(name)), depth: depth + 1) }
    }

    /// Of two that are one in the container the second would be put in the first one's place.
    private mutating func claim(_ path: DocumentPath) throws(CloudError) {
        let other = taken.updateValue(path, forKey: path.key(by: key))
        guard let other else { return }
        throw CloudError(
            .alreadyExists,
            other == path
                ? "Something else is put under this name. Put it under another."
                : "In this container the name is the same as another's. Rename one of them.",
            details: ["path": path.text, "other": other.text])
    }

    private mutating func append(
        _ content: DocumentSource.Content?, _ file: LocalPath, _ path: DocumentPath, _ size: Int,
        _ depth: Int
    ) {
        // A folder that is named stands for what is in it.
        let source =
            content.map { DocumentSource(path, $0, local: file, isNamed: depth == 0) }
            ?? DocumentSource.folder(file, at: path)
        sources.append(((source, file.text), size))
    }

    /// Bytes of all files that are put; what is in packages is not counted.
    var byteCount: Int { sources.reduce(0) { $0 + $1.size } }

    /// All of it: a folder before what is in it.
    var all: [Source] { sources.map(\.put) }

    /// As many new items as go in one request.
    private static let batchCount = DocumentLimits.changesMax - DocumentLimits.depthMax
    private static let batchBytes = 256 << 20

    /// So many that each is kept soon, and few enough that they are sent together.
    var batches: [[Source]] {
        var batches: [[Source]] = []
        var bytes = 0
        for (put, size) in sources {
            if batches.isEmpty || batches[batches.count - 1].count >= Self.batchCount || bytes + size > Self.batchBytes
            {
                batches.append([])
                bytes = 0
            }
            batches[batches.count - 1].append(put)
            bytes += size
        }
        return batches
    }
}
