private import CFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Extended attributes of files, those of whoever has the file: their names begin with `user.`.
public enum ExtendedAttributes {
    private static let prefix = Array("user.".utf8)

    /// Those of the file at the path, not of what a link leads to; none where the file system has none.
    ///
    /// - Throws: The system's `errno`.
    public static func read(_ path: UnsafePointer<CChar>) throws(Failure) -> [(name: [UInt8], value: [UInt8])] {
        var attributes: [(name: [UInt8], value: [UInt8])] = []
        let names = try bytes { llistxattr(path, $0?.assumingMemoryBound(to: CChar.self), $1) } ?? []
        for name in names.split(separator: 0) where name.starts(with: prefix) {
            let characters = name.map { CChar(bitPattern: $0) } + [0]
            // One that somebody has removed meanwhile is none.
            guard let value = try bytes({ lgetxattr(path, characters, $0, $1) }) else { continue }
            attributes.append((Array(name), value))
        }
        return attributes
    }

    /// Sets one of an open file; nothing where the file system has none.
    ///
    /// - Throws: The system's `errno`.
    public static func set(_ name: [UInt8], to value: [UInt8], of descriptor: Int32) throws(Failure) {
        guard name.starts(with: prefix) else { return }
        let characters = name.map { CChar(bitPattern: $0) } + [0]
        guard fsetxattr(descriptor, characters, value, value.count, 0) != 0, errno != ENOTSUP else { return }
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
        // The kernel has no more.
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        let count = buffer.withUnsafeMutableBytes { read($0.baseAddress, $0.count) }
        if count < 0, errno == ENOTSUP || errno == ENODATA { return nil }
        guard count >= 0 else { throw Failure(number: errno) }
        return Array(buffer[..<count])
    }
}
