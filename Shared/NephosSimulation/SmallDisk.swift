internal import Foundation

/// A disk of its own, that a test may fill. Only the superuser may mount one.
package struct SmallDisk {
    package let folder: String
    private var junk: String { folder + "/junk" }

    package static let isAvailable = getuid() == 0 && (try? SmallDisk(megabytes: 1)).map { $0.remove() } != nil

    package struct Failed: Error {}

    /// - Parameters:
    ///   - entries: Files and folders that it has room for; nil: for many.
    ///   - folder: Where it is mounted, readable by its owner alone; nil: in a temporary folder.
    package init(megabytes: Int, entries: Int? = nil, at folder: String? = nil) throws {
        self.folder = folder ?? NSTemporaryDirectory() + "nephos-disk-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: self.folder, withIntermediateDirectories: true)
        // Its own folder is one too.
        let limit = entries.map { ",nr_inodes=\($0 + 1)" } ?? ""
        try Self.run("mount", ["-t", "tmpfs", "-o", "size=\(megabytes)m,mode=700\(limit)", "tmpfs", self.folder])
    }

    /// Gives it room for as many files and folders.
    package func setEntries(_ count: Int) throws {
        try Self.run("mount", ["-o", "remount,nr_inodes=\(count + 1)", folder])
    }

    package func remove() {
        try? Self.run("umount", ["-l", folder])
        try? FileManager.default.removeItem(atPath: folder)
    }

    /// Takes all that is left.
    package func fill() throws {
        guard FileManager.default.createFile(atPath: junk, contents: nil),
            let file = FileHandle(forWritingAtPath: junk)
        else { throw Failed() }
        defer { try? file.close() }
        let block = Data(repeating: 1, count: 4096)
        while (try? file.write(contentsOf: block)) != nil {}
    }

    package func setReadOnly() throws { try Self.run("mount", ["-o", "remount,ro", folder]) }

    package func empty() throws { try remove(junk) }

    /// Gives back the room of a file. A program that another test has started meanwhile may have inherited its
    /// descriptor, and a file that somebody has open keeps its room; an empty one has none.
    package func remove(_ file: String) throws {
        guard truncate(file, 0) == 0 else { throw Failed() }
        try FileManager.default.removeItem(atPath: file)
    }

    private static func run(_ program: String, _ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = [program] + arguments
        process.standardError = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw Failed() }
    }
}
