internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// What follows when an item is removed for good: its versions and further contents go, and what lay in it, folder by
/// folder. And what has had its time is ended: what lay in the trash, what its container keeps for a while.
///
/// A damaged item goes like any other, and keeps nobody's waiting.
extension DocumentsService {
    /// Rows of one step: of items, versions or names.
    private static let step = 64
    /// When what is overdue in a container that cannot be read, or in which it cannot be ended, is looked at again: it
    /// keeps nobody else's waiting.
    private static let overduePause: Duration = .seconds(3600)

    /// - Returns: Whether there may be more.
    func removeSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let scope = try turn.next({ try ContainerRows.nextRemoval(after: $0, in: transaction) }) else {
            return false
        }
        let container = try container(scope, transaction)
        guard container.isReadable else { return turn.passesOver() }
        var work = 0
        for folder in try container.rows.removals(limit: Self.step) where work < Self.step {
            work += try removeSome(of: folder, in: container)
        }
        transaction.afterCommit { [transfers] in transfers.removeSoon() }
        return true
    }

    /// - Returns: How many rows that took.
    private func removeSome(of folder: DocumentID, in container: Container) throws -> Int {
        let rows = container.rows
        // One that lives is none: nothing of it is removed.
        if let item = try container.transaction.item(container.scope, folder.name), !item.deleted {
            try rows.endRemoval(of: folder)
            return 1
        }
        let versions = try rows.oldestVersions(of: folder, limit: Self.step)
        for version in versions {
            let content = try container.open(version, of: folder)
            try giveBack(
                content.map { UsedContent($0, rowBytes: version.counted) } ?? UsedContent(rowOf: version), in: container
            )
            try rows.removeVersion(version.id, of: folder)
        }
        // By their rows, so that they go with an item that is damaged too.
        let renditions = try rows.renditions(of: folder, limit: Self.step)
        for rendition in renditions {
            if let content = try container.open(rendition, of: folder) {
                try giveBack(UsedContent(content), in: container)
            }
            try rows.removeRendition(rendition.version, of: folder)
        }
        let children = try rows.children(of: folder, limit: Self.step)
        try remove(children, of: folder, in: container)
        let hasPlaces = try rows.removePlaces(of: folder, limit: Self.step)
        if versions.count < Self.step, renditions.count < Self.step, children.count < Self.step, !hasPlaces {
            try rows.setCount(0, of: folder)
            try rows.setHeight(0, of: folder)
            try rows.endRemoval(of: folder)
        }
        return 1 + versions.count + renditions.count + children.count
    }

    private func giveBack(_ content: UsedContent, in container: Container) throws {
        try contentUses(container, by: CountChanges.Maker(app: content.app, device: content.device))
            .giveBack([content])
    }

    /// What an item that is removed counts besides its contents is given back.
    private func giveBackItem(_ id: DocumentID, in container: Container) throws {
        guard let counted = try container.rows.counted(id) else { return }
        try container.rows.set(nil, for: id)
        try contentUses(container, by: counted.maker)
            .release(counted.bytes, app: counted.maker.app, device: counted.maker.device)
    }

    private func remove(_ children: [DocumentID], of folder: DocumentID, in container: Container) throws {
        var gone: [ChangedItem] = []
        // As their rows say, since one of them may be damaged.
        var places: [DocumentID: FolderDigests.Place] = [:]
        for id in children {
            try container.rows.removeChild(id, of: folder)
            try container.rows.setTrashed(id, nil)
            try container.rows.setAnnounced(id, until: nil)
            try container.rows.addRemoval(of: id)
            try giveBackItem(id, in: container)
            if let item = try container.transaction.item(container.scope, id.name), !item.deleted {
                places[id] = FolderDigests.Place(parent: folder, isFolder: try container.rows.tree(of: id) != nil)
                gone.append(ChangedItem(name: id.name, body: nil))
            }
        }
        try publish(gone, in: container, from: places)
    }

    /// What has had its time, in one container: what lay in the trash, what was said to be on its way, what is kept for a
    /// while.
    ///
    /// - Returns: Whether there may be more.
    func endSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let now = runtime?.purgeTime else { return false }
        if let failed = turn.takeFailed() {
            let rows = ContainerRows(failed, in: transaction)
            for overdue in OverdueRows.allCases {
                try overdue.putOff(rows, at: now, until: now.advanced(by: Self.overduePause))
            }
            return true
        }
        for overdue in OverdueRows.allCases {
            guard let (scope, items) = try overdue.first(at: now, limit: Self.step, in: transaction) else { continue }
            turn.scope = scope
            let container = try container(scope, transaction)
            // Nor can what names no item be ended.
            guard container.isReadable, !items.isEmpty else { return turn.passesOver() }
            switch overdue {
            case .trash, .items: try end(items, in: container)
            case .announcements: try endAnnouncements(of: items, at: now, in: container)
            }
            transaction.afterCommit { [weak self] in self?.removals.beginSoon() }
            return true
        }
        return false
    }

    /// Removes items for good, wherever they lie: some of them, where one has to be looked for in all of the container.
    func end(_ items: [DocumentID], in container: Container) throws {
        var gone: [ChangedItem] = []
        var places: [DocumentID: FolderDigests.Place] = [:]
        for id in items {
            let (place, wasSearched) = try end(id, in: container)
            if let place {
                places[id] = place
                gone.append(ChangedItem(name: id.name, body: nil))
            }
            if wasSearched { break }
        }
        try publish(gone, in: container, from: places)
    }

    /// Removes an item for good.
    ///
    /// - Returns: Where it lay (nil: it is removed already), and whether it had to be looked for in all of the container.
    private func end(
        _ id: DocumentID, in container: Container
    ) throws -> (place: FolderDigests.Place?, wasSearched: Bool) {
        let rows = container.rows
        try rows.setTrashed(id, nil)
        try rows.setAnnounced(id, until: nil)
        try giveBackItem(id, in: container)
        guard let stored = try container.transaction.item(container.scope, id.name), !stored.deleted else {
            return (nil, false)
        }
        try rows.addRemoval(of: id)
        if let item = try? container.item(id) {
            guard let folder = DocumentID(bytes: item.parent) else { return (FolderDigests.Place(item), false) }
            try rows.removeChild(id, of: folder)
            if !item.hasTrash {
                let nameKey = try container.key(of: [UInt8](item.name), by: container.rules().names)
                try rows.set(nil, in: folder, called: nameKey)
                try rows.setCount(max(0, rows.count(of: folder) - 1), of: folder)
            }
            return (FolderDigests.Place(item), false)
        }
        // A damaged one says nothing, and its rows do: of a folder they say at once where it lies.
        let tree = try rows.tree(of: id)
        let wasSearched = tree?.parent == nil
        let place = FolderDigests.Place(
            parent: try tree?.parent ?? rows.folder(ofDamaged: id), isFolder: tree != nil)
        if let folder = place.parent {
            try rows.removeChild(id, of: folder)
            if try rows.removePlace(ofDamaged: id, in: folder) {
                try rows.setCount(max(0, rows.count(of: folder) - 1), of: folder)
            }
        }
        return (place, wasSearched)
    }

    /// Stores what the service changes by itself, and tells devices.
    ///
    /// - Parameter places: Where some of the items lie, as far as that is known without reading them.
    func publish(
        _ items: [ChangedItem], in container: Container, from places: [DocumentID: FolderDigests.Place] = [:]
    ) throws {
        guard !items.isEmpty else { return }
        let gone = items.filter { $0.body == nil }.compactMap { DocumentID($0.name) }
        try EndedRows.add(gone, to: container.scope, in: container.transaction)
        let digestKey = gone.count < items.count ? try container.madeSetting().digestKey : []
        let bodies = Dictionary(items.map { ($0.name, $0.body) }) { $1 }
        let change = try container.put(items, digestKey: digestKey) { id in
            // Where a damaged one lay nobody knows.
            let former = places[id] ?? (try? container.item(id)).map { FolderDigests.Place($0) }
            let now = try (bodies[id.name] ?? nil).map {
                FolderDigests.Place(try WireDocumentItem(serializedBytes: $0))
            }
            return (former, now)
        }
        container.transaction.publish(OutgoingEvent(name, items, by: change, device: nil, nil))
    }
}
