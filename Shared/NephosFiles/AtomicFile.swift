public import Foundation

/// Replaces files as a whole: a reader, or a crash, meets the old content or the new.
public enum AtomicFile {
    /// Replaces a file that is somebody else's too: where the path is a symbolic link, the file that it leads to; the
    /// owner, the group and the mode stay. One that is not there is made for this user only.
    ///
    /// - Parameter isWanted: Asked when all but the renaming is done: what somebody has written while this was written
    ///   and flushed, which can take a while, need not be overwritten.
    /// - Returns: Whether it was replaced.
    /// - Throws: `POSIXError`, also when the owner or the group cannot stay; then the file is as it was.
    @discardableResult
    public static func replace(
        _ path: String, with data: Data, if isWanted: () throws -> Bool = { true }
    ) throws -> Bool {
        let target = try followed(path)
        var old = stat()
        guard stat(target, &old) == 0 else {
            guard errno == ENOENT else { throw failure() }
            return try write(data, to: target, mode: 0o600, if: isWanted)
        }
        return try write(data, to: target, mode: 0o600, if: isWanted) { descriptor in
            var new = stat()
            guard fstat(descriptor, &new) == 0 else { throw failure() }
            if new.st_uid != old.st_uid || new.st_gid != old.st_gid {
                guard fchown(descriptor, old.st_uid, old.st_gid) == 0 else { throw failure() }
            }
            // Last: a change of owner takes bits away.
            guard fchmod(descriptor, old.st_mode & 0o7777) == 0 else { throw failure() }
        }
    }

    private static let linksMax = 40

    /// Where the path's links lead, whether there is a file or not.
    private static func followed(_ path: String) throws -> String {
        var path = path
        for _ in 0..<linksMax {
            var status = stat()
            guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFLNK else { return path }
            let next = try FileManager.default.destinationOfSymbolicLink(atPath: path)
            let folder = (path as NSString).deletingLastPathComponent
            path = next.hasPrefix("/") || folder.isEmpty ? next : folder + "/" + next
        }
        throw POSIXError(.ELOOP)
    }

    private static func failure() -> POSIXError { POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }

    /// Writes a file of our own. When it returns, the file survives a loss of power.
    ///
    /// - Parameters:
    ///   - mode: It is made with it: at no moment is it open to others.
    ///   - isWanted: Asked when all but the renaming is done.
    ///   - prepare: What else has to be true of the new file before it takes the place of the old.
    /// - Returns: Whether it was written.
    /// - Throws: `POSIXError`, and what the closures throw; then the file is as it was.
    @discardableResult
    public static func write(
        _ data: Data, to path: String, mode: mode_t, if isWanted: () throws -> Bool = { true },
        prepare: (_ descriptor: Int32) throws -> Void = { _ in }
    ) throws -> Bool {
        let temporary = "\(path).\(UUID().uuidString).tmp"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw failure() }
        let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        do {
            try prepare(descriptor)
            try handle.write(contentsOf: data)
            try handle.synchronize()
            try handle.close()
            guard try isWanted() else {
                unlink(temporary)
                return false
            }
            guard rename(temporary, path) == 0 else { throw failure() }
        } catch {
            unlink(temporary)
            throw error
        }
        // The new name itself must survive a power cut.
        let folder = open((path as NSString).deletingLastPathComponent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if folder >= 0 {
            fsync(folder)
            close(folder)
        }
        return true
    }
}
