import Foundation
package import NephosCore
import NephosFiles

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

extension UbiquityContainer {
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
        await record(placed.compactMap { got in got.note.map { ($0, got.part) } })
        keep(placed.compactMap(\.fetched))
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
        try read { documents in
            let bound = try bytesMayStay(in: documents)
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
            let plan = try await plan(
                found.item, content, to: place, followsLinks: false, replacesFolder: false, replacing)
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
