internal import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// The files of a ``SegmentStore`` by their names: made, opened, listed, removed. Throws ``DiskFailure``.
final class SegmentFolder: Sendable {
    let openFiles: OpenFiles
    let faults: DiskFaults
    private let path: String

    init(path: String, openFilesMax: Int, faults: @escaping DiskFaults) {
        self.path = path
        self.faults = faults
        openFiles = OpenFiles(countMax: openFilesMax)
    }

    func file(_ segment: SegmentID, isWritable: Bool = false) throws -> SegmentFile {
        try openFiles.file(segment, isWritable: isWritable) {
            try SegmentFile(path(of: segment), flags: isWritable ? O_RDWR : O_RDONLY, faults)
        }
    }

    /// A new file, which is not in its folder for good before ``sync(_:)``.
    func create(_ segment: SegmentID) throws -> SegmentFile {
        guard mkdir(path(of: segment.partition), 0o700) == 0 || errno == EEXIST else {
            throw DiskFailure(number: errno)
        }
        return try SegmentFile(path(of: segment), flags: O_RDWR | O_CREAT | O_EXCL, faults)
    }

    /// Makes the names of the partition's files, and its own, survive a loss of power.
    func sync(_ partition: Int) throws {
        try sync(path(of: partition))
        try sync(path)
    }

    /// It need not be flushed: a file that comes back after a crash is found and removed again.
    func remove(_ segment: SegmentID) throws {
        try DiskFailure.check(faults(.remove))
        guard unlink(path(of: segment)) == 0 || errno == ENOENT else { throw DiskFailure(number: errno) }
        openFiles.forget(segment)
    }

    /// Whether the open file is still the one that has the segment's name.
    func isInPlace(_ file: SegmentFile, of segment: SegmentID) throws -> Bool {
        var status = stat()
        guard stat(path(of: segment), &status) == 0 else {
            guard errno == ENOENT || errno == ENOTDIR else { throw DiskFailure(number: errno) }
            return false
        }
        return try file.isFile(status)
    }

    /// Nil: there is no such file.
    func length(of segment: SegmentID) throws -> Int? {
        var status = stat()
        if stat(path(of: segment), &status) == 0 { return Int(status.st_size) }
        guard errno == ENOENT else { throw DiskFailure(number: errno) }
        return nil
    }

    /// Whether files of the partition can be listed and opened, as far as its folder goes.
    func isUsable(_ partition: Int) -> Bool { access(path(of: partition) + "/.", R_OK | X_OK) == 0 }

    /// The numbers of the partition's segments, the smallest first.
    func numbers(in partition: Int) throws -> [Int64] {
        guard let folder = opendir(path(of: partition)) else {
            guard errno == ENOENT else { throw DiskFailure(number: errno) }
            return []
        }
        defer { closedir(folder) }
        var numbers: [Int64] = []
        while true {
            errno = 0
            guard let entry = readdir(folder) else { break }
            if let number = SegmentName.number(of: Self.name(of: entry)) { numbers.append(number) }
        }
        // A listing that broke off must not be taken for the whole.
        guard errno == 0 else { throw DiskFailure(number: errno) }
        return numbers.sorted()
    }

    /// The entry's name. An entry takes as many bytes as it says, fewer than its type: what is behind them is the
    /// next one, or none of the listing's memory.
    static func name(of entry: UnsafePointer<dirent>) -> String {
        let start = MemoryLayout<dirent>.offset(of: \.d_name) ?? MemoryLayout<dirent>.size
        let length = UnsafeRawPointer(entry).loadUnaligned(
            fromByteOffset: MemoryLayout<dirent>.offset(of: \.d_reclen) ?? 0, as: UInt16.self)
        let bytes = UnsafeRawBufferPointer(
            start: UnsafeRawPointer(entry) + start, count: max(0, Int(length) - start))
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }

    private func sync(_ folder: String) throws {
        try DiskFailure.check(faults(.syncFolder))
        let descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw DiskFailure(number: errno) }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 else { throw DiskFailure(number: errno) }
    }

    private func path(of partition: Int) -> String { path + "/" + SegmentName.folder(partition) }

    private func path(of segment: SegmentID) -> String {
        path(of: segment.partition) + "/" + SegmentName.of(segment.number)
    }
}
