internal import Foundation
package import NephosCore
internal import NephosFiles
internal import Synchronization

/// A file or folder that is as it is recorded, and need not be read.
struct UnchangedFile: Sendable {
    var path: DocumentPath
    var origin: LocalOrigin
    var item: DocumentID
    var record: LocalFileRecord
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
    let basis: PutBasis
    /// Before any of them was read.
    let start: Int64
    /// How long the server may be waited for, to ask it what it has lost of these.
    let asksWithin: Duration?
    /// Keeps sweeps away.
    private let claim: FileLock
    private let isKept = Mutex<[Bool]>([])

    fileprivate init(
        _ sources: [Result<PreparedSource, CloudError>], _ folder: ContentFolder, _ claim: FileLock,
        _ basis: PutBasis, start: Int64, asksWithin: Duration?
    ) {
        (self.sources, self.folder, self.claim, self.start) = (sources, folder, claim, start)
        self.basis = basis
        self.asksWithin = asksWithin
    }

    deinit {
        let isKept = isKept.withLock { $0 }
        for (number, source) in sources.enumerated() where !(number < isKept.count && isKept[number]) {
            if case .success(.staged(let source)) = source { folder.remove(source) }
        }
    }

    /// The sources, if nothing of them has to be written.
    fileprivate var unchanged: [UnchangedFile]? {
        let files = sources.compactMap { source in
            if case .success(.unchanged(let file)) = source { file } else { nil }
        }
        return files.count == sources.count ? files : nil
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
    /// - Parameters:
    ///   - basis: What the files were made from.
    ///   - readsAll: Whether also files are read that are as they are recorded, by all that the system says of them
    ///     (``FileStamp``).
    /// - Returns: The item of each, or why it was not put.
    /// - Throws: ``CloudError`` of what concerns all of them: nothing was put.
    package func putEach(
        _ sources: [DocumentSource], makesFolders: Bool, basis: PutBasis = .record, readsAll: Bool = false
    ) async throws(CloudError) -> [Result<DocumentEntry, CloudError>] {
        try await put(prepareEach(sources, basis: basis, readsAll: readsAll), makesFolders: makesFolders)
            .map { $0.map(\.0) }
    }

    /// The first half of ``putEach(_:makesFolders:basis:readsAll:)``: reads what has to be read, and keeps it here, flushed.
    /// Meanwhile others may be put. Let go of before it is put, it leaves nothing.
    ///
    /// - Parameters:
    ///   - limit: How long to wait for the server where it is to be asked what it has lost of files that are there already;
    ///     nil: it is asked only if it is heard.
    ///   - onRead: Gets the bytes of each piece of a long file that was copied into the home.
    package func prepareEach(
        _ sources: [DocumentSource], basis: PutBasis = .record, readsAll: Bool = false,
        askingWithin limit: Duration? = nil, onRead: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(CloudError) -> PreparedDocuments {
        let folder = try ContentFolder(home: session.local.home)
        let claim = try folder.claim()
        let start = FileStamp.now
        let unchanged = readsAll ? [:] : await withoutLost(try unchanged(sources, basis), within: limit)
        let prepared = PreparedDocuments(
            await prepare(sources, unchanged, folder, onRead), folder, claim, basis, start: start, asksWithin: limit)
        try folder.flush(prepared.sources.compactMap { try? $0.get().content })
        return prepared
    }

    /// Puts what was prepared. Once.
    ///
    /// - Returns: Of each its item and what became of it, or why it was not put.
    package func put(
        _ prepared: PreparedDocuments, makesFolders: Bool
    ) async throws(CloudError) -> [Result<(DocumentEntry, PutDocument), CloudError>] {
        // Nothing is written then, and nobody has to be told.
        if let unchanged = prepared.unchanged {
            return try read { documents in
                var draft = draft(of: documents)
                return try documents.entries(try unchanged.map { try draft.putOne(.unchanged($0), prepared, false) })
            }
        }
        let lost = await lostParts(of: prepared.staged, within: prepared.asksWithin)
        let (results, bytesThere) = try await change { draft in
            draft.lostParts = lost
            let puts = try prepared.sources.map { source -> Result<PutDocument, CloudError> in
                switch source {
                case .failure(let error): .failure(error)
                case .success(let source): try draft.putOne(source, prepared, makesFolders)
                }
            }
            return (puts, draft.unchanged)
        } reading: { documents, drafted in
            try documents.record(drafted.0.compactMap { try? $0.get() }, since: prepared.start)
            return (try documents.entries(drafted.0), drafted.1)
        }
        prepared.keep(results.map { (try? $0.get()) != nil })
        for version in bytesThere { prepared.folder.remove(version) }
        return results
    }

    /// A draft of nothing, to look things up with.
    func draft(of documents: DocumentTransaction) -> DocumentDraft {
        DocumentDraft(documents, now: session.engine.stamp.now, makeID: session.engine.makeDocumentID)
    }

    /// Reads what has to be read. It can take a while: not on a thread that others wait for.
    private func prepare(
        _ sources: [DocumentSource], _ unchanged: [Int: UnchangedFile], _ folder: ContentFolder,
        _ onRead: @escaping @Sendable (Int) -> Void
    ) async -> [Result<PreparedSource, CloudError>] {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                var keys = LocalFileKeys()
                var results: [Result<PreparedSource, CloudError>] = []
                for (index, source) in sources.enumerated() {
                    results.append(
                        Result { () throws(CloudError) in
                            if let file = unchanged[index] { return .unchanged(file) }
                            return .staged(try self.stage(source, &keys, folder, onRead: onRead))
                        })
                }
                continuation.resume(returning: results)
            }
        }
    }

    /// Files and folders that are as they are recorded, by their places among the sources.
    func unchanged(_ sources: [DocumentSource], _ basis: PutBasis = .record) throws(CloudError) -> [Int: UnchangedFile]
    {
        try read { documents in
            // The server may have lost bytes of one of them, and get them here.
            guard try documents.loss().lostChunks == 0 else { return [:] }
            var found: [Int: UnchangedFile] = [:]
            var keys = LocalFileKeys()
            var draft = draft(of: documents)
            for (index, source) in sources.enumerated() {
                guard case .success(let path) = source.path, let origin = source.origin(&keys),
                    let put = try draft.unchanged(path, origin, basis), let record = put.record,
                    isAsRecorded(source, record)
                else { continue }
                found[index] = UnchangedFile(path: path, origin: origin, item: put.item, record: record)
            }
            return found
        }
    }

    private func isAsRecorded(_ source: DocumentSource, _ record: LocalFileRecord) -> Bool {
        switch source.content {
        case nil: return record.version == nil
        case .file(let file, let allowsOpenDatabase)?:
            guard let stamp = record.stamp, let status = try? file.status(followsLinks: true),
                status.st_mode & S_IFMT == S_IFREG, FileStamp(status) == stamp
            else { return false }
            return allowsOpenDatabase || DatabaseFiles.refusal(of: file) == nil
        default: return false
        }
    }
}

extension DocumentDraft {
    fileprivate mutating func putOne(
        _ source: PreparedSource, _ prepared: PreparedDocuments, _ makesFolders: Bool
    ) throws -> Result<PutDocument, CloudError> {
        do {
            switch source {
            case .unchanged(let file): return .success(try put(file, prepared.basis))
            case .staged(let source):
                if let content = source.content { try prepared.folder.require(content) }
                return .success(try put(source, prepared.basis, makesFolders: makesFolders))
            }
        } catch {
            // What ails the database ails all of them.
            guard let error = error as? CloudError else { throw error }
            return .failure(error)
        }
    }
}

extension DocumentTransaction {
    /// Records what the files are copies of that were put.
    ///
    /// - Parameter start: Before any of them was read, in nanoseconds since 1970.
    func record(_ puts: [PutDocument], since start: Int64) throws {
        for put in puts {
            guard let origin = put.origin, var record = put.record else { continue }
            if let stamp = record.stamp, !stamp.isSettled(at: start) { record.stamp = nil }
            guard try !records(of: origin.file).contains(record) else { continue }
            try setLocalFile(origin.file, record)
        }
    }

    /// What was put, with the entry of each; a failure: it is gone.
    func entries(
        _ puts: [Result<PutDocument, CloudError>]
    ) throws -> [Result<(DocumentEntry, PutDocument), CloudError>] {
        try zip(puts, entries(puts.map { $0.map(\.item) })).map { put, entry in
            put.flatMap { put in entry.map { ($0, put) } }
        }
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
