#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Holds a file for one process. The system releases it with the process, so a crash leaves none behind.
public final class FileLock: Sendable {
    /// Why a file is not held.
    public enum Failure: Error {
        /// Another one holds it, of this process or another.
        case held
        /// It cannot be opened or locked, with the system's `errno`.
        case unusable(Int32)
    }

    private let descriptor: Int32

    /// Makes the file if it is not there, readable by its owner only.
    ///
    /// - Parameters:
    ///   - path: Not followed when it is a link, which somebody else may have made.
    ///   - isShared: Whether others may hold it so at the same time.
    public init(_ path: String, isShared: Bool = false) throws(Failure) {
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .unusable(errno) }
        // Closed by `deinit`, which runs also for what was not made to the end.
        guard flock(descriptor, (isShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 else {
            throw errno == EWOULDBLOCK || errno == EINTR ? .held : .unusable(errno)
        }
    }

    /// Given back by its name, not only by closing: a program that is being started at this moment has the descriptor
    /// too, until it begins.
    deinit {
        guard descriptor >= 0 else { return }
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }
}
