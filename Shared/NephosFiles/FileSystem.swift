private import CFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// What is flushed as a whole.
public enum FileSystem {
    /// Flushes all of the file system that the file is on. Needs Linux 5.8 or newer to say what could not be written.
    ///
    /// - Returns: 0, or the system's `errno`.
    public static func flush(_ descriptor: Int32) -> Int32 { syncfs(descriptor) == 0 ? 0 : errno }
}
