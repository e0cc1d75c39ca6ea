import Foundation
import NephosCore
import NephosWire

/// A content that has come whole, and whose copy may stay here.
struct FetchedContent: Sendable {
    var item: DocumentID
    var content: WireDocumentContent
    var copy: KeptContent
    var chunks: [CutChunk]
}

/// What is known here of a content before it is got. Of many it is looked up in one transaction.
///
/// It may be out of date by the time it is used: what is not here any more is fetched then.
struct ContentStanding: Sendable {
    /// The version under which it is in the home; nil: it does not wait to be sent.
    var version: DocumentID?
    /// Its copy; nil: there is none.
    var kept: LocalCopy?
    /// The container that has it.
    var container: String
    /// What is here of the item's contents: most of the chunks may be in it.
    var former: LocalCopy?
    /// Bytes that may stay here.
    var bound: UInt64
}

extension DocumentTransaction {
    /// - Parameter bound: Bytes that may stay here.
    func standing(of content: WireDocumentContent, of item: DocumentID, bound: UInt64) throws -> ContentStanding {
        guard !content.isInline else { return ContentStanding(container: container, bound: bound) }
        let holder = try holder(of: content)
        let (version, kept) = (try holder.heldVersion(of: content), try holder.copies.copy(of: content))
        let isHere = version != nil || kept != nil
        return ContentStanding(
            version: version, kept: kept, container: holder.container,
            former: isHere ? nil : try copies.lastCopy(heldBy: item.description), bound: bound)
    }
}

/// Reads contents of a container's items: from this device where they are here, and else from the server; what has come
/// whole may stay here.
struct DocumentReader: Sendable {
    let handle: ContainerHandle

    // MARK: Reading

    /// See ``UbiquityContainer/read(_:version:timeout:)``.
    func read(
        _ path: some DocumentAddressing, version: DocumentID?, timeout: Duration
    ) async throws(CloudError) -> Data {
        let (item, content) = try await content(at: path, version, timeout)
        return try await readAll(content, of: item, timeout)
    }

    /// Reads a whole content into memory.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`.
    func readAll(
        _ content: WireDocumentContent, of item: HeldDocument, _ timeout: Duration
    ) async throws(CloudError) -> Data {
        let bytesMax = UbiquityContainer.readBytesMax
        guard content.length <= UInt64(bytesMax) else {
            throw CloudError(
                .limitExceeded, "The content is too long to be read into memory. Get it into a file.",
                details: ["bytes_max": "\(bytesMax)"])
        }
        return try await read(item, content, 0..<Int(content.length), timeout)
    }

    /// See ``UbiquityContainer/read(_:range:version:timeout:)``.
    func read(
        _ path: some DocumentAddressing, range: Range<UInt64>, version: DocumentID?, timeout: Duration
    ) async throws(CloudError) -> Data {
        let (item, content) = try await content(at: path, version, timeout)
        let range = range.clamped(to: 0..<content.length)
        guard range.upperBound - range.lowerBound <= UInt64(UbiquityContainer.readBytesMax) else {
            throw CloudError(
                .limitExceeded, "The part is too long to be read into memory. Read it in several.",
                details: ["bytes_max": "\(UbiquityContainer.readBytesMax)"])
        }
        // No content has more than 2^44 bytes.
        guard let first = Int(exactly: range.lowerBound), let end = Int(exactly: range.upperBound) else {
            throw ContentReading.damaged
        }
        return try await read(item, content, first..<end, timeout)
    }

    /// See ``DocumentStreams/read(_:range:version:timeout:onProgress:)``.
    func stream(
        _ path: some DocumentAddressing, range: Range<UInt64>?, version: DocumentID?, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> DocumentStream {
        let (item, content) = try await content(at: path, version, timeout)
        let all = 0..<content.length
        return DocumentStream(
            range: range?.clamped(to: all) ?? all, version: DocumentID(bytes: content.version), reader: self,
            item: item, content: content, timeout: timeout, onProgress: onProgress)
    }

    /// The item at the path, and one of its contents; nil: the newest. Of former ones it asks the server.
    func content(
        at path: some DocumentAddressing, _ version: DocumentID?, _ timeout: Duration
    ) async throws(CloudError) -> (HeldDocument, WireDocumentContent) {
        let (path, item) = try handle.read { documents in
            let path = try documents.path(path)
            return (path, try documents.item(at: path))
        }
        guard item.wire.hasContent else {
            throw CloudError(.invalidArguments, "A folder has no content of its own.", details: ["path": path.text])
        }
        guard let version, version.wire != item.wire.content.version else { return (item, item.wire.content) }
        if let conflict = item.wire.conflicts.first(where: { $0.version == version.wire }) { return (item, conflict) }
        guard
            let found = try await DocumentVersions(handle: handle).list(of: item, timeout).first(where: {
                $0.id == version
            })
        else {
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

    // MARK: On this device, and on its way

    func standing(
        of content: WireDocumentContent, of item: HeldDocument
    ) throws(CloudError) -> ContentStanding {
        try handle.read { try $0.standing(of: content, of: item.id, bound: bytesMayStay(in: $0)) }
    }

    /// Bytes of contents that may stay here.
    func bytesMayStay(in documents: DocumentTransaction) throws -> UInt64 {
        guard let folder = try? handle.contentFolder() else { return 0 }
        return try ContentCache.bound(documents.rows.database, folder)
    }

    /// Writes the content, if it is here: since it waits to be sent, or was kept. What is damaged is dropped.
    ///
    /// - Returns: False: it is not here. Some of it may be written.
    func copy(
        _ content: WireDocumentContent, _ range: Range<Int>, to sink: any ContentSink, _ standing: ContentStanding
    ) async throws(CloudError) -> Bool {
        let (version, kept) = (standing.version, standing.kept)
        guard version != nil || kept != nil else { return false }
        let folder = try handle.contentFolder()
        let result: Result<ContentFolder.CopyOutcome, any Error> = await Session.elsewhere {
            // The server may take it in this moment.
            if let version, try folder.copy(version, length: content.length, range, to: sink) { return .written }
            return try kept.map { try folder.copy($0, range, to: sink) } ?? .unreadable
        }
        do {
            let outcome = try result.get()
            if let kept {
                handle.session.note(outcome, of: kept, content) { try handle.documents($0).copies }
                if outcome == .damaged { handle.scope.execute { ($0.model as? DocumentsModel)?.downloads.look() } }
            }
            return outcome == .written
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// Fetches a content or a part of it.
    ///
    /// - Parameter begun: What the sink writes to, as far as it was written before; nil: nothing was.
    /// - Returns: What may stay here, once all of it has gone where it was to go; nil: nothing may.
    func fetch(
        _ item: HeldDocument, _ content: WireDocumentContent, _ range: Range<Int>, to sink: any ContentSink,
        _ standing: ContentStanding, begun: OpenFile? = nil, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) -> FetchedContent? {
        let bound = item.wire.hasBytes(of: content) ? standing.bound : 0
        let fetched = try await handle.session.fetch(
            content, range, of: .documents(standing.container, app: handle.app), to: sink, staying: bound, begun: begun,
            former: standing.former, timeout, onProgress)
        return fetched.map { FetchedContent(item: item.id, content: content, copy: $0.copy, chunks: $0.chunks) }
    }

    /// Where a content is written to that is not here and may stay; nil: it is, or it may not.
    func absentCopy(
        for item: HeldDocument, _ content: WireDocumentContent
    ) throws(CloudError) -> KeptContent? {
        let (isHere, bound) = try handle.read { documents in
            (
                try content.isInline || documents.copies.has(content)
                    || documents.heldVersion(of: content) != nil,
                try bytesMayStay(in: documents)
            )
        }
        guard !isHere, content.length <= bound, item.wire.hasBytes(of: content),
            let folder = try? handle.contentFolder()
        else { return nil }
        return KeptContent(folder, handle.makeID(), length: content.length)
    }

    /// Keeps what has come, as far as the items have it still. Where that fails it is fetched again.
    func keep(_ fetched: [FetchedContent]) {
        guard !fetched.isEmpty, let folder = try? handle.contentFolder() else { return }
        let now = handle.now
        var kept: [KeptContent] = []
        do {
            try handle.session.local.keepCopies(in: folder) { database in
                let documents = try handle.documents(database)
                var former: [DocumentID] = []
                for one in fetched {
                    guard try documents.document(one.item)?.wire.hasBytes(of: one.content) == true,
                        try CutChunk.root(of: one.chunks).isRoot(of: one.content)
                    else { continue }
                    former += try documents.addCopy(
                        of: one.content, for: one.item, file: one.copy.file, chunks: one.chunks, now: now)
                    kept.append(one.copy)
                }
                return former
            }
        } catch { kept = [] }
        for copy in kept { copy.keep() }
        for one in fetched { one.copy.drop() }
    }
}

extension ChunkID {
    func isRoot(of content: WireDocumentContent) -> Bool { Data(bytes) == content.root }
}
