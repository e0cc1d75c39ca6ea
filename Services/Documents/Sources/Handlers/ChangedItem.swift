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
        let formerKey = try setting()?.digestKey
        typealias Standing = (place: FolderDigests.Place, share: SetDigest)
        var folders = FolderDigests(rows)
        var moved: [(id: DocumentID, former: Standing?, now: Standing?)] = []
        let stored = try items.map { item in
            let stored = try item.stored(in: self, digestKey: digestKey)
            guard let id = DocumentID(item.name) else { return stored }
            let (place, now) = try places(id)
            let before = try transaction.item(scope, item.name).flatMap { row in
                try row.deleted ? nil : share(of: row, digestKey: formerKey)
            }
            let former: Standing? = before.flatMap { share in place.map { ($0, share) } }
            let after: Standing? = now.map { ($0, stored.digest) }
            if former?.place == after?.place {
                try folders.change(id, from: former, to: after)
            } else {
                moved.append((id, former, after))
            }
            return stored
        }
        // One folder may have come to lie in what lay in it: all leave where they were before any has its new place.
        for item in moved { try folders.change(item.id, from: item.former, to: nil) }
        for item in moved { try folders.change(item.id, from: nil, to: item.now) }
        try folders.save()
        return try transaction.put(scope, stored)
    }

    /// What the item has in its folders' digests: by what it is, since its row's digest may be damaged, and is then put right
    /// without a word to them. Of one that is damaged itself only the row says it.
    private func share(of row: FeedItem, digestKey: [UInt8]?) throws -> SetDigest {
        guard let digestKey, let body = try? opener().open(row.body, as: .item(row.name)) else { return row.digest }
        return SetDigest(ofItem: row.name, body: body, key: digestKey)
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
