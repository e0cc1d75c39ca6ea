private import CNephosFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// A name in a folder: bytes without `/` and NUL.
public typealias FileName = [UInt8]

/// The metadata of a file, folder or link; a link is not followed.
public struct FileFacts: Hashable, Sendable {
    public enum Kind: Int, Sendable {
        case file, folder, link
        /// A FIFO, socket or device.
        case special
    }

    public var kind: Kind
    public var inode: UInt64
    /// When it was made, in nanoseconds since 1970; 0: the file system does not say. An inode with its birth names
    /// one file, though the number is used again after the file is removed.
    public var born: Int64
    public var size: Int64
    /// When its content was last written, in nanoseconds since 1970. Programs may set it.
    public var modified: Int64
    /// When anything of it was last changed, in nanoseconds since 1970. No program can set it back.
    public var changed: Int64
    public var isExecutable: Bool
    /// Names that the file has.
    public var linkCount: Int
    public var device: UInt64
    /// Differs where another file system is mounted; 0: unknown.
    public var mount: UInt64

    public init(
        kind: Kind, inode: UInt64, born: Int64, size: Int64, modified: Int64, changed: Int64,
        isExecutable: Bool = false,
        linkCount: Int = 1, device: UInt64 = 0, mount: UInt64 = 0
    ) {
        (self.kind, self.inode, self.born, self.size) = (kind, inode, born, size)
        (self.modified, self.changed, self.isExecutable) = (modified, changed, isExecutable)
        (self.linkCount, self.device, self.mount) = (linkCount, device, mount)
    }

    fileprivate init(_ facts: file_facts) {
        switch mode_t(facts.mode) & S_IFMT {
        case S_IFREG: kind = .file
        case S_IFDIR: kind = .folder
        case S_IFLNK: kind = .link
        default: kind = .special
        }
        (inode, born, size) = (facts.inode, facts.born, Int64(clamping: facts.size))
        (modified, changed) = (facts.modified, facts.changed)
        isExecutable = mode_t(facts.mode) & S_IXUSR != 0
        linkCount = Int(facts.links)
        (device, mount) = (facts.device, facts.mount)
    }
}

/// Why the system did not do it.
public struct FileFailure: Error, Hashable, Sendable {
    /// The system's `errno`.
    public var number: Int32
    /// The system's sentence.
    public var reason: String { String(cString: strerror(number)) }

    public init(_ number: Int32) { self.number = number }
    /// The last failure of a system call.
    public init() { number = errno }

    /// There is nothing of that name. It says so only of a folder that could be looked into.
    public var isAbsence: Bool { number == ENOENT }
}

/// A folder that is held open. All work is beneath it: whatever is mounted or moved over its path meanwhile, no call
/// reaches another folder, and no link is followed.
public final class HeldFolder: Sendable {
    public let descriptor: Int32

    /// Takes an open descriptor, which is closed with this.
    public init(owning descriptor: Int32) { self.descriptor = descriptor }

    /// Opens a folder by its path; links on the way are followed.
    public convenience init(path: String) throws(FileFailure) {
        let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw FileFailure() }
        self.init(owning: descriptor)
    }

    deinit { close(descriptor) }

    /// Opens a folder beneath this one.
    ///
    /// - Parameter path: Names; none: this folder.
    /// - Throws: ``FileFailure`` `EXDEV` where another file system is mounted, `ELOOP` for a link, `ENOTDIR` for a file.
    public func folder(_ path: [FileName]) throws(FileFailure) -> HeldFolder {
        HeldFolder(owning: try openBeneath(path, O_RDONLY | O_DIRECTORY))
    }

    /// Opens a file of this folder for reading. A FIFO is not waited for.
    public func openFile(_ name: FileName) throws(FileFailure) -> Int32 {
        try openBeneath([name], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
    }

    /// The beginning of a file's content.
    ///
    /// - Throws: ``FileFailure``, also `EINVAL` for something that is not a file.
    public func content(of name: FileName, bytesMax: Int) throws(FileFailure) -> [UInt8] {
        let descriptor = try openFile(name)
        defer { close(descriptor) }
        guard try Self.facts(of: descriptor).kind == .file else { throw FileFailure(EINVAL) }
        var bytes = [UInt8](repeating: 0, count: bytesMax)
        var length = 0
        while length < bytesMax {
            let count = bytes.withUnsafeMutableBytes {
                read(descriptor, $0.baseAddress.map { $0 + length }, bytesMax - length)
            }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw FileFailure() }
            guard count > 0 else { break }
            length += count
        }
        return Array(bytes[..<length])
    }

    /// Makes a file and opens it for writing and reading.
    ///
    /// - Throws: ``FileFailure`` `EEXIST` when the name is taken.
    public func makeFile(_ name: FileName, mode: UInt32) throws(FileFailure) -> Int32 {
        try openBeneath([name], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode)
    }

    /// Makes a file with a content, and flushes it.
    ///
    /// - Parameter prepare: Changes the open file before it is flushed.
    /// - Throws: ``FileFailure`` `EEXIST` when the name is taken. If anything else fails, the file is removed.
    public func makeFile(
        _ name: FileName, mode: UInt32, with content: [UInt8], prepare: (_ descriptor: Int32) throws -> Void = { _ in }
    ) throws {
        let descriptor = try makeFile(name, mode: mode)
        defer { close(descriptor) }
        do {
            guard write(descriptor, content, content.count) == content.count else { throw FileFailure(ENOSPC) }
            try prepare(descriptor)
            guard fsync(descriptor) == 0 else { throw FileFailure() }
        } catch {
            removeAll(name)
            throw error
        }
    }

    private func openBeneath(_ path: [FileName], _ flags: Int32, _ mode: UInt32 = 0) throws(FileFailure) -> Int32 {
        let bytes = path.isEmpty ? [UInt8(ascii: ".")] : Array(path.joined(separator: [UInt8(ascii: "/")]))
        while true {
            let result = Self.withName(bytes) { name in
                flags & O_CREAT != 0
                    ? open_beneath(descriptor, name, flags | O_CLOEXEC, mode)
                    : FileSystem.openUnnoticed { open_beneath(descriptor, name, flags | O_CLOEXEC | $0, mode) }
            }
            if result >= 0 { return result }
            // Something on the way was renamed in this moment.
            guard errno == EAGAIN || errno == EINTR else { throw FileFailure() }
        }
    }

    /// The metadata of a name; with an empty name, of the folder itself.
    public func facts(_ name: FileName = []) throws(FileFailure) -> FileFacts {
        var facts = file_facts()
        guard Self.withName(name, { file_facts_at(descriptor, $0, &facts) }) == 0 else { throw FileFailure() }
        return FileFacts(facts)
    }

    /// The metadata of an open file.
    public static func facts(of descriptor: Int32) throws(FileFailure) -> FileFacts {
        var facts = file_facts()
        guard file_facts_at(descriptor, "", &facts) == 0 else { throw FileFailure() }
        return FileFacts(facts)
    }

    /// Whether a program has the open file open for writing. False where the file system cannot say.
    ///
    /// - Parameter descriptor: Open for reading alone.
    public static func isWritten(_ descriptor: Int32) -> Bool {
        _ = ignoresLeaseSignal
        return is_open_for_writing(descriptor) != 0
    }

    /// A program that opens the file while the lease is held makes the kernel send SIGIO, which would end this process.
    private static let ignoresLeaseSignal: Void = { signal(SIGIO, SIG_IGN) }()

    /// The names in the folder, in no order. All of them, or a failure.
    public func names() throws(FileFailure) -> [FileName] {
        let copy = try openBeneath([], O_RDONLY | O_DIRECTORY)
        guard let entries = fdopendir(copy) else {
            let failure = FileFailure()
            close(copy)
            throw failure
        }
        defer { closedir(entries) }
        var names: [FileName] = []
        while true {
            errno = 0
            guard let entry = readdir(entries) else { break }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name != [UInt8(ascii: ".")], name != [UInt8(ascii: "."), UInt8(ascii: ".")] { names.append(name) }
        }
        guard errno == 0 else { throw FileFailure() }
        return names
    }

    /// Where a link leads.
    public func linkTarget(_ name: FileName) throws(FileFailure) -> [UInt8] {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = Self.withName(name) { readlinkat(descriptor, $0, &buffer, buffer.count) }
        guard count >= 0 else { throw FileFailure() }
        return buffer[..<count].map { UInt8(bitPattern: $0) }
    }

    public func makeLink(_ name: FileName, to target: [UInt8]) throws(FileFailure) {
        try Self.check(name)
        try check(Self.withName(name) { name in Self.withName(target) { symlinkat($0, descriptor, name) } })
    }

    public func makeFolder(_ name: FileName, mode: UInt32 = 0o777) throws(FileFailure) {
        try Self.check(name)
        try check(Self.withName(name) { mkdirat(descriptor, $0, mode) })
    }

    /// How a rename treats what has the new name.
    public enum Replacing: UInt32, Sendable {
        /// Replaces a file.
        case yes = 0
        /// Throws `EEXIST`.
        case no = 1
        /// Exchanges the two.
        case exchange = 2
    }

    /// Renames something into this or another folder of the same file system.
    public func move(
        _ name: FileName, to folder: HeldFolder, as other: FileName, replacing: Replacing = .no
    ) throws(FileFailure) {
        try Self.check(name, other)
        try check(
            Self.withName(name) { name in
                Self.withName(other) { rename_beneath(descriptor, name, folder.descriptor, $0, replacing.rawValue) }
            })
    }

    public func removeFile(_ name: FileName) throws(FileFailure) {
        try Self.check(name)
        try check(Self.withName(name) { unlinkat(descriptor, $0, 0) })
    }

    /// Removes an empty folder.
    ///
    /// - Throws: ``FileFailure`` `ENOTEMPTY`.
    public func removeFolder(_ name: FileName) throws(FileFailure) {
        try Self.check(name)
        try check(Self.withName(name) { unlinkat(descriptor, $0, AT_REMOVEDIR) })
    }

    /// Removes a file, or a folder with everything in it. Another file system that is mounted inside stays.
    public func removeAll(_ name: FileName) { removeAll(name, depth: 0) }

    private func removeAll(_ name: FileName, depth: Int) {
        if (try? removeFile(name)) != nil { return }
        guard depth < Self.depthMax, let folder = try? folder([name]) else { return }
        for inner in (try? folder.names()) ?? [] { folder.removeAll(inner, depth: depth + 1) }
        try? removeFolder(name)
    }

    /// One folder is open for each level.
    private static let depthMax = 256

    /// Flushes the names in the folder.
    public func flush() throws(FileFailure) { try check(fsync(descriptor)) }

    /// No name leads out of the folder.
    private static func check(_ names: FileName...) throws(FileFailure) {
        for name in names {
            guard !name.isEmpty, name != [UInt8(ascii: ".")], name != [UInt8(ascii: "."), UInt8(ascii: ".")],
                !name.contains(UInt8(ascii: "/")), !name.contains(0)
            else { throw FileFailure(EINVAL) }
        }
    }

    private func check(_ result: Int32) throws(FileFailure) { guard result == 0 else { throw FileFailure() } }

    private static func withName<Result>(_ name: [UInt8], _ body: (UnsafePointer<CChar>) -> Result) -> Result {
        let characters = ContiguousArray(name.map { CChar(bitPattern: $0) } + [0])
        return characters.withUnsafeBufferPointer { body($0.baseAddress.unsafelyUnwrapped) }
    }
}
