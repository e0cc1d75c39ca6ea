package import Foundation
package import NephosCore

/// Where something lies on this machine's disk, in bytes: a name there may have any but `/` and NUL.
package struct LocalPath: Hashable, Sendable {
    /// Without NUL.
    package let bytes: [UInt8]

    package init(_ text: String) { self.init(bytes: Array(text.utf8)) }

    /// - Throws: ``CloudError`` `.invalidArguments`: the URL is no file's.
    package init(_ file: URL) throws(CloudError) {
        guard file.isFileURL else {
            throw CloudError(
                .invalidArguments, "This is no file URL. Make one with URL(fileURLWithPath:).",
                details: ["scheme": file.scheme ?? ""])
        }
        self.init(
            bytes: file.withUnsafeFileSystemRepresentation { path in
                path.map { UnsafeBufferPointer(start: $0, count: strlen($0)).map { UInt8(bitPattern: $0) } } ?? []
            })
    }

    package init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes.prefix { $0 != 0 }) }

    package func appending(_ name: some Sequence<UInt8>) -> LocalPath {
        LocalPath(bytes: bytes + (bytes.last == UInt8(ascii: "/") ? [] : [UInt8(ascii: "/")]) + name)
    }

    /// For a person to read: bytes that are no text are shown as U+FFFD.
    package var text: String { String(decoding: bytes, as: UTF8.self) }

    /// What it is called in its folder; what the path ends with.
    package var name: [UInt8] {
        let end = bytes.lastIndex { $0 != UInt8(ascii: "/") }.map { $0 + 1 } ?? 0
        let start = bytes[..<end].lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0
        return Array(bytes[start..<end])
    }

    /// The same by the name that it has in its folder, where this is `.` or `..`.
    package var named: LocalPath {
        guard [Array(".".utf8), Array("..".utf8), []].contains(name), let path = withCString({ realpath($0, nil) })
        else {
            return self
        }
        defer { free(path) }
        return LocalPath(bytes: UnsafeBufferPointer(start: path, count: strlen(path)).map { UInt8(bitPattern: $0) })
    }

    /// The folder that it is in.
    package var folder: LocalPath {
        let end = bytes.lastIndex { $0 != UInt8(ascii: "/") }.map { $0 + 1 } ?? 0
        guard let slash = bytes[..<end].lastIndex(of: UInt8(ascii: "/")) else {
            return LocalPath(bytes.first == UInt8(ascii: "/") ? "/" : ".")
        }
        return LocalPath(bytes: slash == 0 ? [UInt8(ascii: "/")] : Array(bytes[..<slash]))
    }

    /// Flushes the folder that the file is in, so that it stays under its name whatever happens.
    ///
    /// - Parameter followsLinks: Whether what is there was written through a link; else it may be one itself.
    /// - Throws: ``CloudError`` of the folder.
    package func flushPlace(followsLinks: Bool) throws(CloudError) {
        var file = self
        if followsLinks {
            guard let real = withCString({ realpath($0, nil) }) else { throw ContentFolder.failure(text) }
            defer { free(real) }
            file = LocalPath(bytes: UnsafeBufferPointer(start: real, count: strlen(real)).map { UInt8(bitPattern: $0) })
        }
        let descriptor = file.folder.withCString { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw ContentFolder.failure(file.folder.text) }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 else { throw ContentFolder.failure(file.folder.text) }
    }

    package func withCString<Result, Failure: Error>(
        _ body: (UnsafePointer<CChar>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let characters = ContiguousArray((bytes + [0]).map { CChar(bitPattern: $0) })
        return try characters.withUnsafeBufferPointer { buffer throws(Failure) in
            // It is never empty.
            try body(buffer.baseAddress.unsafelyUnwrapped)
        }
    }

    /// What is there; nil: nothing.
    ///
    /// - Parameter followsLinks: Whether of a link what it leads to is meant.
    /// - Throws: ``CloudError`` of what cannot be looked at.
    package func status(followsLinks: Bool = false) throws(CloudError) -> stat? {
        var status = stat()
        if withCString({ followsLinks ? stat($0, &status) : lstat($0, &status) }) == 0 { return status }
        guard errno == ENOENT else { throw ContentFolder.failure(text) }
        return nil
    }

    /// Whether a folder is there, or a link to one.
    package var isFolder: Bool {
        get throws(CloudError) {
            guard let status = try status(followsLinks: true) else { return false }
            return status.st_mode & S_IFMT == S_IFDIR
        }
    }

    /// Where the link leads that is there.
    ///
    /// - Throws: ``CloudError`` of what is no link, or cannot be read.
    package func destination() throws(CloudError) -> [UInt8] {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
        let count = withCString { readlink($0, &buffer, buffer.count) }
        guard count >= 0 else { throw ContentFolder.failure(text) }
        return buffer[..<count].map { UInt8(bitPattern: $0) }
    }

    /// The names in the folder that is there, in their order.
    ///
    /// - Throws: ``CloudError`` of what is no folder, or cannot be read.
    package func names() throws(CloudError) -> [[UInt8]] {
        guard let folder = withCString({ opendir($0) }) else { throw ContentFolder.failure(text) }
        defer { closedir(folder) }
        var names: [[UInt8]] = []
        while true {
            errno = 0
            guard let entry = readdir(folder) else { break }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in Array(bytes.prefix { $0 != 0 }) }
            if name != Array(".".utf8), name != Array("..".utf8) { names.append(name) }
        }
        guard errno == 0 else { throw ContentFolder.failure(text) }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }

    /// Sets the date of the file or folder that is there, as far as the disk takes it.
    package func setModified(_ date: DocumentDate) {
        let times = Array(repeating: timespec(date), count: 2)
        _ = withCString { utimensat(AT_FDCWD, $0, times, AT_SYMLINK_NOFOLLOW) }
    }

    /// The failure of something that was to be made there: a folder that is missing is named itself.
    func failureToMake() -> CloudError {
        let number = errno
        let isThere = ((try? folder.status(followsLinks: true)) ?? nil).map { _ in true } ?? false
        if number == ENOENT, !isThere {
            return CloudError(.unknownItem, "There is no such folder.", details: ["folder": folder.text])
        }
        errno = number
        return ContentFolder.failure(text)
    }

    /// Makes a folder there, if there is none. Nothing is put through a link.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when something is there that is no folder; else of what cannot be.
    package func makeFolder() throws(CloudError) {
        if withCString({ mkdir($0, 0o777) }) == 0 { return }
        guard errno == EEXIST else { throw failureToMake() }
        guard let status = try status(), status.st_mode & S_IFMT == S_IFDIR else {
            throw CloudError(
                .invalidArguments, "Something is there that is no folder. Take it away.", details: ["file": text])
        }
    }
}
