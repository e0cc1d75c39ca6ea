public import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Holds a file for one process. The system releases it with the process, so a crash leaves none behind.
public final class FileLock: Sendable {
    private let descriptor: Int32

    /// Makes the file if it is not there, readable by its owner only.
    ///
    /// - Parameters:
    ///   - unusable: What is thrown when the file cannot be opened; gets the system's `errno`.
    ///   - held: What is thrown when another process holds it.
    public init(_ path: String, unusable: (Int32) -> CloudError, held: CloudError) throws(CloudError) {
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw unusable(errno) }
        // Closed by `deinit`, which runs also for what was not made to the end.
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { throw held }
    }

    /// Given back by its name, not only by closing: a program that is being started at this moment has the descriptor
    /// too, until it begins.
    deinit {
        guard descriptor >= 0 else { return }
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }
}
