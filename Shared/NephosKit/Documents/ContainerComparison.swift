import Foundation
import GRDB
import NephosCore
import NephosWire

/// What differs between this device's copy of a container and the server's, as a walk down its folders finds it.
struct ContainerDifferences: Sendable {
    struct Item: Sendable {
        var kind: Verification.Difference.Kind
        /// Of a folder that is on one side alone, what lies in it there.
        var here = SetDigest.empty
        var there = SetDigest.empty
    }

    private(set) var items: [DocumentID: Item] = [:]
    /// Folders of which the items are yet to be compared.
    private(set) var folders: [DocumentID] = []
    /// What the server's digest has more than this device's by what was found: if it is all, nothing else differs.
    private(set) var sum = SetDigest.empty
    var hasMore: Bool { items.count >= Verification.differencesMax }

    init(from folder: DocumentID) { folders = [folder] }

    mutating func takeFolder() -> DocumentID? { folders.popLast() }

    /// Both sides have the item.
    mutating func compare(_ id: DocumentID, here: Share, there: Share) {
        if here.item != there.item {
            items[id] = Item(kind: .differs)
            sum.add(there.item)
            sum.remove(here.item)
        }
        if here.folder != there.folder { folders.append(id) }
    }

    /// One side has the item; where the other had it elsewhere, it was moved.
    mutating func note(_ id: DocumentID, here: Share? = nil, there: Share? = nil) {
        var item = items[id] ?? Item(kind: here == nil ? .missingHere : .missingOnServer)
        if items[id] != nil { item.kind = .differs }
        if let here {
            item.here = here.folder
            sum.remove(here.item)
            sum.remove(here.folder)
        }
        if let there {
            item.there = there.folder
            sum.add(there.item)
            sum.add(there.folder)
        }
        items[id] = item
        // It is on both sides after all: what lies in it is compared too.
        guard item.kind == .differs, item.here != item.there else { return }
        sum.add(item.here)
        sum.remove(item.there)
        folders.append(id)
    }

    /// An item's share in the container's digest, and of a folder its own digest.
    struct Share: Sendable {
        var item: SetDigest
        var folder = SetDigest.empty
    }
}

/// A page of a folder's items, as the server has them.
struct FolderPage: Sendable {
    var folder: DocumentID
    /// The items behind this one; nil: from the first.
    var after: DocumentID?
    /// Up to this one; nil: all of them.
    var last: DocumentID?
    /// In the order of their ids.
    var items: [(id: DocumentID, share: ContainerDifferences.Share)]

    init(_ reply: WireListItemDigestsReply, of folder: DocumentID, after: DocumentID?) {
        (self.folder, self.after) = (folder, after)
        items = reply.entries.compactMap { entry in
            DocumentID(bytes: entry.item).map { id in
                let (item, folder) = (SetDigest(bytes: entry.digest), SetDigest(bytes: entry.folderDigest))
                return (id, ContainerDifferences.Share(item: item ?? .empty, folder: folder ?? .empty))
            }
        }
        last = reply.more ? items.last?.id : nil
    }
}

/// The digests of a container's folders, made of the items as they are here. Goes through them one by one, in whichever
/// number there are; on any thread.
extension DocumentTransaction {
    /// The digest of all items that are here.
    func computedDigest(key: [UInt8]) throws -> SetDigest {
        var digest = SetDigest.empty
        let items = try allSynced()
        while let item = try items.next() { if let share = item.digest(key: key) { digest.add(share) } }
        return digest
    }

    /// A folder's digest.
    func folderDigest(of folder: DocumentID, key: [UInt8]) throws -> SetDigest {
        var digest = SetDigest.empty
        // What lies within itself is nowhere, and is not gone through twice.
        var (folders, seen) = ([folder], Set([folder]))
        while let next = folders.popLast() {
            if next == .top, seen.insert(.documents).inserted { folders.append(.documents) }
            try forEachChild(of: next) { item, isFolder in
                if let share = item.digest(key: key) { digest.add(share) }
                if isFolder, let id = DocumentID(item.name), seen.insert(id).inserted { folders.append(id) }
            }
        }
        return digest
    }

    /// The items in a folder as the server told them, those in the trash too, in the order of their ids.
    private func forEachChild(
        of folder: DocumentID, after: DocumentID? = nil, until last: DocumentID? = nil,
        _ body: (Synced, _ isFolder: Bool) throws -> Void
    ) throws {
        // A statement of its own: what is read meanwhile must not begin it anew.
        let statement = try rows.database.makeStatement(
            sql: "SELECT item, sequence, body, kind FROM documents INDEXED BY documents_by_place "
                + "WHERE account = ?1 AND container = ?2 AND parent = ?3 AND item > ?4 "
                + "AND (?5 IS NULL OR item <= ?5) AND body IS NOT NULL ORDER BY item")
        let children = try Row.fetchCursor(
            statement, arguments: arguments(folder.wire, after?.description ?? "", last?.description))
        while let row = try children.next() {
            let item = Self.synced(row)
            let kind = WireItemKind(rawValue: row[3]) ?? .unspecified
            try body(item, kind == .unspecified ? item.item?.kind == .folder : kind == .folder)
        }
    }

    /// Compares a page of a folder with what is here of it.
    func compare(_ page: FolderPage, key: [UInt8], _ found: inout ContainerDifferences) throws {
        var theirs = page.items[...]
        func share(_ item: Synced, _ id: DocumentID, isFolder: Bool) throws -> ContainerDifferences.Share {
            ContainerDifferences.Share(
                item: item.digest(key: key) ?? .empty, folder: isFolder ? try folderDigest(of: id, key: key) : .empty)
        }
        // It has no row, here or there.
        if let first = theirs.first, first.id == .documents {
            let here = ContainerDifferences.Share(item: .empty, folder: try folderDigest(of: .documents, key: key))
            found.compare(.documents, here: here, there: first.share)
            theirs = theirs.dropFirst()
        }
        try forEachChild(of: page.folder, after: page.after, until: page.last) { item, isFolder in
            guard !found.hasMore, let id = DocumentID(item.name) else { return }
            while let next = theirs.first, next.id < id {
                found.note(next.id, there: next.share)
                theirs = theirs.dropFirst()
            }
            let here = try share(item, id, isFolder: isFolder)
            guard let next = theirs.first, next.id == id else { return found.note(id, here: here) }
            theirs = theirs.dropFirst()
            found.compare(id, here: here, there: next.share)
        }
        for next in theirs where !found.hasMore { found.note(next.id, there: next.share) }
    }
}
