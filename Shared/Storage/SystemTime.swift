internal import Core

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

extension Duration {
    static var systemTimeSince1970: Duration {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
