internal import Foundation
public import NephosCore
internal import NephosWire

/// What was dropped here, and is on the server still.
public struct DocumentEviction: Sendable {
    /// Items whose contents were here, and are not any more.
    public var itemCount = 0
    /// Bytes that are free by that.
    public var byteCount: UInt64 = 0
    /// Items in the folder whose contents stay: they are unsent, in conflict, or kept downloaded, or the server may
    /// have lost bytes of them.
    public var kept: [DocumentEntry] = []
    /// Files and folders that were kept downloaded (`pin(_:)`), and are not any more: the one that was
    /// named, and those in it.
    public var unpinnedCount = 0
}

/// Which contents are on this device, as ``UbiquityContainer/downloads`` has them: downloaded before they are needed, kept, or
/// evicted. Other devices hear of none of it.
public struct DocumentDownloads: Sendable {
    let handle: ContainerHandle

    /// Items of which one call asks for the contents, at most.
    public static let itemsMax = 100_000

    /// Has the newest content of a file come to this device, or of all files in a folder. What is here already is left
    /// as it is, and so is what is paused in a folder.
    ///
    /// They come in the background, by this process or another of the home, and are gone on with by a later one.
    /// ``DocumentEntry/download`` says how far each is and what is in its way, also in a live query. Until one has come
    /// it is not dropped; after that it stays as others do (``Session/setContentCache(maxBytes:)``), unless it is kept
    /// downloaded (`pin(_:)`).
    ///
    /// - Returns: How many are to come.
    /// - Throws: ``CloudError`` `.unknownItem`; `.constraintViolation` when the file is paused and its newest content is
    ///   not here; `.limitExceeded` when there are more than ``itemsMax``, or when they have more bytes than may stay
    ///   here, with what was asked for before and has not come (`pin(_:)`, or raise the bound); else as ``UbiquityContainer/item(at:)``
    ///   does.
    @discardableResult
    public func start(_ path: some DocumentAddressing) async throws(CloudError) -> Int {
        try await start([path])
    }

    /// The same of several files and folders: of all of them, or, where they have more bytes than may stay here, of none.
    @discardableResult
    public func start(_ paths: [some DocumentAddressing]) async throws(CloudError) -> Int {
        let folder = try handle.contentFolder()
        let now = handle.now
        let count = try handle.session.local.write { database in
            let documents = try handle.documents(database)
            var (files, known) = ([HeldDocument](), Set<DocumentID>())
            for path in paths {
                try documents.requireUnpaused(path)
                files += try documents.files(at: path).filter { known.insert($0.id).inserted }
            }
            guard files.count <= Self.itemsMax else { throw Self.tooMany }
            let wanted = try files.filter { try !documents.isHere($0) && documents.pause(of: $0.id) == nil }
            // What is here would go for what comes.
            let bytes = wanted.isEmpty ? 0 : try documents.bytesToStay(of: files)
            let bound = try ContentCache.bound(database, folder)
            guard bytes <= bound else {
                throw CloudError(
                    .limitExceeded,
                    "This is more than may stay on this device. Keep it downloaded, or raise the bound of what stays.",
                    details: ["bytes": "\(bytes)", "bytes_max": "\(bound)"])
            }
            // Nor does what is here of them go before what nobody asked for.
            if !wanted.isEmpty {
                for item in files where !item.wire.content.isInline {
                    try documents.copies.noteUse(of: item.wire.content, now: now)
                }
            }
            for item in wanted { try documents.requestDownload(of: item) }
            return wanted.count
        }
        look()
        return count
    }

    /// Keeps a file's newest content on this device, or that of everything in a folder, also of what comes to be there:
    /// whatever room it takes, and until ``unpin(_:)``. It is fetched as `start(_:)` does.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when too many items are; else as ``UbiquityContainer/item(at:)`` does.
    public func pin(_ path: some DocumentAddressing) async throws(CloudError) { try await pin([path]) }

    /// The same of several: of all of them, or, where one cannot be, of none.
    public func pin(_ paths: [some DocumentAddressing]) async throws(CloudError) {
        try handle.write({ documents in
            for path in paths {
                let path = try documents.path(path)
                guard let place = try documents.place(path) else { throw try documents.noItem(at: path) }
                try documents.setPinned(place.id, true)
                try documents.touchAll(in: place, at: path)
                if case .item(let item) = place, !item.isFolder { try documents.requestDownload(of: item) }
            }
        })
        look()
    }

    /// Keeps it here no longer: what is here stays as other contents do.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does; `.unknownItem` when it is not kept for its own sake.
    public func unpin(_ path: some DocumentAddressing) async throws(CloudError) {
        let folder = try handle.contentFolder()
        try handle.session.local.keepCopies(in: folder) { database in
            let documents = try handle.documents(database)
            let path = try documents.path(path)
            guard let place = try documents.place(path) else { throw try documents.noItem(at: path) }
            guard try documents.wishes().pins.contains(place.id) else {
                throw CloudError(
                    .unknownItem, "This is not kept downloaded for its own sake.", details: ["path": path.text])
            }
            try documents.setPinned(place.id, false)
            try documents.touchAll(in: place, at: path)
            return []
        }
        look()
    }

    /// What is kept downloaded for its own sake, by path. Items that are gone are not among them.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    public func pinned() async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            try documents.wishes().pins.compactMap { id in
                try documents.fixedEntry(id) ?? documents.document(id).flatMap { try documents.entry($0) }
            }.sorted { $0.path < $1.path }
        }
    }

    /// Drops what is here of a file's content, or of all files in a folder; their names stay, and the server has the
    /// contents. What was asked for is not fetched any more, and nothing in the folder, nor itself, is kept downloaded.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` when the file's content has not been sent (wait until it is), is in
    ///   conflict (resolve it), or is kept downloaded for the sake of a folder (``unpin(_:)`` that), or when the server has
    ///   lost chunks of the container's content, and was not offered yet what this device has of it; `.unknownItem`; else as
    ///   ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func evict(_ path: some DocumentAddressing) async throws(CloudError) -> DocumentEviction {
        let folder = try handle.contentFolder()
        var (eviction, files) = (DocumentEviction(), [DocumentID]())
        try handle.session.local.write { database in
            (eviction, files) = (DocumentEviction(), [])
            let documents = try handle.documents(database)
            let place = try documents.path(path)
            guard let top = try documents.place(place) else { throw try documents.noItem(at: place) }
            let items = try documents.files(at: path)
            for id in try documents.wishes().pins {
                guard try id == top.id || top.isFolder && documents.isFolder(id, in: top.id) else { continue }
                try documents.setPinned(id, false)
                eviction.unpinnedCount += 1
            }
            for item in items {
                if let refusal = try documents.refusal(ofEvicting: item) {
                    guard top.isFolder else { throw refusal }
                    if let entry = try documents.entry(item) { eviction.kept.append(entry) }
                    continue
                }
                if let file = try documents.endRequest(of: item.id) { files.append(file) }
                let dropped = try documents.copies.drop(heldBy: item.id.description, and: item.wire.content)
                try documents.touch(item.id.name)
                files += dropped.map(\.file)
                eviction.itemCount += dropped.isEmpty ? 0 : 1
                eviction.byteCount += dropped.reduce(0) { $0 + $1.length }
            }
        }
        for file in files { folder.remove(file) }
        look()
        return eviction
    }

    /// The newest version of a file that the server has, with its content on this device if it may stay there. Asks the
    /// server. What is longer than may stay is not fetched; what is kept downloaded comes in the background
    /// (`start(_:)`).
    ///
    /// - Throws: ``CloudError`` what keeps the server from answering; else as ``UbiquityContainer/read(_:version:timeout:)`` does.
    @discardableResult
    public func fetchLatest(
        _ path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentVersion {
        try await handle.scope.waitUntilCurrent(timeout: timeout, isImpatient: true)
        var (item, content) = try await handle.reader.content(at: path, nil, timeout)
        // What was changed here, and waits, is not what the server has.
        if item.isPending, let there = try handle.read({ try $0.synced(item.id.name)?.item }), there.hasContent {
            (item.wire, content) = (there, there.content)
        }
        if try handle.read({ try $0.isWanted(item.id) }) {
            if try handle.write({ [item] in try $0.requestDownload(of: item) }) { look() }
        } else if try !handle.read({ [item] in try $0.isHere(item) }),
            case let standing = try handle.reader.standing(of: content, of: item), content.length <= standing.bound,
            let fetched = try await handle.reader.fetch(
                item, content, 0..<Int(clamping: content.length), to: NowhereSink(), standing, timeout, { _ in })
        {
            handle.reader.keep([fetched])
        }
        guard let version = DocumentVersion(content, of: item.wire) else { throw ContentReading.damaged }
        return version
    }

    /// New files that other devices are sending. Needs no network.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - isDeep: Also in the folder's folders, however deep.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    public func coming(
        in path: some DocumentAddressing = "/", isDeep: Bool = false
    ) async throws(CloudError) -> [ComingDocument] {
        try handle.read { documents in try documents.comingDocuments(in: documents.path(path), isDeep: isDeep) }
    }

    /// What was in the way of a content that is to come, and has not come; nil: nothing was.
    package func failure(of item: DocumentID) async throws(CloudError) -> CloudError? {
        try handle.read { try $0.request(of: item)?.error }
    }

    /// Rises whenever something has come of any content that is to come.
    package func beats() async throws(CloudError) -> Int64 { try handle.read { try $0.beats() } }

    private func look() { handle.scope.execute { ($0.model as? DocumentsModel)?.downloads.look() } }

    fileprivate static let tooMany = CloudError(
        .limitExceeded, "These are too many files. Name the folders in it one by one.",
        details: ["maximum": "\(itemsMax)"])
}

/// For what only has to come.
private struct NowhereSink: ContentSink {
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) {}
}

extension DocumentTransaction {
    /// - Throws: ``CloudError`` `.constraintViolation`: it is a file whose content is not here, and does not come.
    fileprivate func requireUnpaused(_ address: some DocumentAddressing) throws {
        let path = try path(address)
        guard case .item(let item)? = try place(path), try pause(of: item.id) != nil, try !isHere(item) else { return }
        throw CloudError(
            .constraintViolation,
            "The sync of the file is paused: what others have changed is not fetched. First: nephos docs resume",
            details: ["path": path.text])
    }

    /// The file, or all files in the folder.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; `.limitExceeded`.
    fileprivate func files(at address: some DocumentAddressing) throws -> [HeldDocument] {
        let path = try path(address)
        guard let place = try place(path) else { throw try noItem(at: path) }
        guard place.isFolder else { if case .item(let item) = place { return [item] } else { return [] } }
        let items = try descendants(of: place.id, at: path).map(\.item).filter(\.wire.hasContent)
        guard items.count <= DocumentDownloads.itemsMax else {
            throw DocumentDownloads.tooMany
        }
        return items
    }

    /// Bytes that have to have room here so that all of these can be here at once, with what was asked for and has not
    /// come; what is kept downloaded counts nowhere.
    fileprivate func bytesToStay(of files: [HeldDocument]) throws -> UInt64 {
        var (bytes, roots) = (UInt64(0), Set<Data>())
        for item in try files + requestedDocuments() {
            let content = item.wire.content
            guard !content.isInline, roots.insert(content.root).inserted, try pin(over: item.id) == nil else {
                continue
            }
            bytes = bytes.addingClamped(content.length)
        }
        return bytes
    }

    /// Of all that is in it something may be read otherwise than before. Whoever reads of more than are noted looks at
    /// everything.
    fileprivate func touchAll(in place: Place, at path: DocumentPath) throws {
        try touch(place.id.name)
        guard place.isFolder else { return }
        for (item, _) in try descendants(of: place.id, at: path).prefix(Int(Self.touchesMax)) {
            try touch(item.id.name)
        }
    }

    /// Why what is here of the item has to stay; nil: it need not.
    fileprivate func refusal(ofEvicting item: HeldDocument) throws -> CloudError? {
        let details = ["path": try path(of: item)?.path.text ?? item.id.description]
        if try item.isPending && (holdsContent(item.wire.content.version) || item.wire.content.isInline) {
            return CloudError(
                .constraintViolation, "The content has not been sent yet. Wait until it is, then drop it.",
                details: details)
        }
        if !item.wire.conflicts.isEmpty {
            return CloudError(
                .constraintViolation, "The content is in conflict with another. Resolve that, then drop it.",
                details: details)
        }
        if try mayBeLastCopy()
            && (copies.has(item.wire.content) || copies.lastCopy(heldBy: item.id.description) != nil)
        {
            return CloudError(
                .constraintViolation,
                "The server has lost some of the container's content, and this device has not offered it its copies yet. "
                    + "Drop it later.",
                details: details)
        }
        guard let pin = try pin(over: item.id), pin != item.id else { return nil }
        return CloudError(
            .constraintViolation,
            "The content is kept downloaded for the sake of a folder. Keep that no longer, then drop it.",
            details: details.merging(["folder": try pathText(of: pin) ?? ""]) { $1 })
    }
}
