import Foundation
import NephosCore
import NephosWire

/// An item as this device has it: as the server told it, or as what waits makes of it.
struct HeldDocument {
    var id: DocumentID
    var wire: WireDocumentItem
    /// Whether changes of it wait.
    var isPending = false

    var parent: DocumentID? { DocumentID(bytes: wire.parent) }
    var isFolder: Bool { wire.kind == .folder }
    /// In its own right; a folder that it is in may lie there too.
    var isTrashed: Bool { wire.hasTrash }
}

/// What one change makes of an item. What the server does about clashes and conflicts is not guessed: it is seen once
/// it has answered.
enum DocumentChanges {
    /// - Parameter item: Nil: there is none.
    /// - Returns: Nil: there is none any more.
    static func apply(_ change: WireDocumentChange, to item: WireDocumentItem?) -> WireDocumentItem? {
        guard let kind = change.kind else { return item }
        if case .create(let create) = kind { return item ?? self.item(create) }
        // It was removed by somebody else meanwhile.
        guard var item else { return nil }
        switch kind {
        case .create: break
        case .replace(let replace): if !replace.isBeside { item.content = replace.content }
        case .place(let place):
            item.parent = place.parent
            item.name = place.name
            item.placeVersion = place.placeVersion
        case .attributes(let set): item.attributes.merge(set)
        case .trash(let trash):
            guard !item.hasTrash else { break }
            item.trash = trash.note
            item.trash.batch = trash.batch
            item.trash.movedTo = trash.movedTo
        case .restore: item.clearTrash()
        case .remove(let remove):
            // The service refuses it for what was brought back meanwhile.
            guard remove.batch.isEmpty || item.hasTrash && item.trash.batch == remove.batch else { break }
            return nil
        case .resolve(let resolve): item.conflicts.removeAll { resolve.versions.contains($0.version) }
        case .rendition(let set): item.set(set)
        // The versions of an item are the server's to keep.
        case .announce, .coming, .versions: break
        }
        return item
    }

    private static func item(_ create: WireCreateItem) -> WireDocumentItem {
        var item = WireDocumentItem()
        item.kind = create.kind
        item.parent = create.parent
        item.name = create.name
        item.placeVersion = create.placeVersion
        if create.hasContent { item.content = create.content }
        if create.hasAttributes { item.attributes = create.attributes }
        if create.hasMade { item.made = create.made }
        return item
    }

    // MARK: Offering again

    /// What makes the item again as it was, where the server has lost it.
    static func creation(of item: WireDocumentItem, named id: DocumentID) -> [WireDocumentChange] {
        var create = WireCreateItem()
        create.kind = item.kind
        create.parent = item.parent
        create.name = item.name
        create.placeVersion = item.placeVersion
        if item.hasContent { create.content = offered(item.content) }
        if item.hasAttributes { create.attributes = item.attributes }
        if item.hasMade { create.made = item.made }
        (create.placed, create.attributed) = (item.placed, item.attributed)
        create.clash = .rename
        (create.conflicts, create.renditions) = (item.conflicts.map(\.version), item.renditions)
        var changes = [WireDocumentChange(offered: id, .create(create))]
        changes += conflicts(of: item, lackedBy: nil, of: id)
        changes += item.renditions.map { WireDocumentChange(offered: id, .rendition(offered($0))) }
        if item.hasTrash { changes.append(WireDocumentChange(offered: id, .trash(trash(item.trash)))) }
        return changes
    }

    /// What brings the server from an older state of the item to this one.
    ///
    /// - Parameter isLater: Whether nobody has changed the older state but on the way to this one: then its content is
    ///   followed by this one's, though the versions between them are lost, and the two are no conflict.
    static func difference(
        to item: WireDocumentItem, from older: WireDocumentItem, of id: DocumentID, isLater: Bool = false
    ) -> [WireDocumentChange] {
        var changes: [WireDocumentChange] = []
        if item.hasContent, item.content.version != older.content.version,
            !older.conflicts.contains(where: { $0.version == item.content.version })
        {
            var replace = WireReplaceContent()
            replace.content = offered(item.content)
            // What it was in conflict with already stays in conflict.
            if isLater, !item.conflicts.contains(where: { $0.version == older.content.version }) {
                replace.takePlace(of: older.content.version)
            }
            changes.append(WireDocumentChange(offered: id, .replace(replace)))
        }
        for rendition in item.renditions
        where !older.renditions.contains(where: { $0.content.version == rendition.content.version }) {
            changes.append(WireDocumentChange(offered: id, .rendition(offered(rendition))))
        }
        changes += conflicts(of: item, lackedBy: older, of: id)
        // Which of two came later the service knows, also if somebody is quicker.
        if item.attributes != older.attributes {
            var set = WireSetAttributes(making: item.attributes, of: older.attributes)
            set.attributed = item.attributed
            changes.append(WireDocumentChange(offered: id, .attributes(set)))
        }
        if item.placeVersion != older.placeVersion {
            var place = WirePlaceItem()
            place.parent = item.parent
            place.name = item.name
            place.placeVersion = item.placeVersion
            place.placed = item.placed
            place.clash = .rename
            changes.append(WireDocumentChange(offered: id, .place(place)))
        }
        if item.hasTrash, !older.hasTrash {
            changes.append(WireDocumentChange(offered: id, .trash(trash(item.trash))))
        } else if !item.hasTrash, older.hasTrash {
            var restore = WireRestoreItem.renaming
            restore.placed = item.placed
            changes.append(WireDocumentChange(offered: id, .restore(restore)))
        }
        return changes
    }

    /// Contents that lost and that nobody has resolved.
    ///
    /// - Parameter older: What the server has; nil: what the item's creation makes.
    private static func conflicts(
        of item: WireDocumentItem, lackedBy older: WireDocumentItem?, of id: DocumentID
    ) -> [WireDocumentChange] {
        let there = older.map { [$0.content] + $0.conflicts } ?? [item.content]
        let lacked = item.conflicts.filter { conflict in
            !there.contains { $0.version == conflict.version || $0.hasBytes(of: conflict) }
        }
        return lacked.map { conflict in
            var replace = WireReplaceContent()
            replace.content = offered(conflict)
            // It is to take nobody's place.
            if there.contains(where: { $0.version == conflict.base }) { replace.takeNobodysPlace() }
            return WireDocumentChange(offered: id, .replace(replace))
        }
    }

    private static func trash(_ note: WireTrashNote) -> WireTrashItem {
        var trash = WireTrashItem()
        trash.batch = note.batch
        trash.movedTo = note.movedTo
        if note.seal != 0 { trash.note = note }
        return trash
    }

    private static func offered(_ rendition: WireRendition) -> WireSetRendition {
        var set = WireSetRendition()
        set.name = rendition.name
        set.content = offered(rendition.content)
        set.ofVersion = rendition.ofVersion
        return set
    }

    /// With what the service has filled in where it knows its own words again, and else without.
    private static func offered(_ content: WireDocumentContent) -> WireDocumentContent {
        var content = content
        guard content.seal == 0 else { return content }
        content.deviceID = ""
        content.appID = ""
        content.committed = 0
        return content
    }
}

extension WireDocumentChange {
    init(_ id: DocumentID, _ kind: OneOf_Kind) {
        self.init()
        item = id.wire
        self.kind = kind
    }

    /// One that the service has lost.
    fileprivate init(offered id: DocumentID, _ kind: OneOf_Kind) {
        self.init(id, kind)
        offered = true
    }

    /// The folder that it puts something into; nil: none.
    var target: Data? {
        switch kind {
        case .create(let create): create.parent
        case .place(let place): place.parent
        default: nil
        }
    }

    /// Puts it into another folder. That is another place, with a version of its own: a history of the service that was
    /// lost, and comes back, may have taken the same change into the first.
    mutating func move(to folder: DocumentID, as placeVersion: DocumentID) {
        switch kind {
        case .create: (create.parent, create.placeVersion) = (folder.wire, placeVersion.wire)
        case .place: (place.parent, place.placeVersion) = (folder.wire, placeVersion.wire)
        default: break
        }
    }

    var restores: Bool { if case .restore = kind { true } else { false } }

    var creates: Bool { if case .create = kind { true } else { false } }
    var trashes: Bool { if case .trash = kind { true } else { false } }
    var places: Bool { if case .place = kind { true } else { false } }
    var createsFolder: Bool { if case .create(let create) = kind { create.kind == .folder } else { false } }

    /// Which further content it brings, or takes away; nil: none.
    var renditionName: Data? { if case .rendition(let set)? = kind { set.name } else { nil } }

    /// The content that it brings.
    var content: WireDocumentContent? {
        switch kind {
        case .create(let create): create.hasContent ? create.content : nil
        case .replace(let replace): replace.content
        case .rendition(let set): set.hasContent ? set.content : nil
        default: nil
        }
    }
}

extension WireDocumentItem {
    /// Puts a further content in place of the one of that name, or takes it away.
    fileprivate mutating func set(_ request: WireSetRendition) {
        renditions.removeAll { $0.name == request.name }
        guard request.hasContent else { return }
        var rendition = WireRendition()
        rendition.name = request.name
        rendition.content = request.content
        rendition.ofVersion = request.ofVersion
        let place = renditions.firstIndex { request.name.lexicographicallyPrecedes($0.name) }
        renditions.insert(rendition, at: place ?? renditions.endIndex)
    }
}

extension WireRestoreItem {
    static var renaming: WireRestoreItem {
        var restore = WireRestoreItem()
        restore.clash = .rename
        return restore
    }
}

extension WireReplaceContent {
    /// No version is called so: what is made from it takes nothing's place.
    static let nothing = Data(count: DocumentID.byteCount)

    /// Whether it becomes no content of the item, but a version or a conflict beside it.
    var isBeside: Bool { content.base == Self.nothing || over == Self.nothing }

    /// An offered content takes a version's place, whatever it was made from. A sealed one stays as it was.
    fileprivate mutating func takePlace(of version: Data) {
        if content.seal == 0 { content.base = version } else { over = version }
    }

    fileprivate mutating func takeNobodysPlace() {
        if content.seal == 0 { content.base = Data() } else { over = Self.nothing }
    }
}
