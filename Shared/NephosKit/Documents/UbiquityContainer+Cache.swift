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
            former: isHere ? nil : try copies.lastCopy(heldBy: item.description),
            bound: bound)
    }
}

/// Contents that are here, and those that come.
extension UbiquityContainer {
    func standing(
        of content: WireDocumentContent, of item: HeldDocument
    ) throws(CloudError) -> ContentStanding {
        try read { try $0.standing(of: content, of: item.id, bound: bytesMayStay(in: $0)) }
    }

    /// Bytes of contents that may stay here.
    func bytesMayStay(in documents: DocumentTransaction) throws -> UInt64 {
        guard let folder = try? ContentFolder(home: session.local.home) else { return 0 }
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
        let folder = try ContentFolder(home: session.local.home)
        let result: Result<ContentFolder.CopyOutcome, any Error> = await Session.elsewhere {
            // The server may take it in this moment.
            if let version, try folder.copy(version, length: content.length, range, to: sink) { return .written }
            return try kept.map { try folder.copy($0, range, to: sink) } ?? .unreadable
        }
        do {
            let outcome = try result.get()
            if let kept {
                session.note(outcome, of: kept, content) { try documents($0).copies }
                if outcome == .damaged { scope.execute { ($0.model as? DocumentsModel)?.downloads.look() } }
            }
            return outcome == .written
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// In a transaction of what is here, which sends nothing.
    func change<Value>(
        ofCopies body: (DocumentTransaction) throws -> Value
    ) throws(CloudError) -> Value {
        try session.local.write { try body(try documents($0)) }
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
        let fetched = try await session.fetch(
            content, range, of: .documents(standing.container, app: app), to: sink, staying: bound, begun: begun,
            former: standing.former, timeout, onProgress)
        return fetched.map { FetchedContent(item: item.id, content: content, copy: $0.copy, chunks: $0.chunks) }
    }

    /// Where a content is written to that is not here and may stay; nil: it is, or it may not.
    func absentCopy(
        for item: HeldDocument, _ content: WireDocumentContent
    ) throws(CloudError) -> KeptContent? {
        let (isHere, bound) = try read { documents in
            (
                try content.isInline || documents.copies.has(content)
                    || documents.heldVersion(of: content) != nil,
                try bytesMayStay(in: documents)
            )
        }
        guard !isHere, content.length <= bound, item.wire.hasBytes(of: content),
            let folder = try? ContentFolder(home: session.local.home)
        else { return nil }
        return KeptContent(folder, session.engine.makeDocumentID(), length: content.length)
    }

    /// Keeps what has come, as far as the items have it still. Where that fails it is fetched again.
    func keep(_ fetched: [FetchedContent]) {
        guard !fetched.isEmpty, let folder = try? ContentFolder(home: session.local.home) else { return }
        let now = session.engine.stamp.now
        var kept: [KeptContent] = []
        do {
            try session.local.keepCopies(in: folder) { database in
                let documents = try documents(database)
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
