internal import NephosCore

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Room on the disk that is kept for making room: a file of its own beside the
/// database, which is given up when a write finds the disk full.
///
/// From then on the database takes only what makes room, until there is enough
/// for the file again and for some writing besides.
final class DiskReserve {
    /// Bytes of the file: more than the log grows to before it is cut (``logPagesMax``), twice, since cutting it may
    /// lengthen the database by as much.
    static let bytes = 32 << 20
    /// Bytes that have to be free besides, on the disk or within the database.
    static let margin = 8 << 20
    /// While the reserve is given up, the log is cut when it has so many pages: 4 MiB.
    static let logPagesMax: Int32 = 1024

    private let path: String
    /// Whether the database lives on the reserve now.
    private(set) var isGivenUp = false

    /// Where a database's reserve is.
    static func file(of database: String) -> String { database + "-reserve" }

    init(database path: String) {
        self.path = Self.file(of: path)
        isGivenUp = !make(freeInDatabase: 0)
    }

    /// Bytes on the disk that may be used; nil: the system does not say.
    var freeBytes: Int? {
        var figures = statvfs()
        let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
        guard statvfs(folder, &figures) == 0 else { return nil }
        return Int(clamping: UInt64(figures.f_bavail) * UInt64(figures.f_frsize))
    }

    func giveUp() {
        unlink(path)
        isGivenUp = true
    }

    /// Whether making the reserve again may succeed, once the log is cut.
    func mayReturn(logBytes: Int, freeInDatabase: Int) -> Bool {
        guard let free = freeBytes else { return false }
        return free + logBytes >= Self.bytes && free + logBytes - Self.bytes + freeInDatabase >= Self.margin
    }

    func makeAgain(freeInDatabase: Int) { isGivenUp = !make(freeInDatabase: freeInDatabase) }

    private func make(freeInDatabase: Int) -> Bool {
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var status = stat()
        let isThere = fstat(descriptor, &status) == 0 && Int(status.st_blocks) * 512 >= Self.bytes
        if isThere { return true }
        guard let free = freeBytes, free >= Self.bytes, free - Self.bytes + freeInDatabase >= Self.margin,
            posix_fallocate(descriptor, 0, off_t(Self.bytes)) == 0
        else {
            unlink(path)
            return false
        }
        return true
    }
}
