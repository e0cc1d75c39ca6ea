internal import Foundation
public import NephosCore
internal import NephosWire

extension UbiquityContainer {
    /// The files of which the server cannot read a content any more: the newest one, a conflict's or a further one. The
    /// server is asked about all chunks of all contents here; nothing is asked while it has lost nothing.
    ///
    /// A device that has a copy of such a content sends what is lost by itself; whoever has the file elsewhere puts it
    /// again, as it was, or another content. What is damaged of former versions alone has no item here.
    ///
    /// - Parameters:
    ///   - path: Of this item and what is in it; `/`: of all.
    ///   - timeout: How long the server is asked in all: about each long file by itself.
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.deadlineExceeded`: there are too many for that time, ask about a
    ///   folder or give it more; `.networkUnavailable` and the like.
    public func damagedItems(
        of path: some DocumentAddressing = "/", timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [DocumentEntry] {
        let candidates = try read { documents in
            try documents.loss().lostChunks > 0 ? documents.longContents(of: documents.path(path)) : []
        }
        let roots = candidates.flatMap { candidate in candidate.contents.map { (candidate.entry, $0.asked) } }
        let (lost, looked) = try await session.lost(
            among: roots.map(\.1), of: .documents(id, app: app), timeout, until: .now + timeout)
        guard looked == roots.count else {
            throw CloudError(
                .deadlineExceeded,
                "The server was not asked about all contents in time. Ask about a folder, or for longer.",
                details: ["asked": "\(looked)", "contents": "\(roots.count)"])
        }
        let damaged = Set(lost.map { roots[$0].0.id })
        return candidates.map(\.entry).filter { damaged.contains($0.id) }
    }

    /// Whether the server cannot read all of the content any more, as far as it has found out.
    ///
    /// - Throws: ``CloudError``: what keeps it from answering which chunks a long one has.
    func isDamaged(_ content: WireDocumentContent, _ timeout: Duration) async throws(CloudError) -> Bool {
        guard try read({ try $0.loss() }).lostChunks > 0 else { return false }
        return try await !session.lost(among: [content.asked], of: .documents(id, app: app), timeout).lost.isEmpty
    }
}

extension WireDocumentContent {
    fileprivate var asked: Session.ContentRoot { Session.ContentRoot(root: root, depth: depth, length: length) }
}

extension DocumentTransaction {
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
