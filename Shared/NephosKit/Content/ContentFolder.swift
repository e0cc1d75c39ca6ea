import Foundation
import NephosChunks
import NephosCore
import NephosFiles
import NephosWire

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
    /// Extended attributes of the file that it was copied from, in the order of their names' bytes.
    var attributes: [PackageList.Attribute] = []
    /// Of the item that has it: a file, a link or a package.
    var kind = WireItemKind.file
    /// Of the file that it was copied from; nil: its times do not tell whether it is written to.
    var stamp: FileStamp?
    /// Another container of the app that has it, or may have it by the time it is sent.
    var source: String?
    /// False: its bytes are nowhere in the home as far as this content is concerned, and the source's chunks do for
    /// them. Its chunks may be unknown then.
    var isHere = true
}

/// Something to be put, once its content is in the home.
struct StagedSource: Sendable {
    var path: DocumentPath
    /// Nil: a folder.
    var content: StagedContent?
    /// The file that it was read from; nil: it comes from none.
    var origin: LocalOrigin?
    /// Of a folder: when what is in it was changed; nil: unknown.
    var modified: DocumentDate?
}

/// The contents that a home keeps until the server has them: each a file, called after its version.
struct ContentFolder: Sendable {
    private static let pieceBytes = 1 << 20
    /// Bytes of a content's manifest nodes, at most: of one of 100 GB. They wait in the database.
    static let nodeBytesMax = 16 << 20
    /// Chunks of a content that one list of them is kept of, at most.
    static let chunksMax = nodeBytesMax / ManifestNode.childBytes
    /// Bytes of a content, at most: beyond, the shortest list of its chunks is too long.
    static let bytesMax = nodeBytesMax / ManifestNode.childBytes * BulkLimits.chunkBytesMax
    private static let defaultPart: UInt64 = 8
    /// How many bytes are copied before it is looked again how much is left.
    static let lookBytes = 64 << 20

    let path: String
    private var lockFile: String { path + ".lock" }
    /// From so many on, contents are flushed with all of the file system that they are on.
    private static let flushedSinglyMax = 4

    /// - Throws: ``CloudError`` `.storageFailure`: what has no folder keeps no files.
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

    /// Whether the copy's file is there, as long as it was.
    func holds(_ copy: LocalCopy) -> Bool {
        var status = stat()
        return lstat(file(copy.file), &status) == 0 && status.st_mode & S_IFMT == S_IFREG
            && UInt64(max(0, status.st_size)) == copy.length
    }

    /// Whether its bytes are here as they were: of what is to be relied on the length says too little.
    func holdsWhole(_ copy: LocalCopy) -> Bool {
        guard holds(copy) else { return false }
        let descriptor = open(file(copy.file), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: BulkLimits.chunkBytesMax, alignment: 16)
        defer { buffer.deallocate() }
        var offset = 0
        for chunk in copy.chunks {
            guard Self.read(chunk, at: offset, of: descriptor, into: buffer) != nil else { return false }
            offset += chunk.length
        }
        return true
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

    /// Keeps what comes piece by piece.
    ///
    /// - Parameters:
    ///   - length: How much there will be.
    ///   - next: Fills the buffer as far as there is something; 0: that was all.
    func stage(
        length: Int, version: DocumentID, modified: Int64, _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> StagedContent {
        guard length <= DocumentLimits.inlineBytesMax else {
            return try copy(length, to: version, modified: modified, next)
        }
        var data = Data(count: length)
        var filled = 0
        while filled < length {
            let count = try data.withUnsafeMutableBytes {
                try next(UnsafeMutableRawBufferPointer(rebasing: $0[filled...]))
            }
            if count == 0 { break }
            filled += count
        }
        return StagedContent(
            version: version, length: UInt64(filled), inline: data.prefix(filled), modified: modified)
    }

    /// Keeps a short content as a file. Its bytes are in the home already: a disk that is nearly full keeps nobody from
    /// hearing that they were refused.
    func keep(_ data: Data, version: DocumentID) throws {
        var isDone = false
        let content = try copy(data.count, to: version, modified: 0, keepsReserve: false) { buffer in
            defer { isDone = true }
            return isDone ? 0 : data.copyBytes(to: buffer)
        }
        try flush([content])
    }

    /// Flushes what was staged: after that it survives whatever happens. To be called before the database knows of it.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    func flush(_ contents: [StagedContent]) throws(CloudError) {
        let files = contents.filter { $0.inline == nil }.map { file($0.version) }
        guard !files.isEmpty else { return }
        for file in files.count <= Self.flushedSinglyMax ? files + [path] : [] {
            try Self.flush(file) { fsync($0) == 0 ? 0 : errno }
        }
        if files.count > Self.flushedSinglyMax { try Self.flush(path) { FileSystem.flush($0) } }
    }

    /// Gives a file that is here another name besides: its bytes stay as long as either does.
    ///
    /// - Returns: False: it is gone, or its file system has one name for a file.
    func link(_ file: DocumentID, as version: DocumentID) -> Bool {
        Foundation.link(self.file(file), self.file(version)) == 0 || errno == EEXIST
    }

    /// Flushes which names there are.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    func flushNames() throws(CloudError) { try Self.flush(path) { fsync($0) == 0 ? 0 : errno } }

    static func flush(_ name: String, _ body: (Int32) -> Int32) throws(CloudError) {
        let descriptor = open(name, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(name) }
        defer { close(descriptor) }
        let number = body(descriptor)
        guard number != 0 else { return }
        errno = number
        throw failure(name)
    }

    /// Copies a file; what is too long to go with its request is not flushed yet.
    ///
    /// - Parameters:
    ///   - place: A file; where it leads if it is a link.
    ///   - onRead: Gets the bytes of each piece of a long one that was copied.
    /// - Throws: ``CloudError`` `.constraintViolation` when it changes while it is read; `.limitExceeded` when it is too
    ///   long; `.unknownItem`, `.permissionFailure`, `.storageFailure` of files, also when the home's disk has no room.
    func stage(
        file place: LocalPath, version: DocumentID, onRead: (Int) -> Void = { _ in }
    ) throws -> StagedContent {
        let source = place.text
        let descriptor = place.withCString { path in
            FileSystem.openUnnoticed { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | $0) }
        }
        guard descriptor >= 0 else { throw Self.failure(source) }
        defer { close(descriptor) }
        var before = stat()
        guard fstat(descriptor, &before) == 0 else { throw Self.failure(source) }
        let hasStamp = FileStamp(before).isSettled(at: FileStamp.now) && FileSystem.settle(descriptor)
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
                onRead(count)
                return count
            }
        }
        staged.attributes = try ExtendedAttributes.kept(of: descriptor, source)
        var after = stat()
        // The time of the last change of any kind too: whoever writes may set the other one back.
        let isSame =
            fstat(descriptor, &after) == 0 && FileStamp(after) == FileStamp(before)
            && staged.length == UInt64(max(0, before.st_size))
        guard isSame else {
            if staged.inline == nil { unlink(file(version)) }
            throw CloudError(
                .constraintViolation, "The file was written while it was read. Put it again once that has ended.",
                details: ["file": source])
        }
        staged.modified = FileStamp(before).modified
        staged.stamp = hasStamp ? FileStamp(before) : nil
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

    static func tooLong(_ bytes: Int) -> CloudError {
        CloudError(.limitExceeded, "The content is too long. Divide the file.", details: ["bytes": "\(bytes)"])
    }

    var disk: LocalDisk? { LocalDisk(at: path) }

    /// Bytes of copies that may stay in a home: what was set or is the rule, and never so many that the disk has no room
    /// for its database.
    ///
    /// - Parameters:
    ///   - setting: What somebody has set; nil: nobody has.
    ///   - byDefault: The rule then; it is at most an eighth of what the disk has left, with what is here.
    ///   - held: Bytes of copies that are here.
    func bound(of setting: UInt64?, byDefault: UInt64, held: UInt64) -> UInt64 {
        guard setting != 0 else { return 0 }
        guard let disk else { return setting ?? byDefault }
        let available = disk.free.addingReportingOverflow(held).partialValue
        let bound = setting ?? min(byDefault, available / Self.defaultPart)
        return min(bound, available > disk.reserve ? available - disk.reserve : 0)
    }

    /// - Throws: ``CloudError`` `.storageFailure`: with so many bytes more the disk of the home would be as good as full.
    func requireRoom(for bytes: Int) throws(CloudError) {
        try disk?.requireRoom(forCopies: bytes)
    }

    /// - Parameters:
    ///   - bytes: How many there will be, as far as that is known.
    ///   - next: Fills the buffer as far as there is something; 0: that was all.
    private func copy(
        _ bytes: Int, to version: DocumentID, modified: Int64, keepsReserve: Bool = true,
        _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> StagedContent {
        var staging = try ContentStaging(self, version, bytes: bytes, keepsReserve: keepsReserve)
        do {
            // Of a short one no more is taken than it needs: each page of it has to be cleared first.
            let room = bytes > 0 ? min(bytes, Self.pieceBytes) : Self.pieceBytes
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: room, alignment: 16)
            defer { buffer.deallocate() }
            while true {
                let count = try next(buffer)
                if count == 0 { return try staging.finish(modified: modified) }
                try staging.take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            }
        } catch {
            staging.cancel()
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

    /// What the system's last error says of a file.
    static func failure(_ file: String) -> CloudError {
        let number = errno
        let details = ["file": file, "reason": String(cString: strerror(number))]
        switch number {
        case ENOENT, ENOTDIR: return CloudError(.unknownItem, "There is no such file.", details: details)
        case ENAMETOOLONG:
            return CloudError(
                .limitExceeded, "The file's name or path is too long for this disk. Choose a shorter one.",
                details: details)
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

    /// Makes a file that is written in any order, or opens it as far as it was written.
    ///
    /// - Returns: Its descriptor.
    /// - Throws: ``CloudError`` of files, and as ``make()`` does.
    func create(_ version: DocumentID) throws(CloudError) -> Int32 {
        try make()
        let descriptor = open(file(version), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.failure(file(version)) }
        return descriptor
    }

    /// Writes a copy or a part of it, chunk by chunk. Nothing is written that is not what it was.
    ///
    /// - Parameter range: Within the content's length.
    /// - Returns: What it came to; some of it may be written in any case.
    func copy(_ copy: LocalCopy, _ range: Range<Int>, to sink: any ContentSink) throws -> CopyOutcome {
        let descriptor = open(file(copy.file), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return errno == ENOENT && isThere ? .damaged : .unreadable }
        defer { close(descriptor) }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: BulkLimits.chunkBytesMax, alignment: 16)
        defer { buffer.deallocate() }
        var offset = 0
        for chunk in copy.chunks where offset < range.upperBound {
            let place = offset..<offset + chunk.length
            offset = place.upperBound
            let part = place.clamped(to: range)
            guard !part.isEmpty else { continue }
            guard let bytes = Self.read(chunk, at: place.lowerBound, of: descriptor, into: buffer) else {
                return .damaged
            }
            let piece = bytes[part.lowerBound - place.lowerBound..<part.upperBound - place.lowerBound]
            try sink.write(UnsafeRawBufferPointer(rebasing: piece), at: part.lowerBound)
        }
        return offset >= range.upperBound ? .written : .damaged
    }

    /// What became of reading a copy.
    enum CopyOutcome {
        case written
        /// It is gone, or not what it was.
        case damaged
        /// It cannot be read in this moment: too many files may be open.
        case unreadable
    }

    /// - Parameter buffer: Has room for any chunk.
    /// - Returns: The chunk; nil: it is not there.
    static func read(
        _ chunk: CutChunk, at offset: Int, of descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer
    ) -> UnsafeRawBufferPointer? {
        guard chunk.length <= buffer.count else { return nil }
        var filled = 0
        while filled < chunk.length {
            let count = pread(
                descriptor, buffer.baseAddress.map { $0 + filled }, chunk.length - filled, off_t(offset + filled))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return nil }
            filled += count
        }
        let bytes = UnsafeRawBufferPointer(rebasing: buffer[..<chunk.length])
        return ChunkID(hashing: bytes) == chunk.id ? bytes : nil
    }

    /// Gives a content that is here a second name, under which it stays whatever becomes of the first.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`, `.unknownItem`: it is gone.
    func duplicate(_ version: DocumentID, as other: DocumentID) throws {
        guard !link(version, as: other) else { return }
        // Not every file system has two names for one file.
        guard [EPERM, EOPNOTSUPP, EMLINK].contains(errno) else { throw Self.failure(file(version)) }
        do { try FileManager.default.copyItem(atPath: file(version), toPath: file(other)) } catch {
            throw Self.failure(file(version))
        }
        try Self.flush(file(other)) { fsync($0) == 0 ? 0 : errno }
    }

    // MARK: Removing

    func remove(_ version: DocumentID) { unlink(file(version)) }

    func remove(_ source: StagedSource) {
        if let content = source.content, content.inline == nil { remove(content.version) }
    }

    /// Removes what a process has left behind that was ended: files that the database does not know of. Nothing where
    /// somebody stages: one of the files may be theirs.
    ///
    /// - Parameter readNeeded: Reads what the database knows of.
    /// - Returns: False: somebody does, or the folder is elsewhere for now, so that it has to be done later.
    @discardableResult
    func sweep(_ readNeeded: () throws -> Set<DocumentID>) rethrows -> Bool {
        guard !isAway else { return false }
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path), !names.isEmpty else {
            return true
        }
        // In this order: what was there before is nobody's then, or in the database.
        guard isUnclaimed else { return false }
        let needed = try readNeeded()
        for name in names {
            let base = name.hasSuffix(".part") ? String(name.dropLast(5)) : name
            guard let version = DocumentID(base), base != name || !needed.contains(version) else { continue }
            unlink(path + "/" + name)
        }
        return true
    }
}
