private import CNephosFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Extended attributes of files, those of whoever has the file: their names begin with `user.`.
public enum ExtendedAttributes {
    private static let prefix = Array("user.".utf8)
    /// The kernel has no longer value, and no longer list of names.
    private static let bytesMax = 64 << 10

    /// Those of the file at the path, not of what a link leads to; none where the file system has none.
    ///
    /// - Throws: The system's `errno`.
    public static func read(_ path: UnsafePointer<CChar>) throws(Failure) -> [(name: [UInt8], value: [UInt8])] {
        try read {
            llistxattr(path, $0?.assumingMemoryBound(to: CChar.self), $1)
        } value: {
            lgetxattr(path, $0, $1, $2)
        }
    }

    /// The same of an open file.
    public static func read(of descriptor: Int32) throws(Failure) -> [(name: [UInt8], value: [UInt8])] {
        try read {
            flistxattr(descriptor, $0?.assumingMemoryBound(to: CChar.self), $1)
        } value: {
            fgetxattr(descriptor, $0, $1, $2)
        }
    }

    private static func read(
        names: (UnsafeMutableRawPointer?, Int) -> Int,
        value: (UnsafePointer<CChar>, UnsafeMutableRawPointer?, Int) -> Int
    ) throws(Failure) -> [(name: [UInt8], value: [UInt8])] {
        // Most files have none: that takes no buffer.
        guard names(nil, 0) != 0 else { return [] }
        var attributes: [(name: [UInt8], value: [UInt8])] = []
        for name in try (bytes(names) ?? []).split(separator: 0) where name.starts(with: prefix) {
            let characters = name.map { CChar(bitPattern: $0) } + [0]
            // One that somebody has removed meanwhile is none.
            guard let value = try bytes({ value(characters, $0, $1) }) else { continue }
            attributes.append((Array(name), value))
        }
        return attributes
    }

    /// Sets one of an open file. One that is of another kind is not a file's to have, and is left out.
    ///
    /// - Throws: The system's `errno`; `ENOTSUP` where the file system has none.
    public static func set(_ name: [UInt8], to value: [UInt8], of descriptor: Int32) throws(Failure) {
        guard name.starts(with: prefix) else { return }
        let characters = name.map { CChar(bitPattern: $0) } + [0]
        guard fsetxattr(descriptor, characters, value, value.count, 0) != 0 else { return }
        throw Failure(number: errno)
    }

    /// What the system says.
    public struct Failure: Error {
        /// Its `errno`.
        public let number: Int32
    }

    /// - Returns: Nil: there is none.
    private static func bytes(
        _ read: (UnsafeMutableRawPointer?, Int) -> Int
    ) throws(Failure) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: bytesMax)
        let count = buffer.withUnsafeMutableBytes { read($0.baseAddress, $0.count) }
        if count < 0, errno == ENOTSUP || errno == ENODATA { return nil }
        guard count >= 0 else { throw Failure(number: errno) }
        return Array(buffer[..<count])
    }
}
