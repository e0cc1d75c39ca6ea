import Foundation
import NephosCore

/// Keeps the logs of a local deployment short, which nobody else does: a file that is long is set aside, in the place of
/// what was set aside before. The services write on: they append, and what they write while it is copied may be lost.
enum LogRotation {
    /// Bytes of a file, from which on it is set aside.
    static let bytesMax = 8 << 20

    static func aside(_ path: String) -> String { path + ".1" }

    static func keepShort(_ path: String) {
        var information = stat()
        // Nothing else than a file is cut.
        guard lstat(path, &information) == 0, information.st_mode & S_IFMT == S_IFREG, information.st_size > bytesMax
        else {
            return
        }
        // Where the disk has no room for it, it is still cut: that makes room.
        let copy = aside(path)
        unlink(copy)
        if !FileManager.default.createFile(atPath: copy, contents: nil, attributes: [.posixPermissions: 0o600])
            || (try? copyEnd(of: path, to: copy)) == nil
        {
            unlink(copy)
        }
        truncate(path, 0)
    }

    /// The last bytes, if somebody has written very much at once.
    private static func copyEnd(of path: String, to copy: String) throws {
        guard let from = FileHandle(forReadingAtPath: path), let to = FileHandle(forWritingAtPath: copy) else {
            throw CloudError(.storageFailure, "A log cannot be copied.")
        }
        defer {
            try? from.close()
            try? to.close()
        }
        let end = try from.seekToEnd()
        try from.seek(toOffset: end - min(end, UInt64(bytesMax) * 2))
        while let data = try from.read(upToCount: 1 << 20), !data.isEmpty { try to.write(contentsOf: data) }
    }
}
