public import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

extension Timestamp {
    /// The system's wall clock.
    public static var ofSystem: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: UInt64(max(0, time.tv_sec)) * 1000 + UInt64(max(0, time.tv_nsec)) / 1_000_000)
    }
}
