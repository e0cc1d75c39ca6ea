internal import Foundation
package import NephosCore
internal import NephosFiles
internal import Synchronization

/// A file that has the bytes of what is at the path already, and need not be read; or a folder that is there.
struct UnchangedFile: Sendable {
    var path: DocumentPath
    var item: DocumentID
    /// The content that it has; empty: it is a folder.
    var version: Data
    var isExecutable: Bool
    /// Whether there is nothing about it to be changed.
    var isSame: Bool
}

/// A source as far as it is known before the container is changed.
enum PreparedSource: Sendable {
    case unchanged(UnchangedFile)
    case staged(StagedSource)

    var content: StagedContent? {
        if case .staged(let source) = self { source.content } else { nil }
    }
}

/// Sources whose contents are in the home, and of which the database knows nothing yet. Those that are not put are gone
/// with this.
package final class PreparedDocuments: Sendable {
    let sources: [Result<PreparedSource, CloudError>]
    let folder: ContentFolder
    /// Before any of them was read.
    let start: Int64
    /// How long the server may be waited for, to ask it what it has lost of these.
    let asksWithin: Duration?
    /// Keeps sweeps away.
    private let claim: FileLock
    private let isKept = Mutex<[Bool]>([])

    fileprivate init(
        _ sources: [Result<PreparedSource, CloudError>], _ folder: ContentFolder, _ claim: FileLock, start: Int64,
        asksWithin: Duration?
    ) {
        (self.sources, self.folder, self.claim, self.start) = (sources, folder, claim, start)
        self.asksWithin = asksWithin
    }

    deinit {
        let isKept = isKept.withLock { $0 }
        for (number, source) in sources.enumerated() where !(number < isKept.count && isKept[number]) {
            if case .success(.staged(let source)) = source { folder.remove(source) }
        }
    }

    /// What is there, if all of it is as it was put: when it was looked at, it was put.
    fileprivate var unchanged: [Result<DocumentID, CloudError>]? {
        let items = sources.compactMap { source -> Result<DocumentID, CloudError>? in
            guard case .success(.unchanged(let file)) = source, file.isSame else { return nil }
            return .success(file.item)
        }
        return items.count == sources.count ? items : nil
    }

    fileprivate var staged: [StagedSource] {
        sources.compactMap { if case .success(.staged(let source)) = $0 { source } else { nil } }
    }

    /// The database knows of these.
    fileprivate func keep(_ kept: [Bool]) { isKept.withLock { $0 = kept } }
}

extension UbiquityContainer {
    /// Puts what can be put of several, which is kept here as one; what could not be read, or cannot be where it was to
    /// be, takes nothing from the others.
    ///
    /// - Parameter readsAll: Whether also files are read that are as they were when they were put last, by all that the
    ///   system says of them (``FileStamp``).
    /// - Returns: The item of each, or why it was not put.
    /// - Throws: ``CloudError`` of what concerns all of them: nothing was put.
    package func putEach(
        _ sources: [DocumentSource], makesFolders: Bool, readsAll: Bool = false
    ) async throws(CloudError) -> [Result<DocumentEntry, CloudError>] {
        try await put(prepareEach(sources, readsAll: readsAll), makesFolders: makesFolders)
    }

    /// The first half of ``putEach(_:makesFolders:readsAll:)``: reads what has to be read, and keeps it here, flushed.
    /// Meanwhile others may be put. Let go of before it is put, it leaves nothing.
    ///
    /// - Parameters:
    ///   - limit: How long to wait for the server where it is to be asked what it has lost of files that are there already;
    ///     nil: it is asked only if it is heard.
    ///   - onRead: Gets the bytes of each piece of a long file that was copied into the home.
    package func prepareEach(
        _ sources: [DocumentSource], readsAll: Bool = false, askingWithin limit: Duration? = nil,
        onRead: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(CloudError) -> PreparedDocuments {
        let folder = try ContentFolder(home: session.local.home)
        let claim = try folder.claim()
        let start = FileStamp.now
        let unchanged = readsAll ? [:] : await withoutLost(try unchanged(sources), within: limit)
        let prepared = PreparedDocuments(
            await prepare(sources, unchanged, folder, onRead), folder, claim, start: start, asksWithin: limit)
        try folder.flush(prepared.sources.compactMap { try? $0.get().content })
        return prepared
    }

    /// Puts what was prepared. Once.
    package func put(
        _ prepared: PreparedDocuments, makesFolders: Bool
    ) async throws(CloudError) -> [Result<DocumentEntry, CloudError>] {
        // Nothing is written then, and nobody has to be told.
        if let unchanged = prepared.unchanged { return try read { try $0.entries(unchanged) } }
        let lost = await lostLists(of: prepared.staged, within: prepared.asksWithin)
        let (results, bytesThere) = try change { draft in
            draft.lostLists = lost
            return (try draft.putEach(prepared.sources, prepared.folder, makesFolders: makesFolders), draft.unchanged)
        } reading: { documents, drafted in
            for case (.success(let source), .success(let item)) in zip(prepared.sources, drafted.0) {
                guard let stamp = source.content?.stamp, stamp.isSettled(at: prepared.start) else { continue }
                try documents.setStamp(stamp, of: item)
            }
            return (try documents.entries(drafted.0), drafted.1)
        }
        prepared.keep(results.map { (try? $0.get()) != nil })
        for version in bytesThere { prepared.folder.remove(version) }
        return results
    }

    /// Reads what has to be read. It can take a while: not on a thread that others wait for.
    private func prepare(
        _ sources: [DocumentSource], _ unchanged: [Int: UnchangedFile], _ folder: ContentFolder,
        _ onRead: @escaping @Sendable (Int) -> Void
    ) async -> [Result<PreparedSource, CloudError>] {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                continuation.resume(
                    returning: sources.enumerated().map { index, source in
                        Result { () throws(CloudError) in
                            if let file = unchanged[index] { return .unchanged(file) }
                            return .staged(try self.stage(source, folder, onRead: onRead))
                        }
                    })
            }
        }
    }

    /// Files that have the bytes of what is at their paths, by their places among the sources.
    func unchanged(_ sources: [DocumentSource]) throws(CloudError) -> [Int: UnchangedFile] {
        try read { documents in
            // The server may have lost bytes of one of them, and get them here.
            let damage = try documents.damage()
            guard damage.chunks.isEmpty, !damage.hasMore else { return [:] }
            var found: [Int: UnchangedFile] = [:]
            var draft = DocumentDraft(documents, now: session.engine.stamp.now, makeID: session.engine.makeDocumentID)
            for (index, source) in sources.enumerated() {
                if source.content == nil {
                    guard case .success(let path) = source.path, case .item(let item)? = try draft.lookUp(path),
                        item.isFolder
                    else { continue }
                    found[index] = UnchangedFile(
                        path: path, item: item.id, version: Data(), isExecutable: false, isSame: true)
                    continue
                }
                guard case .file(let file, let allowsOpenDatabase)? = source.content,
                    case .success(let path) = source.path,
                    let status = try? file.status(followsLinks: true), status.st_mode & S_IFMT == S_IFREG,
                    case .item(let item)? = try draft.lookUp(path), item.wire.kind == .file,
                    try documents.hasBytes(of: item, FileStamp(status)),
                    allowsOpenDatabase || DatabaseFiles.refusal(of: file) == nil
                else { continue }
                let isExecutable = status.st_mode & S_IXUSR != 0
                found[index] = UnchangedFile(
                    path: path, item: item.id, version: item.wire.content.version, isExecutable: isExecutable,
                    isSame: item.wire.attributes.executable == isExecutable)
            }
            return found
        }
    }
}

extension DocumentDraft {
    fileprivate mutating func putEach(
        _ sources: [Result<PreparedSource, CloudError>], _ folder: ContentFolder, makesFolders: Bool
    ) throws -> [Result<DocumentID, CloudError>] {
        try sources.map { source in
            do {
                switch try source.get() {
                case .unchanged(let file): return .success(try keep(file))
                case .staged(let source):
                    if let content = source.content { try folder.require(content) }
                    return .success(try put(source, makesFolders: makesFolders))
                }
            } catch {
                // What ails the database ails all of them.
                guard let error = error as? CloudError else { throw error }
                return .failure(error)
            }
        }
    }

    /// Changes nothing but whether it may be executed.
    private mutating func keep(_ file: UnchangedFile) throws -> DocumentID {
        guard case .item(let item)? = try lookUp(file.path), item.id == file.item,
            item.wire.content.version == file.version
        else {
            throw CloudError(
                .constraintViolation, "What is at the path was changed while this was put. Put it again.",
                details: ["path": file.path.text])
        }
        if !item.isFolder { setExecutable(file.isExecutable, of: item) }
        return item.id
    }
}

extension DocumentTransaction {
    /// Notes that the file has the bytes that the item has now.
    fileprivate func setStamp(_ stamp: FileStamp, of id: DocumentID) throws {
        guard let version = try document(id)?.wire.content.version, let version = DocumentID(bytes: version) else {
            return
        }
        try setStamp(stamp, of: id, version: version)
    }

    /// The entries of items; a failure: it is gone.
    func entries(
        _ items: [Result<DocumentID, CloudError>]
    ) throws -> [Result<DocumentEntry, CloudError>] {
        var folders: [DocumentID: DocumentPath] = [:]
        return try items.map { item in
            let id: DocumentID
            switch item {
            case .success(let item): id = item
            case .failure(let error): return .failure(error)
            }
            guard let held = try document(id), let parent = held.parent else {
                return Result { () throws(CloudError) in
                    guard let entry = fixedEntry(id) else {
                        throw CloudError(.unknownItem, "There is no such item.", details: ["item": "\(id)"])
                    }
                    return entry
                }
            }
            let folder = try path(ofFolder: parent, &folders)
            return .success(try entry(held, at: folder?.appending(held.wire.name)) ?? requireEntry(id))
        }
    }
}
