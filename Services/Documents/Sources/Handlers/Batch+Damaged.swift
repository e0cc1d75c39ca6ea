internal import Foundation
internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Items that cannot be read any more. They hold nobody up: the rows beside one say where it lies, what versions it has and
/// whether it is in the trash, and by these it is deleted, and other things are put into it. It becomes whole again by the
/// offer of a device that has it. Every other change of it is refused.
extension Batch {
    /// Rows that are gone through in the time of a look.
    private static let rowsOfLook = 1000

    // MARK: What rows say

    /// Where it lies, and whether it is a folder.
    ///
    /// - Parameter hint: Where somebody says that it lies: else all that is in the container may have to be gone through.
    func placeByRows(_ id: DocumentID, hint: DocumentID? = nil) throws -> FolderDigests.Place {
        if let known = formerPlaces[id] { return known }
        let rows = container.rows
        let tree = try rows.tree(of: id)
        var parent = tree?.parent
        if parent == nil, let hint, try rows.hasChild(id, of: hint) { parent = hint }
        if parent == nil {
            let count = try container.head().liveCount
            container.transaction.charge(rows: count)
            try look(times: 1 + count / Self.rowsOfLook)
            parent = try rows.folder(ofDamaged: id)
        }
        let place = FolderDigests.Place(parent: parent, isFolder: tree != nil)
        formerPlaces[id] = place
        return place
    }

    /// With what it lies in the trash; nil: it does not.
    func trashNote(of id: DocumentID) throws -> WireTrashNote? {
        if let known = trashed[id] { return known }
        return try container.rows.trashNote(of: id)
    }

    /// Where a folder lies, and whether that is in the trash, in its own right; nil: there is no such folder.
    func above(_ folder: DocumentID) throws -> (parent: DocumentID?, isInTrash: Bool)? {
        guard try isDamaged(folder) else {
            guard let item = try find(folder), item.kind == .folder else { return nil }
            return (DocumentID(bytes: item.parent), item.hasTrash)
        }
        let place = try placeByRows(folder)
        return place.isFolder ? (place.parent, try trashNote(of: folder) != nil) : nil
    }

    /// - Returns: Nil: it lies nowhere, or there is no such item.
    func parent(of id: DocumentID) throws -> DocumentID? {
        try isDamaged(id) ? placeByRows(id).parent : find(id).flatMap { DocumentID(bytes: $0.parent) }
    }

    /// Frees the name that it has.
    private func leave(_ id: DocumentID, at place: FolderDigests.Place) throws {
        guard let folder = place.parent, let nameKey = try container.rows.nameKey(ofDamaged: id, in: folder) else {
            return
        }
        let place = Place(folder: folder, nameKey: nameKey)
        guard places[place] == nil else { return }
        places.updateValue(nil, forKey: place)
        counts[folder] = max(0, try count(of: folder) - 1)
    }

    // MARK: Changes

    /// Whether nothing is to be written.
    var isEmpty: Bool { changed.isEmpty && touched.isEmpty }

    /// Damaged items that move as they are.
    var rowsTouched: [FeedItem] { touched.filter { !changed.contains($0) }.compactMap { damaged[$0] } }

    /// Of these nothing can be told: whoever deletes one reads that it is damaged, and heals it.
    var unread: [ChangedItem] {
        unreadable.filter { !changed.contains($0) }.map { ChangedItem(name: $0.name, body: []) }
    }

    /// Its rows say that it lies in the trash. Whoever has it offers it still, and it is whole in there.
    func trashDamaged(_ id: DocumentID, _ request: WireTrashItem) throws {
        try ContentRule.checkVersion([UInt8](request.batch), "batch")
        guard try trashNote(of: id) == nil else { return unreadable.append(id) }
        let place = try placeByRows(id)
        if !request.base.isEmpty, let newest = try container.rows.versionTimes(of: id).last,
            newest.id != [UInt8](request.base),
            try !isKnown(request.base, of: id) || isSuperseded([UInt8](request.base), of: id)
        {
            throw Self.changedMeanwhile(id)
        }
        if place.isFolder, request.hasSeen { try checkUnchanged(id, since: request) }
        try leave(id, at: place)
        trashed[id] = try trashNote(request, of: id, placed: 0)
        touched.append(id)
        unreadable.append(id)
    }

    /// Makes it whole, as the device has it that offers it. What rows there are of its contents stay as they are.
    func heal(_ id: DocumentID, _ request: WireCreateItem) throws {
        isHealing = true
        defer { isHealing = false }
        try check(request)
        guard let asked = DocumentID(bytes: request.parent) else { throw Self.noFolder }
        // It was older than what there was.
        guard try !isPast(request, of: id) else { return }
        let place = try placeByRows(id, hint: asked)
        var item = WireDocumentItem()
        item.kind = request.kind
        item.placeVersion = request.placeVersion
        item.made = try made(request.made, request.kind, id)
        item.placed = try placed(request.placed, of: item)
        item.attributed = try attributed(request.attributed, of: item)
        if request.hasAttributes { item.attributes = request.attributes.canonical }
        if request.hasContent {
            item.content = try recovered(request.content, of: id)
            item.conflicts = try recoveredConflicts(request, beside: item.content, of: id)
            item.renditions = try recoveredRenditions(request, of: id)
        }
        try leave(id, at: place)
        let note = try trashNote(of: id)
        let (folder, name) = try room(for: request, asked, from: place, id, isInTrash: note != nil)
        (item.parent, item.name) = (Data(folder.bytes), Data(name))
        if let note { item.trash = try noted(note, of: id, placed: item.placed) }
        if place.parent != folder {
            if let former = place.parent { children[former, default: [:]][id] = false }
            children[folder, default: [:]][id] = true
        }
        announced.insert(id)
        set(item, id)
        if item.kind == .folder { try raise(folder, above: id) }
    }

    /// Where it was, and what it is called there; if that is gone, has no room, or lies within it by now, then where its
    /// rows say that it lies; and else where the person finds it.
    private func room(
        for request: WireCreateItem, _ asked: DocumentID, from place: FolderDigests.Place, _ id: DocumentID,
        isInTrash: Bool
    ) throws -> (folder: DocumentID, name: [UInt8]) {
        let name = [UInt8](request.name)
        try DocumentNameRule.check(name)
        for folder in [asked, place.parent].compactMap(\.self) {
            let found: [UInt8]?
            do {
                found = try whereThereIsRoom {
                    try checkFolder(folder, moved: request.kind == .folder && place.parent != folder ? id : nil)
                    // What lies in the trash has no name that anybody could want.
                    return isInTrash ? name : try take(name, in: folder, for: id, .rename)
                }
            } catch let error as CloudError where error.code == .unknownItem { continue }
            if let found { return (folder, found) }
        }
        let folder = containerClass.hasDocuments ? DocumentID.documents : .top
        return (folder, isInTrash ? name : try take(name, in: folder, for: id, .rename))
    }

    /// With what it lies in the trash, now that it is known when it came to its place: whoever deleted it by its rows did
    /// not know.
    private func noted(_ note: WireTrashNote, of id: DocumentID, placed: Int64) throws -> WireTrashNote {
        guard note.trashed < placed, !note.batch.isEmpty else { return note }
        var note = note
        note.trashed = placed
        note.seal = try Stamp(app: note.appID, device: note.deviceID, time: placed)
            .seal(.deletion(note.batch), of: id, in: container)
        trashed[id] = note
        return note
    }

    /// Whether the device has another state than what is damaged: what it has was not written there, or a content has come
    /// since that it does not know of.
    private func isPast(_ request: WireCreateItem, of id: DocumentID) throws -> Bool {
        guard let row = damaged[id],
            try request.written == DamagedItems.written(row, of: container.scope, in: container.transaction)
        else { return true }
        guard request.hasContent, try isKnown(request.content.version, of: id) else { return false }
        return try isSuperseded(
            [UInt8](request.content.version), of: id, besides: Set(request.conflicts.map { [UInt8]($0) }))
    }

    /// Whether a version has taken this one's place. One that lost beside it has not, which keeps its row for a while.
    ///
    /// - Parameter others: Known to stand beside it.
    private func isSuperseded(
        _ version: [UInt8], of id: DocumentID, besides others: Set<[UInt8]> = []
    ) throws -> Bool {
        let all = try container.rows.versionTimes(of: id).map(\.id)
        guard let place = all.firstIndex(of: version) else { return false }
        let (older, origin) = (Set(all[..<place]), try base(of: version, of: id))
        // Where what it was made from cannot be told any more, it is taken for one that came after.
        func standsBeside(_ newer: [UInt8]) throws -> Bool {
            var step = newer
            for _ in all.indices {
                guard let base = try base(of: step, of: id), base != version else { return false }
                if base.isEmpty || older.contains(base) || base == origin { return true }
                step = base
            }
            return false
        }
        return try all[(place + 1)...].contains { try !others.contains($0) && !standsBeside($0) }
    }

    private func recovered(_ content: WireDocumentContent, of id: DocumentID) throws -> WireDocumentContent {
        guard try isKnown(content.version, of: id) else { return try commit(content, of: id) }
        let row = try container.rows.version([UInt8](content.version), of: id)
        if let known = try row.flatMap({ try container.open($0, of: id) }) { return known }
        // Its row is damaged too. What that counts stays as it is; what it uses is known again, where it is as it was.
        let signed = try signed(content, of: id) { .content($0) }
        if row != nil, signed.seal == content.seal { recovered.append((id, signed)) }
        return signed
    }

    private func recoveredConflicts(
        _ request: WireCreateItem, beside content: WireDocumentContent, of id: DocumentID
    ) throws -> [WireDocumentContent] {
        try request.conflicts.prefix(DocumentLimits.conflictsMax).compactMap { version in
            guard version != content.version else { return nil }
            return try container.rows.version([UInt8](version), of: id).flatMap { try container.open($0, of: id) }
        }
    }

    private func recoveredRenditions(_ request: WireCreateItem, of id: DocumentID) throws -> [WireRendition] {
        guard !request.renditions.isEmpty else { return [] }
        let kept = try container.rows.renditions(of: id, limit: DocumentLimits.renditionsMax)
        var recovered: [WireRendition] = []
        for rendition in request.renditions where !recovered.contains(where: { $0.name == rendition.name }) {
            guard DocumentLimits.isRenditionName(rendition.name),
                let row = kept.first(where: { $0.version == [UInt8](rendition.content.version) }),
                let content = try container.open(row, of: id)
            else { continue }
            var rendition = rendition
            rendition.content = content
            recovered.append(rendition)
        }
        return recovered.sorted { $0.name.lexicographicallyPrecedes($1.name) }
    }
}
