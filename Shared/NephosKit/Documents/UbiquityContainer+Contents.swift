public import Foundation
public import NephosCore
internal import NephosWire

/// Something to be put.
public struct DocumentSource: Sendable {
    package enum Content: Sendable {
        case data(Data)
        case file(LocalPath, allowsOpenDatabase: Bool)
        /// Where it leads, in bytes.
        case link(Data)
        case package(LocalPath, allowsOpenDatabase: Bool)
    }

    /// A failure: no item can be called so.
    let path: Result<DocumentPath, CloudError>
    /// Nil: a folder.
    let content: Content?
    /// The file, folder or link of this machine that it is a copy of; nil: it is of none.
    private(set) var local: LocalPath?
    /// Whether a person or an app has named that. Otherwise it was found in a folder that was named.
    private(set) var isNamed = true
    /// Of a folder: when what is in it was changed; nil: as it is.
    package var modified: DocumentDate?

    /// - Parameter file: The file or folder of this machine that it is a copy of.
    private init(_ path: String, _ file: URL, _ content: (LocalPath) -> Content) {
        do throws(CloudError) {
            local = try LocalPath(file)
            self.path = .success(try DocumentPath(path))
        } catch { self.path = .failure(error) }
        self.content = content(local ?? LocalPath(""))
    }

    private init(_ path: String, _ content: Content?) {
        self.path = Result { () throws(CloudError) in try DocumentPath(path) }
        self.content = content
    }

    /// The file that it is read from; nil: a folder, a link, or none.
    package var localFile: LocalPath? { if case .file(let file, _)? = content { file } else { nil } }

    /// - Parameters:
    ///   - local: The file, folder or link of this machine that it is a copy of.
    ///   - isNamed: Whether a person has named that. Otherwise it was found in a folder that was named.
    package init(_ path: DocumentPath, _ content: Content?, local: LocalPath? = nil, isNamed: Bool = true) {
        self.path = .success(path)
        self.content = content
        (self.local, self.isNamed) = (local, isNamed)
    }

    /// Whether a link at ``local`` means what it leads to.
    private var followsLinks: Bool { if case .link? = content { false } else { true } }

    func origin(_ keys: inout LocalFileKeys) -> LocalOrigin? {
        local.flatMap { keys.key(of: $0, followsLinks: followsLinks) }.map { LocalOrigin(file: $0, isNamed: isNamed) }
    }

    /// A folder of this machine, without what is in it, if it is not there yet: with the date that it has here.
    package static func folder(_ folder: LocalPath, at path: DocumentPath) -> DocumentSource {
        var source = DocumentSource(path, nil, local: folder, isNamed: false)
        if let status = (try? folder.status(followsLinks: true)) ?? nil {
            source.modified = DocumentDate(nanoseconds: FileStamp(status).modified)
        }
        return source
    }

    /// A folder, if it is not there yet.
    public static func folder(at path: String) -> DocumentSource { DocumentSource(path, nil) }
    /// A file's content.
    ///
    /// - Parameter allowsOpenDatabase: Whether a SQLite database that has a log, a journal or shared memory beside it,
    ///   and each of those, is put as it is: whoever says so knows that nobody writes to it meanwhile.
    public static func file(_ file: URL, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        DocumentSource(path, file) { .file($0, allowsOpenDatabase: allowsOpenDatabase) }
    }
    /// A file of these bytes.
    public static func data(_ data: Data, at path: String) -> DocumentSource {
        DocumentSource(path, .data(data))
    }
    /// A folder of this machine with all that is in it, as one item that changes as one: a package. What in it ends in
    /// `.nosync` is left out. A file that is the content of a package, to the byte, is put as that.
    ///
    /// - Parameter allowsOpenDatabase: As of ``file(_:at:allowsOpenDatabase:)``.
    public static func package(_ folder: URL, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        DocumentSource(path, folder) { .package($0, allowsOpenDatabase: allowsOpenDatabase) }
    }
    /// A symbolic link that leads there.
    public static func link(to target: String, at path: String) -> DocumentSource {
        DocumentSource(path, .link(Data(target.utf8)))
    }
}

extension UbiquityContainer {
    // MARK: Putting

    /// Puts a file of these bytes at the path: a new one, or a new version of the one that is there.
    ///
    /// The bytes are in this device's home until the server has them.
    ///
    /// - Parameter conditions: What this takes for granted, of whichever items; else it is refused.
    /// - Throws: ``CloudError`` `.unknownItem` when the folder is not there; `.alreadyExists` when a folder is at the
    ///   path; `.constraintViolation` when a condition does not hold here; `.invalidArguments` when something in the path ends in `.nosync`, and so stays on its device;
    ///   `.limitExceeded` when it is too long; `.storageFailure`; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func put(
        _ data: Data, at path: String, makesFolders: Bool = false, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await putOne(.data(data, at: path), makesFolders: makesFolders, conditions)
    }

    /// Puts a copy of a file at the path, with its extended attributes that begin with `user.`; what it does not have of
    /// those stays with the item. An empty one is none.
    ///
    /// A file that this device has got or put before is a new version of what it was then: where the item has a newer one
    /// by now, the two are a conflict (``conflicts(of:)``), and a file that is as it was then puts nothing. Any other file,
    /// and one that is put under conditions, takes the place of the newest version.
    ///
    /// - Parameter onProgress: Gets the bytes that are copied into this device's home. How much of that is sent is told by
    ///   ``DocumentEntry/percent``, and by queries.
    /// - Throws: ``CloudError`` as ``put(_:at:makesFolders:conditions:)-(Data,_,_)`` does; `.constraintViolation` when the file is
    ///   written while it is read, or is a database in use (``DocumentSource/file(_:at:allowsOpenDatabase:)``);
    ///   `.invalidArguments` when it is no file.
    @discardableResult
    public func put(
        fileAt file: URL, at path: String, makesFolders: Bool = false, conditions: [DocumentCondition] = [],
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await putOne(.file(file, at: path), makesFolders: makesFolders, conditions, onProgress)
    }

    /// Puts a copy of a folder at the path, as one item: a package. What has the bytes already makes no version.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:makesFolders:)-(Data,_,_)`` does; `.constraintViolation` when something in
    ///   it is written while it is read, or is a database in use; `.limitExceeded` when it has more than
    ///   ``DocumentLimits/packageMembersMax`` members, or they are too long; `.invalidArguments` when it is no folder, or
    ///   has something in it that is neither file, folder nor link.
    @discardableResult
    public func put(
        packageAt folder: URL, at path: String, makesFolders: Bool = false,
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await putOne(.package(folder, at: path), makesFolders: makesFolders, [], onProgress)
    }

    private func putOne(
        _ source: DocumentSource, makesFolders: Bool, _ conditions: [DocumentCondition],
        _ onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        let entries = try await put(
            [source], makesFolders: makesFolders, conditions, onProgress,
            reading: { documents, ids in try ids.map { try documents.requireEntry($0) } })
        guard let entry = entries.first else { throw CloudError(.internalError, "What was put has an entry.") }
        return entry
    }

    /// Puts several, all or none of them here. They are sent in requests of some hundreds of changes, in order. What has the
    /// bytes already that are put makes no version. Files and packages are new versions of what they were got or put as,
    /// as ``put(fileAt:at:makesFolders:conditions:onProgress:)`` says.
    ///
    /// - Parameter conditions: What this takes for granted, of whichever items; then it has to go as one request.
    /// - Returns: The item of each.
    /// - Throws: ``CloudError`` as the puts of one do; `.limitExceeded` when there are conditions, and it does not.
    @discardableResult
    public func put(
        _ sources: [DocumentSource], makesFolders: Bool = false, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> [DocumentID] {
        try await put(sources, makesFolders: makesFolders, conditions, reading: { $1 })
    }

    private func put<Result>(
        _ sources: [DocumentSource], makesFolders: Bool, _ conditions: [DocumentCondition],
        _ onProgress: (UInt64) -> Void = { _ in },
        reading: (DocumentTransaction, [DocumentID]) throws -> Result
    ) async throws(CloudError) -> Result {
        let folder = try ContentFolder(home: session.local.home)
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
            let lost = await lostParts(of: staged)
            // An app that says what it takes for granted knows what the content was made from.
            let basis = conditions.isEmpty ? PutBasis.recordOrNewest : .newest
            let (result, unchanged) = try await change(conditions) { draft in
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
        let (entry, unchanged) = try await change { draft in
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
        let version = session.engine.makeDocumentID()
        let now = session.engine.stamp.now.nanoseconds
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

    // MARK: Fetching

    /// Bytes of a content that is read into memory, at most.
    public static let readBytesMax = 64 << 20

    /// The content of a file, fetched if it is not here.
    ///
    /// - Parameters:
    ///   - version: Nil: the newest.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.unknownItem`; `.limitExceeded` when it has more than ``readBytesMax`` (get it into a
    ///   file); `.networkUnavailable` and the like (try again); else as ``item(at:)`` does.
    public func read(
        _ path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        let (item, content) = try await content(at: path, version, timeout)
        guard content.length <= UInt64(Self.readBytesMax) else {
            throw CloudError(
                .limitExceeded, "The content is too long to be read into memory. Get it into a file.",
                details: ["bytes_max": "\(Self.readBytesMax)"])
        }
        return try await read(item, content, 0..<Int(content.length), timeout)
    }

    /// A part of the content of a file. What is not here is fetched: the chunks that have some of it, at most 1 MiB
    /// each, and what leads to them; nothing else.
    ///
    /// - Parameters:
    ///   - range: Bytes of the content. What is beyond its end is left out.
    ///   - version: Nil: the newest.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.limitExceeded` when the part has more than ``readBytesMax`` (read it in several);
    ///   else as ``read(_:version:timeout:)`` does.
    public func read(
        _ path: some DocumentAddressing, range: Range<UInt64>, version: DocumentID? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        let (item, content) = try await content(at: path, version, timeout)
        let range = range.clamped(to: 0..<content.length)
        guard range.upperBound - range.lowerBound <= UInt64(Self.readBytesMax) else {
            throw CloudError(
                .limitExceeded, "The part is too long to be read into memory. Read it in several.",
                details: ["bytes_max": "\(Self.readBytesMax)"])
        }
        // No content has more than 2^44 bytes.
        guard let first = Int(exactly: range.lowerBound), let end = Int(exactly: range.upperBound) else {
            throw ContentReading.damaged
        }
        return try await read(item, content, first..<end, timeout)
    }

    /// - Parameter onProgress: Gets the bytes of the part that have come; of a part more, if its chunks go beyond it.
    func read(
        _ item: HeldDocument, _ content: WireDocumentContent, _ range: Range<Int>, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(CloudError) -> Data {
        if let data = try inline(content) { return Data(data.dropFirst(range.lowerBound).prefix(range.count)) }
        let data = DataSink(count: range.count)
        let sink = RangeSink(range: range, sink: data)
        let standing = try standing(of: content, of: item)
        if try await copy(content, range, to: sink, standing) { return data.content }
        if let fetched = try await fetch(item, content, range, to: sink, standing, timeout, onProgress) {
            keep([fetched])
        }
        return data.content
    }

    /// Writes the content of a file into a local one, which is replaced as a whole and keeps its mode, and its owner
    /// where this user may give it away. Where a link is there, what it leads to is replaced. A link becomes one, in
    /// the place of another or of a file; a package a folder, in the place of an empty one or of nothing. A file gets the
    /// item's extended attributes that begin with `user.`.
    ///
    /// Only a file is replaced that is as this device got or put it, or has the bytes already; any other stays.
    ///
    /// - Parameters:
    ///   - version: Nil: the newest.
    ///   - overwrites: Whether whatever file is there is replaced, also one that was changed here since it was got.
    ///   - replacesFolder: Whether a package takes the place of a folder with something in it, which is removed with all
    ///     that is in it, in one step; else it is in the way.
    ///   - timeout: How long nothing may come before it is given up.
    ///   - onProgress: Gets the bytes that have come, and all.
    /// - Returns: The extended attributes that the disk did not take, 1000 at most.
    /// - Throws: ``CloudError`` as ``read(_:version:timeout:)`` does; `.storeOutOfStep` when a file is there that stays;
    ///   `.invalidArguments` when a folder, a device or whatever else is no file is there; `.alreadyExists` when a folder
    ///   is in a package's way; `.storageFailure`, `.permissionFailure` of the local file.
    @discardableResult
    public func get(
        _ path: some DocumentAddressing, to file: URL, version: DocumentID? = nil, overwrites: Bool = false,
        replacesFolder: Bool = false, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> [UnkeptAttribute] {
        try await get(
            path, to: LocalPath(file), followsLinks: true, version: version, replacing: overwrites ? .all : .recorded,
            replacesFolder: replacesFolder, timeout: timeout, onProgress: onProgress
        ).unkept
    }

    /// The same, to any place.
    ///
    /// - Parameter followsLinks: Whether a link that is there means what it leads to; else it is in the way of a file.
    /// - Returns: Also whether the file had the bytes already.
    package func get(
        _ path: some DocumentAddressing, to place: LocalPath, followsLinks: Bool, version: DocumentID? = nil,
        replacing: LocalReplacing = .recorded, replacesFolder: Bool = false, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> GotDocument {
        let got = try await part(
            path, for: place, followsLinks: followsLinks, version: version, replacing: replacing,
            replacesFolder: replacesFolder, timeout: timeout, onProgress: onProgress)
        try got.part?.flush()
        try got.part?.takePlace()
        if let note = got.note { await record([(note, got.part)]) }
        if let fetched = got.fetched { keep([fetched]) }
        return GotDocument(unkept: got.part?.unkept ?? [], isUpToDate: got.isUpToDate)
    }

    /// Writes the content beside its place; a link has its place already.
    func part(
        _ path: some DocumentAddressing, for place: LocalPath, followsLinks: Bool, version: DocumentID?,
        replacing: LocalReplacing, replacesFolder: Bool, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws(CloudError) -> FetchedDocuments.Got {
        let (item, content) = try await content(at: path, version, timeout)
        var got = FetchedDocuments.Got()
        do {
            let plan = try await plan(
                item, content, to: place, followsLinks: followsLinks, replacesFolder: replacesFolder, replacing)
            (got.note, got.isUpToDate) = (plan.note, plan.isUpToDate)
            switch item.wire.kind {
            case _ where plan.isUpToDate: break
            case .link:
                guard let target = try inline(content) else {
                    throw CloudError(.unknownItem, "Where the link leads is too long for this release.")
                }
                var place = try LocalTarget.link(place)
                place.expected = plan.expected
                try Self.makeLink(to: [UInt8](target), at: place)
            case .package:
                var target = try LocalTarget.package(place, replaces: plan.replacesFolder)
                target.expected = plan.expected
                (got.part, got.fetched) = try await packagePart(of: item, content, for: target, timeout, onProgress)
            default:
                var target = try LocalTarget.file(place, followsLinks: followsLinks)
                target.expected = plan.expected
                (got.part, got.fetched) = try await part(of: item, content, for: target, timeout, onProgress)
            }
        } catch { throw LocalFailure.error(of: error, at: nil) }
        onProgress(content.length, content.length)
        return got
    }

    static func makeLink(to target: [UInt8], at place: LocalTarget) throws(CloudError) {
        // What the system could not take back as it is, is no link here.
        guard !target.isEmpty, !target.contains(0) else { throw ContentReading.damaged }
        let (part, _) = try LocalParts.make(beside: place.path) { part in
            LocalPath(bytes: target).withCString { symlink($0, part) }
        }
        do throws(CloudError) {
            try place.requireExpected()
            try LocalParts.move(part, to: place.path)
        } catch {
            LocalParts.remove(part)
            throw error
        }
    }

    /// Writes a content beside its place.
    ///
    /// - Parameter standing: Nil: it is looked up.
    func part(
        of item: HeldDocument, _ content: WireDocumentContent, _ standing: ContentStanding? = nil,
        for place: LocalTarget, _ timeout: Duration, _ onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws -> (PartFile, FetchedContent?) {
        let isExecutable = item.wire.attributes.executable
        let begun =
            content.length >= BegunParts.bytesMin
            ? BegunParts(home: session.local.home)?.open(content.root, for: place, isExecutable: isExecutable) : nil
        let part = try begun.map { PartFile($0, for: place) } ?? PartFile(for: place, isExecutable: isExecutable)
        let sink = EndingSink(FileSink(file: part.file, name: part.name))
        defer { sink.end() }
        let fetched: FetchedContent?
        do {
            fetched = try await write(content, of: item, standing, to: sink, begun: part.before, timeout, onProgress)
            try part.cut(to: content.length)
        } catch {
            if CloudError(wrapping: error).keepsPart { part.leave() }
            throw error
        }
        part.setAttributes(item.wire.attributes.extended.map { ($0.name, $0.value) })
        Self.setModified(DocumentDate(nanoseconds: content.modified), of: part.descriptor)
        try part.keepAccess()
        return (part, fetched)
    }

    /// Writes all of a content.
    ///
    /// - Parameters:
    ///   - standing: Nil: it is looked up.
    ///   - begun: What the sink writes to, as far as it was written before; nil: nothing was.
    /// - Returns: What may be kept here besides.
    func write(
        _ content: WireDocumentContent, of item: HeldDocument, _ standing: ContentStanding? = nil,
        to sink: any ContentSink, begun: OpenFile? = nil, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws -> FetchedContent? {
        if let data = try inline(content) {
            try data.withUnsafeBytes { try sink.write($0, at: 0) }
            return nil
        }
        let all = 0..<Int(clamping: content.length)
        let standing = if let standing { standing } else { try self.standing(of: content, of: item) }
        if try await copy(content, all, to: sink, standing) { return nil }
        return try await fetch(item, content, all, to: sink, standing, begun: begun, timeout) {
            onProgress(UInt64($0), content.length)
        }
    }

    static func setModified(_ date: DocumentDate, of descriptor: Int32) {
        let time = timespec(date)
        _ = [time, time].withUnsafeBufferPointer { futimens(descriptor, $0.baseAddress) }
    }

    /// The item at the path, and one of its contents; nil: the newest. Of former ones it asks the server.
    func content(
        at path: some DocumentAddressing, _ version: DocumentID?, _ timeout: Duration
    ) async throws(CloudError) -> (HeldDocument, WireDocumentContent) {
        let (path, item) = try read { documents in
            let path = try documents.path(path)
            return (path, try documents.item(at: path))
        }
        guard item.wire.hasContent else {
            throw CloudError(.invalidArguments, "A folder has no content of its own.", details: ["path": path.text])
        }
        guard let version, version.wire != item.wire.content.version else { return (item, item.wire.content) }
        if let conflict = item.wire.conflicts.first(where: { $0.version == version.wire }) { return (item, conflict) }
        guard let found = try await versions(of: item, timeout).first(where: { $0.id == version }) else {
            throw CloudError(
                .unknownItem, "The file has no such version, or it is not kept any more.",
                details: ["path": path.text, "version": "\(version)"])
        }
        return (item, found.content)
    }

    /// The content of an item that has it with it.
    func inline(_ content: WireDocumentContent) throws(CloudError) -> Data? {
        guard content.root.isEmpty else { return nil }
        guard UInt64(content.inline.count) == content.length else { throw ContentReading.damaged }
        return content.inline
    }

    // MARK: On its way

    /// How far the contents are that this process sends: bytes of those of the request that is on its way, and all; and
    /// whether the next wait because of a limited rate, which is no standstill.
    package func uploadProgress() async throws(CloudError) -> (
        done: Int, total: Int, isPaced: Bool, waiting: CloudError?
    ) {
        let progress: UploadProgress = try await scope.perform { driver, completion in
            completion(.success((driver.model as? DocumentsModel)?.uploads.progress ?? UploadProgress()))
        }
        return (progress.bytesDone, progress.bytesTotal, progress.isPaced, progress.waiting)
    }
}
