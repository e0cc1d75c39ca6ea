internal import Crypto
import Foundation
import NephosCore
import NephosFiles
import NephosWire

/// What tells whether two contents have the same bytes and are of the same kind, without either at hand.
struct ContentDigest: Hashable, Sendable {
    /// The kind, the depth of the tree of chunks, and a hash of 32 bytes. A row keeps it.
    let data: Data

    init(data: Data) { self.data = data }

    init(_ kind: WireItemKind, _ content: WireDocumentContent) {
        self.init(kind, root: content.root, depth: content.depth, inline: content.inline)
    }

    init(_ content: StagedContent) {
        self.init(
            content.kind, root: content.root.map { Data($0.bytes) } ?? Data(), depth: content.depth,
            inline: content.inline ?? Data())
    }

    /// Of a content that is at hand, and short enough to go with its item.
    init(_ kind: WireItemKind, _ bytes: Data) { self.init(kind, root: Data(), depth: 0, inline: bytes) }

    private init(_ kind: WireItemKind, root: Data, depth: UInt32, inline: Data) {
        let hash = root.isEmpty ? Data(SHA256.hash(data: inline)) : root
        // No tree is so deep that its depth needs a second byte.
        let depth: UInt8 = root.isEmpty ? 0 : 1 + UInt8(truncatingIfNeeded: depth)
        data = Data([UInt8(truncatingIfNeeded: kind.rawValue), depth]) + hash
    }

    /// Reads what is at the path. It can take a while.
    ///
    /// - Parameters:
    ///   - file: A file, or with `followsLinks` a link to one; a link; or the folder of a package.
    ///   - onRead: Gets the number of bytes of each piece.
    /// - Returns: The digest, and a stamp that tells for how long it holds (nil: the times do not tell); nil: there is
    ///   nothing, or no item can have it as its content.
    /// - Throws: ``CloudError`` of what cannot be read; `.constraintViolation` when it is written meanwhile.
    static func read(
        _ file: LocalPath, followsLinks: Bool, onRead: (Int) -> Void = { _ in }
    ) throws -> (digest: ContentDigest, stamp: FileStamp?)? {
        guard let status = try file.status(followsLinks: followsLinks) else { return nil }
        switch status.st_mode & S_IFMT {
        case S_IFLNK:
            return (ContentDigest(.link, Data(try file.destination())), nil)
        case S_IFDIR: return (try package(file, onRead), nil)
        case S_IFREG: return try readFile(file, onRead)
        default: return nil
        }
    }

    private static func readFile(
        _ file: LocalPath, _ onRead: (Int) -> Void
    ) throws -> (digest: ContentDigest, stamp: FileStamp?) {
        let descriptor = file.withCString { path in
            FileSystem.openUnnoticed { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | $0) }
        }
        guard descriptor >= 0 else { throw ContentFolder.failure(file.text) }
        defer { close(descriptor) }
        let start = FileStamp.now
        let hasStamp = FileSystem.settle(descriptor)
        var (before, after) = (stat(), stat())
        guard fstat(descriptor, &before) == 0 else { throw ContentFolder.failure(file.text) }
        let digest = try digest(.file) { buffer in
            let count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
            guard count >= 0 || errno == EINTR else { throw ContentFolder.failure(file.text) }
            onRead(max(0, count))
            return count
        }
        guard fstat(descriptor, &after) == 0, FileStamp(after) == FileStamp(before) else {
            throw CloudError(
                .constraintViolation, "The file was written while it was read. Try again once that has ended.",
                details: ["file": file.text])
        }
        return (digest, hasStamp && FileStamp(before).isSettled(at: start) ? FileStamp(before) : nil)
    }

    private static func package(_ folder: LocalPath, _ onRead: (Int) -> Void) throws -> ContentDigest {
        let package = try LocalPackage(folder, allowsOpenDatabase: true)
        var reader = LocalPackageReader(package)
        return try digest(.package) { buffer in
            let count = try reader.read(into: buffer)
            onRead(count)
            return count
        }
    }

    /// - Parameter read: Fills the buffer. Returns the number of bytes; 0: that was all; less: it is asked again.
    private static func digest(
        _ kind: WireItemKind, _ read: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> ContentDigest {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)
        defer { buffer.deallocate() }
        var cutter = ContentCutter()
        var start = Data()
        var length = 0
        while true {
            let count = try read(buffer)
            if count < 0 { continue }
            if count == 0 { break }
            let piece = UnsafeRawBufferPointer(rebasing: buffer[..<count])
            length += count
            if length <= DocumentLimits.inlineBytesMax { start.append(contentsOf: piece) }
            try cutter.take(piece)
        }
        guard length > DocumentLimits.inlineBytesMax else {
            return ContentDigest(kind, start)
        }
        let cut = try cutter.finish()
        return ContentDigest(kind, root: Data(cut.root.bytes), depth: cut.depth, inline: Data())
    }
}
