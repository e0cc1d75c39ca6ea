internal import Crypto
internal import Foundation
internal import NephosCore

/// Copies what can be read of a file. What cannot is zeros in the copy, page by page: a disk with one bad sector is copied
/// but for that.
struct Salvage {
    private static let pageBytes = 4096
    private static let zeros = [UInt8](repeating: 0, count: FileCopy.pieceBytes)

    private let target: FileCopy.Opened
    private let went: (Int) throws -> Void
    private var sum = SHA256()
    /// Bytes that could not be read.
    private(set) var missingBytes = 0

    /// - Parameter target: Open for writing, and empty.
    init(to target: FileCopy.Opened, went: @escaping (Int) throws -> Void) {
        self.target = target
        self.went = went
    }

    /// When it returns, the copy's bytes survive a loss of power.
    ///
    /// - Parameter stops: Ends within the range, of which the hashes are wanted too.
    /// - Returns: SHA-256, in hex, of the copy up to each stop and up to the end of the range.
    /// - Throws: ``CloudError``. What the disk cannot read is no error.
    mutating func run(_ path: String, _ range: Range<Int>, stops: Set<Int> = []) throws -> [Int: String] {
        let file = try Self.opened(path)
        var hashes: [Int: String] = [:]
        var start = range.lowerBound
        for end in stops.filter({ range.contains($0) }).sorted() + [range.upperBound] {
            try copy(start..<end, of: file)
            let soFar = sum
            hashes[end] = hex(soFar.finalize())
            start = end
        }
        guard fsync(target.descriptor) == 0 else { throw FileCopy.failure(target.path) }
        return hashes
    }

    private mutating func copy(_ range: Range<Int>, of file: FileCopy.Opened?) throws {
        guard let file else { return try skip(range.count) }
        posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_SEQUENTIAL)
        var buffer = [UInt8](repeating: 0, count: FileCopy.pieceBytes)
        var place = range.lowerBound
        /// Until there pages are read one by one.
        var carefulEnd = place
        while place < range.upperBound {
            let page = (place / Self.pageBytes + 1) * Self.pageBytes
            let end = min(place < carefulEnd ? page : place + FileCopy.pieceBytes, range.upperBound)
            let got = buffer.withUnsafeMutableBytes {
                pread(file.descriptor, $0.baseAddress, end - place, off_t(place))
            }
            if got < 0, errno == EINTR { continue }
            if got < 0 {
                guard Self.isDamage(errno) else { throw FileCopy.failure(file.path) }
                if end <= page {
                    try skip(end - place)
                    place = end
                } else {
                    carefulEnd = end
                }
                continue
            }
            // It ends here.
            guard got > 0 else { return try skip(range.upperBound - place) }
            try buffer.withUnsafeBytes { try take(UnsafeRawBufferPointer(rebasing: $0[..<got])) }
            place += got
        }
    }

    /// Nil: it is not there, or the disk cannot open it.
    private static func opened(_ path: String) throws -> FileCopy.Opened? {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        if descriptor < 0 {
            guard errno == ENOENT || isDamage(errno) else { throw FileCopy.failure(path) }
            return nil
        }
        return FileCopy.Opened(descriptor, path)
    }

    /// A sector, or the file's inode, cannot be read; others can.
    private static func isDamage(_ number: Int32) -> Bool { [EIO, EBADMSG, EUCLEAN].contains(number) }

    private mutating func skip(_ bytes: Int) throws {
        missingBytes += bytes
        for start in stride(from: 0, to: bytes, by: Self.zeros.count) {
            let count = min(Self.zeros.count, bytes - start)
            try Self.zeros.withUnsafeBytes { try take(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
        }
    }

    private mutating func take(_ bytes: UnsafeRawBufferPointer) throws {
        sum.update(bufferPointer: bytes)
        try FileCopy.write(bytes, to: target)
        try went(bytes.count)
    }
}
