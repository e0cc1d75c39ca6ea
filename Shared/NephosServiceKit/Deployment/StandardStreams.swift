#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// Descriptors 0 to 2, which whoever starts a program may have closed.
public enum StandardStreams {
    /// Puts `/dev/null` in the place of those that are closed: else the next file that is opened, a database perhaps,
    /// would get what is printed. What is printed there still fails, and what is read, as it would have.
    ///
    /// To be called before anything is opened.
    public static func occupy() {
        for descriptor in Int32(0)...2 where fcntl(descriptor, F_GETFD) < 0 {
            // The lowest that is free is taken: this one.
            _ = open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY)
        }
    }
}
