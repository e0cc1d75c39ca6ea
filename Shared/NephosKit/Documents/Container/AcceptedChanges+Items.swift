internal import Foundation
package import NephosCore
internal import NephosWire

// For programs that show a folder and keep it up to date: items by id, a page at a time.
extension AcceptedChanges {
    /// Some of a folder's items, by the bytes of their names.
    package struct Page: Sendable {
        package var entries: [DocumentEntry]
        /// Where the next page begins; nil: this is the last.
        package var next: String?
        /// For ``AcceptedChanges/changed(after:in:)``: later changes are behind it.
        package var cursor: Int64
    }

    /// Changes in a folder.
    package struct FolderChanges: Sendable {
        /// Items that are in the folder now.
        package var entries: [DocumentEntry]
        /// Items that are not: they were never there, or have left it.
        package var gone: [DocumentID]
        package var cursor: Int64
        /// Whether to call again from this cursor.
        package var hasMore: Bool
    }

    /// A page of the items directly in a folder.
    ///
    /// - Parameter place: The ``Page/next`` of the page before; nil: the first.
    /// - Throws: ``CloudError`` `.unknownItem` when the folder is gone; `.invalidArguments` for a place that no page has
    ///   named; as ``UbiquityContainer/item(at:)`` does.
    package func page(of folder: DocumentID, after place: String?, limit: Int) throws(CloudError) -> Page {
        var start: (name: Data, item: String) = (Data(), "")
        if let place {
            let parts = place.split(separator: ".", omittingEmptySubsequences: false)
            guard parts.count == 2, let name = Data(base64Encoded: String(parts[0])),
                let item = DocumentID(String(parts[1]))
            else { throw CloudError(.invalidArguments, "No page ends at this place.", details: ["after": place]) }
            start = (name, "\(item)")
        }
        return try handle.read { documents in
            let path = try documents.path(folder)
            let found = try documents.everything(in: folder, named: nil, after: start, limit: limit)
            let entries = try found.items.filter { !$0.isTrashed }
                .compactMap { try documents.entry($0, at: path.appending($0.wire.name)) }
            return Page(
                entries: entries, next: found.last.map { "\($0.name.base64EncodedString()).\($0.item)" },
                cursor: try documents.latestTouch())
        }
    }

    /// The items that have changed after a cursor.
    ///
    /// - Returns: Nil: this is not known so far back. Read the folder again.
    /// - Throws: ``CloudError`` as ``page(of:after:limit:)`` does.
    package func changed(after cursor: Int64, in folder: DocumentID) throws(CloudError) -> FolderChanges? {
        try handle.read { documents in
            let path = try documents.path(folder)
            guard let touched = try documents.touched(after: cursor, limit: Self.touchedMax) else { return nil }
            var changes = FolderChanges(
                entries: [], gone: [], cursor: touched.upTo, hasMore: try touched.upTo < documents.latestTouch())
            for id in touched.items {
                // An item that became one with another is that one.
                if let item = try documents.document(id), item.id == id, item.parent == folder, !item.isTrashed,
                    let entry = try documents.entry(item, at: path.appending(item.wire.name))
                {
                    changes.entries.append(entry)
                } else {
                    changes.gone.append(id)
                }
            }
            return changes
        }
    }

    private static let touchedMax = 1000

    /// The folders on the way from `Documents` to an item, the item last; `Documents` itself is not among them.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when it is gone, or in the trash.
    package func trail(to item: DocumentID) throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            let path = try documents.path(item)
            guard path.names.count > 1 else { return [] }
            return try (2...path.names.count).compactMap { count in
                let path = DocumentPath(names: Array(path.names.prefix(count)))
                return try documents.place(path).flatMap { try documents.entry($0, at: path) }
            }
        }
    }

    // MARK: Change

    /// Makes an empty folder.
    ///
    /// - Throws: ``CloudError`` as ``makeFolder(at:)`` does.
    package func makeFolder(named name: Data, in folder: DocumentID) async throws(CloudError) -> DocumentEntry {
        try await makeFolder(at: path(named: name, in: folder))
    }

    /// Moves or renames an item.
    ///
    /// - Throws: ``CloudError`` `.alreadyExists` where something has the name; as ``move(_:to:conditions:)`` does.
    package func move(
        _ id: DocumentID, to folder: DocumentID, named name: Data?
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem { draft in
            let (item, target) = try draft.free(id, folder, name)
            try draft.move(item, to: target, replaces: false)
            return item.id
        }
    }

    /// Copies an item, and a folder with everything in it. No content is sent.
    ///
    /// - Throws: ``CloudError`` `.alreadyExists` where something has the name; as ``copy(_:to:conditions:)`` does.
    package func copy(
        _ id: DocumentID, to folder: DocumentID, named name: Data?
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem { draft in
            let (item, target) = try draft.free(id, folder, name)
            return try draft.copy(item, to: target, replaces: false)
        }
    }

    /// Moves items to the trash, as one batch.
    ///
    /// - Returns: The batch.
    /// - Throws: ``CloudError`` as ``trash(_:conditions:)`` does.
    package func trash(_ ids: [DocumentID]) async throws(CloudError) -> DocumentID {
        try await change { draft in
            let batch = draft.makeID()
            for id in Set(ids) {
                try draft.trash(draft.documents.item(at: draft.documents.path(id)), batch: batch)
            }
            return batch
        }
    }

    /// Takes a batch out of the trash.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such batch.
    package func restore(batch: DocumentID) async throws(CloudError) -> [DocumentEntry] {
        let items = try await change { draft in try draft.restore(batch: batch) }
        return try handle.read { documents in
            try items.compactMap { try documents.document($0).flatMap { try documents.entry($0) } }
        }
    }

    /// Removes a batch permanently.
    ///
    /// - Throws: ``CloudError`` as ``DocumentTrash/remove(_:)`` does.
    package func erase(batch: DocumentID) async throws(CloudError) {
        try await change { draft in try draft.remove(batch: batch) }
    }

    /// Makes a former version the current one, or chooses one of those in conflict. The others stay among the versions.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when the file has no such version; as ``put(_:at:modified:conditions:)`` does.
    package func choose(
        _ version: DocumentID, of item: DocumentID, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentEntry {
        let (_, content) = try await handle.reader.content(at: item, version, timeout)
        return try await changeItem { draft in
            let there = try draft.documents.item(at: draft.documents.path(item))
            let isThere = ([there.wire.content] + there.wire.conflicts).contains { $0.version == version.wire }
            if isThere, !there.wire.conflicts.isEmpty {
                let path = try draft.documents.path(item)
                _ = try draft.resolve(there, at: path, keeping: version, keepsOthers: false, [:])
            } else {
                draft.restore(content, of: there)
            }
            return there.id
        }
    }

    /// The path that a name in a folder has.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when the folder is gone; `.invalidArguments` for a name that no item can have.
    package func path(named name: Data, in folder: DocumentID) throws(CloudError) -> DocumentPath {
        try DocumentPath.check(name)
        return try handle.read { try $0.path(folder).appending(name) }
    }
}

extension DocumentDraft {
    /// - Parameter name: Nil: the item's own.
    /// - Returns: The item, and a path at which nothing is.
    fileprivate func free(
        _ id: DocumentID, _ folder: DocumentID, _ name: Data?
    ) throws -> (item: HeldDocument, target: DocumentPath) {
        let item = try documents.item(at: documents.path(id))
        let name = name ?? item.wire.name
        try DocumentPath.check(name)
        let target = try documents.path(folder).appending(name)
        if let there = try documents.place(target), there.id != id {
            throw CloudError(.alreadyExists, "Something has this name already.", details: ["path": target.text])
        }
        return (item, target)
    }
}
