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

/// Puts local files into a container: reads what has changed since it was got or put, keeps it in the home, and records
/// what the files are copies of.
package struct DocumentImport: Sendable {
    let handle: ContainerHandle

    // MARK: All or none

    /// Puts one.
    func put(
        _ source: DocumentSource, makesFolders: Bool, _ conditions: [DocumentCondition] = [],
        _ onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        let entries = try await put(
            [source], makesFolders: makesFolders, conditions, onProgress,
            reading: { documents, ids in try ids.map { try documents.requireEntry($0) } })
        guard let entry = entries.first else { throw CloudError(.internalError, "What was put has an entry.") }
        return entry
    }

    /// Puts several, all or none of them.
    func put<Result>(
        _ sources: [DocumentSource], makesFolders: Bool, _ conditions: [DocumentCondition],
        _ onProgress: (UInt64) -> Void = { _ in },
        reading: (DocumentTransaction, [DocumentID]) throws -> Result
    ) async throws(CloudError) -> Result {
        let folder = try handle.contentFolder()
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let start = FileStamp.now
        var keys = LocalFileKeys()
        var staged: [StagedSource] = []
        do throws(CloudError) {
            var done: UInt64 = 0
            for source in sources {
                staged.append(
                    try stage(source, &keys, folder) { count in
                        done += UInt64(clamping: count)
                        onProgress(done)
                    })
            }
            try folder.flush(staged.compactMap(\.content))
            let lost = await handle.lostContents.parts(of: staged)
            // An app that says what it takes for granted knows what the content was made from.
            let basis = conditions.isEmpty ? PutBasis.recordOrNewest : .newest
            let (result, unchanged) = try await handle.change(conditions) { draft in
                draft.lostParts = lost
                let puts = try staged.map { source in
                    if let content = source.content { try folder.require(content) }
                    return try draft.put(source, basis, makesFolders: makesFolders)
                }
                return (puts, draft.unchanged)
            } reading: { documents, drafted in
                try documents.record(drafted.0, since: start)
                return (try reading(documents, drafted.0.map(\.item)), drafted.1)
            }
            for version in unchanged { folder.remove(version) }
            return result
        } catch {
            for source in staged { folder.remove(source) }
            throw error
        }
    }

    /// Puts what is in the home already.
    func put(
        _ source: StagedSource, in folder: ContentFolder, makesFolders: Bool
    ) async throws(CloudError) -> DocumentEntry {
        let (entry, unchanged) = try await handle.change { draft in
            if let content = source.content { try folder.require(content) }
            return (try draft.put(source, .newest, makesFolders: makesFolders), draft.unchanged)
        } reading: {
            (try $0.requireEntry($1.0.item), $1.1)
        }
        for version in unchanged { folder.remove(version) }
        return entry
    }

    /// - Parameter onRead: Gets the bytes of each piece of a long file that was copied into the home.
    func stage(
        _ source: DocumentSource, _ keys: inout LocalFileKeys, _ folder: ContentFolder, onRead: (Int) -> Void = { _ in }
    ) throws(CloudError) -> StagedSource {
        let path = try source.path.get()
        // Before its content is read.
        try path.requireNames()
        try path.requireSynced()
        guard let content = source.content else {
            return StagedSource(path: path, content: nil, origin: source.origin(&keys), modified: source.modified)
        }
        return StagedSource(
            path: path, content: try stage(content, folder, onRead: onRead), origin: source.origin(&keys))
    }

    func stage(
        _ content: DocumentSource.Content, _ folder: ContentFolder, onRead: (Int) -> Void = { _ in }
    ) throws(CloudError) -> StagedContent {
        let version = handle.makeID()
        let now = handle.now.nanoseconds
        do {
            switch content {
            case .data(let data): return try folder.stage(data, version: version, modified: now)
            case .file(let file, let allowsOpenDatabase):
                if !allowsOpenDatabase, let refusal = DatabaseFiles.refusal(of: file) { throw refusal }
                let staged = try folder.stage(file: file, version: version, onRead: onRead)
                // It may have been opened meanwhile.
                guard !allowsOpenDatabase, let refusal = DatabaseFiles.refusal(of: file) else { return staged }
                if staged.inline == nil { folder.remove(version) }
                throw refusal
            case .link(let target):
                var staged = try folder.stage(target, version: version, modified: now)
                staged.kind = .link
                return staged
            case .package(let package, let allowsOpenDatabase):
                return try folder.stage(
                    package: package, version: version, allowsOpenDatabase: allowsOpenDatabase, onRead: onRead)
            }
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    // MARK: Each by itself

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
        let folder = try handle.contentFolder()
        let claim = try folder.claim()
        let start = FileStamp.now
        let unchanged = readsAll ? [:] : await handle.lostContents.without(try unchanged(sources, basis), within: limit)
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
            return try handle.read { documents in
                var draft = handle.draft(of: documents)
                return try documents.entries(try unchanged.map { try draft.putOne(.unchanged($0), prepared, false) })
            }
        }
        let lost = await handle.lostContents.parts(of: prepared.staged, within: prepared.asksWithin)
        let (results, bytesThere) = try await handle.change { draft in
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
        try handle.read { documents in
            // The server may have lost bytes of one of them, and get them here.
            guard try documents.loss().lostChunks == 0 else { return [:] }
            var found: [Int: UnchangedFile] = [:]
            var keys = LocalFileKeys()
            var draft = handle.draft(of: documents)
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

    // MARK: Where

    /// Where the address leads, whether something is there or not.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does; `.unknownItem` for the id of nothing.
    package func path(_ address: some DocumentAddressing) async throws(CloudError) -> DocumentPath {
        try handle.read { try $0.path(address) }
    }

    /// What names clash by in this container: of two with one key only one can be in a folder.
    package func nameKey() async throws(CloudError) -> @Sendable ([UInt8]) -> [UInt8] {
        let rule = try handle.read { try $0.rule() }
        return { rule.key(of: $0) }
    }

    /// Begins a file of a length that nobody knows yet, at any place.
    package func makeWriter(at path: DocumentPath, makesFolders: Bool) throws(CloudError) -> DocumentWriter {
        try DocumentWriter(handle, at: path, makesFolders: makesFolders)
    }

    // MARK: Comparing

    /// Compares files with what is in the container. Nothing is changed or sent; a file that is as it is recorded is not
    /// read.
    ///
    /// - Parameters:
    ///   - readsAll: Whether all are read.
    ///   - onRead: Gets the bytes of each piece that was read.
    /// - Returns: Of each source how it differs, or why it cannot be compared.
    package func compare(
        _ sources: [DocumentSource], basis: PutBasis = .record, readsAll: Bool = false,
        onRead: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(CloudError) -> [Result<LocalDifference, CloudError>] {
        let known = readsAll ? [:] : try unchanged(sources, basis)
        let read = await Session.elsewhere { () -> [Result<(LocalOrigin?, ContentDigest?), CloudError>] in
            var keys = LocalFileKeys()
            return sources.enumerated().map { index, source in
                let origin = source.origin(&keys)
                if let digest = known[index]?.record.digest { return .success((origin, digest)) }
                return Result { () throws(CloudError) in
                    do { return (origin, try source.digest(onRead)) } catch {
                        throw LocalFailure.error(of: error, at: nil)
                    }
                }
            }
        }
        let files: [Result<(LocalOrigin?, ContentDigest?), CloudError>]
        do { files = try read.get() } catch { throw CloudError(wrapping: error) }
        return try handle.read { documents in
            var draft = handle.draft(of: documents)
            return try zip(sources, files).map { source, file in
                do {
                    let (origin, digest) = try file.get()
                    return .success(try draft.difference(try source.path.get(), origin, digest, basis))
                } catch {
                    guard let error = error as? CloudError else { throw error }
                    return .failure(error)
                }
            }
        }
    }
}

extension DocumentSource {
    /// Reads the content. Nil: a folder.
    fileprivate func digest(_ onRead: (Int) -> Void) throws -> ContentDigest? {
        switch content {
        case nil: return nil
        case .data(let data)?: return ContentDigest(.file, data)
        case .link(let target)?: return ContentDigest(.link, target)
        case .file(let file, _)?, .package(let file, _)?:
            guard let read = try ContentDigest.read(file, followsLinks: true, onRead: onRead) else {
                throw CloudError(.unknownItem, "There is no such file.", details: ["file": file.text])
            }
            return read.digest
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
}
