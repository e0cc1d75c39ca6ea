internal import Foundation
public import NephosCore
internal import NephosWire

extension UbiquityContainer {
    /// Makes a folder. One that is there already is returned.
    ///
    /// - Parameter makesParents: Whether those that it is in are made too.
    /// - Throws: ``CloudError`` `.unknownItem` when the folder that it is to be in is not there; `.alreadyExists` when
    ///   a file has the name; else as ``item(at:)`` does, or `.serviceBusy` when too much waits to be sent.
    @discardableResult
    public func makeFolder(at path: String, makesParents: Bool = false) async throws(CloudError) -> DocumentEntry {
        let path = try DocumentPath(path)
        return try await change { draft in
            if !makesParents, let parent = path.parent { _ = try draft.folder(at: parent, makes: false) }
            return try draft.folder(at: path, makes: true)
        } reading: {
            try $0.requireEntry($1)
        }
    }

    /// Moves or renames an item.
    ///
    /// - Parameters:
    ///   - target: Where it is to be. A folder that is there takes it in, under its name.
    ///   - replaces: Whether a file that is there goes to the trash; else it is in the way.
    ///   - conditions: What this takes for granted, of whichever items; else it is refused.
    /// - Throws: ``CloudError`` `.unknownItem`; `.alreadyExists`; `.invalidArguments` when a folder would be in itself,
    ///   or too deep; `.constraintViolation` when a condition does not hold here; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func move(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, replaces: Bool = false,
        conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await change(conditions) { draft in
            let item = try draft.documents.item(at: draft.documents.path(source))
            var target = try draft.documents.path(target)
            let there = try draft.documents.place(target)
            // A folder may also be called otherwise in a way that its container does not tell apart.
            if let there, there.isFolder, there.id != item.id { target = target.appending(item.wire.name) }
            guard let parent = target.parent else {
                throw CloudError(.invalidArguments, "An item needs a name.", details: ["path": target.text])
            }
            try target.requireSynced()
            let folder = try draft.documents.folder(at: parent)
            if let there = try draft.documents.place(target), there.id != item.id {
                guard replaces, case .item(let other) = there, !other.isFolder else {
                    throw CloudError(
                        .alreadyExists, "Something has this name already.", details: ["path": target.text])
                }
                try draft.trash(other, batch: draft.makeID())
            }
            try draft.documents.requireRoom(for: item, in: folder, at: target)
            var place = WirePlaceItem()
            place.parent = folder.wire
            place.name = target.last
            place.placeVersion = draft.makeID().wire
            place.clash = .rename
            if place.parent != item.wire.parent || place.name != item.wire.name {
                draft.add(WireDocumentChange(item.id, .place(place)))
            }
            return item.id
        } reading: {
            try $0.requireEntry($1)
        }
    }

    /// Moves items to the trash, where they lie as one batch.
    ///
    /// A file that another device has changed meanwhile, and a folder in which something has, stays; it is among what
    /// was refused then.
    ///
    /// - Parameter conditions: What this takes for granted besides, of whichever items; else it is refused.
    /// - Returns: The batch, for ``restore(_:)`` and ``remove(_:)``.
    /// - Throws: ``CloudError`` `.unknownItem`: nothing was changed; `.constraintViolation` when a condition does not hold
    ///   here, or a file is paused and has a change that was not sent; `.limitExceeded` when there are conditions, and more than some hundreds of items; else as
    ///   ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func trash(
        _ paths: [some DocumentAddressing], conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentID {
        try await change(conditions) { draft in
            let batch = draft.makeID()
            var seen: Set<DocumentID> = []
            for path in paths {
                let item = try draft.documents.item(at: draft.documents.path(path))
                if seen.insert(item.id).inserted { try draft.trash(item, batch: batch) }
            }
            return batch
        }
    }

    /// Takes what was deleted in one go out of the trash, back to where it was.
    ///
    /// - Parameter batch: Nil: what was deleted last.
    /// - Returns: What was restored by itself.
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such batch.
    @discardableResult
    public func restore(_ batch: DocumentID? = nil) async throws(CloudError) -> [DocumentEntry] {
        return try await change { draft in
            let items = try draft.documents.batch(batch)
            for item in items { draft.add(WireDocumentChange(item.id, .restore(.renaming))) }
            return items.map(\.id)
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
        return try await change { draft in
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
        try await change { draft in
            var remove = WireRemoveItem()
            remove.batch = batch.wire
            for item in try draft.documents.batch(batch) {
                try draft.documents.requireNoneHeld(in: item)
                draft.add(WireDocumentChange(item.id, .remove(remove)))
            }
        }
    }
}

/// The name under which an item waits to be sent.
package struct WaitingName: Sendable {
    let name: Data
    let placeVersion: Data
}

extension UbiquityContainer {
    /// The names of the items of which changes wait to be sent, by their ids.
    package func waitingNames() async throws(CloudError) -> [DocumentID: WaitingName] {
        try read { documents in
            try documents.pendingItems().reduce(into: [:]) { names, pending in
                guard let item = try documents.document(pending.id), item.id == pending.id else { return }
                names[item.id] = WaitingName(name: item.wire.name, placeVersion: item.wire.placeVersion)
            }
        }
    }

    /// Items that have another name than they had waited under, since something had that when the server heard of them.
    ///
    /// - Returns: Paths, as they were and as they are.
    package func renamed(
        since names: [DocumentID: WaitingName]
    ) async throws(CloudError) -> [(before: String, now: String)] {
        try read { documents in
            try names.sorted { $0.key < $1.key }.compactMap { id, waited -> (before: String, now: String)? in
                // A person's rename gives it another place.
                guard let item = try documents.document(id), item.id == id, item.wire.name != waited.name,
                    item.wire.placeVersion == waited.placeVersion, let path = try documents.path(of: item)?.path
                else { return nil }
                return (before: path.renamed(waited.name).text, now: path.text)
            }
        }
    }
}

extension DocumentDraft {
    mutating func trash(_ item: HeldDocument, batch: DocumentID) throws {
        add(try documents.trashing(item, batch: batch))
    }
}

extension DocumentTransaction {
    /// What puts the item into the trash, unless somebody changes it, or something in it, before the server hears of
    /// that.
    ///
    /// - Throws: ``CloudError`` as ``requireNoneHeld(in:)`` does.
    func trashing(_ item: HeldDocument, batch: DocumentID) throws -> WireDocumentChange {
        try requireNoneHeld(in: item)
        var trash = WireTrashItem()
        trash.batch = batch.wire
        if !item.isFolder {
            trash.base = item.wire.content.version
        } else {
            let head = try rows.state().head
            let own = try waiting(in: item.id)
            // The server learns no more than it takes: then it does not ask.
            if head.sequence > 0, own.count <= DocumentLimits.seenMax {
                trash.seen = WireChangeToken(head)
                trash.changed = own.map { WireSeenItem($0) }
            }
        }
        return WireDocumentChange(item.id, .trash(trash))
    }

    /// What ends an item would wait behind what a pause keeps here, and nobody could resume that then.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: of a file that is paused, the item or in it, a change waits.
    fileprivate func requireNoneHeld(in item: HeldDocument) throws {
        let pauses = try pauses()
        guard !pauses.isEmpty else { return }
        let unsent = item.isFolder ? try waiting(in: item.id) : item.isPending ? [item] : []
        guard let held = unsent.first(where: { pauses[$0.id] != nil }) else { return }
        throw CloudError(
            .constraintViolation,
            "The sync of the file is paused, and a change of it was not sent. Resume it, and delete or move it then.",
            details: ["path": try pathText(of: held.id) ?? "\(held.id)"])
    }
}

extension WireSeenItem {
    fileprivate init(_ item: HeldDocument) {
        self.init()
        self.item = item.id.wire
        versions = ([item.wire.content] + item.wire.conflicts).map(\.version).filter { !$0.isEmpty }
    }
}

extension DocumentTransaction {
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for the folders that every container has.
    func item(at path: DocumentPath) throws -> HeldDocument {
        switch try place(path) {
        case .item(let item): return item
        case .fixed:
            throw CloudError(
                .invalidArguments, "This folder is in every container, and stays as it is.",
                details: ["path": path.text])
        case nil: throw try noItem(at: path)
        }
    }

    /// What lies in the trash and was at the path.
    ///
    /// - Parameter batch: Nil: the newest that has it.
    /// - Returns: It, and whether it was deleted by itself.
    /// - Throws: ``CloudError`` `.unknownItem`.
    func trashed(at path: DocumentPath, in batch: DocumentID?) throws -> (item: HeldDocument, isWhole: Bool) {
        for deleted in try deleted() where batch == nil ? deleted.movedTo == nil : deleted.batch == batch {
            for entry in deleted.items {
                guard let item = try document(entry.id), let place = try self.path(of: item)?.path,
                    place.names.count <= path.names.count, path.names.starts(with: place.names)
                else { continue }
                if place == path { return (item, true) }
                let found = try path.names.dropFirst(place.names.count).reduce(item as HeldDocument?) { folder, name in
                    try folder.flatMap { try child(of: $0.id, named: name) }
                }
                if let found { return (found, false) }
            }
        }
        throw CloudError(
            .unknownItem, "Nothing that was there lies in the trash. See: nephos docs trash",
            details: ["path": path.text])
    }

    /// - Parameter batch: Nil: the newest.
    /// - Throws: ``CloudError`` `.unknownItem`.
    func batch(_ batch: DocumentID?) throws -> [HeldDocument] {
        // What was moved to another container is not missing anywhere.
        guard let batch = try batch ?? deleted().first(where: { $0.movedTo == nil })?.batch else {
            throw CloudError(.unknownItem, "Nothing that was deleted lies in the trash.")
        }
        let items = try trashed(batch: batch)
        guard !items.isEmpty else {
            throw CloudError(
                .unknownItem, "Nothing that was deleted so lies in the trash.", details: ["batch": "\(batch)"])
        }
        return items
    }

    /// - Parameter source: The container that it is in; nil: this one.
    /// - Throws: ``CloudError`` `.invalidArguments` when the item would lie in itself, or too deep.
    func requireRoom(
        for item: HeldDocument, in folder: DocumentID, at path: DocumentPath, from source: DocumentTransaction? = nil
    ) throws {
        guard item.isFolder else { return }
        guard try !isFolder(folder, in: item.id) else {
            throw CloudError(.invalidArguments, "A folder cannot be in itself.", details: ["path": path.text])
        }
        guard try path.names.count + (source ?? self).height(of: item.id) <= DocumentLimits.depthMax else {
            throw CloudError(
                .invalidArguments, "Folders lie too deep within each other.",
                details: ["depth_max": "\(DocumentLimits.depthMax)"])
        }
    }
}
