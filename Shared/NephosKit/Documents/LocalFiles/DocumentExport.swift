internal import Foundation
package import NephosCore
internal import NephosFiles
internal import NephosWire

/// Contents that have come, and have not taken their places yet.
package struct FetchedDocuments: Sendable {
    /// What has come of one.
    struct Got: Sendable {
        /// Nil: it has its place already.
        var part: (any LocalPart)?
        var fetched: FetchedContent?
        /// What is recorded once it has its place.
        var note: LocalNote?
        /// Whether the file had the bytes already.
        var isUpToDate = false
    }

    /// Of each; nil: it was not tried.
    let parts: [Result<Got, CloudError>?]
    /// What failed with one fails with others too.
    package var isEnded = false
}

/// How a get of one item went.
package struct GotDocument: Sendable {
    /// Extended attributes that the disk did not take.
    package var unkept: [UnkeptAttribute]
    /// Whether the file had the bytes already, and nothing was written.
    package var isUpToDate: Bool
}

/// Writes contents of a container's items into local files, and records what the files are copies of.
package struct DocumentExport: Sendable {
    let handle: ContainerHandle

    // MARK: One

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
        if let note = got.note { await handle.records.record([(note, got.part)]) }
        if let fetched = got.fetched { handle.reader.keep([fetched]) }
        return GotDocument(unkept: got.part?.unkept ?? [], isUpToDate: got.isUpToDate)
    }

    /// Writes the content beside its place; a link has its place already.
    func part(
        _ path: some DocumentAddressing, for place: LocalPath, followsLinks: Bool, version: DocumentID?,
        replacing: LocalReplacing, replacesFolder: Bool, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws(CloudError) -> FetchedDocuments.Got {
        let (item, content) = try await handle.reader.content(at: path, version, timeout)
        var got = FetchedDocuments.Got()
        do {
            let plan = try await GetPlan.make(
                of: item, content, to: place, followsLinks: followsLinks, replacesFolder: replacesFolder, replacing,
                handle)
            (got.note, got.isUpToDate) = (plan.note, plan.isUpToDate)
            switch item.wire.kind {
            case _ where plan.isUpToDate: break
            case .link:
                guard let target = try handle.reader.inline(content) else {
                    throw CloudError(.unknownItem, "Where the link leads is too long for this release.")
                }
                var place = try LocalTarget.link(place)
                place.expected = plan.expected
                try Self.makeLink(to: [UInt8](target), at: place)
            case .package:
                var target = try LocalTarget.package(place, replaces: plan.replacesFolder)
                target.expected = plan.expected
                (got.part, got.fetched) = try await handle.packages.part(
                    of: item, content, for: target, timeout, onProgress)
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
            ? BegunParts(home: handle.session.local.home)?.open(content.root, for: place, isExecutable: isExecutable)
            : nil
        let part = try begun.map { PartFile($0, for: place) } ?? PartFile(for: place, isExecutable: isExecutable)
        let sink = EndingSink(FileSink(file: part.file, name: part.name))
        defer { sink.end() }
        let fetched: FetchedContent?
        do {
            fetched = try await handle.reader.write(
                content, of: item, standing, to: sink, begun: part.before, timeout, onProgress)
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

    static func setModified(_ date: DocumentDate, of descriptor: Int32) {
        let time = timespec(date)
        _ = [time, time].withUnsafeBufferPointer { futimens(descriptor, $0.baseAddress) }
    }

    /// What a get of an item to a place would do: nothing (``LocalDifference/Kind/same``), bring it, or leave the file.
    ///
    /// - Throws: ``CloudError`` as the get would throw of what is there.
    package func compare(
        _ id: DocumentID, version: DocumentID? = nil, with place: LocalPath, followsLinks: Bool,
        replacing: LocalReplacing, replacesFolder: Bool, timeout: Duration
    ) async throws(CloudError) -> LocalDifference.Kind {
        let (item, content) = try await handle.reader.content(at: id, version, timeout)
        do {
            let plan = try await GetPlan.make(
                of: item, content, to: place, followsLinks: followsLinks, replacesFolder: replacesFolder, replacing,
                handle)
            if plan.isUpToDate { return .same }
            return try place.named.status() == nil ? .onlyThere : .changedThere
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    // MARK: Several

    /// Contents that are fetched at a time of several. A small one takes the time of its request, and the connection
    /// has room for many.
    private static let fetchesMax = 8

    /// Gets several items, each to its place, as ``get(_:to:followsLinks:version:replacing:replacesFolder:timeout:onProgress:)`` does; no link is
    /// followed. They take their places once all of them are written and flushed, in one go: until then, whatever
    /// happens, what was there is there.
    ///
    /// - Parameters:
    ///   - items: At most some hundreds: each is an open file.
    ///   - replacing: Which local files are replaced.
    ///   - replacesFolders: Whether packages take the place of folders with something in them.
    ///   - endsAll: Whether the others need not be tried after this error.
    ///   - onProgress: Gets the number of an item, and the bytes of it that have come.
    /// - Returns: How it went with each; nil: it was not tried.
    package func getEach(
        _ items: [(item: DocumentID, place: LocalPath)], replacing: LocalReplacing = .recorded,
        replacesFolders: Bool = false, timeout: Duration,
        endsAll: @escaping @Sendable (CloudError) -> Bool = { _ in false },
        onProgress: @escaping @Sendable (Int, UInt64) -> Void = { _, _ in }
    ) async -> [Result<GotDocument, CloudError>?] {
        await place(
            fetchEach(
                items, replacing: replacing, replacesFolders: replacesFolders, timeout: timeout, endsAll: endsAll,
                onProgress: onProgress))
    }

    /// The first half of ``getEach(_:replacing:replacesFolders:timeout:endsAll:onProgress:)``: what is returned has come, and takes
    /// its places by ``place(_:)``. Meanwhile others may be fetched. Let go of before, it leaves nothing.
    package func fetchEach(
        _ items: [(item: DocumentID, place: LocalPath)], replacing: LocalReplacing = .recorded,
        replacesFolders: Bool = false, timeout: Duration,
        endsAll: @escaping @Sendable (CloudError) -> Bool = { _ in false },
        onProgress: @escaping @Sendable (Int, UInt64) -> Void = { _, _ in }
    ) async -> FetchedDocuments {
        typealias Outcome = (number: Int, part: Result<FetchedDocuments.Got, CloudError>)
        let found: [Found?]
        do throws(CloudError) { found = try files(items.map(\.item)) } catch {
            return FetchedDocuments(parts: items.indices.map { $0 == 0 || !endsAll(error) ? .failure(error) : nil })
        }
        var parts: [Result<FetchedDocuments.Got, CloudError>?] = items.map { _ in nil }
        var isEnded = false
        await withTaskGroup(of: Outcome.self) { group in
            for (number, (item, place)) in items.enumerated() {
                if number >= Self.fetchesMax, let outcome = await group.next() {
                    parts[outcome.number] = outcome.part
                    if case .failure(let error) = outcome.part, endsAll(error) { isEnded = true }
                }
                if isEnded { break }
                let found = found[number]
                group.addTask {
                    do throws(CloudError) {
                        let part =
                            if let found {
                                try await self.part(of: found, for: place, replacing, timeout) { done, _ in
                                    onProgress(number, done)
                                }
                            } else {
                                try await self.part(
                                    item, for: place, followsLinks: false, version: nil, replacing: replacing,
                                    replacesFolder: replacesFolders, timeout: timeout
                                ) { done, _ in onProgress(number, done) }
                            }
                        return (number, .success(part))
                    } catch { return (number, .failure(error)) }
                }
            }
            for await outcome in group {
                parts[outcome.number] = outcome.part
                if case .failure(let error) = outcome.part, endsAll(error) { isEnded = true }
            }
        }
        return FetchedDocuments(parts: parts, isEnded: isEnded)
    }

    /// Has what was fetched take its places, all in one go, once it is flushed.
    ///
    /// - Returns: As ``getEach(_:replacing:replacesFolders:timeout:endsAll:onProgress:)`` does.
    package func place(_ fetched: FetchedDocuments) async -> [Result<GotDocument, CloudError>?] {
        let parts = fetched.parts
        let flushed = await Self.flush(parts.compactMap { try? $0?.get().part })
        let results = parts.map { part -> Result<FetchedDocuments.Got, CloudError>? in
            guard let part else { return nil }
            return Result { () throws(CloudError) in
                let got = try part.get()
                guard let part = got.part else { return got }
                try flushed.get()
                try part.takePlace()
                return got
            }
        }
        let placed = results.compactMap { try? $0?.get() }
        await handle.records.record(placed.compactMap { got in got.note.map { ($0, got.part) } })
        handle.reader.keep(placed.compactMap(\.fetched))
        return results.map { result in
            result?.map { GotDocument(unkept: $0.part?.unkept ?? [], isUpToDate: $0.isUpToDate) }
        }
    }

    /// A file that is in its place, and what is known of its content.
    private struct Found: Sendable {
        var item: HeldDocument
        var standing: ContentStanding
    }

    /// Those of the items that are files in their places. The others are looked at one by one.
    private func files(_ items: [DocumentID]) throws(CloudError) -> [Found?] {
        try handle.read { documents in
            let bound = try handle.reader.bytesMayStay(in: documents)
            var folders: [DocumentID: DocumentPath] = [:]
            return try items.map { id in
                guard let item = try documents.document(id), item.wire.kind == .file, !item.isTrashed,
                    let parent = item.parent, try documents.path(ofFolder: parent, &folders) != nil
                else { return nil }
                return Found(
                    item: item, standing: try documents.standing(of: item.wire.content, of: id, bound: bound))
            }
        }
    }

    private func part(
        of found: Found, for place: LocalPath, _ replacing: LocalReplacing, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws(CloudError) -> FetchedDocuments.Got {
        let content = found.item.wire.content
        do {
            let plan = try await GetPlan.make(
                of: found.item, content, to: place, followsLinks: false, replacesFolder: false, replacing, handle)
            var got = FetchedDocuments.Got(note: plan.note, isUpToDate: plan.isUpToDate)
            if !plan.isUpToDate {
                var target = try LocalTarget.file(place, followsLinks: false)
                target.expected = plan.expected
                (got.part, got.fetched) = try await part(
                    of: found.item, content, found.standing, for: target, timeout, onProgress)
            }
            onProgress(content.length, content.length)
            return got
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// Flushes the file systems that the parts are on: what would be done for each of them, once for all.
    private static func flush(_ parts: [any LocalPart]) async -> Result<Void, CloudError> {
        await withCheckedContinuation { continuation in
            // It can take a while.
            DispatchQueue.global().async {
                var devices: Set<dev_t> = []
                continuation.resume(
                    returning: Result { () throws(CloudError) in
                        for part in parts {
                            var status = stat()
                            guard fstat(part.descriptor, &status) == 0 else {
                                throw ContentFolder.failure(part.name)
                            }
                            guard devices.insert(status.st_dev).inserted else { continue }
                            let number = FileSystem.flush(part.descriptor)
                            guard number == 0 else {
                                errno = number
                                throw ContentFolder.failure(part.name)
                            }
                        }
                    })
            }
        }
    }
}
