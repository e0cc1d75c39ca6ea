import Foundation
import NephosChunks
import NephosCore
import NephosFiles

/// A content that was put, before the server has it: in the home, so that it survives whatever happens until then.
struct StagedContent: Sendable {
    var version: DocumentID
    var length: UInt64
    /// All of it, where it is short; nil: it is in the home's folder.
    var inline: Data?
    var root: ChunkID?
    var depth: UInt32 = 0
    var chunks: [CutChunk] = []
    /// Manifest nodes, children first.
    var nodes: [Data] = []
    /// Nanoseconds since 1970.
    var modified: Int64
    var isExecutable = false
    var isLink = false
}

/// Something to be put, once its content is in the home.
struct StagedSource: Sendable {
    var path: DocumentPath
    /// Nil: a folder.
    var content: StagedContent?
}

/// The contents that a home keeps until the server has them: each a file, called after its version.
struct ContentFolder: Sendable {
    private static let pieceBytes = 1 << 20
    /// Bytes of a content's manifest nodes, at most: of one of 100 GB. They wait in the database.
    static let nodeBytesMax = 16 << 20
    /// Bytes of a content, at most: beyond, the shortest list of its chunks is too long.
    static let bytesMax = nodeBytesMax / ManifestNode.childBytes * BulkLimits.chunkBytesMax
    /// Bytes of the disk that copies leave free, for the database that lies there too: at most so many, and this part
    /// of a smaller disk.
    private static let reserveBytesMax = 1 << 30
    private static let reservePart = 20
    /// How many bytes are copied before it is looked again how much is left.
    private static let lookBytes = 64 << 20

    let path: String
    private var lockFile: String { path + ".lock" }

    /// - Throws: ``CloudError`` `.storageFailure` where the home is no folder, or this cannot be made in it.
    init(home: String?) throws(CloudError) {
        guard let home else { throw CloudError(.storageFailure, "This home keeps no files.") }
        path = home + "/content"
    }

    func file(_ version: DocumentID) -> String { "\(path)/\(version)" }

    // MARK: Putting

    /// Keeps the sweep of every process away from what is staged, until it is let go of or this process ends: nobody
    /// needs a file before the database knows of it.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: the home's files cannot be locked.
    func claim() throws(CloudError) -> FileLock {
        for _ in 0..<Self.claimsMax {
            do throws(FileLock.Failure) { return try FileLock(lockFile, isShared: true) } catch {
                // A sweep holds it for no longer than it takes to see that nobody else does.
                guard case .held = error else { break }
                usleep(1000)
            }
        }
        throw CloudError(
            .storageFailure, "The lock file of the home's contents cannot be used.", details: ["file": lockFile])
    }

    /// Whether nobody stages anything in this moment.
    private var isUnclaimed: Bool { (try? FileLock(lockFile)) != nil }
    private static let claimsMax = 1000

    /// - Throws: ``CloudError`` `.storageFailure`: what was staged is not there any more.
    func require(_ content: StagedContent) throws(CloudError) {
        guard content.inline == nil else { return }
        var status = stat()
        guard lstat(file(content.version), &status) == 0, UInt64(max(0, status.st_size)) == content.length else {
            throw CloudError(
                .storageFailure, "The copy of the content is gone from this device's home. Put it again.",
                details: ["file": file(content.version)])
        }
    }

    func stage(_ data: Data, version: DocumentID, modified: Int64) throws -> StagedContent {
        guard data.count > DocumentLimits.inlineBytesMax else {
            return StagedContent(
                version: version, length: UInt64(data.count), inline: data, modified: modified)
        }
        var offset = data.startIndex
        return try copy(data.count, to: version, modified: modified) { buffer in
            let count = min(buffer.count, data.endIndex - offset)
            data.copyBytes(to: buffer.bindMemory(to: UInt8.self), from: offset..<offset + count)
            offset += count
            return count
        }
    }

    /// Keeps a short content as a file.
    func keep(_ data: Data, version: DocumentID) throws {
        var isDone = false
        _ = try copy(data.count, to: version, modified: 0) { buffer in
            defer { isDone = true }
            return isDone ? 0 : data.copyBytes(to: buffer)
        }
    }

    /// - Parameter source: A file; where it leads if it is a link.
    /// - Throws: ``CloudError`` `.constraintViolation` when it changes while it is read; `.limitExceeded` when it is too
    ///   long; `.unknownItem`, `.permissionFailure`, `.storageFailure` of files, also when the home's disk has no room.
    func stage(file place: LocalPath, version: DocumentID) throws -> StagedContent {
        let source = place.text
        let descriptor = place.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NONBLOCK) }
        guard descriptor >= 0 else { throw Self.failure(source) }
        defer { close(descriptor) }
        var before = stat()
        guard fstat(descriptor, &before) == 0 else { throw Self.failure(source) }
        guard before.st_mode & S_IFMT == S_IFREG else {
            throw CloudError(
                .invalidArguments, "Only files, folders and links can be put.", details: ["file": source])
        }
        var staged: StagedContent
        if before.st_size <= DocumentLimits.inlineBytesMax {
            var buffer = [UInt8](repeating: 0, count: DocumentLimits.inlineBytesMax + 1)
            let count = try Self.readAll(descriptor, &buffer, source)
            staged = StagedContent(
                version: version, length: UInt64(count), inline: Data(buffer.prefix(count)), modified: 0)
        } else {
            staged = try copy(Int(before.st_size), to: version, modified: 0) { buffer in
                let count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
                guard count >= 0 else { throw Self.failure(source) }
                return count
            }
        }
        var after = stat()
        // The time of the last change of any kind too: whoever writes may set the other one back.
        let isSame =
            fstat(descriptor, &after) == 0 && after.st_size == before.st_size
            && Self.nanoseconds(after.st_mtim) == Self.nanoseconds(before.st_mtim)
            && Self.nanoseconds(after.st_ctim) == Self.nanoseconds(before.st_ctim)
            && staged.length == UInt64(max(0, before.st_size))
        guard isSame else {
            if staged.inline == nil { unlink(file(version)) }
            throw CloudError(
                .constraintViolation, "The file was written while it was read. Put it again once that has ended.",
                details: ["file": source])
        }
        staged.modified = Self.nanoseconds(before.st_mtim)
        staged.isExecutable = before.st_mode & S_IXUSR != 0
        return staged
    }

    private static func readAll(_ descriptor: Int32, _ buffer: inout [UInt8], _ name: String) throws -> Int {
        var filled = 0
        while filled < buffer.count {
            let count = buffer.withUnsafeMutableBytes {
                Foundation.read(descriptor, $0.baseAddress.map { $0 + filled }, $0.count - filled)
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failure(name) }
            if count == 0 { break }
            filled += count
        }
        return filled
    }

    private static func nanoseconds(_ time: timespec) -> Int64 {
        let seconds = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
        return seconds.overflow ? 0 : seconds.partialValue &+ Int64(time.tv_nsec)
    }

    private static func tooLong(_ bytes: Int) -> CloudError {
        CloudError(.limitExceeded, "The content is too long. Divide the file.", details: ["bytes": "\(bytes)"])
    }

    /// - Throws: ``CloudError`` `.storageFailure`: with so many bytes more the disk of the home would be as good as full.
    private func requireRoom(for bytes: Int) throws(CloudError) {
        var disk = statvfs()
        guard statvfs(path, &disk) == 0 else { return }
        let free = Int(
            clamping: UInt64(disk.f_bavail).multipliedReportingOverflow(by: UInt64(disk.f_frsize)).partialValue)
        let total = Int(
            clamping: UInt64(disk.f_blocks).multipliedReportingOverflow(by: UInt64(disk.f_frsize)).partialValue)
        let reserve = min(Self.reserveBytesMax, total / Self.reservePart)
        guard free - reserve >= bytes else {
            throw CloudError(
                .storageFailure, "The disk of the device's home has no room for a copy of the content. Make room.",
                details: ["bytes": "\(bytes)", "free_bytes": "\(free)", "reserve_bytes": "\(reserve)"])
        }
    }

    /// - Parameters:
    ///   - bytes: How many there will be, as far as that is known.
    ///   - next: Fills the buffer as far as there is something; 0: that was all.
    private func copy(
        _ bytes: Int, to version: DocumentID, modified: Int64, _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> StagedContent {
        guard bytes <= Self.bytesMax else { throw Self.tooLong(bytes) }
        if mkdir(path, 0o700) != 0, errno != EEXIST { throw Self.failure(path) }
        try requireRoom(for: bytes)
        let target = file(version)
        let part = target + ".part"
        let descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Self.failure(part) }
        var isOpen = true
        do {
            var cutter = ContentCutter()
            var unlooked = 0
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceBytes, alignment: 16)
            defer { buffer.deallocate() }
            while true {
                let count = try next(buffer)
                if count == 0 { break }
                let piece = UnsafeRawBufferPointer(rebasing: buffer[..<count])
                try cutter.take(piece)
                guard cutter.nodeBytes <= Self.nodeBytesMax else { throw Self.tooLong(bytes) }
                try Self.write(piece, to: descriptor, part)
                unlooked += count
                if unlooked >= Self.lookBytes {
                    unlooked = 0
                    try requireRoom(for: 0)
                }
            }
            let cut = try cutter.finish()
            guard cutter.nodeBytes <= Self.nodeBytesMax else { throw Self.tooLong(bytes) }
            guard fsync(descriptor) == 0 else { throw Self.failure(part) }
            isOpen = false
            guard close(descriptor) == 0, rename(part, target) == 0 else { throw Self.failure(part) }
            syncFolder()
            return StagedContent(
                version: version, length: cut.length, root: cut.root, depth: cut.depth, chunks: cut.chunks,
                nodes: cut.nodes, modified: modified)
        } catch {
            if isOpen { close(descriptor) }
            unlink(part)
            throw error
        }
    }

    static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32, _ name: String) throws {
        var rest = bytes
        while !rest.isEmpty {
            let count = Foundation.write(descriptor, rest.baseAddress, rest.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw failure(name) }
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        }
    }

    private func syncFolder() {
        let folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { return }
        fsync(folder)
        close(folder)
    }

    /// What the system's last error says of a file.
    static func failure(_ file: String) -> CloudError {
        let number = errno
        let details = ["file": file, "reason": String(cString: strerror(number))]
        switch number {
        case ENOENT, ENOTDIR: return CloudError(.unknownItem, "There is no such file.", details: details)
        case EACCES, EPERM: return CloudError(.permissionFailure, "This user may not use the file.", details: details)
        case ENOSPC, EDQUOT, EROFS:
            return CloudError(.storageFailure, "The disk is full, or read-only.", details: details)
        default: return CloudError(.storageFailure, "The file could not be read or written.", details: details)
        }
    }

    /// What it says of a content of the home, which a person can cure.
    static func unreadable(_ file: String) -> CloudError {
        LocalFailure.error(ofNumber: errno, at: file)
            ?? CloudError(
                .storageFailure, LocalFailure.contentUnreadable,
                details: ["path": file, "reason": String(cString: strerror(errno))])
    }

    // MARK: Taking

    /// Writes a content that is here, or a part of it, piece by piece.
    ///
    /// - Parameter range: Within the content's length.
    /// - Returns: False: it is not here, or no longer.
    func copy(_ version: DocumentID, length: UInt64, _ range: Range<Int>, to sink: any ContentSink) throws -> Bool {
        let descriptor = open(file(version), O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw Self.failure(file(version)) }
        guard UInt64(max(0, status.st_size)) == length else { return false }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceBytes, alignment: 16)
        defer { buffer.deallocate() }
        var offset = range.lowerBound
        while offset < range.upperBound {
            let count = pread(
                descriptor, buffer.baseAddress, min(buffer.count, range.upperBound - offset), off_t(offset))
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Self.failure(file(version)) }
            if count == 0 { return false }
            try sink.write(UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: offset)
            offset += count
        }
        return true
    }

    // MARK: Removing

    func remove(_ version: DocumentID) { unlink(file(version)) }

    func remove(_ source: StagedSource) {
        if let content = source.content, content.inline == nil { remove(content.version) }
    }

    /// Removes what a process has left behind that was ended: files that the database does not know of. It waits for
    /// the next time where somebody stages: one of the files may be theirs.
    ///
    /// - Parameter readNeeded: Reads what the database knows of.
    func sweep(_ readNeeded: () throws -> Set<DocumentID>) rethrows {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path), !names.isEmpty else { return }
        // In this order: what was there before is nobody's then, or in the database.
        guard isUnclaimed else { return }
        let needed = try readNeeded()
        for name in names {
            let base = name.hasSuffix(".part") ? String(name.dropLast(5)) : name
            guard let version = DocumentID(base), base != name || !needed.contains(version) else { continue }
            unlink(path + "/" + name)
        }
    }
}
