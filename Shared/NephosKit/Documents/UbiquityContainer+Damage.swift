internal import Foundation
public import NephosCore
internal import NephosWire

/// Contents of which the server has lost some bytes.
public struct DamagedContents: Sendable {
    /// Files whose newest content, a conflict's or a further one is one of them, by path. A device that has a copy of such a
    /// content sends what is lost by itself; whoever has the file elsewhere puts it again, as it was, or another content.
    public var items: [DocumentEntry] = []
    /// Those of them of which this device has a copy, and the copy is not what it was either: it was not sent.
    public var damagedHere: Set<DocumentID> = []
    /// Whether the server has lost more than it named.
    public var hasMore = false
}

extension UbiquityContainer {
    /// The items of which the server cannot read the contents any more, as it said last. Of long contents it is asked
    /// which chunks they have; nothing is asked while it has lost nothing.
    ///
    /// What is damaged of former versions alone has no item here.
    ///
    /// - Parameters:
    ///   - path: Of this item and what is in it; `/`: of all.
    ///   - timeout: How long an answer may take.
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.networkUnavailable` and the like.
    public func damagedItems(
        of path: some DocumentAddressing = "/", timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DamagedContents {
        typealias Candidate = (entry: DocumentEntry, contents: [WireDocumentContent])
        let damage = try await damage(timeout)
        guard !damage.chunks.isEmpty else { return DamagedContents(hasMore: damage.hasMore) }
        let (candidates, here) = try read { documents -> ([Candidate], Set<DocumentID>) in
            let candidates = try documents.longContents(of: try documents.path(path))
            let lost = try LostChunks(documents.rows).all().filter(\.value.isDamagedHere)
            let here = try candidates.filter { _, contents in
                try contents.contains { try documents.hasCopy(of: $0) { lost[$0.id] != nil } }
            }
            return (candidates, Set(here.map(\.entry.id)))
        }
        var damaged = DamagedContents(hasMore: damage.hasMore)
        for (entry, contents) in candidates {
            for content in contents where try await rests(content, on: damage, timeout) {
                damaged.items.append(entry)
                if here.contains(entry.id) { damaged.damagedHere.insert(entry.id) }
                break
            }
        }
        return damaged
    }

    /// Whether the server cannot read all of the content any more, as far as it has said so.
    ///
    /// - Throws: ``CloudError``: what keeps it from answering which chunks a long one has.
    func isDamaged(_ content: WireDocumentContent, _ timeout: Duration) async throws(CloudError) -> Bool {
        let damage = try await damage(timeout)
        guard !damage.chunks.isEmpty else { return false }
        return try await rests(content, on: damage, timeout)
    }

    private func damage(_ timeout: Duration) async throws(CloudError) -> ContentDamage {
        try await session.whole(try read { try $0.damage() }, of: .documents(id, app: app), timeout)
    }

    private func rests(
        _ content: WireDocumentContent, on damage: ContentDamage, _ timeout: Duration
    ) async throws(CloudError) -> Bool {
        try await session.rests(
            content.root, depth: content.depth, length: content.length, on: damage, of: .documents(id, app: app),
            timeout)
    }
}

extension DocumentTransaction {
    /// Whether a copy of the content is here that has such a chunk.
    fileprivate func hasCopy(of content: WireDocumentContent, where isMeant: (CutChunk) -> Bool) throws -> Bool {
        if let copy = try copy(of: content), copy.chunks.contains(where: isMeant) { return true }
        return try heldVersion(of: content).map { try chunks(of: $0).contains(where: isMeant) } ?? false
    }

    /// The items of this place whose contents rest on chunks, with those contents; in the trash too, where it is all.
    fileprivate func longContents(
        of path: DocumentPath
    ) throws -> [(entry: DocumentEntry, contents: [WireDocumentContent])] {
        guard let place = try place(path) else { throw try noItem(at: path) }
        var items: [(item: HeldDocument, path: DocumentPath)] = []
        if case .item(let item) = place { items.append((item, path)) }
        if place.isFolder { items += try descendants(of: place.id, at: path) }
        return try items.compactMap { item, path in
            let further = item.wire.renditions.map(\.content)
            let contents = ([item.wire.content] + item.wire.conflicts + further).filter { !$0.root.isEmpty }
            guard !item.isFolder, !contents.isEmpty, let entry = try entry(item, at: path) else { return nil }
            return (entry, contents)
        }
    }
}
