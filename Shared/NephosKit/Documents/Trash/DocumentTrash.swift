internal import Foundation
public import NephosCore
internal import NephosWire

/// Deleted items of a container, as ``UbiquityContainer/trash`` has them. ``UbiquityContainer/trash(_:conditions:)`` moves items
/// there; the server removes them for good after ``ContainerDefinition/trashDays``.
///
/// None of it needs the network.
public struct DocumentTrash: Sendable {
    let handle: ContainerHandle

    /// What lies in the trash, by what was deleted together, the newest first.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    public func list() async throws(CloudError) -> [DeletedDocuments] {
        let now = handle.now
        return try handle.read { documents in
            let kept = Duration.seconds(86_400 * (try documents.definition()).trashDays)
            return try documents.deleted().map { ($0, try documents.bytes(of: $0), kept) }
        }.map { deleted, bytes, kept in
            var deleted = deleted
            deleted.bytes = bytes
            // What was made by a clock that was ahead is noted as deleted after that.
            deleted.trashed = deleted.trashed.map { min($0, now) }
            deleted.expires = deleted.trashed?.advanced(by: kept)
            return deleted
        }
    }

    /// Everything in a folder that lies in the trash.
    package func items(in folder: DocumentID) async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            guard let item = try documents.document(folder), let path = try documents.path(of: item)?.path else {
                return []
            }
            return try documents.descendants(of: folder, at: path).compactMap {
                try documents.entry($0.item, at: $0.path)
            }
        }
    }

    /// Takes what was deleted in one go out of the trash, back to where it was.
    ///
    /// - Parameter batch: Nil: what was deleted last.
    /// - Returns: What was restored by itself.
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such batch.
    @discardableResult
    public func restore(_ batch: DocumentID? = nil) async throws(CloudError) -> [DocumentEntry] {
        return try await handle.change { draft in
            try draft.restore(batch: batch)
        } reading: { documents, ids in
            try ids.compactMap { try documents.document($0).flatMap { try documents.entry($0) } }
        }
    }

    /// Takes one item out of a deleted folder, back to where it was; what else is in the folder stays in the trash. Folders that
    /// it was in are made again where they are gone.
    ///
    /// - Parameters:
    ///   - path: Where it was, as its entry says.
    ///   - batch: Nil: what was deleted last of those that have it.
    /// - Throws: ``CloudError`` `.unknownItem` when nothing of that path lies in the trash.
    @discardableResult
    package func restore(
        only path: String, from batch: DocumentID? = nil
    ) async throws(CloudError) -> DocumentEntry {
        let path = try DocumentPath(path)
        return try await handle.change { draft in
            let (item, isWhole) = try draft.documents.trashed(at: path, in: batch)
            guard !isWhole else {
                draft.add(WireDocumentChange(item.id, .restore(.renaming)))
                return item.id
            }
            guard let parent = path.parent else { throw try draft.documents.noItem(at: path) }
            var place = WirePlaceItem()
            place.parent = try draft.folder(at: parent, makes: true).wire
            place.name = path.last
            place.placeVersion = draft.makeID().wire
            place.base = item.wire.placeVersion
            place.clash = .rename
            draft.add(WireDocumentChange(item.id, .place(place)))
            return item.id
        } reading: {
            try $0.requireEntry($1)
        }
    }

    /// Removes what was deleted in one go for good. What somebody has brought back meanwhile stays, also where it was
    /// deleted anew; it is among what was refused then.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such batch; `.constraintViolation` when a file of it is
    ///   paused and has a change that was not sent.
    public func remove(_ batch: DocumentID) async throws(CloudError) {
        try await handle.change { draft in try draft.remove(batch: batch) }
    }

    /// See ``UbiquityContainer/trash(_:conditions:)``.
    func add(
        _ paths: [some DocumentAddressing], conditions: [DocumentCondition]
    ) async throws(CloudError) -> DocumentID {
        try await handle.change(conditions) { draft in
            let batch = draft.makeID()
            var seen: Set<DocumentID> = []
            for path in paths {
                let item = try draft.documents.item(at: draft.documents.path(path))
                if seen.insert(item.id).inserted { try draft.trash(item, batch: batch) }
            }
            return batch
        }
    }

    /// Moves a file to the trash, if it has this version still.
    ///
    /// - Returns: The batch.
    /// - Throws: ``CloudError`` `.constraintViolation` when it has another; else as ``UbiquityContainer/trash(_:conditions:)`` does.
    package func add(_ id: DocumentID, ifVersion version: DocumentID?) async throws(CloudError) -> DocumentID {
        try await handle.change { draft in
            let batch = draft.makeID()
            guard let item = try draft.documents.document(id), let path = try draft.documents.path(of: item)?.path
            else {
                throw CloudError(.unknownItem, "The item was removed meanwhile.", details: ["item": "\(id)"])
            }
            guard DocumentID(bytes: item.wire.content.version) == version else {
                throw CloudError(
                    .constraintViolation, "The file has changed meanwhile, and stays. Get it again.",
                    details: ["path": path.text])
            }
            try draft.trash(item, batch: batch)
            return batch
        }
    }
}

extension DocumentDraft {
    /// Takes a batch out of the trash.
    ///
    /// - Returns: Its items.
    mutating func restore(batch: DocumentID?) throws -> [DocumentID] {
        let items = try documents.batch(batch)
        for item in items { add(WireDocumentChange(item.id, .restore(.renaming))) }
        return items.map(\.id)
    }

    /// Removes a batch permanently.
    mutating func remove(batch: DocumentID) throws {
        var remove = WireRemoveItem()
        remove.batch = batch.wire
        for item in try documents.batch(batch) {
            try documents.requireNoneHeld(in: item)
            add(WireDocumentChange(item.id, .remove(remove)))
        }
    }
}
