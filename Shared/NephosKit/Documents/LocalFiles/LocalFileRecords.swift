internal import Foundation
internal import NephosChunks
package import NephosCore
internal import NephosFiles
internal import NephosWire

/// What local files and folders are copies of, as this device has recorded it: a later put or get tells by it which side has
/// changed.
package struct LocalFileRecords: Sendable {
    let handle: ContainerHandle

    /// Records what was got, once the files are in their places and those are flushed. Those that the item's
    /// executable bit has changed for get it.
    ///
    /// A record that cannot be kept is not: the file is compared by its bytes then.
    func record(_ notes: [(note: LocalNote, part: (any LocalPart)?)]) async {
        guard !notes.isEmpty else { return }
        let stamped = await Session.elsewhere { () -> [LocalNote] in
            let now = FileStamp.now
            var folders: [LocalPath: Bool] = [:]
            return notes.compactMap { note, part in
                var note = note
                if let isExecutable = note.executable {
                    Self.setExecutable(isExecutable, of: note.file)
                    // Its time of the last change is another by now.
                    note.record.stamp = nil
                    note.record.isExecutable = Self.isExecutable(note.file)
                }
                note.record.identity = FileIdentity(note.file)
                guard let part else { return note }
                let folder = note.file.folder
                let isFlushed = folders[folder] ?? ((try? note.file.flushPlace(followsLinks: false)) != nil)
                folders[folder] = isFlushed
                guard isFlushed else { return nil }
                if part is PartFile, note.record.isExecutable == nil {
                    note.record.isExecutable = Self.isExecutable(note.file)
                }
                var status = stat()
                if part is PartFile, fstat(part.descriptor, &status) == 0, FileSystem.settle(part.descriptor),
                    FileStamp(status).isSettledAsWritten(at: now)
                {
                    note.record.stamp = FileStamp(status)
                }
                return note
            }
        }
        guard let stamped = try? stamped.get() else { return }
        _ = try? handle.write({ documents in
            for note in stamped {
                let known = try documents.records(of: note.file)
                guard note.isFetched ? known != [note.record] : !known.contains(note.record) else { continue }
                if note.isFetched { try documents.removeLocalFile(note.file) }
                try documents.setLocalFile(note.file, note.record)
            }
        })
    }

    private static func isExecutable(_ file: LocalPath) -> Bool? {
        ((try? file.status()) ?? nil).map { $0.st_mode & S_IXUSR != 0 }
    }

    /// Those may run the file who may read it.
    private static func setExecutable(_ isExecutable: Bool, of file: LocalPath) {
        let descriptor = file.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) }
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return }
        let mode = status.st_mode & 0o777
        _ = fchmod(descriptor, isExecutable ? mode | (mode & 0o444) >> 2 : mode & ~0o111)
    }

    /// Records that folders of this machine are copies of folders of the container.
    package func record(folders: [(item: DocumentID, place: LocalPath)]) throws(CloudError) {
        var keys = LocalFileKeys()
        let named = folders.compactMap { item, place in
            keys.key(of: place, followsLinks: true).map { (item, $0) }
        }
        try handle.write({ documents in
            for (id, file) in named {
                guard let item = try documents.document(id), let path = try documents.path(of: item)?.path else {
                    continue
                }
                var record = LocalFileRecord(item: id, place: path)
                record.identity = FileIdentity(file)
                if try !documents.records(of: file).contains(record) { try documents.setLocalFile(file, record) }
            }
        })
    }

    /// Forgets what a file of this machine is a copy of: it is one in its own right from now on.
    package func forget(_ file: LocalPath) throws(CloudError) {
        var keys = LocalFileKeys()
        guard let key = keys.key(of: file, followsLinks: false) else { return }
        try handle.write({ try $0.removeLocalFile(key) })
    }

    /// Moves a local file to where its item was moved in the container since the file was got or put.
    ///
    /// - Parameters:
    ///   - place: Where it belongs now. Where something is there, nothing is moved.
    ///   - top: Only what lies in this folder is moved.
    /// - Returns: Where it was; nil: nothing was moved.
    package func moveFile(
        of id: DocumentID, to place: LocalPath, within top: LocalPath
    ) throws(CloudError) -> LocalPath? {
        var keys = LocalFileKeys()
        guard try place.status() == nil, let top = top.real, let target = keys.key(of: place, followsLinks: false),
            let (path, old, record) = try handle.read({ documents -> (DocumentPath, LocalPath, LocalFileRecord)? in
                guard let item = try documents.document(id), let path = try documents.path(of: item)?.path else {
                    return nil
                }
                let found = try documents.localFiles(of: id).first { file, record in
                    record.place != path && file.bytes.starts(with: top.appending([]).bytes)
                        && (try? file.status() != nil) ?? false
                }
                return found.map { (path, $0.file, $0.record) }
            })
        else { return nil }
        // A package stays where it is, and so does a file on a disk that cannot move without replacing.
        guard let status = try old.status(), status.st_mode & S_IFMT != S_IFDIR,
            old.withCString({ old in target.withCString { FileTree.move(old, to: $0) } }) == 0
        else { return nil }
        try target.flushPlace(followsLinks: false)
        try handle.write({ documents in
            var record = record
            // Its time of the last change is another by now.
            record.stamp = nil
            record.place = path
            try documents.removeLocalFile(old)
            try documents.setLocalFile(target, record)
        })
        return old
    }

    // MARK: Removing a file that was put

    /// What becomes of a local file that was put, and is to go.
    package enum Removal: Sendable {
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
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does; of the local file.
    package func removeFile(_ file: LocalPath, sentAs id: DocumentID) async throws(CloudError) -> Removal {
        guard let item = try handle.read({ try $0.document(id) }), item.wire.kind == .file else { return .changed }
        guard !item.isPending else { return .unsent }
        if let status = try file.status(followsLinks: false), status.st_mode & S_IFMT == S_IFLNK { return .link }
        let (content, attributes) = (item.wire.content, item.wire.attributes.extended)
        let loss = try handle.read { try $0.loss() }
        let read = await Session.elsewhere { try Self.read(file, content, attributes) }
        do {
            guard let (stamp, chunks) = try read.get() else { return .changed }
            if loss.isAny, !content.isInline, await mayHaveLost(chunks, loss) { return .lost }
            guard try await Session.elsewhere({ try Self.remove(file, ifStill: stamp) }).get() else { return .changed }
            // The file is gone. A record that stays costs a question.
            try? forget(file)
            return .removed
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// What was said last may be over.
    private func mayHaveLost(_ chunks: [CutChunk], _ loss: ContentLoss) async -> Bool {
        guard !loss.isAllMissing else { return true }
        return await handle.lostContents.missing(among: Set(chunks.map(\.id)))?.isEmpty != true
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
}
