internal import Crypto
internal import Foundation
internal import NephosCore

/// Copies what can be read of files, one behind the other. What cannot is zeros in the copy, page by page: a disk with
/// one bad sector is copied but for that.
///
/// The pieces lie in the copy where they lay in their files.
struct Salvage {
    private static let pageBytes = 4096
    private static let zeros = [UInt8](repeating: 0, count: FileCopy.pieceBytes)

    private let target: FileCopy.Opened
    /// A length, and the hash that the bytes up to there have to have.
    private let midway: (bytes: Int, sha256: String)?
    private let went: (Int) throws -> Void
    private var sum = SumWithGaps([])
    /// What could not be read, in order.
    private(set) var gaps: [Range<Int>] = []

    /// - Parameter target: Open for writing, and empty.
    init(
        to target: FileCopy.Opened, midway: (bytes: Int, sha256: String)? = nil, went: @escaping (Int) throws -> Void
    ) {
        self.target = target
        self.midway = midway
        self.went = went
    }

    /// When it returns, the copy's bytes survive a loss of power.
    ///
    /// - Returns: Its SHA-256, in hex.
    /// - Throws: ``CloudError``; `.storageFailure` with the detail `midway` when that hash is another. What the disk
    ///   cannot read is a gap.
    mutating func run(_ pieces: [FileCopy.Piece]) throws -> String {
        for piece in pieces {
            // Up to where it is compared first.
            let middle = min(max(midway?.bytes ?? 0, piece.range.lowerBound), piece.range.upperBound)
            for range in [piece.range.lowerBound..<middle, middle..<piece.range.upperBound] where !range.isEmpty {
                try copy(FileCopy.Piece(path: piece.path, range: range))
                if let midway, midway.bytes == range.upperBound, sum.hash != midway.sha256 {
                    throw FileCopy.differs(piece.path, at: midway.bytes)
                }
            }
        }
        guard fsync(target.descriptor) == 0 else { throw FileCopy.failure(target.path) }
        return sum.hash
    }

    private mutating func copy(_ piece: FileCopy.Piece) throws {
        guard let file = try Self.opened(piece.path) else { return try skip(piece.range) }
        posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_SEQUENTIAL)
        var buffer = [UInt8](repeating: 0, count: FileCopy.pieceBytes)
        var place = piece.range.lowerBound
        /// Until there pages are read one by one.
        var carefulEnd = place
        while place < piece.range.upperBound {
            let page = (place / Self.pageBytes + 1) * Self.pageBytes
            let end = min(place < carefulEnd ? page : place + FileCopy.pieceBytes, piece.range.upperBound)
            let got = buffer.withUnsafeMutableBytes {
                pread(file.descriptor, $0.baseAddress, end - place, off_t(place))
            }
            if got < 0, errno == EINTR { continue }
            if got < 0 {
                guard Self.isDamage(errno) else { throw FileCopy.failure(piece.path) }
                if end <= page {
                    try skip(place..<end)
                    place = end
                } else {
                    carefulEnd = end
                }
                continue
            }
            // It ends here.
            guard got > 0 else { return try skip(place..<piece.range.upperBound) }
            try buffer.withUnsafeBytes { try take(UnsafeRawBufferPointer(rebasing: $0[..<got]), at: place) }
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

    private mutating func skip(_ range: Range<Int>) throws {
        if let last = gaps.last, last.upperBound == range.lowerBound {
            gaps[gaps.count - 1] = last.lowerBound..<range.upperBound
        } else {
            gaps.append(range)
        }
        for start in stride(from: range.lowerBound, to: range.upperBound, by: Self.zeros.count) {
            let count = min(Self.zeros.count, range.upperBound - start)
            try Self.zeros.withUnsafeBytes { try take(UnsafeRawBufferPointer(rebasing: $0[..<count]), at: start) }
        }
    }

    private mutating func take(_ bytes: UnsafeRawBufferPointer, at place: Int) throws {
        sum.update(bytes, at: place)
        try FileCopy.write(bytes, to: target)
        try went(bytes.count)
    }
}
