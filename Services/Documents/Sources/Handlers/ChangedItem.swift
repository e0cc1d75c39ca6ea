internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension Container {
    /// Stores items, and keeps the digests of their folders in step.
    ///
    /// - Parameter places: Where each lay, and where it lies now; nil: nowhere, or nobody knows.
    func put(
        _ items: [ChangedItem], digestKey: [UInt8],
        _ places: (DocumentID) throws -> (former: FolderDigests.Place?, now: FolderDigests.Place?)
    ) throws -> ScopeChange {
        var folders = FolderDigests(rows)
        let stored = try items.map { item in
            let stored = try item.stored(in: self, digestKey: digestKey)
            guard let id = DocumentID(item.name) else { return stored }
            let (place, now) = try places(id)
            let before = try transaction.item(scope, item.name).flatMap { $0.deleted ? nil : $0.digest }
            let former = before.flatMap { share in place.map { ($0, share) } }
            try folders.change(id, from: former, to: now.map { ($0, stored.digest) })
            return stored
        }
        try folders.save()
        return try transaction.put(scope, stored)
    }
}

extension FolderDigests.Place {
    init(_ item: WireDocumentItem) { self.init(parent: DocumentID(bytes: item.parent), isFolder: item.kind == .folder) }
}

extension ChangedItem {
    func stored(in container: Container, digestKey: [UInt8]) throws -> FeedItem {
        guard let body else { return FeedItem(name: name, deleted: true, digest: .empty, size: 0, body: []) }
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: name, body: body, key: digestKey), size: body.count,
            body: try container.seal(body, as: .item(name)))
    }
}
