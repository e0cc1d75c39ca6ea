internal import Foundation
internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What each kind of change does, and what refuses it.
extension Batch {
    func apply(_ change: WireDocumentChange) throws {
        guard !change.isDropped(by: merged) else { return }
        var change = change
        _ = change.redirect(merged)
        guard let id = DocumentID(bytes: change.item), !id.isFixed else {
            throw CloudError(
                .invalidArguments,
                "An item is named by 16 bytes, which are not those of a folder that every container has.",
                details: ["argument": "item"])
        }
        isOffered = change.offered
        switch change.kind {
        case .create(let create): try self.create(id, create)
        case .replace(let replace): try self.replace(id, replace)
        case .place(let place): try self.place(id, place)
        case .attributes(let attributes): try setAttributes(id, attributes)
        case .trash(let trash): try self.trash(id, trash)
        case .restore(let restore): try self.restore(id, restore)
        case .remove(let request): try remove(id, request)
        case .resolve(let resolve): try self.resolve(id, resolve)
        case .rendition(let rendition): try setRendition(id, rendition)
        case .announce(let announce): try self.announce(id, announce)
        case .versions(let versions): try removeVersions(id, versions)
        case .coming(let coming): try announceItems(id, coming)
        case nil:
            throw CloudError(
                .incompatibleVersion, "The change is of a kind that this version does not know. Upgrade the older side."
            )
        }
    }

    private func create(_ id: DocumentID, _ request: WireCreateItem) throws {
        try ContentRule.checkVersion([UInt8](request.placeVersion), "place_version")
        if let known = try find(id) {
            if isOffered { return try offer(request, over: known, id) }
            // Its own commit, repeated: what has become of the item since is nobody's loss.
            if known.placeVersion == request.placeVersion { return }
            if request.hasContent, try isKnown(request.content.version, of: id) { return }
            throw CloudError(
                .alreadyExists, "There is an item of this id. Choose another id.", details: Self.details(id))
        }
        guard try !removed.contains(id) && !container.wasUsed(id) && !container.rows.isRemoved(id) else {
            throw CloudError(
                .unknownItem, "The item was removed for good. Make another under a new id.", details: Self.details(id))
        }
        guard try container.head().liveCount + created < DocumentLimits.itemCountMax else {
            throw CloudError(
                .limitExceeded, "The container has too many items.",
                details: ["maximum": "\(DocumentLimits.itemCountMax)"])
        }
        guard let folder = DocumentID(bytes: request.parent) else { throw Self.noFolder }
        try check(request)
        try checkFolder(folder)
        if let other = try namesake(of: request, in: folder) { return try merge(id, request, into: other) }
        if try container.transaction.isQuarantined(id.name, of: container.scope) { returning.insert(id) }
        var item = WireDocumentItem()
        item.kind = request.kind
        item.parent = request.parent
        item.placeVersion = request.placeVersion
        item.name = Data(try take([UInt8](request.name), in: folder, for: id, request.clash))
        item.made = try made(request.made, request.kind, id)
        item.placed = try placed(request.placed, of: item)
        if isOffered || request.hasAttributes { item.attributed = try attributed(request.attributed, of: item) }
        if request.hasContent {
            if returning.contains(id) {
                item.content = try returned(request.content, of: id)
                item.conflicts = try returnedConflicts(request, beside: item.content, of: id)
                item.renditions = try returnedRenditions(request, of: id)
            } else {
                item.content = try commit(request.content, of: id)
            }
            try endComing(request.content)
        }
        if request.hasAttributes { item.attributes = request.attributes.canonical }
        children[folder, default: [:]][id] = true
        created += 1
        set(item, id)
        if item.kind == .folder { try raise(folder, above: id) }
    }

    /// What can be refused by what the item would be.
    private func check(_ request: WireCreateItem) throws {
        switch request.kind {
        // What is in a package the service does not know.
        case .file, .link, .package:
            guard request.hasContent else {
                throw CloudError(.invalidArguments, "A file has a content.", details: ["argument": "content"])
            }
            try ContentRule.check(request.content, of: request.kind, in: containerClass)
        case .folder:
            guard !request.hasContent else {
                throw CloudError(.invalidArguments, "A folder has no content.", details: ["argument": "content"])
            }
        case .unspecified, .coming, .UNRECOGNIZED:
            throw CloudError(
                .incompatibleVersion, "The item is of a kind that this version does not know. Upgrade the older side.")
        }
        try request.attributes.check()
    }

    /// Notes a new version, with who made it.
    ///
    /// - Parameter former: The version with the same bytes whose place it takes; nil: it takes nobody's.
    func commit(
        _ content: WireDocumentContent, of id: DocumentID, insteadOf former: WireDocumentContent? = nil
    ) throws -> WireDocumentContent {
        var content = try signed(content, of: id) { .content($0) }
        content.sameAs = former.map { Array(([$0.version] + $0.sameAs).prefix(DocumentLimits.sameAsMax)) } ?? []
        versions.append((id, content))
        return content
    }

    func isKnown(_ version: Data, of id: DocumentID) throws -> Bool {
        try versions.contains { $0.item == id && $0.content.version == version }
            || container.rows.hasVersion([UInt8](version), of: id)
    }

    func replace(_ id: DocumentID, _ request: WireReplaceContent) throws {
        var (item, request) = (try self.item(id), request)
        guard item.hasContent else {
            throw CloudError(.invalidArguments, "A folder has no content.", details: Self.details(id))
        }
        try ContentRule.check(request.content, of: item.kind, in: containerClass)
        // Of what is offered again the seal would not be its own any more.
        if !isOffered,
            let heir = ([item.content] + item.conflicts).first(where: { $0.sameAs.contains(request.content.base) })
        {
            // The version is gone that it was made from, and its bytes are there under another name.
            request.content.base = heir.version
        }
        if try isKnown(request.content.version, of: id) { return }
        // Nobody would find it there.
        if !isOffered { try checkLives(id, item) }
        let wasAnnounced = endAnnouncement(request.content.version, of: &item, id)
        let base = isOffered && !request.over.isEmpty ? request.over : request.content.base
        if isOffered, base != item.content.version, item.isMade(from: request.content.version) {
            // What was made from it came before it.
            _ = try commit(request.content, of: id)
        } else if base == item.content.version {
            // What somebody has lost was made from stays: without it nobody can merge the two.
            let takesPlace =
                item.content.hasBytes(of: request.content)
                && !item.conflicts.contains { $0.base == item.content.version }
            if takesPlace { try inherit(item.content, by: [UInt8](request.content.version), of: id) }
            // Equal bytes are never a conflict. The version stays, and what is made from it is made from this one.
            let decided = item.conflicts.first { $0.hasBytes(of: request.content) }
            item.content = try commit(request.content, of: id, insteadOf: takesPlace ? item.content : decided)
            item.conflicts.removeAll { $0.hasBytes(of: request.content) }
            if isOffered, let index = item.conflicts.firstIndex(where: { $0.base == request.content.version }) {
                // So did what somebody has made from it, and sent before.
                item.content = item.conflicts.remove(at: index)
            }
        } else if ([item.content] + item.conflicts).contains(where: { $0.hasBytes(of: request.content) }) {
            // Nobody loses anything; the device learns which version has its bytes.
            if wasAnnounced { set(item, id) } else { mention(id) }
            return
        } else if let index = item.conflicts.firstIndex(where: { $0.version == base }) {
            // Whoever has lost goes on with what they have.
            item.conflicts[index] = try commit(request.content, of: id)
        } else {
            guard !request.failOnConflict else { throw Self.changedMeanwhile(id) }
            guard item.conflicts.count < DocumentLimits.conflictsMax else {
                throw CloudError(
                    .limitExceeded, "The item has too many conflicts. Resolve some of them.",
                    details: Self.details(id).merging(["maximum": "\(DocumentLimits.conflictsMax)"]) { $1 })
            }
            item.conflicts.append(try commit(request.content, of: id))
        }
        set(item, id)
    }

    func place(_ id: DocumentID, _ request: WirePlaceItem) throws {
        var item = try self.item(id)
        try ContentRule.checkVersion([UInt8](request.placeVersion), "place_version")
        if item.placeVersion == request.placeVersion { return }
        guard try !isBehind(request.placed, item.placed) else { return mention(id) }
        guard !item.hasTrash || isOffered else {
            throw CloudError(
                .constraintViolation, "The item lies in the trash. Restore it first.", details: Self.details(id))
        }
        guard request.base.isEmpty || request.base == item.placeVersion else { throw Self.changedMeanwhile(id) }
        guard let folder = DocumentID(bytes: request.parent) else { throw Self.noFolder }
        // What is renamed where it lies gets no deeper.
        try checkFolder(folder, moved: item.kind == .folder && request.parent != item.parent ? id : nil)
        var name = [UInt8](request.name)
        // What lies in the trash has no name that anybody could want.
        if item.hasTrash {
            try DocumentNameRule.check(name)
        } else {
            try leave(item)
            name = try take(name, in: folder, for: id, request.clash)
        }
        if let old = DocumentID(bytes: item.parent), old != folder {
            children[old, default: [:]][id] = false
            children[folder, default: [:]][id] = true
        }
        item.parent = request.parent
        item.name = Data(name)
        item.placeVersion = request.placeVersion
        item.placed = try placed(request.placed, of: item)
        set(item, id)
        if item.kind == .folder { try raise(folder, above: id) }
    }

    func setAttributes(_ id: DocumentID, _ request: WireSetAttributes) throws {
        var item = try self.item(id)
        let (before, former) = (item.attributes, item.attributed)
        if try isBehind(request.attributed, item.attributed) {
            // What was set since the copy came back has come beside it: what is not there is added.
            guard try item.attributed >= historyBegan else { return mention(id) }
            item.attributes.merge(request.lacked(by: item.attributes))
        } else {
            item.attributes.merge(request)
            item.attributed = try attributed(request.attributed, of: item)
        }
        try item.attributes.check()
        let isChanged = item.attributes != before || isOffered && item.attributed != former
        if isChanged { set(item, id) } else { mention(id) }
    }

    private func trash(_ id: DocumentID, _ request: WireTrashItem) throws {
        var item = try self.item(id)
        try ContentRule.checkVersion([UInt8](request.batch), "batch")
        if item.hasTrash {
            // With which it lies there, whoever removes it for good has to know: of what it has seen, and nothing else.
            let isSeen =
                (request.base.isEmpty || request.base == item.content.version)
                && (item.kind != .folder || !request.hasSeen || (try? checkUnchanged(id, since: request)) != nil)
            if isSeen || item.trash.batch == request.batch { mention(id) }
            return
        }
        // Somebody has taken it out again, or put it there, later than that.
        guard try !isBehind(request.note.trashed, item.placed) else { return mention(id) }
        guard request.base.isEmpty || request.base == item.content.version else { throw Self.changedMeanwhile(id) }
        if item.kind == .folder, request.hasSeen { try checkUnchanged(id, since: request) }
        try leave(item)
        item.trash = try trashNote(request, of: id, placed: item.placed)
        trashed[id] = item.trash
        set(item, id)
    }

    /// - Parameter placed: When it came to its place; 0: nobody knows.
    func trashNote(_ request: WireTrashItem, of id: DocumentID, placed: Int64) throws -> WireTrashNote {
        guard request.movedTo.utf8.count <= DocumentLimits.nameBytesMax,
            request.movedTo.unicodeScalars.allSatisfy({ $0.value >= 0x20 })
        else {
            throw CloudError(
                .invalidArguments,
                "A container's id has \(DocumentLimits.nameBytesMax) bytes at most, and no control characters.",
                details: ["argument": "moved_to"])
        }
        var note = try trashed(request.note, request.batch, id, placed: placed)
        note.movedTo = request.movedTo
        return note
    }

    func restore(_ id: DocumentID, _ request: WireRestoreItem) throws {
        var item = try self.item(id)
        guard item.hasTrash else { return }
        guard try isLater(request.placed, than: item.trash) else { return mention(id) }
        guard let old = DocumentID(bytes: item.parent) else { throw Self.noFolder }
        var folder = old
        // Where it was is gone, lies in the trash itself, or too deep by now: then where the person finds it.
        do { try checkFolder(folder) } catch let error as CloudError
            where error.code == .unknownItem || error.code == .limitExceeded && error.details["depth_max"] != nil
        { folder = containerClass.hasDocuments ? .documents : .top }
        item.name = Data(try take([UInt8](item.name), in: folder, for: id, request.clash))
        if folder != old {
            children[old, default: [:]][id] = false
            children[folder, default: [:]][id] = true
            item.parent = Data(folder.bytes)
        }
        item.placed = max(item.placed, item.trash.trashed)
        item.placed = try placed(request.placed, of: item)
        item.clearTrash()
        trashed.updateValue(nil, forKey: id)
        set(item, id)
        if item.kind == .folder, folder != old { try raise(folder, above: id) }
    }

    private func remove(_ id: DocumentID, _ request: WireRemoveItem) throws {
        guard let item = try find(id) else {
            guard try container.wasUsed(id) else { throw Self.unknown(id) }
            return
        }
        guard item.hasTrash else {
            throw CloudError(
                .constraintViolation, "Only what lies in the trash can be removed for good. Delete it first.",
                details: Self.details(id))
        }
        guard request.batch.isEmpty || request.batch == item.trash.batch else {
            throw CloudError(
                .constraintViolation,
                "It was brought back and deleted anew since. Remove it with what it was deleted with then.",
                details: Self.details(id))
        }
        if let folder = DocumentID(bytes: item.parent) { children[folder, default: [:]][id] = false }
        removed.append(id)
        trashed.updateValue(nil, forKey: id)
        if !item.announcements.isEmpty { announced.insert(id) }
        set(nil, id)
    }

    private func resolve(_ id: DocumentID, _ request: WireResolveConflicts) throws {
        var item = try self.item(id)
        let before = item.conflicts.count
        item.conflicts.removeAll { request.versions.contains($0.version) }
        if item.conflicts.count < before { set(item, id) }
    }
}

extension WireDocumentItem {
    /// Whether the current content, or one that lost, was made from this version.
    fileprivate func isMade(from version: Data) -> Bool {
        ([content] + conflicts).contains { $0.base == version }
    }
}
