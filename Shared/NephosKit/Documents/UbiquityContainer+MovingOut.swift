import Foundation
import NephosChunks
package import NephosCore
import NephosFiles
import NephosWire

/// In and out of the container: what leaves one side has to be whole on the other.
extension UbiquityContainer {
    /// What becomes of a local file that was put, and is to go.
    package enum LocalRemoval: Sendable {
        case removed
        /// The server has not got its bytes.
        case unsent
        /// The server has lost some of them, or may have: nobody may have them but this file.
        case lost
        /// It has others by now.
        case changed
        /// It is a link: what was put is what that leads to.
        case link
    }

    /// Removes a local file that was put, once the server has its bytes; they are read once more. Its record goes with
    /// it: the next file of its name is another.
    ///
    /// - Returns: Unless it was removed, why it stays.
    /// - Throws: ``CloudError`` as ``item(at:)`` does; of the local file.
    package func removeLocalFile(_ file: LocalPath, sentAs id: DocumentID) async throws(CloudError) -> LocalRemoval {
        guard let item = try read({ try $0.document(id) }), item.wire.kind == .file else { return .changed }
        guard !item.isPending else { return .unsent }
        if let status = try file.status(followsLinks: false), status.st_mode & S_IFMT == S_IFLNK { return .link }
        let (content, attributes) = (item.wire.content, item.wire.attributes.extended)
        let loss = try read { try $0.loss() }
        let read = await Session.elsewhere { try Self.read(file, content, attributes) }
        do {
            guard let (stamp, chunks) = try read.get() else { return .changed }
            if loss.isAny, !content.isInline, await mayHaveLost(chunks, loss) { return .lost }
            guard try await Session.elsewhere({ try Self.remove(file, ifStill: stamp) }).get() else { return .changed }
            // The file is gone. A record that stays costs a question.
            try? forgetRecord(of: file)
            return .removed
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// What was said last may be over.
    private func mayHaveLost(_ chunks: [CutChunk], _ loss: ContentLoss) async -> Bool {
        guard !loss.isAllMissing else { return true }
        return await missing(among: Set(chunks.map(\.id)))?.isEmpty != true
    }

    /// Reads a local file.
    ///
    /// - Returns: What the system says of it, and the chunks of a long one; nil: it is another than the item has.
    private static func read(
        _ file: LocalPath, _ content: WireDocumentContent, _ attributes: [WireExtendedAttribute]
    ) throws -> (stamp: FileStamp, chunks: [CutChunk])? {
        let descriptor = file.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) }
        guard descriptor >= 0 else { throw ContentFolder.failure(file.text) }
        defer { close(descriptor) }
        var before = stat()
        guard fstat(descriptor, &before) == 0 else { throw ContentFolder.failure(file.text) }
        guard before.st_mode & S_IFMT == S_IFREG, let chunks = try chunks(of: content, descriptor, file.text),
            // What is said of it beside its bytes would go with it.
            try ExtendedAttributes.kept(of: descriptor, file.text).allSatisfy({ kept in
                kept.value.isEmpty
                    || attributes.contains { $0.name.elementsEqual(kept.name) && $0.value.elementsEqual(kept.value) }
            })
        else { return nil }
        return (FileStamp(before), chunks)
    }

    /// - Returns: False: it has changed, and stays.
    private static func remove(_ file: LocalPath, ifStill stamp: FileStamp) throws -> Bool {
        guard let now = try file.status(followsLinks: false), FileStamp(now) == stamp else { return false }
        guard file.withCString({ unlink($0) }) == 0 else { throw ContentFolder.failure(file.text) }
        return true
    }

    /// - Returns: The chunks of a long content; nil: the file has not its bytes.
    private static func chunks(
        of content: WireDocumentContent, _ descriptor: Int32, _ name: String
    ) throws -> [CutChunk]? {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)
        defer { buffer.deallocate() }
        var cutter = ContentCutter()
        var (start, length) = (Data(), UInt64(0))
        while length <= content.length {
            let count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw ContentFolder.failure(name) }
            if count == 0 { break }
            let piece = UnsafeRawBufferPointer(rebasing: buffer[..<count])
            length += UInt64(count)
            if content.isInline { start.append(contentsOf: piece) } else { try cutter.take(piece) }
        }
        guard length == content.length else { return nil }
        if content.isInline { return start == content.inline ? [] : nil }
        let cut = try cutter.finish()
        return cut.root.isRoot(of: content) ? cut.chunks : nil
    }

    /// Moves a file to the trash, if it has this version still.
    ///
    /// - Returns: The batch.
    /// - Throws: ``CloudError`` `.constraintViolation` when it has another; else as ``trash(_:)`` does.
    package func trash(_ id: DocumentID, ifVersion version: DocumentID?) async throws(CloudError) -> DocumentID {
        try await change { draft in
            let batch = draft.makeID()
            guard let item = try draft.documents.document(id), let path = try draft.documents.path(of: item)?.path
            else {
                throw CloudError(.unknownItem, "The item was removed meanwhile.", details: ["item": "\(id)"])
            }
            guard DocumentID(bytes: item.wire.content.version) == version else {
                throw CloudError(
                    .constraintViolation, "The file has changed meanwhile, and stays. Get it again.",
                    details: ["path": path.text])
            }
            try draft.trash(item, batch: batch)
            return batch
        }
    }
}
