private import CNephosFiles

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

    /// Opens a file for reading without noting that it was read, where that is allowed: only its owner may. A device that
    /// runs out of room keeps the files that people opened last, and an agent's own reading does not count.
    ///
    /// - Parameter open: Opens it with these further flags.
    public static func openUnnoticed(_ open: (_ flags: Int32) -> Int32) -> Int32 {
        let descriptor = open(noAccessTime)
        return descriptor >= 0 || errno != EPERM ? descriptor : open(0)
    }

    /// `O_NOATIME`, the same on x86-64 and arm64.
    private static let noAccessTime: Int32 = 0o1000000

    /// Notes that a file was read now.
    public static func noteRead(_ descriptor: Int32) {
        // `UTIME_NOW` and `UTIME_OMIT`.
        var times = [timespec(), timespec()]
        (times[0].tv_nsec, times[1].tv_nsec) = ((1 << 30) - 1, (1 << 30) - 2)
        _ = futimens(descriptor, times)
    }

    /// Makes a hole in a file, which takes no room and reads as zeros. The file's length stays.
    ///
    /// - Returns: False: the file system has no holes, or it failed.
    public static func punchHole(_ descriptor: Int32, at offset: Int, count: Int) -> Bool {
        // `FALLOC_FL_KEEP_SIZE` and `FALLOC_FL_PUNCH_HOLE`.
        fallocate(descriptor, 1 | 2, Int64(offset), Int64(count)) == 0
    }

    /// What has no time of the last change of its own, or one that others set: FAT, exFAT, FUSE, SMB (two of them), 9P;
    /// and memory, where nothing tells of what is written in place. By `statfs(2)`.
    private static let timeless: Set<UInt32> = [
        0x4d44, 0x2011_bab0, 0x6573_5546, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x0102_1994,
    ]
    /// `SYNC_FILE_RANGE_WAIT_BEFORE`, `WRITE` and `WAIT_AFTER`.
    private static let writtenBack: UInt32 = 1 | 2 | 4

    /// Has what was written to an open file in memory reach its disk, which flushes nothing else: whoever writes there
    /// after that changes its times; before, a second writing to one page does not.
    ///
    /// - Returns: Whether times tell of that at all.
    public static func settle(_ descriptor: Int32) -> Bool {
        var system = statfs()
        guard fstatfs(descriptor, &system) == 0, !timeless.contains(UInt32(truncatingIfNeeded: system.f_type)) else {
            return false
        }
        return sync_file_range(descriptor, 0, 0, writtenBack) == 0
    }
}
