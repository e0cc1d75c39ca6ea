import Foundation
import NephosCore

/// A content that is written into the home piece by piece, and cut as it comes. Whoever begins it ends it, by
/// ``finish(modified:)`` or ``cancel()``.
struct ContentStaging {
    private let folder: ContentFolder
    private let version: DocumentID
    private var descriptor: Int32
    private var cutter = ContentCutter()
    private var unlooked = 0
    private let keepsReserve: Bool
    private var part: String { folder.file(version) + ".part" }

    /// - Parameters:
    ///   - bytes: How many there will be, as far as that is known.
    ///   - keepsReserve: Whether the home's disk is to have room for its database besides. Not for what is here already,
    ///     and only takes another form.
    /// - Throws: ``CloudError`` `.limitExceeded`, `.storageFailure`, also as ``ContentFolder/make()`` does.
    init(_ folder: ContentFolder, _ version: DocumentID, bytes: Int, keepsReserve: Bool = true) throws {
        guard bytes <= ContentFolder.bytesMax else { throw ContentFolder.tooLong(bytes) }
        try folder.make()
        if keepsReserve { try folder.requireRoom(for: bytes) }
        (self.folder, self.version, self.keepsReserve) = (folder, version, keepsReserve)
        let part = folder.file(version) + ".part"
        descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw ContentFolder.failure(part) }
    }

    /// - Throws: ``CloudError`` `.limitExceeded`; `.storageFailure`, also when the home's disk has no room.
    mutating func take(_ piece: UnsafeRawBufferPointer) throws {
        try cutter.take(piece)
        guard cutter.nodeBytes <= ContentFolder.nodeBytesMax else { throw ContentFolder.tooLong(piece.count) }
        try ContentFolder.write(piece, to: descriptor, part)
        unlooked += piece.count
        guard keepsReserve, unlooked >= ContentFolder.lookBytes else { return }
        unlooked = 0
        try folder.requireRoom(for: 0)
    }

    /// Gives it its name. It is not flushed yet: ``ContentFolder/flush(_:)``.
    mutating func finish(modified: Int64) throws -> StagedContent {
        let cut = try cutter.finish()
        guard cutter.nodeBytes <= ContentFolder.nodeBytesMax else {
            throw ContentFolder.tooLong(Int(clamping: cut.length))
        }
        let number = descriptor
        descriptor = -1
        guard close(number) == 0, rename(part, folder.file(version)) == 0 else { throw ContentFolder.failure(part) }
        return StagedContent(
            version: version, length: cut.length, root: cut.root, depth: cut.depth, chunks: cut.chunks,
            nodes: cut.nodes, modified: modified)
    }

    /// Leaves nothing.
    mutating func cancel() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
        unlink(part)
    }
}
