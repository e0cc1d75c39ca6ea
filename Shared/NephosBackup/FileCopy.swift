internal import Crypto
internal import Foundation
internal import NephosCore

/// Bytes of files as a backup moves them: hashed, flushed, and looked at whether to go on.
enum FileCopy {
    /// Read and written at once.
    static let pieceBytes = 1 << 20

    /// An open file, closed with its value.
    final class Opened {
        let descriptor: Int32
        let path: String

        /// No link is followed: whoever may write to the folder could have root read or write anything by one.
        init(_ path: String, _ flags: Int32) throws(CloudError) {
            self.path = path
            descriptor = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { throw FileCopy.failure(path) }
        }

        /// - Parameter descriptor: Is closed with it.
        init(_ descriptor: Int32, _ path: String) {
            self.descriptor = descriptor
            self.path = path
        }

        deinit { if descriptor >= 0 { close(descriptor) } }

        /// Nil: it has not so many, or they cannot be read.
        func bytes(in range: Range<Int>) -> [UInt8]? {
            var bytes = [UInt8](repeating: 0, count: range.count)
            var place = 0
            while place < bytes.count {
                let got = bytes.withUnsafeMutableBytes {
                    pread(
                        descriptor, $0.baseAddress?.advanced(by: place), range.count - place,
                        off_t(range.lowerBound + place))
                }
                if got < 0, errno == EINTR { continue }
                guard got > 0 else { return nil }
                place += got
            }
            return bytes
        }
    }

    /// The system's `errno` as an error that names the file.
    static func failure(_ path: String, _ number: Int32 = errno) -> CloudError {
        let details = ["file": path, "reason": String(cString: strerror(number))]
        return switch number {
        case EACCES, EPERM:
            CloudError(.permissionFailure, "This user may not use a file. Check its owner and mode.", details: details)
        case ENOSPC, EDQUOT, EFBIG:
            CloudError(.storageFailure, "The disk is full. Make room, and run this again.", details: details)
        case EROFS: CloudError(.storageFailure, "The disk is read-only.", details: details)
        case EIO: CloudError(.storageFailure, "The disk cannot read or write a file.", details: details)
        case ENOENT: CloudError(.storageFailure, "A file is missing.", details: details)
        case ELOOP, EMLINK:
            CloudError(
                .storageFailure,
                "A link lies where a file or folder of its own has to be. It was not followed: look who has put it there.",
                details: details)
        default: CloudError(.storageFailure, "A file cannot be read or written.", details: details)
        }
    }

    /// Copies the first bytes of a file. When it returns, the copy's bytes survive a loss of power; its name does not
    /// yet (``sync(_:)``).
    ///
    /// - Parameters:
    ///   - target: Open for writing, and empty.
    ///   - went: Called after each piece with its bytes; what it throws ends the copying.
    /// - Returns: Their SHA-256, in hex; nil: the file is shorter.
    static func copy(
        _ source: String, first count: Int, to target: Opened, went: (Int) throws -> Void
    ) throws -> String? {
        let hash = try read(source, first: count, went: went) { try write($0, to: target) }
        guard let hash else { return nil }
        guard fsync(target.descriptor) == 0 else { throw failure(target.path) }
        return hash
    }

    static func write(_ bytes: UnsafeRawBufferPointer, to file: Opened) throws {
        var rest = bytes
        while !rest.isEmpty {
            let count = Foundation.write(file.descriptor, rest.baseAddress, rest.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw failure(file.path) }
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        }
    }

    /// Hashes the first bytes of a file as they are on the disk, as far as the system lets one ask for that.
    ///
    /// - Returns: Their SHA-256, in hex; nil: the file is shorter.
    static func hash(_ path: String, first count: Int, went: (Int) throws -> Void) throws -> String? {
        try read(path, first: count, isFromDisk: true, went: went) { _ in }
    }

    private static func read(
        _ path: String, first count: Int, isFromDisk: Bool = false, went: (Int) throws -> Void,
        _ take: (UnsafeRawBufferPointer) throws -> Void
    ) throws -> String? {
        var sum = SHA256()
        let file = try Opened(path, O_RDONLY)
        if isFromDisk { posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED) }
        posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_SEQUENTIAL)
        var place = 0
        var buffer = [UInt8](repeating: 0, count: pieceBytes)
        while place < count {
            let end = min(count, place + pieceBytes)
            let got = buffer.withUnsafeMutableBytes {
                pread(file.descriptor, $0.baseAddress, end - place, off_t(place))
            }
            if got < 0, errno == EINTR { continue }
            guard got >= 0 else { throw failure(path) }
            guard got > 0 else { return nil }
            try buffer.withUnsafeBytes {
                let got = UnsafeRawBufferPointer(rebasing: $0[..<got])
                sum.update(bufferPointer: got)
                try take(got)
            }
            place += got
            try went(got)
        }
        return hex(sum.finalize())
    }

    /// All of a small file. Nothing that lies in a folder of backups is taken into memory as a whole but by this.
    ///
    /// - Parameter max: How many bytes it may have.
    /// - Throws: ``CloudError``: it cannot be read, is none, or has more.
    static func contents(of path: String, max: Int) throws -> Data {
        // Without waiting: a pipe has no bytes until somebody writes to it.
        let file = try Opened(path, O_RDONLY | O_NONBLOCK)
        var information = stat()
        guard fstat(file.descriptor, &information) == 0 else { throw failure(path) }
        guard information.st_mode & S_IFMT == S_IFREG, information.st_size <= max else {
            throw CloudError(
                .storageFailure, "What should be a small file is none, or is far too long. Copy it from another copy.",
                details: ["file": path])
        }
        var bytes = [UInt8](repeating: 0, count: Int(information.st_size))
        var place = 0
        while place < bytes.count {
            let rest = bytes.count - place
            let got = bytes.withUnsafeMutableBytes {
                pread(file.descriptor, $0.baseAddress?.advanced(by: place), rest, off_t(place))
            }
            if got < 0, errno == EINTR { continue }
            guard got >= 0 else { throw failure(path) }
            guard got > 0 else { break }
            place += got
        }
        return Data(bytes.prefix(place))
    }

    /// Bytes of a file; nil: there is none, or something else.
    static func byteCount(_ path: String) -> Int? {
        var information = stat()
        guard lstat(path, &information) == 0, information.st_mode & S_IFMT == S_IFREG else { return nil }
        return Int(information.st_size)
    }

    /// Bytes of all files in a folder, at any depth; 0: there is none.
    static func treeBytes(_ folder: String) -> Int {
        guard !isLink(folder) else { return 0 }
        return (FileManager.default.enumerator(atPath: folder)?.allObjects as? [String] ?? [])
            .reduce(0) { $0 + (byteCount(folder + "/" + $1) ?? 0) }
    }

    /// Whether a link lies there, wherever it leads.
    static func isLink(_ path: String) -> Bool {
        var information = stat()
        return lstat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFLNK
    }

    /// Makes the names in a folder survive a loss of power.
    static func sync(_ folder: String) throws {
        let opened = try Opened(folder, O_RDONLY | O_DIRECTORY)
        guard fsync(opened.descriptor) == 0 else { throw failure(folder) }
    }

    /// Flushes a file that somebody else has written.
    static func flush(_ path: String) throws {
        let opened = try Opened(path, O_RDONLY)
        guard fsync(opened.descriptor) == 0 else { throw failure(path) }
    }

    /// Makes a folder, and those above it, where they are not there.
    ///
    /// - Throws: ``CloudError``; also where a link lies in its place.
    static func makeFolder(_ path: String) throws {
        guard !isLink(path) else { throw failure(path, ELOOP) }
        do {
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw CloudError(
                .storageFailure, "A folder cannot be made. Check its owner and space.", details: ["folder": path])
        }
    }

    static func rename(_ source: String, to target: String) throws {
        guard Foundation.rename(source, target) == 0 else { throw failure(target) }
    }

    /// Bytes that may be used on the disk of the folder, or of the first folder above it that is there.
    static func freeBytes(at folder: String) -> Int? {
        var path = folder
        var figures = statvfs()
        while statvfs(path, &figures) != 0 {
            guard errno == ENOENT, path.count > 1 else { return nil }
            path = (path as NSString).deletingLastPathComponent
        }
        return Int(clamping: UInt64(figures.f_bavail) * UInt64(figures.f_frsize))
    }

    /// Room that stays free beside what is written: 16 MiB.
    static let marginBytes = 16 << 20

    /// The detail by which an error says that there is no room.
    static let neededBytes = "needed_bytes"

    /// - Throws: ``CloudError`` `.storageFailure`, with the detail ``neededBytes``.
    static func requireRoom(for bytes: Int, at folder: String) throws {
        guard let free = freeBytes(at: folder), free - marginBytes < bytes else { return }
        throw CloudError(
            .storageFailure,
            "There is not enough room on the disk; nothing was copied. Make room, or use another disk.",
            details: ["folder": folder, neededBytes: "\(bytes + marginBytes)", "free_bytes": "\(free)"])
    }

    /// The path without links, as far as it is there.
    static func resolved(_ path: String) -> String {
        let path = URL(fileURLWithPath: path).standardizedFileURL.path
        var rest: [String] = []
        var head = path
        while head.count > 1 {
            if let real = realpath(head, nil) {
                defer { free(real) }
                return ([String(cString: real)] + rest).joined(separator: "/")
            }
            rest.insert((head as NSString).lastPathComponent, at: 0)
            head = (head as NSString).deletingLastPathComponent
        }
        return path
    }
}
