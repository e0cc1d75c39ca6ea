internal import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// The calls to the disk, by name, so that a test can make each fail.
enum DiskCall: String, Sendable {
    case create, read, write, flush, cut, remove, syncFolder = "sync_folder"
}

/// Fails a call: the error number it ends with, or 0.
typealias DiskFaults = @Sendable (DiskCall) -> Int32

/// One open file of a segment. It is closed when nobody holds it any more: so a reader ends in peace, also when the
/// file was removed meanwhile, or had to make room for another open one.
final class SegmentFile: Sendable {
    let isWritable: Bool
    private let descriptor: Int32
    private let faults: DiskFaults

    /// - Throws: ``DiskFailure``.
    init(_ path: String, flags: Int32, _ faults: @escaping DiskFaults) throws {
        if flags & O_CREAT != 0 { try DiskFailure.check(faults(.create)) }
        descriptor = open(path, flags | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DiskFailure(number: errno) }
        isWritable = flags & O_ACCMODE == O_RDWR
        self.faults = faults
    }

    deinit { close(descriptor) }

    func status() throws -> (length: Int, isRemoved: Bool) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw DiskFailure(number: errno) }
        return (Int(status.st_size), status.st_nlink == 0)
    }

    func isFile(_ other: stat) throws -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw DiskFailure(number: errno) }
        return status.st_ino == other.st_ino && status.st_dev == other.st_dev
    }

    /// - Returns: How many bytes were read: fewer only where the file ends.
    func read(into bytes: UnsafeMutableRawBufferPointer, at offset: Int) throws -> Int {
        try DiskFailure.check(faults(.read))
        var done = 0
        while done < bytes.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: bytes[done...])
            let count = pread(descriptor, rest.baseAddress, rest.count, off_t(offset + done))
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw DiskFailure(number: errno) }
            if count == 0 { break }
            done += count
        }
        return done
    }

    /// A record's header and sealed bytes, in one call where the system gives all at once.
    ///
    /// - Returns: Whether the file has so many.
    func read(
        header: UnsafeMutableRawBufferPointer, payload: UnsafeMutableRawBufferPointer, at offset: Int
    ) throws -> Bool {
        try DiskFailure.check(faults(.read))
        var parts = [
            iovec(iov_base: header.baseAddress, iov_len: header.count),
            iovec(iov_base: payload.baseAddress, iov_len: payload.count),
        ]
        let count = preadv(descriptor, &parts, Int32(parts.count), off_t(offset))
        if count < 0 && errno != EINTR { throw DiskFailure(number: errno) }
        if count == header.count + payload.count { return true }
        return try read(into: header, at: offset) == header.count
            && read(into: payload, at: offset + header.count) == payload.count
    }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        try DiskFailure.check(faults(.write))
        var done = 0
        while done < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
            let count = pwrite(descriptor, rest.baseAddress, rest.count, off_t(offset + done))
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw DiskFailure(number: count < 0 ? errno : EIO) }
            done += count
        }
    }

    /// Returns when the bytes, and the length they need, survive a loss of power.
    func flush() throws {
        try DiskFailure.check(faults(.flush))
        // Not again when it was interrupted or failed: the second call may succeed with the pages lost.
        guard fdatasync(descriptor) == 0 else { throw DiskFailure(number: errno) }
    }

    func cut(to length: Int) throws {
        try DiskFailure.check(faults(.cut))
        guard ftruncate(descriptor, off_t(length)) == 0 else { throw DiskFailure(number: errno) }
    }
}

/// A call to the disk that failed.
struct DiskFailure: Error {
    /// The system's `errno`.
    let number: Int32

    static func check(_ number: Int32) throws {
        if number != 0 { throw DiskFailure(number: number) }
    }

    /// What it means to a caller. Whether something was stored is the store's promise: nothing was.
    var cloudError: CloudError {
        var error: CloudError =
            switch number {
            case ENOSPC, EDQUOT, EFBIG:
                .diskFull
            case EROFS, EACCES, EPERM, ENOENT, ENOTDIR:
                CloudError(
                    .storageFailure,
                    "The folder of the content cannot be written. It must exist and belong to the service's user.")
            case EMFILE, ENFILE:
                CloudError(.storageFailure, "Too many files are open; nothing was stored. Raise the limit.")
            default:
                CloudError(.storageFailure, "The content could not be read or written; nothing was stored.")
            }
        error.details["errno"] = String(number)
        return error
    }

    /// Runs the body; a failure of the disk comes out as the ``CloudError`` that it means.
    static func translated<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let failure as DiskFailure { throw failure.cloudError }
    }
}
