internal import NephosBulk
internal import NephosBus
public import NephosCore
public import NephosServiceKit
public import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// What follows when an item is removed for good: its versions and further contents go, and what lay in it, folder by
/// folder. And what has had its time is ended: what lay in the trash, what its container keeps for a while.
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
        let contents = try removeContents(of: folder, in: container)
        let children = try rows.children(of: folder, limit: Self.step)
        try remove(children, of: folder, in: container)
        let hasPlaces = try rows.removePlaces(of: folder, limit: Self.step)
        if !contents.hasMore, children.count < Self.step, !hasPlaces {
            try rows.setCount(0, of: folder)
            try rows.setHeight(0, of: folder)
            try rows.endRemoval(of: folder)
        }
        return 1 + contents.rows + children.count
    }

    /// Removes some of an item's versions and further contents, and gives back what they used.
    ///
    /// - Returns: How many rows that took, and whether there may be more.
    private func removeContents(of id: DocumentID, in container: Container) throws -> (rows: Int, hasMore: Bool) {
        let rows = container.rows
        let versions = try rows.oldestVersions(of: id, limit: Self.step)
        for version in versions {
            let content = try container.open(version, of: id)
            try giveBack(
                content.map { UsedContent($0, rowBytes: version.counted) } ?? UsedContent(rowOf: version), in: container
            )
            try rows.removeVersion(version.id, of: id)
        }
        let renditions = try rows.renditions(of: id, limit: Self.step)
        for rendition in renditions {
            if let content = try container.open(rendition, of: id) {
                try giveBack(UsedContent(content), in: container)
            }
            try rows.removeRendition(rendition.version, of: id)
        }
        return (versions.count + renditions.count, max(versions.count, renditions.count) == Self.step)
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
        // As their rows say, and without opening them.
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
        guard let runtime else { return false }
        // An announced content is expected until a time of the wall clock.
        func now(for overdue: OverdueRows) -> Timestamp {
            overdue == .announcements ? runtime.purgeTimeOfWallStamps : runtime.purgeTime
        }
        if let failed = turn.takeFailed() {
            let rows = ContainerRows(failed, in: transaction)
            for overdue in OverdueRows.allCases {
                let now = now(for: overdue)
                try overdue.putOff(rows, at: now, until: now.advanced(by: Self.overduePause))
            }
            return true
        }
        for overdue in OverdueRows.allCases {
            let now = now(for: overdue)
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

    /// Removes items for good, wherever they lie.
    func end(_ items: [DocumentID], in container: Container) throws {
        var gone: [ChangedItem] = []
        var places: [DocumentID: FolderDigests.Place] = [:]
        for id in items {
            guard let place = try end(id, in: container) else { continue }
            places[id] = place
            gone.append(ChangedItem(name: id.name, body: nil))
        }
        try publish(gone, in: container, from: places)
    }

    /// Removes an item for good.
    ///
    /// - Returns: Where it lay; nil: it is removed already.
    private func end(_ id: DocumentID, in container: Container) throws -> FolderDigests.Place? {
        let rows = container.rows
        try rows.setTrashed(id, nil)
        try rows.setAnnounced(id, until: nil)
        try giveBackItem(id, in: container)
        let isThere = try container.transaction.share(container.scope, id.name)?.isLive ?? false
        // A folder's items end with it, also if its own row does not open.
        if isThere { try rows.addRemoval(of: id) }
        guard let item = try container.item(id) else { return nil }
        guard let folder = DocumentID(bytes: item.parent) else { return FolderDigests.Place(item) }
        try rows.removeChild(id, of: folder)
        if !item.hasTrash {
            let nameKey = try container.key(of: [UInt8](item.name), by: container.rules().names)
            try rows.set(nil, in: folder, called: nameKey)
            try rows.setCount(max(0, rows.count(of: folder) - 1), of: folder)
        }
        return FolderDigests.Place(item)
    }

    // MARK: Quarantine

    public func quarantine(_ item: FeedItem, of scope: ScopeName, in transaction: any HandlerTransaction) throws {
        try quarantine(item, in: container(scope, transaction))
    }

    /// Takes an item out that does not open, as the rows beside it say where it lies. Its versions and further contents stay
    /// for a while; and what lies in a folder stays there, until a device has made the folder again.
    func quarantine(_ item: FeedItem, in container: Container) throws {
        try container.transaction.lasting {
            if !item.deleted, let id = DocumentID(item.name) {
                let rows = container.rows
                let tree = try rows.tree(of: id)
                let folder = try tree?.parent ?? rows.folder(of: id)
                if let folder {
                    try rows.removeChild(id, of: folder)
                    if try rows.removePlace(of: id, in: folder) {
                        try rows.setCount(max(0, rows.count(of: folder) - 1), of: folder)
                    }
                }
                var folders = FolderDigests(rows)
                let place = FolderDigests.Place(parent: folder, isFolder: tree != nil)
                try folders.change(id, from: (place, item.digest), to: nil)
                try folders.save()
                try rows.setTrashed(id, nil)
                try rows.setAnnounced(id, until: nil)
                try giveBackItem(id, in: container)
            }
            try container.transaction.quarantine(item, of: container.scope)
        }
    }

    public func removeRemains(
        ofItem name: ItemName, in scope: ScopeName, _ transaction: any HandlerTransaction
    ) throws -> Bool {
        let container = try container(scope, transaction)
        guard let id = DocumentID(name), container.isReadable else { return false }
        transaction.afterCommit { [transfers] in transfers.removeSoon() }
        return try removeContents(of: id, in: container).hasMore
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
            let former = places[id] ?? (try? container.item(id)).map { FolderDigests.Place($0) }
            let now = try (bodies[id.name] ?? nil).map {
                FolderDigests.Place(try WireDocumentItem(serializedBytes: $0))
            }
            return (former, now)
        }
        container.transaction.publish(OutgoingEvent(name, items, by: change, device: nil, nil))
    }
}
