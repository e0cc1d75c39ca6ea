private import CNephosFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Folders with all that is in them.
public enum FileTree {
    /// Folders within folders, at most: one is open for each.
    private static let depthMax = 512

    /// Exchanges what is at two places, in one step.
    ///
    /// - Returns: 0, or the system's `errno`: `EINVAL` where the file system cannot.
    public static func exchange(_ one: UnsafePointer<CChar>, _ other: UnsafePointer<CChar>) -> Int32 {
        exchange_files(one, other) == 0 ? 0 : errno
    }

    /// Gives a file another place in one step, unless something is there.
    ///
    /// - Returns: 0, or the system's `errno`: `EEXIST` where something is there, `EINVAL` where the file system cannot.
    public static func move(_ old: UnsafePointer<CChar>, to new: UnsafePointer<CChar>) -> Int32 {
        move_file(old, new) == 0 ? 0 : errno
    }

    /// When a file or folder was made, in nanoseconds since 1970; 0: the file system does not say.
    public static func birth(of path: UnsafePointer<CChar>) -> Int64 { Int64(file_birth(path)) }

    /// Removes what is there, a folder with all that is in it. No link is followed.
    public static func remove(_ path: UnsafePointer<CChar>) { remove(path, in: AT_FDCWD, depth: 0) }

    private static func remove(_ name: UnsafePointer<CChar>, in folder: Int32, depth: Int) {
        if unlinkat(folder, name, 0) == 0 || errno == ENOENT { return }
        empty(name, in: folder, depth: depth)
        unlinkat(folder, name, AT_REMOVEDIR)
    }

    private static func empty(_ name: UnsafePointer<CChar>, in folder: Int32, depth: Int) {
        guard depth < depthMax else { return }
        let descriptor = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        guard let entries = fdopendir(descriptor) else {
            close(descriptor)
            return
        }
        defer { closedir(entries) }
        while let entry = readdir(entries) {
            // Its bytes stay as they are until the next one is read.
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            guard name != Array(".".utf8), name != Array("..".utf8) else { continue }
            remove(name.map { CChar(bitPattern: $0) } + [0], in: descriptor, depth: depth + 1)
        }
    }
}
