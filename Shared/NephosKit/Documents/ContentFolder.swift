import Foundation
import NephosCore

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
    /// A file that nobody needs may be one that is about to be needed.
    private static let patience: TimeInterval = 3600

    let path: String

    /// - Throws: ``CloudError`` `.storageFailure` where the home is no folder, or this cannot be made in it.
    init(home: String?) throws(CloudError) {
        guard let home else { throw CloudError(.storageFailure, "This home keeps no files.") }
        path = home + "/content"
    }

    func file(_ version: DocumentID) -> String { "\(path)/\(version)" }

    // MARK: Putting

    func stage(_ data: Data, version: DocumentID, modified: Int64) throws -> StagedContent {
        guard data.count > DocumentLimits.inlineBytesMax else {
            return StagedContent(
                version: version, length: UInt64(data.count), inline: data, modified: modified)
        }
        var offset = data.startIndex
        return try copy(to: version, modified: modified) { buffer in
            let count = min(buffer.count, data.endIndex - offset)
            data.copyBytes(to: buffer.bindMemory(to: UInt8.self), from: offset..<offset + count)
            offset += count
            return count
        }
    }

    /// Keeps a short content as a file.
    func keep(_ data: Data, version: DocumentID) throws {
        var isDone = false
        _ = try copy(to: version, modified: 0) { buffer in
            defer { isDone = true }
            return isDone ? 0 : data.copyBytes(to: buffer)
        }
    }

    /// - Parameter source: A file; where it leads if it is a link.
    /// - Throws: ``CloudError`` `.constraintViolation` when it changes while it is read; `.unknownItem`,
    ///   `.permissionFailure`, `.storageFailure` of files.
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
            staged = try copy(to: version, modified: 0) { buffer in
                let count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
                guard count >= 0 else { throw Self.failure(source) }
                return count
            }
        }
        var after = stat()
        let isSame =
            fstat(descriptor, &after) == 0 && after.st_size == before.st_size
            && Self.modified(after) == Self.modified(before) && staged.length == UInt64(max(0, before.st_size))
        guard isSame else {
            if staged.inline == nil { unlink(file(version)) }
            throw CloudError(
                .constraintViolation, "The file was written while it was read. Put it again once that has ended.",
                details: ["file": source])
        }
        staged.modified = Self.modified(before)
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

    private static func modified(_ status: stat) -> Int64 {
        let seconds = Int64(status.st_mtim.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
        return seconds.overflow ? 0 : seconds.partialValue &+ Int64(status.st_mtim.tv_nsec)
    }

    /// - Parameter next: Fills the buffer as far as there is something; 0: that was all.
    private func copy(
        to version: DocumentID, modified: Int64, _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> StagedContent {
        if mkdir(path, 0o700) != 0, errno != EEXIST { throw Self.failure(path) }
        let target = file(version)
        let part = target + ".part"
        let descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Self.failure(part) }
        var isOpen = true
        do {
            var cutter = ContentCutter()
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceBytes, alignment: 16)
            defer { buffer.deallocate() }
            while true {
                let count = try next(buffer)
                if count == 0 { break }
                let piece = UnsafeRawBufferPointer(rebasing: buffer[..<count])
                try cutter.take(piece)
                try Self.write(piece, to: descriptor, part)
            }
            let cut = try cutter.finish()
            guard cut.nodes.reduce(0, { $0 + $1.count }) <= Self.nodeBytesMax else {
                throw CloudError(
                    .limitExceeded, "The content is too long. Divide the file.", details: ["bytes": "\(cut.length)"])
            }
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

    /// Removes what is left of contents that nobody needs, such as of a process that was ended.
    func sweep(needed: Set<DocumentID>, now: Date) {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path) else { return }
        for name in names {
            let base = name.hasSuffix(".part") ? String(name.dropLast(5)) : name
            guard let version = DocumentID(base), base != name || !needed.contains(version) else { continue }
            let file = path + "/" + name
            let attributes = try? FileManager.default.attributesOfItem(atPath: file)
            guard let changed = attributes?[.modificationDate] as? Date,
                now.timeIntervalSince(changed) > Self.patience
            else { continue }
            unlink(file)
        }
    }
}
